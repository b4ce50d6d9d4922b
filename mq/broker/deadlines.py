"""When those who wait have waited long enough: one timer for all of them."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final, Protocol

from mq.limits import LOOK_INTERVAL_S

# So many that are over and still in the list that it is made anew.
_OVER_MAX: Final = 1000


class Waits(Protocol):
    """One who waits."""

    @property
    def is_over(self) -> bool:
        """Whether it waits no more."""
        ...

    def time_is_up(self) -> None:
        """It has waited as long as it would."""
        ...


class Deadlines:
    """The ends of all that wait, by a steady clock's seconds. Lives on the event loop's thread."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s = steady_s
        self._heap: list[tuple[float, int, Waits]] = []
        self._numbers = itertools.count()
        self._over = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, end_s: float, waits: Waits) -> None:
        """It waits until then."""
        heapq.heappush(self._heap, (end_s, next(self._numbers), waits))
        if self._heap[0][2] is waits:
            self._set_timer()

    def was_over(self) -> None:
        """One that was added waits no more, before its end."""
        self._over += 1
        if self._over > max(_OVER_MAX, len(self._heap) // 2):
            self._heap = [each for each in self._heap if not each[2].is_over]
            heapq.heapify(self._heap)
            self._over = 0
        if not self._heap:
            self._set_timer()

    def end_all(self) -> None:
        """Nobody waits any longer."""
        heap, self._heap, self._over = self._heap, [], 0
        self._set_timer()
        for _, _, waits in heap:
            if not waits.is_over:
                waits.time_is_up()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            # The clock may go on otherwise than the loop's.
            left_s = min(max(0.0, self._heap[0][0] - self._steady_s()), LOOK_INTERVAL_S)
            self._timer = asyncio.get_running_loop().call_later(left_s, self._rings)

    def _rings(self) -> None:
        self._timer = None
        now_s = self._steady_s()
        while self._heap and (self._heap[0][2].is_over or self._heap[0][0] <= now_s):
            _, _, waits = heapq.heappop(self._heap)
            if waits.is_over:
                self._over = max(0, self._over - 1)
            else:
                waits.time_is_up()
        self._set_timer()
