"""The time span in which redelivery has covered all of delay/ without a gap. Pure.

A full pass begins with a scan of all of delay/ and ends when all messages that were due then were
tried. A gap is a time without work: the process was stopped, the clock was set, the folder was
missing, the disk was full.
"""

from dataclasses import dataclass
from typing import Final

from mq.model.expiry import Passing

# A message seen in delay/ for the first time is left alone this long: the process that fetched it
# may not have written its due time yet.
FIRST_SIGHT_S: Final = 1.0
# A longer pause means that redelivery stopped. Messages that became due meanwhile are not overdue
# because of it.
REDELIVERY_GAP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Begun:
    """A pass: when it began, and the latest due time that it has to try."""

    at_ms: int
    covers_ms: int


class FullPasses:
    """Derives full passes from the mover's reports of its rounds."""

    def __init__(self) -> None:
        self.passing: Passing | None = None
        """The covered time span; None: no time yet."""
        self._began: _Begun | None = None
        self._heard: tuple[float, int] | None = None

    def at_work(self, steady_s: float, now_ms: int) -> None:
        """Reports that the mover works; a long silence before that is a gap."""
        if self._heard is not None:
            steady_gap_s = steady_s - self._heard[0]
            wall_gap_s = (now_ms - self._heard[1]) / 1000
            apart_s = abs(steady_gap_s - wall_gap_s)
            if max(steady_gap_s, wall_gap_s, apart_s) > REDELIVERY_GAP_S:
                self.broken()
        self.still_at_work(steady_s, now_ms)

    def still_at_work(self, steady_s: float, now_ms: int) -> None:
        """Reports the end of a scan of delay/, which counts as work however long it took."""
        self._heard = steady_s, now_ms

    def looked(self, began_ms: int, ended_ms: int, cut_ms: int | None, again: bool) -> None:
        """Reports a scan of delay/; `again`: also of the due times of known messages. Messages due
        from `cut_ms` on may be missing; None: none is.
        """
        # A message seen for the first time is postponed by this much.
        covers_ms = ended_ms + round(FIRST_SIGHT_S * 1000)
        if cut_ms is not None and cut_ms <= covers_ms:
            self._began = None  # More messages are due than fit: some are not tried.
        elif self._began is None and again:
            self._began = _Begun(began_ms, covers_ms)

    def tried(self, next_ms: int | None, now_ms: int) -> None:
        """Reports that all due messages were tried, and when the next is due; None: none is."""
        begun = self._began
        if begun is not None and (next_ms is None or next_ms > begun.covers_ms):
            since_ms = now_ms if self.passing is None else self.passing.since_ms
            self.passing = Passing(since_ms, begun.at_ms)
            self._began = None

    def broken(self) -> None:
        """Reports a gap: coverage starts again."""
        self.passing = self._began = None
