"""A queue's bodies in memory: kept while its messages are candidates, taken by claims."""

from mq.broker.backlog import Backlog
from mq.broker.ids import Ids
from mq.broker.memory import Hand, Memory
from mq.broker.shelf import Shelf
from mq.model.limits import BACKLOG_IDS_MAX
from mq.model.message import Held
from mq.model.names import MessageId, QueueName


class Bodies:
    """For the event loop's thread, but for `room`."""

    def __init__(self, name: QueueName, memory: Memory) -> None:
        self.memory = memory
        self.shelf = Shelf(name.text)
        self._publishing: dict[str, Held] = {}
        """What consumers wait for, from the beginning of its publish to its end: they may claim it
        before that, since the kernel tells of its rename before it is flushed.
        """

    def room(self, size: int) -> Hand | None:
        """Room for a body that a claim is to read; in any thread."""
        return self.memory.hold(size, self.shelf)

    def take(self, name: str) -> Held | None:
        """What is kept of a message that is to be claimed."""
        publishing = self._publishing.get(name)
        if publishing is not None:
            return self.memory.take_publishing(self.shelf, publishing)
        return self.memory.take(self.shelf, name)

    def publishes(self, message_id: MessageId, held: Held) -> None:
        """A message is being published for which a consumer may wait; `held` has its hand."""
        self._publishing[message_id.text] = held

    def publish_ended(self, message_id: MessageId) -> None:
        """Its publish has ended."""
        self._publishing.pop(message_id.text, None)

    def published(self, message_id: MessageId, held: Held, hand: Hand) -> None:
        """Keeps what was published, and is a candidate."""
        self.memory.keep(self.shelf, message_id.text, held, hand)

    def is_kept(self, name: str) -> bool:
        """Whether the body is."""
        return self.memory.is_kept(self.shelf, name)

    def ahead(self) -> int:
        """How many bytes may be read ahead now."""
        return self.memory.ahead(self.shelf)

    def loaded(self, name: str, held: Held) -> None:
        """Keeps what was read ahead."""
        self.memory.keep(self.shelf, name, held)

    def dropped(self, name: str) -> None:
        """A message is no candidate any more."""
        if self.shelf.bytes:
            self.memory.drop(self.shelf, name)

    def retain(self, backlog: Backlog) -> None:
        """Forgets what is no candidate of the backlog."""
        if self.shelf.bytes:
            self.memory.retain(self.shelf, backlog.holds)

    def forget(self) -> None:
        """Nothing of the queue is kept any more."""
        if self.shelf.bytes:
            self.memory.retain(self.shelf)

    def close(self) -> None:
        """The queue is gone."""
        self.memory.close(self.shelf)


class Watched:
    """What follows for bodies and ids when a backlog's candidates change. `bodies`: those that are
    kept while it has their messages; None where another backlog's say so. `most`: how many
    candidates there may be, however much room there is for ids.
    """

    def __init__(self, ids: Ids, bodies: Bodies | None, most: int = BACKLOG_IDS_MAX) -> None:
        self._ids = ids
        self._bodies = bodies
        self._most = most

    @property
    def capacity(self) -> int:
        """How many candidates there may be."""
        return min(self._ids.capacity, self._most)

    def listed(self, backlog: Backlog) -> None:
        """A look said which candidates there are."""
        if self._bodies is not None:
            self._bodies.retain(backlog)
        self._ids.told(backlog, len(backlog))

    def changed(self, backlog: Backlog) -> None:
        """There is one more, or there is none any more."""
        self._ids.told(backlog, len(backlog))

    def dropped(self, name: str) -> None:
        """The message of that id is none any more, though nobody took it."""
        if self._bodies is not None:
            self._bodies.dropped(name)

    def forgot(self, backlog: Backlog) -> None:
        """None is known any more."""
        if self._bodies is not None:
            self._bodies.forget()
        self._ids.told(backlog, 0)
