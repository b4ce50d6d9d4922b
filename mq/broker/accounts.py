"""What is known of a queue beside its messages: what was done, its counts, its settings file."""

from dataclasses import dataclass, fields
from typing import Final

from mq.model.errors import Unavailable
from mq.store.format.bucket_names import Shape
from mq.store.format.settings import Version
from mq.store.scan.counting import Counts


@dataclass(slots=True)
class Totals:
    """What this process did with a queue since it began. `redelivered` are those of `fetched` that
    had been fetched before; `extended` were given a due time to come, `released` are to be ready at
    once, or were given back; `sidelined` are gone to its sideline, or were there when a request
    came; `expired` were about to be fetched, and had lived too long.
    """

    published: int = 0
    fetched: int = 0
    redelivered: int = 0
    deleted: int = 0
    extended: int = 0
    released: int = 0
    sidelined: int = 0
    expired: int = 0
    lost_races: int = 0

    def add(self, others: "Totals") -> None:
        """Adds what was done elsewhere."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(others, each.name))


@dataclass(frozen=True, slots=True)
class Description:
    """A queue's counts and shape, fresh until `stale_s`; `seen_s`: when the queue was last there.
    Both are of the steady clock.
    """

    counts: Counts
    shape: Shape
    stale_s: float
    seen_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """When (by the steady clock) a queue's settings were looked at, which file they were then, and
    why they could not be understood, where they could not.
    """

    at_s: float
    file: Version | None = None
    error: Unavailable | None = None


UNSEEN: Final = Seen(float("-inf"))
"""They were not looked at yet."""
