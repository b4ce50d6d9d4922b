"""The tally: what this process has done with each queue's messages and has not written yet.

An operation counts once what it did is on stable media. Counting costs no file system call.
"""

import os
import threading
from collections.abc import Mapping
from typing import Final

from mq.model.clock import Clock
from mq.model.history import Event
from mq.model.names import QueueName
from mq.model.totals import Row, Total, summed, totals_of

# Queues with counts in memory that are not written yet. Counts of further queues are lost.
TOTALS_QUEUES_HELD_MAX: Final = 10_000


class Tally:
    """The counts of one process and root. Threads share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[str, Row] = {}
        self._lock = threading.Lock()
        self.writing = threading.Lock()
        """Held from `take` until the taken counts are written, so that a reader misses none."""
        # Not the process: it may open a root more than once.
        self.name: Final = os.urandom(8).hex()
        self.number = 0
        """How many files it has written."""
        self.is_failing = False
        """Whether the last one could not be written."""

    def add(self, queue: QueueName, what: Total, count: int = 1) -> None:
        with self._lock:
            row = self._rows.get(queue.text) or self._new_row(queue.text)
            if row is not None:
                row.counts[what] = row.counts.get(what, 0) + count

    def add_event(
        self, queue: QueueName, event: Event, receives: int | None, why: str, messages: int = 1
    ) -> None:
        """Counts `messages` messages of which this event is recorded: of a pack its items.
        `why`: the reason of a sideline.
        """
        for each in totals_of(event, receives, why):
            self.add(queue, each, messages)

    def begin_anew(self, queue: QueueName) -> None:
        """The queue is made or deleted: this discards the counts of all processes up to now."""
        now_ms = self._clock.now_ms()
        with self._lock:
            self._rows.pop(queue.text, None)
            if (row := self._new_row(queue.text)) is not None:
                row.since_ms = row.began_ms = now_ms

    def take(self) -> dict[str, Row]:
        """All rows, by queue, which are the caller's now. For the holder of `writing`."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return rows

    def give_back(self, rows: Mapping[str, Row]) -> None:
        """They were taken, and could not be written. For the holder of `writing`."""
        with self._lock:
            for queue, row in rows.items():
                newer = self._rows.get(queue)
                if newer is not None:
                    both = summed((row, newer))
                    both.since_ms = max(row.since_ms, both.began_ms)
                    self._rows[queue] = both
                elif len(self._rows) < TOTALS_QUEUES_HELD_MAX:
                    self._rows[queue] = row

    def row(self, queue: str) -> Row | None:
        with self._lock:
            row = self._rows.get(queue)
            return None if row is None else Row(row.since_ms, row.began_ms, dict(row.counts))

    def _new_row(self, queue: str) -> Row | None:
        if len(self._rows) >= TOTALS_QUEUES_HELD_MAX:
            return None
        row = self._rows[queue] = Row(self._clock.now_ms())
        return row
