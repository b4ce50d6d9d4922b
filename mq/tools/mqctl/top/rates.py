"""How often a second something was done with a queue: the difference of two answers' totals."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from mq.client.values import Description
from mq.tools.mqctl.top.limits import RATE_OVER_S_MIN

PUBLISHED: Final = "published"
FETCHED: Final = "fetched"
DELETED: Final = "deleted"


@dataclass(frozen=True, slots=True)
class Rates:
    """What was done with a queue, each a second."""

    published: float = 0.0
    fetched: float = 0.0
    deleted: float = 0.0

    @property
    def activity(self) -> float:
        """All of it together, a second."""
        return self.published + self.fetched + self.deleted

    def __add__(self, other: "Rates") -> "Rates":
        return Rates(
            self.published + other.published,
            self.fetched + other.fetched,
            self.deleted + other.deleted,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """What one process had done with a queue since it began, at a moment by its own clock."""

    at: datetime
    published: int
    fetched: int
    deleted: int

    @classmethod
    def of(cls, said: Description) -> Self:
        """Those of an answer."""
        totals: Mapping[str, int] = said.totals
        return cls(
            said.as_of["totals"],
            totals.get(PUBLISHED, 0),
            totals.get(FETCHED, 0),
            totals.get(DELETED, 0),
        )

    def is_before(self, later: "Totals") -> bool:
        """Whether `later` counts on from here: a process that began anew counts from nothing, and a
        clock that was put back says nothing.
        """
        return (
            later.at >= self.at
            and later.published >= self.published
            and later.fetched >= self.fetched
            and later.deleted >= self.deleted
        )


def rates_between(before: Totals, after: Totals) -> Rates | None:
    """The rates from one answer of a process to the next; None where that cannot be told: they are
    too close, or the process began anew between.
    """
    passed_s = (after.at - before.at).total_seconds()
    if passed_s < RATE_OVER_S_MIN or not before.is_before(after):
        return None
    return Rates(
        (after.published - before.published) / passed_s,
        (after.fetched - before.fetched) / passed_s,
        (after.deleted - before.deleted) / passed_s,
    )
