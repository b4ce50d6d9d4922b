"""Counts requests on the event loop's thread and flushes on other threads.

Every message is counted here several times, so a count is a few plain additions.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from mq.metrics.board import Board
from mq.metrics.plan import GONE, KEPT, OUTCOMES, Key, Plan
from mq.runtime.histogram import FLUSH_SECONDS, SECONDS, SIZES

_OUTCOMES = len(OUTCOMES)

# Flushes that wait to be counted. A process that commits counts them long before.
_FLUSHES_MAX: Final = 4096

Flush: TypeAlias = tuple[int, bool, float]
"""A flush: the number of its kind, whether it failed, and its seconds."""


class Meter:
    """One process's counters on its board. `steady_s` is its clock, in seconds."""

    def __init__(self, plan: Plan, board: Board, steady_s: Callable[[], float]) -> None:
        self.plan = plan
        self.board = board
        self.steady_s = steady_s
        self._own = board.own
        self._flushes: deque[Flush] = deque()
        """Those that are not counted yet: an append needs no lock."""
        self._lock = threading.Lock()
        self._width = plan.request_width
        self._sum = plan.request_width - 1
        kept = self._own[plan.kept : plan.numbers].tolist()
        is_counter = {each.name for each in KEPT if each.is_counter}
        self._before = {
            key: value if key[0] in is_counter else 0.0
            for key, value in zip(plan.keys, kept, strict=True)
        }
        """The counts of the processes that had this number before."""

    def request(self, operation: int, status: int | None, seconds: float) -> None:
        """Counts a request by the number of its operation and its answer's status, None if its
        client had gone. For the event loop's thread.
        """
        own, outcome = self._own, GONE if status is None else status // 100 - 1
        at = (operation * _OUTCOMES + outcome) * self._width
        own[at + bisect_left(SECONDS, seconds)] += 1
        own[at + self._sum] += seconds

    def flush(self, flush: Flush) -> None:
        """Counts a flush, at the next commit or scrape. For any thread."""
        self._flushes.append(flush)
        if len(self._flushes) > _FLUSHES_MAX:
            with self._lock:
                self._count_flushes()

    def commit(self, operations: int, seconds: float) -> None:
        """Counts the flush of a group of operations, and all single ones so far. For any thread."""
        plan, own = self.plan, self._own
        with self._lock:
            self._count_flushes()
            own[plan.commit_seconds + bisect_left(FLUSH_SECONDS, seconds)] += 1
            own[plan.commit_seconds + plan.flush_width - 1] += seconds
            own[plan.commit_sizes + bisect_left(SIZES, operations)] += 1
            own[plan.commit_sizes + plan.size_width - 1] += operations

    def _count_flushes(self) -> None:
        own, first, width = self._own, self.plan.flushes, self.plan.flush_width
        flushes = self._flushes
        while flushes:
            kind, failed, seconds = flushes.popleft()
            at = first + (kind * 2 + failed) * width
            own[at + bisect_left(FLUSH_SECONDS, seconds)] += 1
            own[at + width - 1] += seconds

    def keep(self, found: Mapping[Key, float]) -> None:
        """Copies counts that the process keeps elsewhere, and its gauges, to the board."""
        with self._lock:
            self._count_flushes()
        for at, key in enumerate(self.plan.keys, self.plan.kept):
            self._own[at] = self._before[key] + found[key]
