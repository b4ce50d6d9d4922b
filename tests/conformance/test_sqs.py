"""SQS's protocol as its clients speak it, without one: each operation in JSON, and some in the
older Query form. `sqs/test_serving.py` has Amazon's own client.
"""

import asyncio
import base64
import hashlib
import io
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from harness.access import Tokens
from harness.api import call, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.folders import message_files
from harness.server import Serve, Server
from harness.upkeep import move_due

from mq.sqs import attempts
from mq.sqs.message_attributes import digest, size_of
from mq.sqs.shapes import OPERATIONS

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ACCOUNT = "000000000000"
NO_NUMBER = {"DataType": "Number", "StringValue": "x"}
COLOR = {"color": {"DataType": "String", "StringValue": "red"}}
LARGE = {
    "text": {"DataType": "String.custom", "StringValue": ' a\n"ü\u2028' * 1000},
    "number": {"DataType": "Number", "StringValue": "-1.5"},
    "picture": {"DataType": "Binary", "BinaryValue": base64.b64encode(b"\xff" * 9000).decode()},
}
"""Attributes that headers cannot hold, as requests have them."""
OF_LARGE = {
    name: value | ({"BinaryValue": b"\xff" * 9000} if name == "picture" else {})
    for name, value in LARGE.items()
}
MIB = 1 << 20


async def ask(server: Server, operation: str, **said: Any) -> tuple[int, dict[str, Any]]:
    headers = {
        "X-Amz-Target": f"AmazonSQS.{operation}",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/eu-west-1/sqs/aws4_request, x",
    }
    async with server.request(
        "POST", "/", data=io.BytesIO(json.dumps(said).encode()), headers=headers
    ) as answer:
        return answer.status, json.loads(await answer.read())


async def done(server: Server, operation: str, **said: Any) -> dict[str, Any]:
    status, found = await ask(server, operation, **said)
    assert status == 200, found
    return found


async def refused(server: Server, operation: str, **said: Any) -> tuple[str, str]:
    """The kind and the message of an error."""
    status, found = await ask(server, operation, **said)
    assert 400 <= status < 500, found
    return found["__type"].partition("#")[2], found["message"]


async def made(server: Server, name: str = "orders", **attributes: str) -> str:
    more = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    said = {"QueueName": name, "Attributes": {**more, **attributes}}
    return str((await done(server, "CreateQueue", **said))["QueueUrl"])


async def sent(server: Server, url: str, body: str = "x", **more: Any) -> dict[str, Any]:
    return await done(server, "SendMessage", QueueUrl=url, MessageBody=body, **more)


async def received(server: Server, url: str, **more: Any) -> list[dict[str, Any]]:
    found = await done(server, "ReceiveMessage", QueueUrl=url, **more)
    return list(found.get("Messages", ()))


async def attributes_of(server: Server, url: str, *names: str) -> dict[str, str]:
    said = {"QueueUrl": url, "AttributeNames": names or ("All",)}
    return dict((await done(server, "GetQueueAttributes", **said)).get("Attributes", {}))


