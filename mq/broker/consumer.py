"""A consumer of one queue: it is told when there is something for it, and asks for that."""

import asyncio
from collections.abc import Callable
from typing import Final

from mq.broker.interest import Event, Interest, State
from mq.broker.queue import Queue
from mq.model.errors import MqError, QueueExpired, QueueNotFound
from mq.model.limits import COHORT_MAX
from mq.model.message import Delivery
from mq.model.selection import Selection

_NOT_INTERESTED: Final = State.NOT_INTERESTED


class Consumer(Interest):
    """One subscription to a queue. Lives on the event loop's thread.

    `on_notified` is called when there may be something for it: it is to `pull`, and, as long as it
    `is_notified` when what it asked for has come, to pull again. It takes no more than its credit:
    each message takes one of that. `on_error` hears of what stands in the way: of QueueNotFound
    when the queue is gone, of QueueExpired, and the consumer is closed then; of what may pass, for
    which it stays. None of both is called after `close`.
    """

    __slots__ = (
        "_credit", "_failed_to", "_in_hand", "_is_closed", "_is_paused", "_news", "_on_error",
        "_on_notified", "_visibility_s", "on_closed", "queue",
    )  # fmt: skip

    def __init__(
        self,
        queue: Queue,
        credit: int,
        on_notified: Callable[[], None],
        on_error: Callable[[MqError], None],
        priority: int = 0,
        visibility_s: float | None = None,
        selection: Selection | None = None,
    ) -> None:
        super().__init__(priority, selection)
        self.queue = queue
        self._credit = credit
        self._visibility_s = visibility_s
        self._on_notified = on_notified
        self._on_error = on_error
        self._in_hand: set[asyncio.Future[Delivery | None]] = set()
        self._news = 0
        self._failed_to = False
        """Whether anything it asked for did not come."""
        self._is_paused = False
        self._is_closed = False
        self.on_closed: Callable[[], None] = _does_nothing
        """Called once, when it has ended."""

    @property
    def credit(self) -> int:
        """How many more messages it takes, but for those that it waits for."""
        return self._credit

    @property
    def is_notified(self) -> bool:
        """Whether it is its turn to pull."""
        return self.state is State.NOTIFIED

    @property
    def is_closed(self) -> bool:
        """Whether it has ended, by itself or with its queue."""
        return self._is_closed

    @property
    def in_hand(self) -> int:
        """How many messages it waits for."""
        return len(self._in_hand)

    def begin(self) -> None:
        """Is interested from here on. Raises QueueNotFound where the queue is gone already."""
        self.queue.join(self)
        self._want()

    def grant(self, count: int) -> None:
        """So many more messages may come."""
        self._credit += count
        self._want()

    def pause(self) -> None:
        """It is not interested until it goes on; what it asked for comes."""
        self._is_paused = True
        if self.state is not _NOT_INTERESTED:
            self.queue.tell(self.queue.interests.stops(self, Event.PAUSED))

    def resume(self) -> None:
        """It goes on after a pause."""
        self._is_paused = False
        self._want()

    def pull(self, count: int = COHORT_MAX) -> "list[asyncio.Future[Delivery | None]]":
        """Asks for at most `count` messages, as many as it has credit for and its share of those
        known is, or for one that nobody knows of: a future for each, None where there was none, or
        with what a fetch raises. Nobody may cancel them.

        When the last one's callbacks are called, `is_notified` says whether to go on.
        """
        queue = self.queue
        count = min(count, self._credit, queue.interests.share(self))
        if count < 1 or self._is_closed:
            return []
        self._credit -= count
        if not self._in_hand:
            self._news, self._failed_to = queue.interests.news(self), False
        fetching = queue.fetching(self.selection)
        futures = [fetching.begin(self._visibility_s, self.priority) for _ in range(count)]
        self._in_hand.update(futures)
        queue.interests.pulls(self)
        for future in futures:
            future.add_done_callback(self._came)
        queue.used()
        if not self._credit:
            queue.tell(queue.interests.stops(self, Event.OUT_OF_CREDIT))
        return futures

    def close(self) -> None:
        """Takes no more. What it asked for and has not come goes to others, its futures are
        cancelled; what has come is still for its owner to see, and to give back.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for future in self._in_hand:
            future.cancel()
        self._in_hand.clear()
        self.queue.leave(self)
        self.on_closed()
        # Mostly its own methods or its owner's: nobody is to wait for the garbage collector.
        self._on_notified = self._on_error = _hears_nothing

    def was_notified(self) -> None:
        """Its turn has come: for the queue to say."""
        if self.state is State.NOTIFIED and not self._is_closed:
            self._on_notified()

    def failed(self, error: MqError) -> None:
        """Something stands in the way: for the queue to say."""
        if self._is_closed:
            return
        on_error = self._on_error
        if isinstance(error, QueueNotFound | QueueExpired):
            self.close()
        on_error(error)

    def _want(self) -> None:
        if self._credit and not self._is_paused and not self._is_closed:
            self.queue.wants(self)

    def _came(self, future: "asyncio.Future[Delivery | None]") -> None:
        if self._is_closed:
            return
        if future.cancelled() or future.exception() is not None or future.result() is None:
            self._credit += 1
            self._failed_to = True
        self._in_hand.discard(future)
        if self._in_hand:
            return
        interests = self.queue.interests
        if self._failed_to or not self.queue.work(self.selection):
            self.queue.tell(interests.found_nothing(self, self._news))
        else:
            self.queue.tell(interests.found(self))
        self._want()


def _does_nothing() -> None:
    """Where nobody is to hear of an end."""


def _hears_nothing(error: MqError | None = None) -> None:
    """In the place of those who heard, once a consumer is closed."""
