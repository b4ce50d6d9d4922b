"""What a queue of RabbitMQ has goes to mq: each message once, with what it says, in order."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from harness import sources
from harness.migrating import CrashingSource, Died, begin, move, move_all
from harness.processes import Process, Processes, eventually
from pika.adapters.blocking_connection import BlockingChannel

from mq import Client
from tests.examples.migrate import rabbitmq
from tests.examples.migrate.moving import Mover


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with sources.rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as url:
        yield url


@pytest.fixture
def channel(server: str) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(server))
    with contextlib.closing(connection):
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def mq(daemons: Processes, root: Path) -> Process:
    return daemons.mq(root, "--standalone")


def fill(channel: BlockingChannel, queue: str, bodies: list[str], kind: str = "classic") -> None:
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    for number, body in enumerate(bodies):
        channel.basic_publish("", queue, body.encode(), named(f"{queue} {number}"))


def named(message_id: str) -> pika.BasicProperties:
    return pika.BasicProperties(message_id=message_id, delivery_mode=2)


def test_each_message_keeps_what_it_says(
    server: str, channel: BlockingChannel, mq: Process
) -> None:
    channel.queue_declare("said", durable=True, arguments={"x-max-priority": 20})
    channel.exchange_declare("shops", "topic")
    channel.queue_bind("said", "shops", "shop.#")
    channel.basic_publish("shops", "shop.north", b"plain")
    said = pika.BasicProperties(
        content_type="application/json",
        content_encoding="identity",
        headers={"table": 7, "shop": "nörth", "sizes": [1, 2], "a b": True},
        priority=12,
        correlation_id="c-1",
        timestamp=1_700_000_000,
    )
    channel.basic_publish("shops", "shop.south", b'{"n": 1}', said)
    flags = ("--from", server, "--source", "said", "--to", mq.url, "--queue", "orders")
    assert move("rabbitmq", *flags) == (0, "2 moved, 0 refused, 0 left at the source", "")
    with Client(mq.url) as client:
        first, second = client.queue("orders").peek()
    assert (first.body, first.priority, first.content_type) == (b'{"n": 1}', 9, "application/json")
    assert {name.removeprefix("x-attribute-"): value for name, value in first.headers.items()} == {
        "content-type": "application/json",
        "content-encoding": "identity",
        "table": "7",
        "shop": "nörth",
        "sizes": "[1, 2]",
        "a%20b": "true",
        "amqp-correlation_id": "c-1",
        "amqp-timestamp": "1700000000",
        "amqp-exchange": "shops",
        "amqp-routing-key": "shop.south",
    }
    assert (second.body, second.priority) == (b"plain", 0)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_program_that_is_killed_loses_and_doubles_nothing(
    server: str, channel: BlockingChannel, mq: Process, kind: str
) -> None:
    bodies = [f"message {number}" for number in range(150)]
    fill(channel, kind, bodies, kind)
    flags = ("--from", server, "--source", kind, "--to", mq.url, "--queue", "orders")
    with begin("rabbitmq", *flags) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "moved 100\n"
        popen.kill()
    found: list[str] = []

    def is_all_there() -> bool:
        """RabbitMQ gives back after a moment what a killed program had, and does not count it."""
        move_all("rabbitmq", *flags)
        with Client(mq.url) as client:
            found[:] = [each.text() for each in client.queue("orders").browse(["ready"])]
        return len(found) >= len(bodies)

    eventually(is_all_there, "all messages in mq", patience_s=90)
    assert sorted(found) == sorted(bodies)


def test_what_was_stored_and_not_acknowledged_is_moved_once(
    server: str, channel: BlockingChannel, mq: Process
) -> None:
    bodies = [f"message {number}" for number in range(20)]
    fill(channel, "dies", bodies)
    # One id for two that are different: both are moved.
    channel.basic_publish("", "dies", b"another", named("dies 0"))
    with Client(mq.url) as client:
        with rabbitmq.source(server, "dies") as source:
            mover = Mover(CrashingSource(source, settles=3), client, "orders", at_once=4)
            with pytest.raises(Died):
                mover.run(idle_s=60)
        assert len(client.queue("orders").peek()) == 16
        flags = ("--from", server, "--source", "dies", "--to", mq.url, "--queue", "orders")
        move_all("rabbitmq", *flags)
        found = [each.text() for each in client.queue("orders").browse(["ready"])]
    assert sorted(found) == sorted([*bodies, "another"])


def test_of_what_has_no_id_at_most_what_was_in_hand_is_there_twice(
    server: str, channel: BlockingChannel, mq: Process
) -> None:
    channel.queue_declare("nameless", durable=True)
    for number in range(10):
        channel.basic_publish("", "nameless", b"%d" % number)
    with Client(mq.url) as client:
        with rabbitmq.source(server, "nameless") as source:
            mover = Mover(CrashingSource(source, settles=3), client, "orders")
            with pytest.raises(Died):
                mover.run(idle_s=60)
        flags = ("--from", server, "--source", "nameless", "--to", mq.url, "--queue", "orders")
        move_all("rabbitmq", *flags)
        found = [each.text() for each in client.queue("orders").browse(["ready"])]
    assert sorted(found) == ["0", "1", "2", "3", "3", "4", "5", "6", "7", "8", "9"]


def test_what_mq_refuses_is_told_and_left(
    server: str, channel: BlockingChannel, mq: Process
) -> None:
    fill(channel, "refused", ["first", "x" * 2000, "last"])
    with Client(mq.url) as client:
        orders = client.queue("orders")
        orders.create()
        orders.change_settings({"body_bytes_max": 1000})
        flags = ("--from", server, "--source", "refused", "--to", mq.url, "--queue", "orders")
        ended, last, wrong = move("rabbitmq", *flags)
        assert (ended, last) == (1, "2 moved, 1 refused, 1 left at the source")
        assert "(refused 1): " in wrong
        assert [each.text() for each in orders.peek()] == ["first", "last"]
    body = eventually(lambda: channel.basic_get("refused", auto_ack=True)[2], "what was refused")
    assert body == b"x" * 2000
