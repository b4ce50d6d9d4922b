"""The ends of waits, by a clock that may go on otherwise than the event loop's."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mq.model.limits import LOOK_INTERVAL_S

# Deadlines that were taken back and are in the heap still, beyond which it is made anew.
_OVER_MAX: Final = 1000


@dataclass(slots=True, order=True)
class Deadline:
    """The end of a wait, in seconds of a steady clock, when `time_is_up` is called. None:
    cancelled.
    """

    end_s: float
    _number: int
    time_is_up: Callable[[], None] | None = field(compare=False)


class Deadlines:
    """The ends of all waits. Use it on the event loop's thread."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s = steady_s
        self._heap: list[Deadline] = []
        self._numbers = itertools.count()
        self._over = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, end_s: float, time_is_up: Callable[[], None]) -> Deadline:
        deadline = Deadline(end_s, next(self._numbers), time_is_up)
        heapq.heappush(self._heap, deadline)
        if self._heap[0] is deadline:
            self._set_timer()
        return deadline

    def take_back(self, deadline: Deadline) -> None:
        """Cancels a deadline, and drops all references to it."""
        if deadline.time_is_up is None:
            return
        deadline.time_is_up = None
        self._over += 1
        if self._over > max(_OVER_MAX, len(self._heap) // 2):
            self._heap = [each for each in self._heap if each.time_is_up is not None]
            heapq.heapify(self._heap)
            self._over = 0

    def end_all(self) -> None:
        """Ends all waits at once."""
        heap, self._heap, self._over = self._heap, [], 0
        self._set_timer()
        for deadline in heap:
            self._end(deadline)

    def _end(self, deadline: Deadline) -> None:
        time_is_up, deadline.time_is_up = deadline.time_is_up, None
        if time_is_up is not None:
            time_is_up()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            # The clock may go on otherwise than the loop's.
            left_s = min(max(0.0, self._heap[0].end_s - self._steady_s()), LOOK_INTERVAL_S)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._rings)

    def _rings(self) -> None:
        self._timer = None
        now_s = self._steady_s()
        while self._heap and (self._heap[0].time_is_up is None or self._heap[0].end_s <= now_s):
            deadline = heapq.heappop(self._heap)
            self._over -= deadline.time_is_up is None
            self._end(deadline)
        self._set_timer()
