"""A queue's accounts: its totals and its counts."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from mq.model.totals import Total
from mq.store.format.bucket_names import Shape
from mq.store.scan.census import Counts


@dataclass(slots=True)
class Totals:
    """What this process did with a queue since its start. `redelivered`: fetches of messages that
    had been fetched before, also counted in `fetched`. `extended`: messages that got a later due
    time. `released`: messages made ready at once, or returned. `sidelined`: messages moved to the
    sideline, or found there by the request. `expired`: messages that were too old when they were
    about to be fetched. `dropped`: messages removed or sidelined to make room.
    """

    published: int = 0
    fetched: int = 0
    redelivered: int = 0
    deleted: int = 0
    extended: int = 0
    released: int = 0
    sidelined: int = 0
    expired: int = 0
    dropped: int = 0
    lost_races: int = 0

    def add(self, others: "Totals") -> None:
        """Adds the counts of another process."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(others, each.name))


@dataclass(frozen=True, slots=True)
class Description:
    """A queue's counts, its totals over all processes, and its shape, fresh until `stale_s`;
    `seen_s`: when the queue was last there. Both are of the steady clock.
    """

    counts: Counts
    lifetime: Mapping[Total, int]
    shape: Shape
    stale_s: float
    seen_s: float
