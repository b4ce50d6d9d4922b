"""Counts of all queues, a little at a time.

A scrape counts for COUNTING_S at most, queues with the oldest counts first, and shows the last
counts of the others. So a scrape counts a root of some hundred queues whole, and one of ten
thousand in parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mq.model.errors import MqError, QueueNotFound
from mq.model.log import logger
from mq.model.names import QueueName
from mq.model.totals import Total
from mq.store.scan.census import Census, Counts, count
from mq.store.settings.registry import existing_queues
from mq.store.totals.ledger import Ledger

COUNTING_S: Final = 0.1
"""How long a scrape counts queues, in seconds."""

_log = logger("mq.metrics")

FIGURES: Final = (
    "ready", "delayed", "in_flight", "leased", "overdue", "removed", "sidelined", "foreign",
)  # fmt: skip
"""The counts of a queue that are exported and can be summed."""
OTHERS: Final = ""
"""The label for all queues without samples of their own; no queue has this name."""


@dataclass(frozen=True, slots=True)
class Row:
    """The counts of one queue, or of several together, and two ages in seconds: since the publish
    of the oldest ready message, and since the due time of the message that is overdue longest; 0
    without one. `totals`: of a single queue, as all processes have written them.
    """

    queue: str
    figures: Mapping[str, int]
    oldest_ready_s: float
    oldest_overdue_s: float
    totals: Mapping[Total, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surveyed:
    """All queues: their number, how many were never counted, and the age of the oldest count."""

    rows: list[Row]
    queues: int
    uncounted: int
    age_s: float


class Survey:
    """One process's counts of all queues. The first `named_max` queues by name have a row each, the
    others share one. Blocking; for one thread at a time.
    """

    def __init__(
        self, census: Census, ledger: Ledger, named_max: int, counting_s: float = COUNTING_S
    ) -> None:
        self._census = census
        self._ledger = ledger
        self._named_max = named_max
        self._counting_s = counting_s
        self._known: dict[QueueName, tuple[float, Counts]] = {}
        """The time of each queue's count, by the steady clock, and the counts."""
        self._failed: set[QueueName] = set()
        """Queues whose last count failed."""

    def look(self) -> Surveyed:
        """Counts some queues and returns the figures of all. Raises OSError."""
        names = self.begin()
        never = (float("-inf"), None)
        self.count(sorted(names, key=lambda each: self._known.get(each, never)[0]))
        return self.surveyed(names)

    def begin(self) -> list[QueueName]:
        """The queues that there are, in order. Raises OSError."""
        names = sorted(existing_queues(self._census.root))
        self._known = {each: self._known[each] for each in names if each in self._known}
        self._failed &= set(names)
        return names

    def surveyed(self, names: list[QueueName]) -> Surveyed:
        """The last counts of these queues, in order."""
        now_s = self._census.root.clock.steady_s()
        named = [each for each in names[: self._named_max] if each in self._known]
        totals = self._totals(named)
        rows = [replace(self._row(each), totals=totals.get(each, {})) for each in named]
        others = names[self._named_max :]
        # A sum over some queues would seem to grow with every further queue.
        if others and all(each in self._known or each in self._failed for each in others):
            rows.append(self._together([each for each in others if each in self._known]))
        age_s = max((now_s - at_s for at_s, _ in self._known.values()), default=0.0)
        return Surveyed(rows, len(names), len(names) - len(self._known), age_s)

    def count(self, names: list[QueueName]) -> list[QueueName]:
        """Counts the first of these queues. Returns those that it left out."""
        clock = self._census.root.clock
        until_s = clock.steady_s() + self._counting_s
        for done, name in enumerate(names):
            began_s = clock.steady_s()
            if began_s >= until_s:
                return names[done:]
            try:
                self._known[name] = (began_s, count(self._census, name))
            except QueueNotFound:
                self._known.pop(name, None)
            except (MqError, OSError) as error:
                # The scrape's probe shows whether the disk fails. The last count stays.
                if name not in self._failed:
                    fields = {"queue": name.text, "error": repr(error)}
                    _log.warning("cannot count a queue", extra={"fields": fields})
                self._failed.add(name)
            else:
                self._failed.discard(name)
        return []

    def _totals(self, names: list[QueueName]) -> Mapping[QueueName, Mapping[Total, int]]:
        try:
            return self._ledger.written_of(names)
        except OSError as error:
            _log.warning("cannot read totals", extra={"fields": {"error": repr(error)}})
            return {}

    def _together(self, names: list[QueueName]) -> Row:
        found = [(each.is_sideline, self._row(each)) for each in names]
        # Messages in sidelines do not wait for a consumer.
        ready_s = (row.oldest_ready_s for is_sideline, row in found if not is_sideline)
        return Row(
            OTHERS,
            {figure: sum(row.figures[figure] for _, row in found) for figure in FIGURES},
            max(ready_s, default=0.0),
            max((row.oldest_overdue_s for _, row in found), default=0.0),
        )

    def _row(self, name: QueueName) -> Row:
        counts, now_ms = self._known[name][1], self._census.root.now_ms()
        return Row(
            name.text,
            {figure: getattr(counts, figure) for figure in FIGURES},
            _ago_s(counts.oldest_ready_ms, now_ms),
            _ago_s(counts.oldest_overdue_ms, now_ms),
        )


def _ago_s(ms: int | None, now_ms: int) -> float:
    return 0.0 if ms is None else max(0, now_ms - ms) / 1000
