"""What a queue of SQS has goes to mq: each message once, with what it says, in FIFO's order."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from harness import sources
from harness.migrating import CrashingSource, Died, move
from harness.processes import Process, Processes

from mq import Client
from tests.examples.migrate import sqs
from tests.examples.migrate.moving import Mover


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with (
        sources.sqs(tmp_path_factory.mktemp("sqs")),
        contextlib.closing(boto3.client("sqs")) as client,
    ):
        yield client


@pytest.fixture
def mq(daemons: Processes, root: Path) -> Process:
    return daemons.mq(root, "--standalone")


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def test_each_message_keeps_what_it_says(client: Any, mq: Process) -> None:
    url = client.create_queue(QueueName="orders")["QueueUrl"]
    said = {
        "shop": text("nörth"),
        "lines": text("one\ntwo"),
        "table": {"DataType": "Number", "StringValue": "7"},
        "seal": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = client.send_message(QueueUrl=url, MessageBody="zwei Höfe", MessageAttributes=said)
    flags = ("--from", url, "--to", mq.url, "--queue", "orders")
    assert move("sqs", *flags) == (0, "1 moved, 0 refused, 0 left at the source", "")
    with Client(mq.url) as mq_client:
        (found,) = mq_client.queue("orders").peek()
        assert found.text() == "zwei Höfe"
        kept = {name.removeprefix("x-attribute-"): value for name, value in found.headers.items()}
        assert kept.pop("sqs-sent").isdigit()
        assert kept == {
            "content-type": "text/plain",
            "shop": "nörth",
            "lines-base64": "b25lCnR3bw==",
            "table": "7",
            "seal-base64": "AP8=",
        }
        # A publish with its id is known.
        repeated = mq_client.queue("orders").publish("x", idempotency_key=sent["MessageId"])
        assert repeated == found.id


def test_a_fifo_queue_s_order_is_kept(client: Any, mq: Process) -> None:
    url = client.create_queue(
        QueueName="orders.fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    )["QueueUrl"]
    for number in range(30):
        client.send_message(
            QueueUrl=url, MessageBody=f"{number}", MessageGroupId=f"table-{number % 3}"
        )
    flags = ("--from", url, "--to", mq.url, "--queue", "orders")
    assert move("sqs", *flags) == (0, "30 moved, 0 refused, 0 left at the source", "")
    with Client(mq.url) as mq_client:
        for table in range(3):
            found = mq_client.queue("orders").fetch_many(
                30, select=f"header:x-attribute-sqs-group=table-{table}"
            )
            assert [each.text() for each in found] == [f"{n}" for n in range(table, 30, 3)]


def test_what_was_stored_and_not_deleted_is_moved_once(client: Any, mq: Process) -> None:
    url = client.create_queue(QueueName="dies")["QueueUrl"]
    bodies = [f"message {number}" for number in range(12)]
    for body in bodies:
        client.send_message(QueueUrl=url, MessageBody=body)
    with Client(mq.url) as mq_client:
        with sqs.source(url) as source:
            crashing = CrashingSource(source, settles=2)
            mover = Mover(crashing, mq_client, "orders", at_once=3)
            with pytest.raises(Died):
                mover.run(idle_s=60)
        assert len(mq_client.queue("orders").peek()) == 9
        # What it had in hand would be visible again in five minutes.
        for each in crashing.taken:
            with contextlib.suppress(client.exceptions.ClientError):
                client.change_message_visibility(
                    QueueUrl=url, ReceiptHandle=each.handle, VisibilityTimeout=0
                )
        flags = ("--from", url, "--to", mq.url, "--queue", "orders")
        assert move("sqs", *flags) == (0, "6 moved, 0 refused, 0 left at the source", "")
        found = [each.text() for each in mq_client.queue("orders").browse(["ready"])]
    assert sorted(found) == sorted(bodies)


def test_what_others_have_is_left_and_told(client: Any, mq: Process) -> None:
    url = client.create_queue(QueueName="held")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="held")
    (held,) = client.receive_message(QueueUrl=url, VisibilityTimeout=3600)["Messages"]
    flags = ("--from", url, "--to", mq.url, "--queue", "orders")
    assert move("sqs", *flags) == (1, "0 moved, 0 refused, 1 left at the source", "")
    client.delete_message(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])
    assert move("sqs", *flags)[0] == 0


def test_what_mq_refuses_is_told_and_left(client: Any, mq: Process) -> None:
    url = client.create_queue(QueueName="refused")["QueueUrl"]
    said = {"large": text("x" * 9000)}
    sent = client.send_message(QueueUrl=url, MessageBody="no", MessageAttributes=said)
    client.send_message(QueueUrl=url, MessageBody="yes")
    flags = ("--from", url, "--to", mq.url, "--queue", "orders")
    ended, last, wrong = move("sqs", *flags)
    assert (ended, last) == (1, "1 moved, 1 refused, 1 left at the source")
    assert wrong.startswith(f"refused {sent['MessageId']}: ")
    with Client(mq.url) as mq_client:
        assert [each.text() for each in mq_client.queue("orders").peek()] == ["yes"]
