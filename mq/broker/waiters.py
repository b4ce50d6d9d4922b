"""Who waits for a message of a queue, in their order. For the event loop's thread."""

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from mq.model.message import Delivery


@dataclass(frozen=True, slots=True)
class Waiter:
    """One who waits for a message, which is to be theirs for so long (None: as it or the queue
    says). `number` counts all who ever asked.
    """

    number: int
    visibility_s: float | None
    future: "asyncio.Future[Delivery | None]"
    priority: int = 0


class Waiters:
    """A queue's waiters, those of a higher priority first. Who is answered, or gave up, is passed
    over.
    """

    def __init__(self) -> None:
        self.asked = 0
        """The number of the last one who asked."""
        self._lines: dict[int, deque[Waiter]] = {0: deque()}
        """By priority, the highest first."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(
        self, visibility_s: float | None, priority: int = 0
    ) -> "asyncio.Future[Delivery | None]":
        """One more waits; the future that answers."""
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self.asked += 1
        if priority not in self._lines:
            lines = {**self._lines, priority: deque[Waiter]()}
            self._lines = dict(sorted(lines.items(), reverse=True))
        self._lines[priority].append(Waiter(self.asked, visibility_s, future, priority))
        return future

    def put_back(self, waiter: Waiter) -> None:
        """Who was taken as the next one waits again, before all others of its priority."""
        self._lines[waiter.priority].appendleft(waiter)

    def drop_gone(self) -> int:
        """Forgets who is answered or gave up; how many wait."""
        for priority, line in self._lines.items():
            if any(waiter.future.done() for waiter in line):
                self._lines[priority] = deque(each for each in line if not each.future.done())
        return len(self)

    def behind(self, count: int) -> Iterator[Waiter]:
        """Those behind the first so many."""
        return itertools.islice(itertools.chain(*self._lines.values()), count, None)

    def next(self, asked: int | None = None) -> Waiter | None:
        """Takes who waits first, of those whose number is at most `asked`."""
        for line in self._lines.values():
            while line and (asked is None or line[0].number <= asked):
                waiter = line.popleft()
                if not waiter.future.done():
                    return waiter
        return None
