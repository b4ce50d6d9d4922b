"""What the tables know of each queue, sorted out for its pictures."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mq.spark.jobs.report.timelines import Figure, Row, Timeline, figure, filled, seconds, timeline

FIRST_FETCH: Final = "publish-to-first-fetch"
REMOVAL: Final = "publish-to-removal"
RATES: Final = ("published", "published_bytes", "fetched", "redelivered", "removed", "sidelined")
_TOLD_BY: Final = {FIRST_FETCH: "fetched", REMOVAL: "removed"}
"""The rates that are known when the latencies of a step are."""
QUANTILES: Final = ("p50_s", "p90_s", "p99_s", "p999_s", "max_s")
LATENCIES: Final = ("messages", "mean_s", *QUANTILES)
BACKLOG: Final = ("messages", "bytes", "oldest_age_s")
COUNTS: Final = ("published", "removed", "ready", "delayed", "leased", "sidelined", "bytes")


@dataclass(frozen=True, slots=True)
class Part:
    """The figures of a queue's messages of one priority, or of all (priority None)."""

    priority: int | None
    rates: Timeline
    backlog: Timeline
    latencies: Mapping[str, Timeline]
    overall: Mapping[str, Mapping[str, Figure]]
    """By what is measured: the latencies of all the time; without what nobody knows."""
    receives: tuple[tuple[int, float], ...]
    """(how often, messages), in order."""
    sizes: tuple[tuple[int, int, float], ...]
    """(from, to, messages), in order; bytes."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        lines = (self.rates, self.backlog, *self.latencies.values())
        return not (self.receives or self.sizes or self.overall or any(map(len, lines)))


@dataclass(frozen=True, slots=True)
class Queue:
    """All that is known of a queue."""

    name: str
    sources: tuple[str, ...]
    counts: Mapping[str, Figure]
    """Of COUNTS, those of the whole queue."""
    oldest_age_s: Figure
    first: Figure
    last: Figure
    all: Part
    parts: tuple[Part, ...]
    """By priority, the most urgent first; of a queue without priorities, one."""

    @property
    def backlog(self) -> Figure:
        """The messages that are published and not yet removed, now; sidelined ones too."""
        living = [self.counts[name] for name in ("ready", "delayed", "leased", "sidelined")]
        known = [value for value in living if value is not None]
        if known:
            return sum(known)
        return next((v for v in reversed(self.all.backlog["messages"]) if v is not None), None)

    @property
    def span(self) -> tuple[float, float] | None:
        """From the first time in its tables to the last."""
        lines = (self.all.rates, self.all.backlog, *self.all.latencies.values())
        begins = [line.starts[0] for line in lines if line.starts]
        return (min(begins), max(line.ends[-1] for line in lines if line.ends)) if begins else None

    @property
    def weight(self) -> float:
        """How much a report says of it first: the busiest queues come first."""
        moved = (self.counts["published"] or 0.0) + (self.counts["removed"] or 0.0)
        return moved + (self.backlog or 0.0)


def queues(tables: Mapping[str, Sequence[Row]]) -> tuple[Queue, ...]:
    """Every queue of which any table has a row, the busiest first."""
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for table, rows in tables.items():
        for row in rows:
            found[str(row["queue"])][table].append(row)
    made = (_queue(name, rows) for name, rows in found.items())
    return tuple(sorted(made, key=lambda queue: (-queue.weight, queue.name)))


def _queue(name: str, rows: Mapping[str, list[Row]]) -> Queue:
    listed = rows.get("queues") or [{}]
    row: Mapping[str, Any] = listed[0]
    priorities = {
        found["priority"]
        for table in ("rates", "latencies", "receives", "sizes", "backlog")
        for found in rows.get(table, ())
        if found.get("priority") is not None
    }
    first, last = row.get("first"), row.get("last")
    return Queue(
        name=name,
        sources=tuple(map(str, row.get("sources") or ())),
        counts={column: figure(row.get(column)) for column in COUNTS},
        oldest_age_s=figure(row.get("oldest_age_s")),
        first=seconds(first) if first else None,
        last=seconds(last) if last else None,
        all=_part(None, rows),
        parts=tuple(_part(priority, rows) for priority in sorted(priorities, reverse=True)),
    )


def _part(priority: int | None, tables: Mapping[str, list[Row]]) -> Part:
    rows = {
        table: [row for row in found if row.get("priority") == priority]
        for table, found in tables.items()
    }
    latencies = rows.get("latencies", [])
    by_what = {
        what: [row for row in latencies if row.get("what") == what]
        for what in (FIRST_FETCH, REMOVAL)
    }
    rates = timeline(rows.get("rates", ()), "start", RATES)
    return Part(
        priority=priority,
        rates=rates,
        backlog=timeline(rows.get("backlog", ()), "at", BACKLOG),
        latencies={
            what: filled(timeline(found, "start", LATENCIES), rates, _TOLD_BY[what])
            for what, found in by_what.items()
        },
        overall={
            what: {name: figure(row.get(name)) for name in LATENCIES}
            for what, found in by_what.items()
            for row in found
            if row.get("start") is None
        },
        receives=tuple(
            (often, messages)
            for (often,), messages in _counted(rows.get("receives", ()), "receives")
        ),
        sizes=tuple(
            (low, high, messages)
            for (low, high), messages in _counted(rows.get("sizes", ()), "bytes_from", "bytes_to")
        ),
    )


def _counted(rows: Sequence[Row], *values: str) -> list[tuple[tuple[int, ...], float]]:
    """Rows that count messages by those values, in order; one that lacks any counts nothing."""
    counted = []
    for row in rows:
        messages = figure(row.get("messages"))
        if (
            messages is not None
            and messages >= 0
            and all(row.get(value) is not None for value in values)
        ):
            counted.append((tuple(int(row[value]) for value in values), messages))
    return sorted(counted)
