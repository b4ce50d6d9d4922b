"""A view of a fake's queue, for a test's assertions."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mq.broker.broker import Broker
from mq.model.lifecycle import State
from mq.model.message import Part
from mq.model.names import QueueName
from mq.protocol.rows import named_headers, sidelined_for
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.format.layout import Place
from mq.store.operations.read import Reading, read_rows
from mq.testing.inside import Inside
from mq.testing.upkeep import ids_of


@dataclass(frozen=True, slots=True)
class Seen:
    """A message at this moment. `state`: `ready`, `delayed` or `removed`; a fetched message is
    delayed until it is due, and has receives. `reason`: why it is in a sideline.
    """

    id: str
    body: bytes
    state: str
    receives: int
    priority: int
    key: str | None
    due: datetime
    headers: Mapping[str, str]
    reason: str | None

    def text(self) -> str:
        """Its body in UTF-8."""
        return self.body.decode()


class QueueView:
    """A queue of a fake, at the moment of each call, in any thread."""

    def __init__(self, inside: Inside, name: str) -> None:
        self._inside = inside
        self._name = QueueName.parse(name)

    @property
    def exists(self) -> bool:
        return self._inside.look(lambda broker: queue_exists(broker.root, self._name))

    @property
    def waiting(self) -> int:
        """How many long polls and WebSockets' subscriptions wait for its messages."""
        return self._inside.look(self._consumers)

    def _consumers(self, broker: Broker) -> int:
        queue = broker.used(self._name.text)
        return 0 if queue is None else queue.consumers

    @property
    def messages(self) -> list[Seen]:
        """All messages, also removed ones; none where the queue does not exist."""
        return self._seen(State.READY, State.DELAYED, State.REMOVED)

    @property
    def ready(self) -> list[bytes]:
        """The bodies of messages that can be fetched, in delivery order."""
        return [each.body for each in self._seen(State.READY)]

    @property
    def delayed(self) -> list[bytes]:
        """The bodies of messages that are not due yet and were never fetched."""
        return [each.body for each in self._seen(State.DELAYED) if not each.receives]

    @property
    def in_flight(self) -> list[bytes]:
        """The bodies of messages that a consumer has, or that wait for their next delivery."""
        return [each.body for each in self._seen(State.DELAYED) if each.receives]

    @property
    def removed(self) -> list[bytes]:
        """The bodies of deleted messages."""
        return [each.body for each in self._seen(State.REMOVED)]

    @property
    def sidelined(self) -> list[bytes]:
        """The bodies of messages that can be fetched from the queue's sideline."""
        if self._name.is_sideline:
            return []
        return QueueView(self._inside, self._name.sideline().text).ready

    def _seen(self, *states: State) -> list[Seen]:
        def look(broker: Broker) -> list[Seen]:
            buried = self._inside.running.buried.get(self._name, ())
            readings = (_readings(broker.root, each, self._name, buried) for each in states)
            return [_seen(self._name, reading) for of_state in readings for reading in of_state]

        return self._inside.look(look)


def _seen(queue: QueueName, reading: Reading) -> Seen:
    key = reading.id.key
    return Seen(
        id=reading.id.text,
        body=reading.body or b"",
        state=reading.state.value,
        receives=reading.stamp.receives,
        priority=reading.id.priority,
        key=None if key is None else key.text,
        due=datetime.fromtimestamp(reading.stamp.due_ms / 1000, UTC),
        headers=named_headers(reading.id.content_type, reading.headers),
        reason=sidelined_for(queue, reading.stamp),
    )


def _readings(
    root: Root, state: State, queue: QueueName, without: Container[str]
) -> Iterator[Reading]:
    """The messages of a queue in a state, with their bodies, `without` these ids."""
    for each in ids_of(root, state, queue):
        if each.name not in without:
            for found in read_rows(root, Place(state, queue, each.id, each.bucket or ""), _all):
                if found.state is state and found.id.text not in without:
                    yield _held(root, found)


def _all(size: int, receives: int) -> Part:
    return Part(0, size)


def _held(root: Root, reading: Reading) -> Reading:
    """The same with its body in memory."""
    if reading.descriptor is None:
        return reading
    try:
        body = root.files.read(reading.descriptor, reading.size, reading.offset)
    finally:
        root.files.close(reading.descriptor)
    return replace(reading, body=body, descriptor=None)
