"""Consuming: plain fetches, long polls and subscriptions, of the queues of one process."""

import asyncio
from collections.abc import Awaitable, Callable

from mq.broker.consumer import Consumer
from mq.broker.deadlines import Deadlines
from mq.broker.polling import Poll
from mq.broker.queue import Queue
from mq.broker.watching import Watching
from mq.model.errors import MqError, TooManyWaiters
from mq.model.message import Delivery
from mq.model.names import QueueName
from mq.model.selection import Selection
from mq.model.serving_limits import WAITERS_MAX_DEFAULT
from mq.store.core.root import Root


class Consuming:
    """What a broker's consumers ask for. `find` gives a queue with settings of this moment, or
    raises QueueNotFound; `refreshing` begins to look for them, where that is due, in a task that
    nobody cancels; `watching` looks for those who wait.
    """

    def __init__(
        self,
        root: Root,
        find: Callable[[QueueName], Awaitable[Queue]],
        refreshing: "Callable[[Queue], asyncio.Task[None] | None]",
        watching: Watching,
        waiters_max: int = WAITERS_MAX_DEFAULT,
    ) -> None:
        self.watching = watching
        self.waiters = 0
        """How many consumers there are, by long polls and subscriptions."""
        self._waiters_max = waiters_max
        self._root = root
        self._find = find
        self._refreshing = refreshing
        self._deadlines = Deadlines(root.clock.steady_s)
        self._drains = False

    @property
    def is_full(self) -> bool:
        """Whether there may be no other consumer now."""
        return self.waiters >= self._waiters_max

    async def subscribe(
        self,
        name: QueueName,
        *,
        credit: int,
        on_notified: Callable[[], None],
        on_error: Callable[[MqError], None],
        priority: int = 0,
        visibility_s: float | None = None,
        selection: Selection | None = None,
    ) -> Consumer:
        """A consumer of the queue, from here on: see there. Raises QueueNotFound, QueueExpired,
        TooManyWaiters, Unavailable.

        `on_notified` may be called before this returns: the consumer is to be known by then only to
        who called, so that it asks `is_notified` of what it is given.
        """
        queue = await self._find(name)
        queue.check_life()
        consumer = Consumer(queue, credit, on_notified, on_error, priority, visibility_s, selection)
        self._begin(consumer, consumer.begin)
        self.watching.watch(queue)  # Also one that takes nothing is to hear of the queue's end.
        return consumer

    async def fetch(
        self,
        name: QueueName,
        visibility_s: float | None = None,
        wait_s: float = 0,
        selection: Selection | None = None,
    ) -> Delivery | None:
        """Claims the queue's next message, for so long when that is said; None when nothing is
        ready, nor becomes so within `wait_s`. Raises QueueNotFound and QueueExpired, also when that
        happens while one waits; TooManyWaiters; Unavailable. A caller that is cancelled meanwhile
        gets nothing, and what was claimed for it is released. Durable: yes.
        """
        queue = await self._find(name)
        if wait_s <= 0:
            future = self.begin_fetch(queue, visibility_s, selection)
            abandon: Callable[[], None] = lambda: queue.abandon(future)  # noqa: E731
        else:
            poll = self.begin_poll(queue, wait_s, visibility_s, selection)
            future, abandon = poll.future, poll.abandon
        try:
            return await future
        except asyncio.CancelledError:
            abandon()
            raise

    def begin_fetch(
        self,
        queue: Queue,
        visibility_s: float | None = None,
        selection: Selection | None = None,
    ) -> "asyncio.Future[Delivery | None]":
        """Like `fetch` that does not wait; whoever is gone before the answer calls the queue's
        `abandon`.
        """
        return queue.begin_fetch(visibility_s, selection)

    def begin_poll(
        self,
        queue: Queue,
        wait_s: float,
        visibility_s: float | None = None,
        selection: Selection | None = None,
    ) -> Poll:
        """Like `fetch` that waits, of a queue whose settings need not be those of this moment;
        whoever is gone before the answer calls its `abandon`. Raises TooManySelections,
        TooManyWaiters; QueueNotFound where the queue is known to be gone.
        """
        end_s = self._root.clock.steady_s() + wait_s
        poll = Poll(queue, self._deadlines, end_s, lambda: self._drains, visibility_s, selection)
        if (refreshing := self._refreshing(queue)) is not None:
            self._begin(poll, lambda: refreshing.add_done_callback(poll.begin_after))
        else:
            self._begin(poll, poll.begin)
        return poll

    def _begin(self, consumer: Consumer, begin: Callable[[], None]) -> None:
        """Counts it from here to its end, if it can begin."""
        if self.is_full:
            raise TooManyWaiters(self._waiters_max)
        begin()
        if not consumer.is_closed:
            self.waiters += 1
            consumer.on_closed = self._has_left

    def _has_left(self) -> None:
        self.waiters -= 1

    def stop_waiting(self) -> None:
        """Whoever waits for a message hears now that there is none; nobody waits from here on."""
        self._drains = True
        self._deadlines.end_all()

    async def drain(self) -> None:
        """Waits until nothing goes on here."""
        await self.watching.drain()
