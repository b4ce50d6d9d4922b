"""Requests that wait for a message of a queue, by priority."""

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from mq.model.message import Delivery


class Allowance:
    """How many more messages a consumer takes that takes packs whole, shared by its requests. The
    last pack may exceed it.
    """

    __slots__ = ("left", "was_short")

    def __init__(self, left: int) -> None:
        self.left = left
        self.was_short = False
        """Whether a request got nothing because of it."""


class Waiter(NamedTuple):
    """A request for one message, visible for `visibility_s` seconds (None: the message's or the
    queue's timeout). `number` is its position among all requests of this claimer. With an
    `allowance` it takes a whole pack too.
    """

    number: int
    visibility_s: float | None
    future: "asyncio.Future[Delivery | None]"
    priority: int = 0
    allowance: Allowance | None = None


class Waiters:
    """The waiters of one selection, by descending priority. Answered and cancelled waiters are
    skipped.
    """

    def __init__(self) -> None:
        self.last = 0
        """The number of the last one."""
        self._lines: dict[int, deque[Waiter]] = {0: deque()}
        """By priority, the highest first."""
        self.count = 0
        """How many there are, those that gave up included until they are dropped."""
        self.has_gone = False
        """Whether some may have given up, and are in their lines still."""

    def add(
        self, visibility_s: float | None, priority: int, allowance: Allowance | None = None
    ) -> "asyncio.Future[Delivery | None]":
        """Adds a waiter. Returns the future that answers it: a delivery, or None."""
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self.last += 1
        self.count += 1
        if priority not in self._lines:
            lines = {**self._lines, priority: deque[Waiter]()}
            self._lines = dict(sorted(lines.items(), reverse=True))
        self._lines[priority].append(Waiter(self.last, visibility_s, future, priority, allowance))
        return future

    def put_back(self, waiter: Waiter) -> None:
        """Puts a waiter that was taken in front of all others of its priority."""
        self._lines[waiter.priority].appendleft(waiter)
        self.count += 1

    def gave_up(self) -> None:
        self.has_gone = True

    def behind(self, count: int) -> Iterator[Waiter]:
        """The waiters after the first `count`."""
        return itertools.islice(itertools.chain(*self._lines.values()), count, None)

    def next(self, last: int | None = None) -> Waiter | None:
        """Removes and returns the first waiter whose number is at most `last`."""
        for line in self._lines.values():
            while line and (last is None or line[0].number <= last):
                waiter = line.popleft()
                self.count -= 1
                if not waiter.future.done():
                    return waiter
        return None

    def next_for_pack(self, last: int) -> Waiter | None:
        """Like `next`, among those that take packs."""
        for line in self._lines.values():
            for waiter in line:
                is_it = waiter.allowance is not None and waiter.number <= last
                if is_it and not waiter.future.done():
                    line.remove(waiter)
                    self.count -= 1
                    return waiter
        return None

    def drop_gone(self) -> None:
        """Forgets waiters that were answered or cancelled."""
        self.has_gone = False
        for priority, line in self._lines.items():
            self._lines[priority] = deque(each for each in line if not each.future.done())
        self.count = sum(map(len, self._lines.values()))
