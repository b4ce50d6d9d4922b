#!/usr/bin/env python3
"""Moves the messages of a RabbitMQ queue, classic or quorum, into a queue of mq.

    pip install . pika
    python -m tests.examples.migrate.rabbitmq --from amqp://localhost --source orders \\
        --to http://localhost:8080 --queue orders

RabbitMQ gives messages no ids: those are their publishers' to say. A message that has a
`message_id` is stored once however often it is moved; of those that have none, as many as
`--at-once` says may be there twice after a run that was killed.
"""

import argparse
import contextlib
import hashlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from mq.client.values import NewMessage
from tests.examples.migrate.moving import Taken, attributes, main, parser

BATCH = 100
PRIORITY_MAX = 9
KEPT = (
    "message_id",
    "correlation_id",
    "reply_to",
    "type",
    "app_id",
    "user_id",
    "timestamp",
    "expiration",
)


class RabbitMq:
    """A queue. What mq refuses is held until the connection ends, which gives it back."""

    def __init__(self, channel: BlockingChannel, queue: str) -> None:
        self._channel = channel
        self._queue = queue
        self._held = 0

    def take(self) -> list[Taken]:
        """What the queue gives now; where that is nothing, after a second."""
        found: list[Taken] = []
        while len(found) < BATCH and (each := self._next()) is not None:
            found.append(each)
        if not found:
            self._channel.connection.process_data_events(time_limit=1)
        return found

    def settle(self, taken: Sequence[Taken]) -> None:
        """Acknowledges them. AMQP answers no acks: when the connection was closed they are done."""
        for each in taken:
            self._channel.basic_ack(each.handle)

    def give_back(self, taken: Sequence[Taken]) -> None:
        """They stay unacknowledged, so that they do not come again in this run."""
        self._held += len(taken)

    def left(self) -> int:
        """What is ready, and what is held here; what others hold AMQP does not tell."""
        declared = self._channel.queue_declare(self._queue, passive=True)
        return int(declared.method.message_count) + self._held

    def _next(self) -> Taken | None:
        got, properties, body = self._channel.basic_get(self._queue)
        return None if got is None else taken(got, properties, body)


def taken(got: Any, properties: pika.BasicProperties, body: bytes) -> Taken:
    """What RabbitMQ gave, as a message of mq."""
    told = {f"amqp-{name}": getattr(properties, name) for name in KEPT}
    told |= {"amqp-exchange": got.exchange, "amqp-routing-key": got.routing_key}
    headers = attributes(
        (properties.headers or {}) | {name: value for name, value in told.items() if value}
    )
    if properties.content_encoding:
        headers["content-encoding"] = properties.content_encoding
    new = NewMessage(
        body,
        priority=min(properties.priority or 0, PRIORITY_MAX),
        headers=headers,
        content_type=properties.content_type,
        idempotency_key=key(properties.message_id, body),
    )
    return Taken(f"delivery {got.delivery_tag} ({properties.message_id})", got.delivery_tag, new)


def key(message_id: str | None, body: bytes) -> str | None:
    """Of what has an id: of that and the body, since nothing keeps publishers from giving one id to
    different messages.
    """
    if not message_id:
        return None
    return hashlib.sha256(message_id.encode() + b"\0" + body).hexdigest()


@contextlib.contextmanager
def source(url: str, queue: str) -> Iterator[RabbitMq]:
    """The queue of this name."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield RabbitMq(connection.channel(), queue)
    finally:
        if connection.is_open:
            connection.close()


def options() -> argparse.Namespace:
    """As the command line says."""
    made = parser("Moves the messages of a RabbitMQ queue into a queue of mq.")
    made.add_argument("--from", dest="server", default="amqp://localhost", metavar="URL")
    made.add_argument("--source", required=True, metavar="QUEUE", help="of RabbitMQ")
    return made.parse_args()


if __name__ == "__main__":
    said = options()
    with source(said.server, said.source) as queue:
        sys.exit(main(queue, said))
