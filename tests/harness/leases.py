"""A root with queues, leases and a clock that a test moves; all without a daemon."""

from pathlib import Path
from typing import TypeVar

from harness.clock import FakeClock
from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import ConsumerName, MessageId, QueueName, UuidSource
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps
from mq.store.format.layout import parse_entry
from mq.store.leases.lease import Lease, claim, leases_of
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import WantedShape, create_queue

T = TypeVar("T")

QUEUE = QueueName.parse("q")
CONSUMER = ConsumerName.parse("c")
LEASE_S = 60.0


class LeasingRoot:
    """A root with the queue `q`, and what a consumer `c` does with it."""

    def __init__(
        self,
        top: Path,
        folder_max: int = 10_000,
        files: Files | None = None,
        flusher: Flusher | None = None,
    ) -> None:
        self.top = top
        self.files = files or Files()
        self.clock = FakeClock()
        self.root: Root = open_root(str(top), self.files, self.clock, folder_max=folder_max)
        self.uuids = UuidSource(self.clock)
        self.flusher = flusher or NoFlusher()
        self.make_queue(QUEUE)

    def run(self, operation: Steps[T]) -> T:
        return run_alone(operation, self.flusher)

    def make_queue(self, queue: QueueName, shards: int = 1) -> None:
        self.run(create_queue(self.root, queue, WantedShape(shards=shards)))

    def publish(
        self, count: int = 1, queue: QueueName = QUEUE, priority: int = 0, body: bytes = b"x"
    ) -> list[MessageId]:
        ids = [MessageId(self.uuids.next(), priority) for _ in range(count)]
        for message_id in ids:
            self.run(publish(self.root, Draft(queue, message_id, message_id.published_ms), body))
        return ids

    def claim(
        self,
        limit: int = 1000,
        queues: tuple[QueueName, ...] = (QUEUE,),
        consumer: ConsumerName = CONSUMER,
    ) -> Lease | None:
        return self.run(claim(self.root, consumer, queues, limit, LEASE_S))

    def claimed(self, limit: int = 1000) -> Lease:
        lease = self.claim(limit)
        assert lease is not None
        return lease

    def leases(self, consumer: ConsumerName = CONSUMER) -> list[Lease]:
        return leases_of(self.root, consumer)

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)


def ids_in(folder: str | Path) -> list[str]:
    """The ids of the messages of a lease's folder, sorted."""
    return sorted(parse_entry(path.name)[1].text for path in Path(folder).iterdir())


def stamp_of(root: Root, message_id: MessageId, queue: QueueName = QUEUE) -> Stamp:
    """What a ready message's mtime says; wherever it lies in its queue."""
    for bucket in root.places.spots(State.READY, queue, message_id):
        status = root.files.status(root.layout.path(State.READY, queue, message_id, bucket))
        if status is not None:
            return Stamp.from_mtime_ns(status.st_mtime_ns)
    raise AssertionError(f"{message_id.text} is not ready")
