"""The limits of SQS, as MIGRATE.md lists them: what is at one is taken, and no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conformance.test_sqs import MIB, done, made, refused
from harness.server import Server

import mq
from mq.model.limits import IDEMPOTENCY_S_DEFAULT
from mq.model.shovel import SHOVEL_RUNS_MAX
from mq.sqs import attempts, moves, queue_attributes, queues, signing

PAGE = Path(mq.__file__).parents[1] / "deploy" / "MIGRATE.md"
SAME = "the same"


def attribute(value: str = "x", kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


def entries(count: int, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"Entries": [{"Id": str(n) if name is None else name, **more} for n in range(count)]}


class Limit(NamedTuple):
    """A row of the page whose limit a request meets. `said`: the request by its size. `least` and
    `most`: sizes that are taken; one less or more is not.
    """

    operation: str
    said: Callable[[int], dict[str, Any]]
    most: int
    least: int | None = None


def sends(**more: Callable[[int], Any]) -> Callable[[int], dict[str, Any]]:
    return lambda size: {"MessageBody": "x", **{name: of(size) for name, of in more.items()}}


def sets(name: str) -> Callable[[int], dict[str, Any]]:
    return lambda size: {"Attributes": {name: str(size)}}


ONE = {"MessageBody": "x"}
LIMITS = {
    "a queue's name, with `.fifo` | 80 characters": Limit(
        "CreateQueue", lambda size: {"QueueName": "n" * size}, 80, 1
    ),
    "a message with its attributes | 1 MiB": Limit(
        "SendMessage",
        lambda size: {
            "MessageBody": "x" * (size - 8),
            "MessageAttributes": {"a": attribute(kind="String")},
        },
        MIB,
    ),
    "a batch | 1 MiB": Limit(
        "SendMessageBatch", lambda size: entries(2, MessageBody="x" * (size // 2)), MIB
    ),
    "a batch | 10 entries": Limit("SendMessageBatch", lambda size: entries(size, **ONE), 10, 1),
    "an entry's id | 80 characters": Limit(
        "SendMessageBatch", lambda size: entries(1, "i" * size, **ONE), 80, 1
    ),
    "a message | 10 attributes": Limit(
        "SendMessage",
        sends(MessageAttributes=lambda size: {f"a{n}": attribute() for n in range(size)}),
        10,
    ),
    "an attribute's name | 256 characters": Limit(
        "SendMessage", sends(MessageAttributes=lambda size: {"n" * size: attribute()}), 256, 1
    ),
    "an attribute's type | 256 characters": Limit(
        "SendMessage",
        sends(MessageAttributes=lambda size: {"a": attribute(kind=f"String.{'t' * (size - 7)}")}),
        256,
    ),
    "`MessageGroupId` | 128 characters": Limit(
        "SendMessage", sends(MessageGroupId=lambda size: "g" * size), 128, 1
    ),
    "`DelaySeconds` | 0 to 900": Limit("SendMessage", sends(DelaySeconds=int), 900, 0),
    "`MaxNumberOfMessages` | 1 to 10": Limit(
        "ReceiveMessage", lambda size: {"MaxNumberOfMessages": size}, 10, 1
    ),
    "`VisibilityTimeout` | 0 to 43,200": Limit(
        "ReceiveMessage", lambda size: {"VisibilityTimeout": size}, 43_200, 0
    ),
    "`MaximumMessageSize` | 1024 to 1,048,576": Limit(
        "SetQueueAttributes", sets("MaximumMessageSize"), MIB, 1024
    ),
    "`MessageRetentionPeriod` | 60 to 1,209,600": Limit(
        "SetQueueAttributes", sets("MessageRetentionPeriod"), 1_209_600, 60
    ),
    "`ReceiveMessageWaitTimeSeconds` | 0 to 20": Limit(
        "SetQueueAttributes", sets("ReceiveMessageWaitTimeSeconds"), 20, 0
    ),
    "a queue | 50 tags": Limit(
        "TagQueue", lambda size: {"Tags": {str(n): "x" for n in range(size)}}, 50, 1
    ),
    "a permission | 7 actions": Limit(
        "AddPermission",
        lambda size: {
            "Label": str(size), "AWSAccountIds": ["111111111111"],
            "Actions": ["SendMessage"] * size,
        },
        7,
        1,
    ),
    "a page of a list | 1000 queues": Limit(
        "ListQueues", lambda size: {"MaxResults": size}, 1000, 1
    ),
}  # fmt: skip
"""By their rows in the page, where mq's limit is Amazon's."""


OTHERS = [
    f"`maxReceiveCount` | 1 to 1000 | 1 to 1000; above {queue_attributes.RECEIVES_MAX} as "
    f"{queue_attributes.RECEIVES_MAX}",
    "a repeat of a receive by `ReceiveRequestAttemptId` | 5 minutes | "
    f"{attempts.KEPT_S / 60:.0f} minutes; a process keeps {attempts.ATTEMPTS_MAX} attempts",
    f"deduplication of a FIFO queue | 5 minutes | {IDEMPOTENCY_S_DEFAULT / 60:.0f} minutes, or "
    "`idempotency_s`",
    "messages in flight | 120,000 | without a limit",
    "messages in a queue | without a limit | the same, or `messages_max`",
    f"`PurgeQueue` of a queue | once in {queues.PURGE_EVERY_S} s | {SAME}",
    f"move tasks of a dead-letter queue | one, {moves.RATE_MAX} messages a second at most | {SAME}",
    f"move tasks in all | 100, for 36 hours each | {SHOVEL_RUNS_MAX} shovels a process, "
    "without a limit of time",
    f"a signature's time | {signing.SKEW_S_MAX // 60} minutes off | {SAME}",
    f"a presigned URL | {signing.URL_S_MAX // 86_400} days | {SAME}",
    "requests a second | 300 of a FIFO operation, 3000 with batches | as the disk allows",
]
"""Rows of the page that no request shows."""


def test_the_page_has_these_limits() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| limit | Amazon | mq |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [f"{row} | {SAME}" for row in LIMITS] + OTHERS
    assert sorted(each[2:-2] for each in table.splitlines()) == sorted(rows)


@pytest.mark.parametrize("name", LIMITS)
async def test_a_limit_is_taken_and_no_more(server: Server, name: str) -> None:
    operation, said, most, least = LIMITS[name]
    url = {} if operation in ("CreateQueue", "ListQueues") else {"QueueUrl": await made(server)}
    for size in {most, most if least is None else least}:
        answer = await done(server, operation, **url, **said(size))
        assert "Failed" not in answer
    for size in (most + 2, *([] if least is None else [least - 1])):
        await refused(server, operation, **url, **said(size))
