"""What is counted while it happens: requests on the event loop's thread, flushes on others'.

A few plain numbers each, since every message comes by here several times.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping

from mq.metrics.board import Board
from mq.metrics.plan import KEPT, OUTCOMES, Key, Plan
from mq.runtime.histogram import FLUSH_SECONDS, SECONDS, SIZES

_OUTCOMES = len(OUTCOMES)


class Meter:
    """One process's, over its board. `steady_s` is what tells it the time, in seconds."""

    def __init__(self, plan: Plan, board: Board, steady_s: Callable[[], float]) -> None:
        self.plan = plan
        self.board = board
        self.steady_s = steady_s
        self._own = board.own
        self._lock = threading.Lock()
        self._width = plan.request_width
        self._sum = plan.request_width - 1
        kept = self._own[plan.kept : plan.numbers].tolist()
        is_counter = {each.name for each in KEPT if each.is_counter}
        self._before = {
            key: value if key[0] in is_counter else 0.0
            for key, value in zip(plan.keys, kept, strict=True)
        }
        """What the processes before this one had counted."""

    def request(self, operation: int, outcome: int, seconds: float) -> None:
        """A request has ended, of the operation and with the outcome of these numbers; after so
        many seconds. For the event loop's thread.
        """
        own = self._own
        at = (operation * _OUTCOMES + outcome) * self._width
        own[at + bisect_left(SECONDS, seconds)] += 1
        own[at + self._sum] += seconds

    def flush(self, kind: int, failed: bool, seconds: float) -> None:
        """A flush of the kind of this number took so long. For any thread."""
        at = self.plan.flushes + (kind * 2 + failed) * self.plan.flush_width
        with self._lock:
            self._own[at + bisect_left(FLUSH_SECONDS, seconds)] += 1
            self._own[at + self.plan.flush_width - 1] += seconds

    def commit(self, operations: int, seconds: float) -> None:
        """A group of so many operations was flushed together, in so many seconds. For any
        thread.
        """
        plan, own = self.plan, self._own
        with self._lock:
            own[plan.commit_seconds + bisect_left(FLUSH_SECONDS, seconds)] += 1
            own[plan.commit_seconds + plan.flush_width - 1] += seconds
            own[plan.commit_sizes + bisect_left(SIZES, operations)] += 1
            own[plan.commit_sizes + plan.size_width - 1] += operations

    def keep(self, found: Mapping[Key, float]) -> None:
        """Takes in what this process has counted elsewhere, or holds now."""
        for at, key in enumerate(self.plan.keys, self.plan.kept):
            self._own[at] = self._before[key] + found[key]
