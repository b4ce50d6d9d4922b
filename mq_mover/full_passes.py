"""Since when redelivery has passed over all of delay/ without a gap. Pure.

A full pass begins with a look at all of it, and ends when what was due then has been tried. A gap
is a time in which nothing was done, or could be: the process was stopped, the clock was set, the
folder was away, the disk was full.
"""

from dataclasses import dataclass

from mq.model.limits import FIRST_SIGHT_S
from mq.model.sweeping import Passing
from mq.model.upkeep_limits import REDELIVERY_GAP_S


@dataclass(frozen=True, slots=True)
class _Begun:
    """A pass on its way: when it began, and up to when what was found is due, all of which is to be
    tried.
    """

    at_ms: int
    covers_ms: int


class FullPasses:
    """What the mover tells of its rounds, and what follows."""

    def __init__(self) -> None:
        self.passing: Passing | None = None
        """None: since no time at all."""
        self._began: _Begun | None = None
        self._heard: tuple[float, int] | None = None

    def at_work(self, steady_s: float, now_ms: int) -> None:
        """Says that it is; where it was not for long since it said so last, there was a gap."""
        if self._heard is not None:
            steady_gap_s = steady_s - self._heard[0]
            wall_gap_s = (now_ms - self._heard[1]) / 1000
            apart_s = abs(steady_gap_s - wall_gap_s)
            if max(steady_gap_s, wall_gap_s, apart_s) > REDELIVERY_GAP_S:
                self.broken()
        self.still_at_work(steady_s, now_ms)

    def still_at_work(self, steady_s: float, now_ms: int) -> None:
        """Behind a look at all of delay/: however long that took, it was at work."""
        self._heard = steady_s, now_ms

    def looked(self, began_ms: int, ended_ms: int, cut_ms: int | None, again: bool) -> None:
        """At all of delay/, and `again` at the due times of what was known. What is due from
        `cut_ms` on was perhaps left out; None: nothing was.
        """
        # What was seen for the first time is put off by so much.
        covers_ms = ended_ms + round(FIRST_SIGHT_S * 1000)
        if cut_ms is not None and cut_ms <= covers_ms:
            self._began = None  # More is due than can be remembered: some of it is not tried.
        elif self._began is None and again:
            self._began = _Begun(began_ms, covers_ms)

    def tried(self, next_ms: int | None, now_ms: int) -> None:
        """What is due was tried, so that the next is due then; None: none is."""
        begun = self._began
        if begun is not None and (next_ms is None or next_ms > begun.covers_ms):
            since_ms = now_ms if self.passing is None else self.passing.since_ms
            self.passing = Passing(since_ms, begun.at_ms)
            self._began = None

    def broken(self) -> None:
        """There was a gap: all begins anew."""
        self.passing = self._began = None
