"""Who waits for a message of a queue, in their order. For the event loop's thread."""

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from mq.message import Delivery


@dataclass(frozen=True, slots=True)
class Waiter:
    """One who waits for a message, which is to be theirs for so long (None: as it or the queue
    says). `number` counts all who ever asked.
    """

    number: int
    visibility_s: float | None
    future: "asyncio.Future[Delivery | None]"


class Waiters:
    """A queue's waiters. Who is answered, or gave up, is passed over."""

    def __init__(self) -> None:
        self.asked = 0
        """The number of the last one who asked."""
        self._waiting: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, visibility_s: float | None) -> "asyncio.Future[Delivery | None]":
        """One more waits; the future that answers."""
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self.asked += 1
        self._waiting.append(Waiter(self.asked, visibility_s, future))
        return future

    def put_back(self, waiter: Waiter) -> None:
        """Who was taken as the next one waits again, before all others."""
        self._waiting.appendleft(waiter)

    def drop_gone(self) -> int:
        """Forgets who is answered or gave up; how many wait."""
        if any(waiter.future.done() for waiter in self._waiting):
            self._waiting = deque(each for each in self._waiting if not each.future.done())
        return len(self._waiting)

    def behind(self, count: int) -> Iterator[Waiter]:
        """Those behind the first so many."""
        return itertools.islice(self._waiting, count, None)

    def next(self, asked: int | None = None) -> Waiter | None:
        """Takes who waits first, when that one's number is at most `asked`."""
        while self._waiting and (asked is None or self._waiting[0].number <= asked):
            waiter = self._waiting.popleft()
            if not waiter.future.done():
                return waiter
        return None
