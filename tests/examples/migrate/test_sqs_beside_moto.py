"""The same requests of Amazon's client to mq and to moto's server have the same answers. Where moto
does what Amazon does not, the operation is not drawn, or `answer` says why.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from harness import sources
from harness.processes import processes
from harness.sqs import sqs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

Said = dict[str, Any]
NUMBERS = itertools.count()
KINDS = st.sampled_from(["standard", "fifo"])
BODIES = st.sampled_from(["a", "b", "ü\t<&>", "x" * 2000])
PLACES = st.integers(0, 5)
"""Which of the messages received so far."""
VALUES = st.sampled_from(
    [
        {"DataType": "String", "StringValue": "red"},
        {"DataType": "String.custom", "StringValue": " ü "},
        {"DataType": "Number", "StringValue": "3.5"},
        {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    ]
)
NAMES = st.sampled_from(["color", "my.size", "shape"])
# One that is wrong at a time: which of several is said first is no one's promise.
QUEUE_ATTRIBUTES = st.sampled_from(
    [
        {name: value}
        for name, values in {
            "VisibilityTimeout": ("40", "43200"),
            "DelaySeconds": ("0", "900"),
            "MaximumMessageSize": ("1024", "1048576"),
            "MessageRetentionPeriod": ("60", "1209600"),
            "ReceiveMessageWaitTimeSeconds": ("0",),
            "Policy": ("{}",),
            "KmsMasterKeyId": ("mine",),
        }.items()
        for value in values
    ]
)
MESSAGE = {
    "MessageBody": BODIES,
    "DelaySeconds": st.sampled_from([None, None, 0, 600]),
    "MessageAttributes": st.dictionaries(NAMES, VALUES, max_size=2),
    "MessageGroupId": st.sampled_from(["g", "h"]),
}
# moto takes characters that XML does not have, and empty texts; Amazon, and mq, do not.
BAD_MESSAGE = st.sampled_from(
    [
        {"DelaySeconds": 901},
        {"MessageAttributes": {"a b": {"DataType": "Nothing", "StringValue": "x"}}},
    ]
)


def of(operation: str, **said: Any) -> st.SearchStrategy[tuple[str, Said]]:
    return st.tuples(st.just(operation), st.fixed_dictionaries({"kind": KINDS, **said}))


OPERATIONS = st.one_of(
    of("send_message", **MESSAGE),
    of("send_message", **MESSAGE),
    of("send_message", bad=BAD_MESSAGE),
    of(
        "send_message_batch",
        Entries=st.lists(
            st.fixed_dictionaries({"Id": st.sampled_from("abcd"), **MESSAGE}),
            max_size=11,
            unique_by=lambda each: each["Id"],
        ),
    ),
    of(
        "receive_message",
        VisibilityTimeout=st.sampled_from([40, 60]),
        MaxNumberOfMessages=st.sampled_from([10, 10, 10, 0, 11]),
        MessageAttributeNames=st.sampled_from([["All"], ["color"], ["my.*"], []]),
        AttributeNames=st.sampled_from([[], ["ApproximateReceiveCount"]]),
    ),
    of("delete_message", place=PLACES),
    of("change_message_visibility", place=PLACES, VisibilityTimeout=st.sampled_from([0, 50])),
    of("get_queue_attributes", AttributeNames=st.just(["All"])),
    of("set_queue_attributes", Attributes=QUEUE_ATTRIBUTES),
    of("tag_queue", Tags=st.dictionaries(st.sampled_from("ab"), st.just("x"), min_size=1)),
    of("untag_queue", TagKeys=st.lists(st.sampled_from("ab"), min_size=1)),
    of("list_queue_tags"),
    of("get_queue_url"),
    of("purge_queue"),
    of("delete_queue"),
)


class Side:
    """One server: what it gave, under names that do not depend on it."""

    def __init__(self, client: Any, number: int) -> None:
        self._client = client
        self._names = {"standard": f"q{number}", "fifo": f"q{number}.fifo"}
        self._urls = {kind: self._client.create_queue(
            QueueName=name,
            Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"}
            if kind == "fifo" else {},
        )["QueueUrl"] for kind, name in self._names.items()}  # fmt: skip
        self._ids: dict[str, int] = {}
        self._received: dict[str, list[Said]] = {"standard": [], "fifo": []}

    def answer(self, operation: str, said: Said) -> Any:
        said = dict(said)
        kind = said.pop("kind")
        if operation == "get_queue_url":
            said["QueueName"] = self._names[kind]
        else:
            said["QueueUrl"] = self._urls[kind]
        if "place" in said:
            received = self._received[kind]
            place = said.pop("place")
            if place >= len(received):
                return "nothing was received"
            said["ReceiptHandle"] = received[place]["ReceiptHandle"]
        said = _of_kind(kind, said)
        try:
            found = getattr(self._client, operation)(**said)
        except ClientError as error:
            return error.response["Error"]["Code"]
        del found["ResponseMetadata"]
        if operation == "receive_message":
            self._received[kind] += sorted(found.get("Messages", ()), key=self._number)
        return self._plain(found)

    def _number(self, message: Said) -> int:
        return self._ids.setdefault(message["MessageId"], len(self._ids))

    def _plain(self, found: Any) -> Any:
        if isinstance(found, list):
            rows = [self._plain(each) for each in found]
            return sorted(rows, key=repr)
        if not isinstance(found, dict):
            return found
        plain = {}
        for name, value in found.items():
            if name == "MessageId":
                plain[name] = self._number(found)
            elif name == "QueueUrl":
                plain[name] = value.rpartition("/")[2]
            elif name == "QueueArn":
                plain[name] = value.rpartition(":")[2]
            elif name not in UNLIKE and value != [] and value != {}:
                plain[name] = self._plain(value)
        return plain


# Amazon leaves out what is empty; moto has it.
UNLIKE = {
    "ReceiptHandle",
    "SequenceNumber",  # Rises in both, from another beginning.
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "Message",  # An error's words.
    # Of a moment ago, as Amazon's may be.
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
}


def _of_kind(kind: str, said: Said) -> Said:
    """Without what is not said, and what that kind of queue has not."""
    if "bad" in said:
        said = {**said, "MessageBody": "x", "MessageGroupId": "g", **said["bad"]}
        del said["bad"]
    said = {name: value for name, value in said.items() if value is not None}
    if kind == "fifo":
        said.pop("DelaySeconds", None)
        if "MessageBody" in said:
            # moto answers a duplicate with an id of its own.
            said["MessageDeduplicationId"] = str(next(NUMBERS))
    else:
        said.pop("MessageGroupId", None)
    if "Entries" in said:
        said["Entries"] = [_of_kind(kind, each) for each in said["Entries"]]
    return said


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    folder = tmp_path_factory.mktemp("sides")
    with (
        processes() as daemons,
        sources.sqs(folder) as moto,
        sqs(daemons.mq(folder / "root", "--standalone").url) as ours,
        sqs(moto) as theirs,
    ):
        yield ours, theirs


@settings(max_examples=60, phases=[Phase.generate], derandomize=True, database=None)
@given(asked=st.lists(OPERATIONS, min_size=4, max_size=14))
def test_answers_are_those_of_moto(clients: tuple[Any, Any], asked: list[tuple[str, Said]]) -> None:
    number = next(NUMBERS)
    ours, theirs = (Side(client, number) for client in clients)
    for operation, said in asked:
        assert ours.answer(operation, said) == theirs.answer(operation, said), (operation, said)
        if operation == "delete_queue":
            break