async def test_messages_of_a_pack_are_received_singly(server: Server) -> None:
    url = await made(server)
    said = {"pack_messages_max": 100}
    assert (await call(server, "PATCH", "/orders/settings", json=said)).status == 200
    reply = await call(server, "POST", "/orders/messages?split=lines&pack=true", data=b"1\n2\n3\n4")
    assert reply.status == 200
    (one,) = await received(server, url)
    more = await received(server, url, MaxNumberOfMessages=10)
    assert [each["Body"] for each in (one, *more)] == ["1", "2", "3", "4"]
    for each in (one, *more):
        await done(server, "DeleteMessage", QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    assert not any(message_files(server.root)[each] for each in ("queues", "delay"))


async def test_a_message_goes_from_send_to_delete(server: Server) -> None:
    url = await made(server)
    assert url.endswith(f"/{ACCOUNT}/orders")
    one = await sent(server, url, "one", MessageAttributes=COLOR)
    assert one["MD5OfMessageBody"] == hashlib.md5(b"one").hexdigest()
    assert one["MD5OfMessageAttributes"] == digest(COLOR)
    (found,) = await received(
        server, url, MessageAttributeNames=["col.*"], MessageSystemAttributeNames=["All"]
    )
    assert found["MessageId"] == one["MessageId"]
    assert found["MessageAttributes"] == COLOR
    assert found["Attributes"]["ApproximateReceiveCount"] == "1"
    handle = {"QueueUrl": "orders", "ReceiptHandle": found["ReceiptHandle"]}
    await done(server, "ChangeMessageVisibility", **handle, VisibilityTimeout=0)
    (found,) = await received(server, url, VisibilityTimeout=0, MaxNumberOfMessages=2)
    assert "MessageAttributes" not in found
    (found,) = await received(server, url)
    for _ in range(2):
        await done(server, "DeleteMessage", **handle)
    assert await received(server, url) == []
    kind, _ = await refused(server, "ChangeMessageVisibility", **handle, VisibilityTimeout=5)
    assert kind == "InvalidParameterValueException"
    await done(server, "DeleteQueue", QueueUrl=url)
    assert (await refused(server, "GetQueueUrl", QueueName="orders"))[0] == "QueueDoesNotExist"


async def test_a_batch_fails_entry_by_entry(server: Server) -> None:
    url = await made(server)
    said: list[dict[str, Any]] = [
        {"Id": "good", "MessageBody": "a"},
        {"Id": "late", "MessageBody": "b", "DelaySeconds": 901},
        {"Id": "none", "MessageBody": "", "MessageAttributes": COLOR},
        {"Id": "bell", "MessageBody": "\x07"},
        {"Id": "typed", "MessageBody": "c", "MessageAttributes": {"n": NO_NUMBER}},
    ]  # fmt: skip
    found = await done(server, "SendMessageBatch", QueueUrl=url, Entries=said)
    assert [each["Id"] for each in found["Successful"]] == ["good"]
    assert {each["Id"]: each["Code"] for each in found["Failed"]} == {
        "late": "InvalidParameterValue",
        "none": "MissingParameter",
        "bell": "InvalidMessageContents",
        "typed": "InvalidParameterValue",
    }
    (message,) = await received(server, url)
    handles = [
        {"Id": "1", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 60},
        {"Id": "2", "ReceiptHandle": "nonsense", "VisibilityTimeout": 60},
        {"Id": "3", "ReceiptHandle": message["ReceiptHandle"]},
    ]
    found = await done(server, "ChangeMessageVisibilityBatch", QueueUrl=url, Entries=handles)
    assert [each["Id"] for each in found["Successful"]] == ["1"]
    assert [each["Id"] for each in found["Failed"]] == ["2", "3"]
    found = await done(server, "DeleteMessageBatch", QueueUrl=url, Entries=handles[:2])
    assert [each["Id"] for each in found["Successful"]] == ["1"]
    entry = {"Id": "1", "MessageBody": "x"}
    for entries, kind in (
        ([], "EmptyBatchRequest"),
        ([entry | {"Id": str(n)} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([entry, entry], "BatchEntryIdsNotDistinct"),
        ([entry | {"Id": "a b"}], "InvalidBatchEntryId"),
        ([entry | {"Id": str(n), "MessageBody": "x" * (600 << 10)} for n in range(2)],
         "BatchRequestTooLong"),
    ):  # fmt: skip
        said_so = {"QueueUrl": url, "Entries": entries}
        assert (await refused(server, "SendMessageBatch", **said_so))[0] == kind


CHANGES = ("none", "deleted", "visibility", "lapsed", "old", "standard", "zero")


@pytest.mark.parametrize("change", CHANGES)
async def test_an_attempt_that_is_repeated_has_the_same_messages_until_one_changes(
    serve: Serve, change: str
) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    url = await made(server, "orders" if change == "standard" else "jobs.fifo")
    for group in ("a", "b", "c"):
        more = {} if change == "standard" else {"MessageDeduplicationId": group}
        await sent(server, url, group, MessageGroupId=group, **more)
    asked: dict[str, Any] = {"MaxNumberOfMessages": 2, "ReceiveRequestAttemptId": "lost"}
    asked["VisibilityTimeout"] = 0 if change == "zero" else 600 if change == "old" else 30
    first = await received(server, url, **asked)
    assert [each["Body"] for each in first] == ["a", "b"]
    if change in ("none", "old"):
        # Each repeat begins the visibility timeout again, and another attempt has other messages.
        for _ in range(2):
            clock.advance(20)
            assert await received(server, url, **asked) == first
        other = await received(server, url, **{**asked, "ReceiveRequestAttemptId": "other"})
        assert [each["Body"] for each in other] == ["c"]
        if change == "none":
            for each in first:
                handle = each["ReceiptHandle"]
                await done(server, "DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
        else:
            clock.advance(300)
        assert await received(server, url, **asked) == []
        return
    handle = {"QueueUrl": url, "ReceiptHandle": first[0]["ReceiptHandle"]}
    if change == "deleted":
        await done(server, "DeleteMessage", **handle)
    elif change == "visibility":
        await done(server, "ChangeMessageVisibility", **handle, VisibilityTimeout=99)
    elif change == "lapsed":
        clock.advance(31)
    again = await received(server, url, **asked)
    bodies = {"deleted": ["c"], "visibility": ["c"], "standard": ["c"]}.get(change)
    if bodies is not None:
        assert [each["Body"] for each in again] == bodies
    else:
        assert not {each["ReceiptHandle"] for each in first} & {
            each["ReceiptHandle"] for each in again
        }


async def test_an_attempt_id_must_be_a_word(server: Server) -> None:
    url = await made(server, "jobs.fifo")
    _, why = await refused(server, "ReceiveMessage", QueueUrl=url, ReceiveRequestAttemptId=" ")
    assert why.startswith("Value   for parameter ReceiveRequestAttemptId is invalid.")


async def test_the_oldest_attempts_are_forgotten(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "ATTEMPTS_MAX", 1)
    url = await made(server, "jobs.fifo")
    found = []
    for group in ("a", "b"):
        await sent(server, url, group, MessageGroupId=group, MessageDeduplicationId=group)
        found += [await received(server, url, ReceiveRequestAttemptId=group)]
    assert await received(server, url, ReceiveRequestAttemptId="b") == found[1]
    assert await received(server, url, ReceiveRequestAttemptId="a") == []


async def test_messages_of_a_group_come_in_order_and_once(server: Server) -> None:
    url = await made(server, "jobs.fifo", DeduplicationScope="messageGroup")
    group = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    one = await sent(server, url, "one", **group)
    assert (await sent(server, url, "again", **group))["MessageId"] == one["MessageId"]
    other = await sent(server, url, "other", MessageGroupId="h", MessageDeduplicationId="1")
    assert other["SequenceNumber"] > one["SequenceNumber"]
    await sent(server, url, "two", MessageGroupId="g", MessageDeduplicationId="2")
    asked = {"MaxNumberOfMessages": 10, "AttributeNames": ["All"]}
    found = await received(server, url, **asked)
    assert [each["Body"] for each in found] == ["one", "other"]
    assert found[0]["Attributes"]["MessageGroupId"] == "g"
    assert found[0]["Attributes"]["MessageDeduplicationId"] == "1"
    handle = {"QueueUrl": url, "ReceiptHandle": found[0]["ReceiptHandle"]}
    await done(server, "ChangeMessageVisibility", **handle, VisibilityTimeout=0)
    (again,) = await received(server, url)
    for operation in ("DeleteMessage", "ChangeMessageVisibility"):
        _, why = await refused(server, operation, **handle, VisibilityTimeout=5)
        assert why.endswith("The receipt handle has expired.")
    await done(server, "DeleteMessage", QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    (two,) = await received(server, url)
    assert two["Body"] == "two"
    for more in (
        {},
        {"MessageGroupId": "g"},
        {**group, "DelaySeconds": 1},
        {"MessageGroupId": " "},
    ):
        await refused(server, "SendMessage", QueueUrl=url, MessageBody="x", **more)
    fair = await made(server, "fair")
    await sent(server, fair, MessageGroupId="g")
    (message,) = await received(server, fair, AttributeNames=["MessageGroupId"])
    assert message["Attributes"] == {"MessageGroupId": "g"}
    await refused(server, "SendMessage", QueueUrl=fair, MessageBody="x", **group)


@pytest.mark.certificate
async def test_a_purge_forgets_what_came_once(serve: Serve, clock: FakeClock) -> None:
    server = await serve(clock=clock)
    url = await made(server, "jobs.fifo")
    said = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    first = await sent(server, url, **said)
    clock.advance(1)
    await done(server, "PurgeQueue", QueueUrl=url)
    clock.advance(1)
    again = await sent(server, url, **said)
    assert again["MessageId"] != first["MessageId"]
    assert await sent(server, url, **said) == again
    (found,) = await received(server, url)
    assert found["MessageId"] == again["MessageId"]


@pytest.mark.certificate
async def test_dead_letters_and_the_way_back(serve: Serve, clock: FakeClock) -> None:
    server = await serve(clock=clock)
    dead = await made(server, "dead")
    arn = (await attributes_of(server, dead, "QueueArn"))["QueueArn"]
    assert arn == f"arn:aws:sqs:eu-west-1:{ACCOUNT}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    url = await made(server, RedrivePolicy=policy)
    shown = await attributes_of(server, url, "RedrivePolicy")
    assert json.loads(shown["RedrivePolicy"])["maxReceiveCount"] == 1
    found = await done(server, "ListDeadLetterSourceQueues", QueueUrl=dead, MaxResults=1)
    assert found == {"queueUrls": [url]}
    await sent(server, url, "poison", MessageAttributes=LARGE)
    assert await received(server, url)
    asked: dict[str, Any] = {"WaitTimeSeconds": 20, "VisibilityTimeout": 60}
    asked["MessageAttributeNames"] = ["All"]
    waiting = asyncio.create_task(received(server, dead, **asked))
    clock.advance(31)
    move_due(server.root, clock)
    (message,) = await waiting
    assert (message["Body"], message["MessageAttributes"]) == ("poison", LARGE)
    assert (await attributes_of(server, dead))["ApproximateNumberOfMessagesNotVisible"] == "1"
    handle = {"QueueUrl": dead, "ReceiptHandle": message["ReceiptHandle"]}
    await done(server, "ChangeMessageVisibility", **handle, VisibilityTimeout=0)
    task = await done(
        server, "StartMessageMoveTask", SourceArn=arn, DestinationArn=arn[:-4] + "orders"
    )
    async with asyncio.timeout(10):
        while True:
            listed = await done(server, "ListMessageMoveTasks", SourceArn=arn)
            if listed["Results"][0]["Status"] == "COMPLETED":
                break
    assert listed["Results"][0]["ApproximateNumberOfMessagesMoved"] == 1
    kind, _ = await refused(server, "CancelMessageMoveTask", **task)
    assert kind == "ResourceNotFoundException"
    (message,) = await received(server, url, **asked)
    assert (message["Body"], message["MessageAttributes"]) == ("poison", LARGE)
    for bad in (
        {"SourceArn": "nonsense"},
        {"SourceArn": arn + "x"},
        {"SourceArn": arn[:-4] + "orders"},
        {"SourceArn": arn, "DestinationArn": arn},
        {"SourceArn": arn, "DestinationArn": arn + "x"},
        {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 501},
    ):
        await refused(server, "StartMessageMoveTask", **bad)
    await refused(server, "CancelMessageMoveTask", TaskHandle="nonsense")
    for bad_policy in ('"x"', "{", '{"maxReceiveCount": 1}', policy.replace("dead", "gone"),
                       policy.replace('"1"', "0"), policy.replace(arn, "x")):  # fmt: skip
        said = {"QueueUrl": url, "Attributes": {"RedrivePolicy": bad_policy}}
        await refused(server, "SetQueueAttributes", **said)
    await refused(server, "CreateQueue", QueueName="q.fifo",
                  Attributes={"FifoQueue": "true", "RedrivePolicy": policy})  # fmt: skip
    await done(server, "SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in await attributes_of(server, url)
    await done(server, "PurgeQueue", QueueUrl=dead)
    await done(server, "DeleteQueue", QueueUrl=dead)
    names = [each["name"] for each in json.loads(await text(server, "/-/queues"))["queues"]]
    assert names == ["orders"]


async def dead_letters(server: Server, count: int, *names: str) -> str:
    """The ARN of a dead-letter queue of these queues."""
    dead = await made(server, "dead")
    arn = (await attributes_of(server, dead, "QueueArn"))["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count})
    for name in names:
        await made(server, name, RedrivePolicy=policy)
    return arn


async def tasks_of(server: Server, arn: str, most: int = 10) -> list[dict[str, Any]]:
    """The move tasks, once none is running."""
    async with asyncio.timeout(10):
        while True:
            found = await done(server, "ListMessageMoveTasks", SourceArn=arn, MaxResults=most)
            rows = list(found["Results"])
            if all(each["Status"] != "RUNNING" for each in rows):
                return rows
            await asyncio.sleep(0.01)


@pytest.mark.certificate
async def test_a_redrive_counts_receives_anew(serve: Serve, clock: FakeClock) -> None:
    server = await serve(clock=clock)
    count = 21  # More than a shovel of mq returns.
    arn = await dead_letters(server, count, "orders")
    await sent(server, "orders", "poison")
    asked = {"AttributeNames": ["ApproximateReceiveCount"]}

    async def receive_all(name: str) -> list[str]:
        counts = []
        for number in range(count):
            (message,) = await received(server, name, **asked)
            counts.append(message["Attributes"]["ApproximateReceiveCount"])
            if number < count - 1:
                handle = {"QueueUrl": name, "ReceiptHandle": message["ReceiptHandle"]}
                await done(server, "ChangeMessageVisibility", **handle, VisibilityTimeout=0)
        clock.advance(31)
        move_due(server.root, clock)
        assert await received(server, name) == []
        return counts

    numbers = [f"{number}" for number in range(1, count + 1)]
    assert await receive_all("orders") == numbers
    (message,) = await received(server, "dead", **asked)
    assert message["Attributes"]["ApproximateReceiveCount"] == f"{count + 1}"
    clock.advance(31)
    move_due(server.root, clock)
    await done(server, "StartMessageMoveTask", SourceArn=arn)
    (task,) = await tasks_of(server, arn)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
    assert await receive_all("orders") == numbers


@pytest.mark.certificate
async def test_a_move_task_to_another_queue_takes_all(serve: Serve, clock: FakeClock) -> None:
    server = await serve(clock=clock)
    arn = await dead_letters(server, 1, "orders-1", "orders-2")
    urls = [await made(server, name) for name in ("other", "-" + "c" * 70)]
    into = [(await attributes_of(server, url, "QueueArn"))["QueueArn"] for url in urls]
    for name in ("orders-1", "orders-2"):
        await sent(server, name, name, MessageAttributes=LARGE)
        assert await received(server, name)
    clock.advance(31)
    move_due(server.root, clock)
    for target, url in zip(into, urls, strict=True):
        said = {"SourceArn": arn, "DestinationArn": target, "MaxNumberOfMessagesPerSecond": 500}
        task = await done(server, "StartMessageMoveTask", **said)
        found = await tasks_of(server, arn)
        assert (found[0]["Status"], found[0]["DestinationArn"]) == ("COMPLETED", target)
        assert found[0]["MaxNumberOfMessagesPerSecond"] == 500
        assert found[0]["ApproximateNumberOfMessagesMoved"] == (2 if url == urls[0] else 0)
        assert "TaskHandle" not in found[0]
        kind, _ = await refused(server, "CancelMessageMoveTask", **task)
        assert kind == "ResourceNotFoundException"
    asked: dict[str, Any] = {"MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10}
    messages = await received(server, "other", AttributeNames=["All"], **asked)
    assert sorted(each["Body"] for each in messages) == ["orders-1", "orders-2"]
    for each in messages:
        assert each["MessageAttributes"] == LARGE
        assert each["Attributes"]["ApproximateReceiveCount"] == "1"
        handle = each["ReceiptHandle"]
        await done(server, "DeleteMessage", QueueUrl="other", ReceiptHandle=handle)
    for name in ("orders-1", "orders-2", "other", "dead"):
        assert await received(server, name) == []
    fifo = arn[:-4] + "jobs.fifo"
    await made(server, "jobs.fifo")
    for target, why in ((arn, "are the same"), (fifo, "the same type")):
        _, said_why = await refused(
            server, "StartMessageMoveTask", SourceArn=arn, DestinationArn=target
        )
        assert why in said_why
    assert_audits_clean(server.root, clock)


@pytest.mark.certificate
async def test_the_last_ten_move_tasks_are_listed(serve: Serve) -> None:
    server = await serve()
    arn = await dead_letters(server, 1, "orders-1", "orders-2")
    for number in range(12):
        more = {"DestinationArn": arn[:-4] + "orders-2"} if number % 2 else {}
        await done(server, "StartMessageMoveTask", SourceArn=arn, **more)
        found = await tasks_of(server, arn)
        assert len(found) == min(number + 1, 10)
    assert [("DestinationArn" in each) for each in found] == [True, False] * 5
    began = [each["StartedTimestamp"] for each in found]
    assert began == sorted(began, reverse=True)
    assert (await tasks_of(server, arn, 1)) == found[:1]


@pytest.mark.certificate
async def test_a_move_task_is_cancelled(serve: Serve, clock: FakeClock) -> None:
    server = await serve(clock=clock)
    arn = await dead_letters(server, 1, "orders")
    await made(server, "other")
    for body in ("a", "b", "c"):
        await sent(server, "orders", body)
    assert len(await received(server, "orders", MaxNumberOfMessages=3)) == 3
    clock.advance(31)
    move_due(server.root, clock)
    said = {"SourceArn": arn, "DestinationArn": arn[:-4] + "other"}
    # The clock stands still, so that the rate allows one.
    task = await done(server, "StartMessageMoveTask", **said, MaxNumberOfMessagesPerSecond=1)
    async with asyncio.timeout(10):
        while True:
            (row,) = (await done(server, "ListMessageMoveTasks", SourceArn=arn))["Results"]
            if row["ApproximateNumberOfMessagesMoved"]:
                break
            await asyncio.sleep(0.01)
    assert (row["Status"], "TaskHandle" in row) == ("RUNNING", True)
    _, why = await refused(server, "StartMessageMoveTask", SourceArn=arn)
    assert "already a task" in why
    found = await done(server, "CancelMessageMoveTask", TaskHandle=row["TaskHandle"])
    assert found == {"ApproximateNumberOfMessagesMoved": 1}
    (row,) = await tasks_of(server, arn)
    assert (row["Status"], row["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", 1)
    assert (await refused(server, "CancelMessageMoveTask", **task))[
        0
    ] == "ResourceNotFoundException"
    assert len(await received(server, "dead", MaxNumberOfMessages=3)) == 2
    assert len(await received(server, "other", MaxNumberOfMessages=3)) == 1


async def text(server: Server, path: str) -> str:
    async with server.request("GET", path) as answer:
        return str(await answer.text())


async def test_a_queue_shows_what_was_set(server: Server) -> None:
    wanted = {
        "VisibilityTimeout": "0", "DelaySeconds": "7", "MessageRetentionPeriod": "60",
        "MaximumMessageSize": "1024", "ReceiveMessageWaitTimeSeconds": "1", "Policy": "{}",
        "KmsMasterKeyId": "mine", "KmsDataKeyReusePeriodSeconds": "60",
    }  # fmt: skip
    url = await made(server, **wanted)
    assert await made(server, **wanted) == url
    shown = await attributes_of(server, url)
    assert shown.items() >= wanted.items()
    assert json.loads(await text(server, "/orders/settings"))["message_ttl_s"] == 60
    body = {"QueueUrl": url, "MessageBody": "x" * 1025}
    assert "shorter than 1024" in (await refused(server, "SendMessage", **body))[1]
    await done(server, "SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "0"})
    assert (await attributes_of(server, url, "DelaySeconds")) == {"DelaySeconds": "0"}
    await sent(server, url)
    for _ in range(2):  # It stays visible.
        assert len(await received(server, url)) == 1
    fifo = await attributes_of(server, await made(server, "a.fifo"))
    assert (fifo["FifoQueue"], fifo["DeduplicationScope"]) == ("true", "queue")
    for name, value, kind in (
        ("Nothing", "1", "InvalidAttributeName"),
        ("VisibilityTimeout", "x", "InvalidAttributeValue"),
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("FifoQueue", "false", "InvalidAttributeName"),
        ("FifoQueue", "true", "InvalidAttributeValue"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("DeduplicationScope", "queue", "InvalidAttributeName"),
        ("Policy", "{", "InvalidAttributeValue"),
        ("SqsManagedSseEnabled", "maybe", "InvalidAttributeValue"),
    ):
        said = {"QueueUrl": url, "Attributes": {name: value}}
        assert (await refused(server, "SetQueueAttributes", **said))[0] == kind, name
    said = {"QueueUrl": url, "AttributeNames": ["Nothing"]}
    assert (await refused(server, "GetQueueAttributes", **said))[0] == "InvalidAttributeName"
    assert await done(server, "GetQueueAttributes", QueueUrl=url) == {}
    for name, more in (("a b", {}), ("b.fifo", {}), ("b", {"FifoQueue": "true"})):
        await refused(server, "CreateQueue", QueueName=name, Attributes=more)


@pytest.mark.certificate
async def test_a_body_is_as_long_as_its_queue_allows(server: Server) -> None:
    url = await made(server)
    settings = {"body_bytes_max": 10}
    assert (await call(server, "PATCH", "/orders/settings", json=settings)).status == 200
    assert (await attributes_of(server, url))["MaximumMessageSize"] == "10"
    await done(server, "SendMessage", QueueUrl=url, MessageBody="x" * 10)
    body = {"QueueUrl": url, "MessageBody": "x" * 11}
    assert "shorter than 10 bytes" in (await refused(server, "SendMessage", **body))[1]


async def test_tags_permissions_lists_and_purges(server: Server) -> None:
    urls = [await made(server, name) for name in ("a", "b", "-" + "c" * 70, "d")]
    url = urls[0]
    await done(server, "TagQueue", QueueUrl=url, Tags={"team": "shop", "old": "1"})
    await done(server, "UntagQueue", QueueUrl=url, TagKeys=["old"])
    assert (await done(server, "ListQueueTags", QueueUrl=url)) == {"Tags": {"team": "shop"}}
    await refused(server, "TagQueue", QueueUrl=url, Tags={})
    await refused(server, "UntagQueue", QueueUrl=url, TagKeys=[])
    await refused(server, "TagQueue", QueueUrl=url, Tags={str(n): "x" for n in range(51)})
    label = {"QueueUrl": url, "Label": "l"}
    said = {**label, "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    await done(server, "AddPermission", **said)
    await refused(server, "AddPermission", **said)
    for more in ({"Actions": ["Fly"]}, {"Actions": ["RemovePermission"]}, {"Actions": []},
                 {"AWSAccountIds": []}, {"Actions": ["SendMessage"] * 8}):  # fmt: skip
        await refused(server, "AddPermission", **(said | more | {"Label": "m"}))
    policy = json.loads((await attributes_of(server, url, "Policy"))["Policy"])
    assert policy["Statement"][0]["Action"] == "SQS:SendMessage"
    await done(server, "RemovePermission", **label)
    await refused(server, "RemovePermission", **label)
    assert sorted((await done(server, "ListQueues"))["QueueUrls"]) == sorted(urls)
    first = await done(server, "ListQueues", MaxResults=3)
    rest = await done(server, "ListQueues", MaxResults=3, NextToken=first["NextToken"])
    assert sorted(first["QueueUrls"] + rest["QueueUrls"]) == sorted(urls)
    assert await done(server, "ListQueues", QueueNamePrefix="z") == {}
    await refused(server, "ListQueues", MaxResults=0)
    await refused(server, "ListQueues", MaxResults=1, NextToken="?")
    await sent(server, url)
    await done(server, "PurgeQueue", QueueUrl=url)
    assert await received(server, url) == []
    assert (await refused(server, "PurgeQueue", QueueUrl=url))[0] == "PurgeQueueInProgress"


async def test_the_other_face_of_a_queue(server: Server) -> None:
    url = await made(server)
    typed = {
        "plain": {"DataType": "String", "StringValue": "red"},
        "lines": {"DataType": "String.custom", "StringValue": " a\nü "},
        "picture": {"DataType": "Binary", "BinaryValue": base64.b64encode(b"\x00").decode()},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    await sent(server, url, MessageAttributes=typed, MessageSystemAttributes=trace)
    message = await fetch(server, "orders")
    assert message.headers["X-Attribute-plain"] == "red"
    assert message.headers["Content-Type"] == "text/plain"
    async with server.request("DELETE", f"/orders/messages/{message.id}"):
        pass
    await sent(server, url, MessageAttributes=typed, MessageSystemAttributes=trace)
    (found,) = await received(
        server, url, MessageAttributeNames=["All"], AttributeNames=["AWSTraceHeader"]
    )
    assert found["MessageAttributes"] == typed
    assert found["Attributes"] == {"AWSTraceHeader": "Root=1"}
    await publish(server, b"\xff", queue="orders")
    await publish(server, b"x" * (1 << 20) + b"y", queue="orders")
    await publish(server, b"a" * (1 << 20), queue="orders", headers={"X-Attribute-A": "b"})
    bodies = await received(server, url, MaxNumberOfMessages=3, MessageAttributeNames=["A"])
    binary, large, whole = sorted(bodies, key=lambda each: len(each["Body"]))
    assert binary["Body"] == "/w=="
    assert json.loads(large["Body"])["size"] == (1 << 20) + 1
    assert whole["MessageAttributes"]["A"]["StringValue"] == "b"
    for attributes in (
        {"a b": typed["plain"]},
        {"aws.x": typed["plain"]},
        {"x" * 257: typed["plain"]},
        {"a": {"DataType": "", "StringValue": "x"}},
        {"a": {"DataType": "Text", "StringValue": "x"}},
        {"a": {"DataType": "String." + "x" * 260, "StringValue": "x"}},
        {"a": {"DataType": "String", "StringValue": ""}},
        {"a": {"DataType": "String", "StringListValues": ["x"]}},
        {"a": {"DataType": "String.\ud800", "StringValue": "x"}},
        {str(n): typed["plain"] for n in range(11)},
    ):
        said = {"QueueUrl": url, "MessageBody": "x", "MessageAttributes": attributes}
        kind, _ = await refused(server, "SendMessage", **said)
        kinds = ("InvalidParameterValueException", "InvalidMessageContents", "UnsupportedOperation")
        assert kind in kinds
        entry = {"Id": "1", "MessageBody": "x", "MessageAttributes": attributes}
        (failed,) = (await done(server, "SendMessageBatch", QueueUrl=url, Entries=[entry]))[
            "Failed"
        ]
        assert failed["SenderFault"]
    long = {"DataType": "String", "StringValue": "x" * 9000}
    for system in (
        {"Other": trace["AWSTraceHeader"]},
        {"AWSTraceHeader": typed["picture"]},
        {"AWSTraceHeader": long},
    ):
        said = {"QueueUrl": url, "MessageBody": "x", "MessageSystemAttributes": system}
        await refused(server, "SendMessage", **said)


async def test_attributes_may_fill_a_message(server: Server) -> None:
    wanted = {"ContentBasedDeduplication": "true"}
    urls = [await made(server), await made(server, "jobs.fifo", **wanted)]
    for url, group in zip(urls, ({}, {"MessageGroupId": "g"}), strict=True):
        body = "é" * ((MIB - size_of(OF_LARGE)) // 2)
        one = await sent(server, url, body, MessageAttributes=LARGE, **group)
        assert one["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
        assert one["MD5OfMessageAttributes"] == digest(OF_LARGE)
        said = {"QueueUrl": url, "MessageBody": body + "é", "MessageAttributes": LARGE, **group}
        _, why = await refused(server, "SendMessage", **said)
        assert why.endswith(f"Message must be shorter than {MIB} bytes.")
        if group:  # The attributes do not count as content.
            again = await sent(server, url, body, MessageAttributes=COLOR, **group)
            assert again["MessageId"] == one["MessageId"]
        (found,) = await received(
            server, url, MessageAttributeNames=["nu.*", "pic*", "number", "text"]
        )
        names = ("number", "text")
        assert found["Body"] == body
        assert found["MD5OfBody"] == one["MD5OfMessageBody"]
        assert found["MessageAttributes"] == {name: LARGE[name] for name in names}
        assert found["MD5OfMessageAttributes"] == digest({name: OF_LARGE[name] for name in names})
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    more: dict[str, Any] = {"MessageAttributes": LARGE, "MessageSystemAttributes": trace}
    entries = [{"Id": "1", "MessageBody": "a", **more}, {"Id": "2", "MessageBody": "b"}]
    await done(server, "SendMessageBatch", QueueUrl=urls[0], Entries=entries)
    (found,) = await received(server, urls[0], AttributeNames=["AWSTraceHeader"])
    assert (found["Body"], found["Attributes"]) == ("a", {"AWSTraceHeader": "Root=1"})
    assert "MessageAttributes" not in found
    await done(
        server, "ChangeMessageVisibility", QueueUrl=urls[0],
        ReceiptHandle=found["ReceiptHandle"], VisibilityTimeout=0,
    )  # fmt: skip
    message = await fetch(server, "orders")
    assert message.headers["Content-Type"] == "application/json"
    assert message.headers["X-Attribute-.whole"] == "1"
    assert json.loads(message.body) == {"body": "a", "attributes": LARGE}


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"[",
        b"[]",
        b'{"body": 1, "attributes": {}}',
        b'{"body": "\\u0007", "attributes": {}}',
        b'{"body": "x"}',
        b'{"body": "x", "attributes": {"a": "b"}}',
        b'{"body": "x", "attributes": {"a": {"DataType": "Binary", "BinaryValue": "?"}}}',
        b'{"body": "x", "attributes": {"a b": {"DataType": "String", "StringValue": "b"}}}',
        b'{"body": "%s", "attributes": {}}' % (b"x" * (MIB + 1)),
        b"x" * (MIB + 1),
        b"x" * (5 * MIB),
    ],
    ids=range(12),
)
async def test_a_body_that_is_marked_by_an_http_client_comes_as_it_is(
    server: Server, body: bytes
) -> None:
    url = await made(server)
    marked = {"X-Attribute-.whole": "1", "X-Attribute-a": "b"}
    await publish(server, body, queue="orders", headers=marked)
    (found,) = await received(server, url, MessageAttributeNames=["All"])
    if len(body) > MIB:
        assert json.loads(found["Body"])["size"] == len(body)
    elif found["Body"].encode() != body:
        assert base64.b64decode(found["Body"]) == body
    assert found["MessageAttributes"]["a"]["StringValue"] == "b"


@pytest.mark.parametrize(
    "said",
    [
        {"MaxNumberOfMessages": 0},
        {"MaxNumberOfMessages": 11},
        {"WaitTimeSeconds": 21},
        {"VisibilityTimeout": 43201},
        {"WaitTimeSeconds": "soon"},
        {"WaitTimeSeconds": True},
        {"AttributeNames": "All"},
    ],
)
async def test_a_bad_receive_takes_nothing(server: Server, said: dict[str, Any]) -> None:
    url = await made(server)
    await sent(server, url)
    await refused(server, "ReceiveMessage", QueueUrl=url, **said)
    assert len(await received(server, url)) == 1


async def query(server: Server, path: str, method: str = "POST", **said: str) -> tuple[int, str]:
    content = urlencode(said)
    if method == "GET":
        more: dict[str, Any] = {}
        path += f"?{content}"
    else:
        more = {"data": content, "headers": FORM}
    async with server.request(method, path, **more) as answer:
        return answer.status, await answer.text()


async def test_the_query_form(server: Server) -> None:
    status, found = await query(server, "/", Action="CreateQueue", QueueName="orders")
    assert (status, f"/{ACCOUNT}/orders</QueueUrl>" in found) == (200, True)
    path = f"/{ACCOUNT}/orders"
    said = {
        "Action": "SendMessage", "MessageBody": "<hi>", "MessageAttribute.1.Name": "color",
        "MessageAttribute.1.Value.DataType": "String",
        "MessageAttribute.1.Value.StringValue": "red",
    }  # fmt: skip
    status, _ = await query(server, path + "/", **said)
    assert status == 200
    for action in ("ReceiveMessage", "DeleteQueue", "PurgeQueue"):
        status, found = await query(server, path, "GET", Action=action)
        assert (status, "<Code>InvalidAction</Code>" in found) == (400, True)
    status, found = await query(
        server, path, "GET", Action="GetQueueAttributes", **{"AttributeName.1": "DelaySeconds"}
    )
    assert (status, "<Value>0</Value>" in found) == (200, True)
    status, found = await query(
        server, path, Action="ReceiveMessage", **{"MessageAttributeName.1": "All"}
    )
    assert (status, "<Body>&lt;hi&gt;</Body>" in found) == (200, True)
    assert "<StringValue>red</StringValue>" in found
    for wrong, code in (
        ({"Action": "Nothing"}, "InvalidAction"),
        ({}, "InvalidAction"),
        ({"Action": "SendMessage"}, "MissingParameter"),
        (
            {"Action": "ReceiveMessage", "QueueUrl": "gone"},
            "AWS.SimpleQueueService.NonExistentQueue",
        ),
        ({"Action": "ReceiveMessage", "WaitTimeSeconds": "x"}, "MalformedInput"),
    ):
        status, found = await query(server, path, **wrong)
        assert (status, f"<Code>{code}</Code>" in found) == (400, True), found
    many = {f"Tag.{n}.Key": "x" for n in range(3000)}
    assert (await query(server, path, Action="TagQueue", **many))[0] == 400


@pytest.mark.parametrize(
    "types", ['{"a": 5}', '{"a": []}', '{"a": ["Binary"]}', '{"a": ["String", "json"]}', "[", "7"]
)
async def test_types_that_an_http_client_wrote_make_no_attribute_unreadable(
    server: Server, types: str
) -> None:
    url = await made(server)
    headers = {"X-Attribute-a": "a text", "X-Attribute-.types": types, "X-Attribute-.system": types}
    await publish(server, b"x", queue="orders", headers=headers)
    (found,) = await received(server, url, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert found["MessageAttributes"]["a"] == {"DataType": "String", "StringValue": "a text"}


async def test_a_deep_name_makes_no_deep_tree(server: Server) -> None:
    deep = ".".join("a" * 100_000)
    status, found = await query(
        server, "/", Action="CreateQueue", QueueName="orders", **{deep: "1"}
    )
    assert (status, "<QueueUrl>" in found) == (200, True)


async def test_errors_of_mq_are_said_in_words(server: Server) -> None:
    url = await made(server)
    tags = {f"{n}": "x" * 1000 for n in range(50)}
    kind, why = await refused(server, "TagQueue", QueueUrl=url, Tags=tags)
    assert (kind, "labels" in why, why[0]) == ("InvalidParameterValueException", True, "T")


async def test_a_dead_letter_queue_without_its_sideline_gives_its_own_messages(
    server: Server,
) -> None:
    dead = await made(server, "dead")
    arn = (await attributes_of(server, dead, "QueueArn"))["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    await made(server, RedrivePolicy=policy)
    async with server.request("DELETE", "/dead_SIDELINE") as answer:
        assert answer.status == 200
    waiting = asyncio.create_task(received(server, dead, WaitTimeSeconds=20))
    await sent(server, dead, "own")
    assert [each["Body"] for each in await waiting] == ["own"]


async def test_what_is_no_request_of_sqs(server: Server) -> None:
    await make_queue(server, "orders")
    for path, headers, status in (
        ("/", {"X-Amz-Target": "AmazonSQS.ListQueues", "Origin": "http://evil.example"}, 403),
        (f"/{ACCOUNT}/orders", {"Content-Type": "text/plain"}, 404),
        ("/orders/messages", FORM, 201),
        ("/", {}, 405),
    ):
        async with server.request(
            "POST", path, data=b"Action=DeleteQueue", headers=headers
        ) as answer:
            assert answer.status == status, path


async def test_with_tokens_a_bearer_has_the_rights_of_its_token(
    serve: Serve, tmp_path: Any
) -> None:
    tokens = Tokens(tmp_path / "tokens")
    tokens.add("jobs", "orders:admin")
    server = await serve(tokens=tokens.path)
    target = {"X-Amz-Target": "AmazonSQS.CreateQueue"}
    for headers, name, status in (
        ({"Authorization": "AWS4-HMAC-SHA256 Credential=jobs/x"}, "orders", 400),
        (tokens.header("jobs"), "orders", 200),
        (tokens.header("jobs"), "others", 403),
    ):
        body = json.dumps({"QueueName": name})
        async with server.request("POST", "/", data=body, headers=target | headers) as answer:
            assert answer.status == status
            assert (status == 200) == (await answer.json(content_type=None)).__contains__(
                "QueueUrl"
            )


async def test_each_operation_is_tried_here(server: Server) -> None:
    """An empty request of each: required fields are named, and nothing fails inside."""
    for operation, (taken, _) in OPERATIONS.items():
        status, found = await ask(server, operation)
        if taken.required:
            assert (status, found["message"].startswith("The request must contain")) == (400, True)
        else:
            assert status == 200
