"""A queue of which a model says what is ready and what becomes of claims: real waiters, lines and
claimers, and no folders.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from harness.api import STILL_MS, id_at
from harness.clock import FakeClock
from mq.broker.consumers import Consumer, Fetch, Poll, Terms
from mq.broker.deadlines import Deadlines
from mq.broker.memory import Memory
from mq.broker.permits import Permits
from mq.broker.queue import Queue
from mq.broker.ready import IdBudget, Share
from mq.broker.scanning import ScanLimits
from mq.model.message import Delivery, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.model.settings import QueueSettings
from mq.store.disk.steps import Steps
from mq.store.scan.order import STRICT, Candidate, FolderMark, Listing

QUEUE = QueueName.parse("q")
DUE_MS = 1 << 44


async def turns() -> None:
    """Lets the loop run what has begun. Nothing here waits for time, a thread or the disk."""
    for _ in range(30):
        await asyncio.sleep(0)


def message(number: int, priority: int = 0) -> MessageId:
    """An id, in the order of the numbers."""
    millis, number = divmod(number, 1000)
    text = id_at(STILL_MS + millis, number)
    return MessageId.parse(text + (f",p={priority}" if priority else ""))


def is_of(selection: Selection | None, message_id: MessageId) -> bool:
    """Whether a message is of a selection by its name."""
    return selection is None or bool(selection.matches_name(message_id.text))


class ModelCommitter:
    """Claims wait in `claims` until `end_claims` ends them, and a listing is what is ready."""

    def __init__(self) -> None:
        self.ready: list[MessageId] = []
        self.claims: list[tuple[MessageId, asyncio.Future[Any]]] = []
        self.released: list[MessageId] = []

    def submit(self, operation: Steps[Any]) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.claims.append((operation.gi_frame.f_locals["message_id"], future))
        operation.close()
        return future

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if function.__name__ == "_list":
            return self.listing(None)
        if function.__name__ == "_begin":
            selection = cast(Any, function).__self__._selection  # noqa: SLF001
            return SimpleNamespace(go_on=lambda: self.listing(selection))
        return function(*arguments)

    def listing(self, selection: Selection | None) -> Listing:
        candidates = [
            Candidate(STRICT.key(each.text), "", each)
            for each in self.ready
            if is_of(selection, each)
        ]
        return Listing(candidates, True, FolderMark((), trusted=False))

    def put(self, *ids: MessageId) -> None:
        self.ready = sorted({*self.ready, *ids}, key=lambda each: (-each.priority, each.text))


class ModelQueue(Queue):
    """Its ready messages are those of `model`, in the order of delivery."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.model = ModelCommitter()
        process = SimpleNamespace(
            root=SimpleNamespace(clock=clock, now_ms=clock.now_ms, files=None),
            committer=self.model,
            share=Share(),
            memory=Memory(0),
            ids=IdBudget(),
            packs=None,
            scan_limits=ScanLimits(),
            sidelines=None,
            siblings=None,
            permits=Permits(clock.now_ms, clock.steady_s),
            watch=lambda queue: None,
            refreshing=lambda queue: None,
            forget=lambda queue: queue.was_forgotten(),
            begin_release=self._was_released,
        )
        super().__init__(QUEUE, cast(Any, process), QueueSettings())

    def publish(self, *ids: MessageId) -> None:
        """Messages become ready."""
        self.model.put(*ids)
        self.added(*ids, headers=())

    def look(self, *ids: MessageId) -> None:
        """Messages are there that others published, and a scan finds them."""
        self.model.put(*ids)
        for selection in self.lines.selections:
            self.claimer(selection).scan_again()

    def take(self, message_id: MessageId) -> None:
        """Another process takes it."""
        self.model.ready.remove(message_id)

    def _was_released(self, deliveries: Sequence[Delivery], unhandled: bool = False) -> None:
        ids = [each.id for each in deliveries]
        self.model.released += ids
        self.publish(*ids)

    def end_claims(self, count: int = 1, error: Exception | None = None) -> None:
        """Ends the first `count` claims."""
        ended, self.model.claims = self.model.claims[:count], self.model.claims[count:]
        for message_id, future in ended:
            if error is not None:
                future.set_exception(error)
            elif message_id in self.model.ready:
                self.take(message_id)
                stamp = Stamp(DUE_MS, 1)
                future.set_result(Delivery(QUEUE, message_id, stamp, 0, 0, b"", None))
            else:
                future.set_result(None)


class Customer:
    """A consumer's owner, which has room for `room_for` claims, and keeps what it gets."""

    def __init__(self, queue: ModelQueue, credit: int, *more: Any, room_for: int = 1000) -> None:
        self.consumer = Consumer(queue, Terms(credit, *more), self)
        self.got_ids: list[MessageId] = []
        self.errors: list[Exception] = []
        self.room_for = room_for
        self.is_paused = False
        self.claims = 0
        """How many it heard to begin, and not to end."""

    def begin(self) -> None:
        self.consumer.begin()

    def room(self) -> int:
        return self.room_for - self.consumer.in_flight

    def begins(self) -> None:
        self.claims += 1
        assert self.consumer.in_flight <= self.room_for

    def got(self, delivery: Delivery) -> None:
        self.claims -= 1
        self.got_ids.append(delivery.id)
        self.consumer.go_on()

    def missed(self) -> None:
        self.claims -= 1

    def failed(self, error: Exception) -> None:
        # Those that it hears no more of.
        assert self.claims == self.consumer.in_flight
        self.errors.append(error)

    def pause(self) -> None:
        self.is_paused = True
        self.consumer.pause()

    def resume(self) -> None:
        self.is_paused = False
        self.consumer.resume()


def poll(queue: ModelQueue, wait_s: float) -> Poll:
    """A long poll that has begun, of a clock that only tests advance."""
    deadlines = Deadlines(queue.clock.steady_s)
    found = Poll(queue, deadlines, queue.clock.steady_s() + wait_s, lambda: False, Terms())
    found.begin()
    return found


def fetch(queue: ModelQueue, priority: int = 0, selection: Selection | None = None) -> Fetch:
    """A plain fetch that has begun."""
    found = Fetch(queue, priority, None, selection)
    found.begin()
    return found
