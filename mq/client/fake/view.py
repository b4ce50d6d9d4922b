"""A look at a fake's queue, for a test's assertions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from mq.client.fake.message import Message
from mq.client.fake.world import World
from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.protocol.carried import named_headers, sidelined_for


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as it is at this moment. `state` is `ready`, `delayed` or `removed`; a fetched one
    is delayed until it is due, and has receives. `reason`: why it is in a sideline.
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
    """One queue of a fake, as it is whenever it is asked. From any thread."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = QueueName.parse(name)

    @property
    def exists(self) -> bool:
        """Whether there is such a queue."""
        with self._world.lock:
            self._world.catch_up()
            return self._name.text in self._world.queues

    @property
    def waiting(self) -> int:
        """How many wait for its messages: long polls, and subscriptions of WebSockets."""
        with self._world.lock:
            queue = self._world.queues.get(self._name.text)
            return 0 if queue is None else len(queue.takers)

    @property
    def messages(self) -> list[Seen]:
        """All of the queue, also those removed; none where there is no such queue."""
        return self._seen(State.READY, State.DELAYED, State.REMOVED)

    @property
    def ready(self) -> list[bytes]:
        """The bodies of those that may be fetched, in the order of delivery."""
        return [each.body for each in self._seen(State.READY)]

    @property
    def delayed(self) -> list[bytes]:
        """The bodies of those that wait for their time and were never fetched."""
        return [each.body for each in self._seen(State.DELAYED) if not each.receives]

    @property
    def in_flight(self) -> list[bytes]:
        """The bodies of those that somebody has fetched, or that wait to be delivered again."""
        return [each.body for each in self._seen(State.DELAYED) if each.receives]

    @property
    def removed(self) -> list[bytes]:
        """The bodies of those that were deleted."""
        return [each.body for each in self._seen(State.REMOVED)]

    @property
    def sidelined(self) -> list[bytes]:
        """The bodies of those that may be fetched from the queue's sideline."""
        if self._name.is_sideline:
            return []
        return QueueView(self._world, self._name.sideline().text).ready

    def _seen(self, *states: State) -> list[Seen]:
        with self._world.lock:
            self._world.catch_up()
            queue = self._world.queues.get(self._name.text)
            if queue is None:
                return []
            return [_seen(each) for state in states for each in queue.within(state)]


def _seen(message: Message) -> Seen:
    stamp, key = message.stamp, message.id.key
    return Seen(
        id=message.id.text,
        body=message.body,
        state=message.state.value,
        receives=stamp.receives,
        priority=message.id.priority,
        key=None if key is None else key.text,
        due=datetime.fromtimestamp(stamp.due_ms / 1000, UTC),
        headers=named_headers(message.id.content_type, message.headers),
        reason=sidelined_for(message.queue, stamp),
    )
