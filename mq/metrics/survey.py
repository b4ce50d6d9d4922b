"""Counts of all queues, a little at a time.

A scrape counts for COUNTING_S at most, those first that were counted longest ago; of the others it
says what was last found. So a root of a few hundred queues is counted whole by each scrape, and one
of ten thousand by some in turn.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mq.model.errors import MqError, QueueNotFound
from mq.model.metrics_limits import COUNTING_S
from mq.model.names import QueueName
from mq.store.scan.census import Census
from mq.store.scan.counting import Counts, count
from mq.store.settings.registry import existing_queues

_log = logging.getLogger("mq.metrics")

FIGURES: Final = (
    "ready", "delayed", "in_flight", "leased", "overdue", "removed", "sidelined", "foreign",
)  # fmt: skip
"""Of a queue's counts, those that are shown and can be summed."""
OTHERS: Final = ""
"""Stands for all queues that have no samples of their own; no queue is called so."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one queue, or of several together: figures by their names, and how long ago
    the oldest ready message was published, and the one that has been overdue longest was due; 0
    where there is none.
    """

    queue: str
    figures: Mapping[str, int]
    oldest_ready_s: float
    oldest_overdue_s: float


@dataclass(frozen=True, slots=True)
class Surveyed:
    """All queues: how many there are, how many of those were never counted, and how long ago the
    one was counted that was counted longest ago.
    """

    rows: list[Row]
    queues: int
    uncounted: int
    age_s: float


class Survey:
    """One process's. `named_max` queues, the first by their names, have a row each, all others one
    together. Blocking; for one thread at a time.
    """

    def __init__(self, census: Census, named_max: int, counting_s: float = COUNTING_S) -> None:
        self._census = census
        self._named_max = named_max
        self._counting_s = counting_s
        self._known: dict[QueueName, tuple[float, Counts]] = {}
        """When each was counted, by the steady clock, and what was found."""
        self._failed: set[QueueName] = set()
        """Those that could not be counted the last time."""

    def look(self) -> Surveyed:
        """Counts some; what is known of all. Raises OSError."""
        root = self._census.root
        names = sorted(existing_queues(root))
        self._known = {each: self._known[each] for each in names if each in self._known}
        self._failed &= set(names)
        self._count(names)
        now_s = root.clock.steady_s()
        rows = [self._row(each) for each in names[: self._named_max] if each in self._known]
        others = names[self._named_max :]
        # A part of them would look as if messages came whenever one more of them is counted.
        if others and all(each in self._known or each in self._failed for each in others):
            rows.append(self._together([each for each in others if each in self._known]))
        age_s = max((now_s - at_s for at_s, _ in self._known.values()), default=0.0)
        return Surveyed(rows, len(names), len(names) - len(self._known), age_s)

    def _count(self, names: list[QueueName]) -> None:
        clock = self._census.root.clock
        until_s = clock.steady_s() + self._counting_s
        never = (float("-inf"), None)
        for name in sorted(names, key=lambda each: self._known.get(each, never)[0]):
            began_s = clock.steady_s()
            if began_s >= until_s:
                return
            try:
                self._known[name] = (began_s, count(self._census, name))
            except QueueNotFound:
                self._known.pop(name, None)
            except (MqError, OSError) as error:
                # What else is asked of the disk says whether it is ill. The last count stays.
                if name not in self._failed:
                    fields = {"queue": name.text, "error": repr(error)}
                    _log.warning("a queue cannot be counted", extra={"fields": fields})
                self._failed.add(name)
            else:
                self._failed.discard(name)

    def _together(self, names: list[QueueName]) -> Row:
        found = [(each.is_sideline, self._row(each)) for each in names]
        # What lies in sidelines waits for nobody.
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
