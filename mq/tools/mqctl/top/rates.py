"""Rates per second, from the difference between the totals of two descriptions."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from mq.client.values import Description

# Two answers that are closer together give no rate: the earlier one is kept.
RATE_OVER_S_MIN: Final = 0.15
# The rate of a process counts for this long after its last answer.
RATE_KEPT_S: Final = 30.0
PROCESSES_MAX: Final = 1024
# Dead letters that came within this time are new.
GROWTH_S: Final = 300.0
_CHANGES_MAX: Final = 150

PUBLISHED: Final = "published"
FETCHED: Final = "fetched"
DELETED: Final = "deleted"


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second."""

    published: float = 0.0
    fetched: float = 0.0
    deleted: float = 0.0

    @property
    def activity(self) -> float:
        return self.published + self.fetched + self.deleted

    def __add__(self, other: "Rates") -> "Rates":
        return Rates(
            self.published + other.published,
            self.fetched + other.fetched,
            self.deleted + other.deleted,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of one process since its start, at a time of its own clock."""

    at: datetime
    published: int
    fetched: int
    deleted: int

    @classmethod
    def of(cls, description: Description) -> Self:
        totals: Mapping[str, int] = description.totals
        return cls(
            description.as_of["totals"],
            totals.get(PUBLISHED, 0),
            totals.get(FETCHED, 0),
            totals.get(DELETED, 0),
        )

    def is_before(self, later: "Totals") -> bool:
        """Whether `later` continues these totals: the process was not restarted, and its clock was
        not set back.
        """
        return (
            later.at >= self.at
            and later.published >= self.published
            and later.fetched >= self.fetched
            and later.deleted >= self.deleted
        )


def rates_between(before: Totals, after: Totals) -> Rates | None:
    """The rates between two answers of a process; None if they are too close, or the process was
    restarted between them.
    """
    passed_s = (after.at - before.at).total_seconds()
    if passed_s < RATE_OVER_S_MIN or not before.is_before(after):
        return None
    return Rates(
        (after.published - before.published) / passed_s,
        (after.fetched - before.fetched) / passed_s,
        (after.deleted - before.deleted) / passed_s,
    )


@dataclass(slots=True)
class Seen:
    """A queue's last description, and rates by process. `asked_s`: its time by the steady clock."""

    latest: Description
    asked_s: float
    _totals: dict[int, Totals] = field(default_factory=dict)
    _rates: dict[int, tuple[Rates, float]] = field(default_factory=dict)
    _sidelined: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_CHANGES_MAX))

    @classmethod
    def first(cls, description: Description, asked_s: float) -> "Seen":
        """The first description, without rates."""
        seen = cls(description, asked_s)
        seen.take(description, asked_s)
        return seen

    def take(self, description: Description, asked_s: float) -> None:
        """Stores the next description. Each process (`--processes`) has totals of its own, so it is
        compared with the last one of the same process.
        """
        self.latest, self.asked_s = description, asked_s
        known = self._sidelined
        if not known or known[-1][1] != description.sidelined:
            known.append((asked_s, description.sidelined))
        while len(known) > 1 and known[1][0] <= asked_s - GROWTH_S:
            known.popleft()
        index, of = description.process.get("index", 0), self.processes
        now = Totals.of(description)
        before = self._totals.get(index)
        if before is None or not before.is_before(now):
            self._totals[index] = now
            self._rates.pop(index, None)
        elif (rates := rates_between(before, now)) is not None:
            self._totals[index] = now
            self._rates[index] = (rates, asked_s)
        for gone in [each for each in self._totals if each >= of and each != index]:
            del self._totals[gone]
            self._rates.pop(gone, None)

    @property
    def sidelined_before(self) -> int:
        """The number of dead letters GROWTH_S ago, or at the first answer."""
        return self._sidelined[0][1]

    @property
    def processes(self) -> int:
        """The number of processes that serve this address."""
        return min(max(self.latest.process.get("of", 1), 1), PROCESSES_MAX)

    def processes_counted(self) -> int:
        """The number of processes whose rates are known."""
        return len(self._fresh())

    def rates(self) -> Rates | None:
        """The sum of the known rates; None without any."""
        fresh = self._fresh()
        return sum(fresh, Rates()) if fresh else None

    def _fresh(self) -> list[Rates]:
        """The rates of each process that are not too old."""
        kept_from_s = self.asked_s - RATE_KEPT_S
        return [rates for rates, asked_s in self._rates.values() if asked_s >= kept_from_s]
