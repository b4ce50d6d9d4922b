"""What happens at its time: pure."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from mq.client.fake.limits import TIMERS_SWEPT_MIN


@dataclass(order=True, slots=True)
class Timer:
    """Something that is to happen at `ms`, unless it does not stand any more by then."""

    ms: int
    number: int
    stands: Callable[[], bool] = field(compare=False)
    act: Callable[[], None] = field(compare=False)


class Timers:
    """Timers by their times; those of one time in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._number = 0
        self._swept_from = TIMERS_SWEPT_MIN

    def set(self, ms: int, stands: Callable[[], bool], act: Callable[[], None]) -> None:
        """Has something happen then, if `stands` says so."""
        self._number += 1
        heapq.heappush(self._heap, Timer(ms, self._number, stands, act))
        if len(self._heap) > self._swept_from:
            self._heap = [each for each in self._heap if each.stands()]
            heapq.heapify(self._heap)
            self._swept_from = max(TIMERS_SWEPT_MIN, 2 * len(self._heap))

    def next_ms(self) -> int | None:
        """When the next one is; None: there is none."""
        while self._heap and not self._heap[0].stands():
            heapq.heappop(self._heap)
        return self._heap[0].ms if self._heap else None

    def due(self, now_ms: int) -> Timer | None:
        """Takes out the first of those that are due; None: none is."""
        next_ms = self.next_ms()
        return heapq.heappop(self._heap) if next_ms is not None and next_ms <= now_ms else None
