"""Fetching many messages in one request, in cohorts of claims, so that it uses bounded memory."""

import asyncio
from typing import Final

from mq.broker.broker import Broker
from mq.broker.consumers import ANY_MESSAGE, Terms
from mq.broker.queue import Queue
from mq.broker.waiting import Waiter
from mq.model.errors import MqError, QueueNotFound
from mq.model.limits import BATCH_BYTES_MAX, BODY_HELD_BYTES_MAX
from mq.model.message import Delivery
from mq.model.names import QueueName
from mq.store.packs.fetching import items_of

# Messages of the first cohort, and at most of a later one.
COHORT_FIRST: Final = 16
COHORT_MAX: Final = 32

_LEAST_BYTES: Final = 1


class Cohort(Waiter):
    """A request for several messages at once: at most `files` claims, of `messages` together. Once
    `future` is done, `found` has the claimed messages, in the order of the queue. `is_dry`: no more
    was ready.
    """

    __slots__ = ("_files", "error", "found", "future", "is_dry", "queue")
    stays = False

    def __init__(self, queue: Queue, terms: Terms, files: int, messages: int) -> None:
        super().__init__(messages, terms.priority, terms.visibility_s, terms.selection, terms.packs)
        self.is_fresh = True
        self.queue = queue
        self.found: list[Delivery] = []
        self.error: BaseException | None = None
        self.is_dry = False
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._files = files

    @property
    def is_gone(self) -> bool:
        return self.future.done()

    def room(self) -> int:
        return self._files

    def begins(self) -> None:
        self._files -= 1

    def got(self, delivery: Delivery) -> None:
        self.found.append(delivery)
        self._end_if_over()

    def missed(self) -> None:
        if self.is_dry or self.error is not None:
            self._stop()
        else:
            self._files += 1
            self.is_fresh = True

    def found_nothing(self) -> None:
        self.is_dry = True
        self._stop()

    def failed(self, error: BaseException) -> None:
        self.error = self.error or error
        self._stop()

    def _stop(self) -> None:
        self._files = self.credit = 0
        self.queue.lines.leave(self)
        self._end_if_over()

    def _end_if_over(self) -> None:
        is_over = self._files <= 0 or self.credit <= 0
        if is_over and not self.in_flight and not self.future.done():
            self.future.set_result(None)


async def fetch_many(
    broker: Broker, name: QueueName, count: int, terms: Terms = ANY_MESSAGE, wait_s: float = 0
) -> list[Delivery]:
    """Claims the queue's next messages in their order: at most `count`, about BATCH_BYTES_MAX of
    bodies, and as many as the memory budget has room for. Waits up to `wait_s` for the first one.
    Empty when none is ready by then.

    With `terms.packs` it takes packs whole, and the last one may exceed `count`.

    Raises what `Consuming.fetch` raises, unless it has already claimed a message: then it returns
    those it has. When the caller is cancelled, the claimed messages are released. Durable on
    return: yes.
    """
    queue = await broker.queue(name)
    found: list[Delivery] = []
    try:
        # In a queue with an active consumer, the first message shows that it is this consumer.
        if queue.active is None and (
            await _claim(queue, found, count, terms) or found or not wait_s
        ):
            return found
        delivery = await broker.consuming.fetch(name, terms, wait_s)
        if delivery is not None:
            found += items_of(delivery)
            await _claim(await broker.queue(name), found, count, terms)
    except MqError:
        if not found:
            raise
    except BaseException:
        broker.begin_release(found, unhandled=True)
        raise
    return found


async def _claim(queue: Queue, found: list[Delivery], count: int, terms: Terms) -> bool:
    """Claims ready messages in cohorts. The sizes of the messages so far limit the next cohort to
    the room in memory. False when no more messages are ready.
    """
    size, largest, wanted = 0, 0, COHORT_FIRST
    for delivery in found:
        size, largest = size + delivery.size, max(largest, delivery.size)
    while len(found) < count and size < BATCH_BYTES_MAX:
        wanted = min(wanted, count - len(found))
        before = len(found)
        cohort = Cohort(queue, terms, wanted, count - before if terms.packs else wanted)
        await _gather(queue, cohort, found)
        if cohort.is_dry:
            return False
        new = found[before:]
        if any(_passes_through(delivery) for delivery in new):
            return True  # Each has its file open, and a client must not occupy many.
        for delivery in new:
            size, largest = size + delivery.size, max(largest, delivery.size)
        fitting = (BATCH_BYTES_MAX - size) // max(largest, _LEAST_BYTES)
        wanted = max(1, min(COHORT_MAX, fitting))
    return True


async def _gather(queue: Queue, cohort: Cohort, found: list[Delivery]) -> None:
    """Claims the cohort, and adds its messages to `found`. Raises the error of a claim, with the
    other messages in `found`.
    """
    if queue.is_gone:
        raise QueueNotFound(queue.name.text)
    queue.stand(cohort)
    try:
        await cohort.future
    finally:
        queue.rests(cohort)
        for delivery in cohort.found:
            found += items_of(delivery)
    if cohort.error is not None:
        raise cohort.error


def _passes_through(delivery: Delivery) -> bool:
    """Whether memory had no room for a body that would fit into it."""
    return delivery.body is None and delivery.size <= BODY_HELD_BYTES_MAX
