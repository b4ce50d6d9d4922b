"""Arranges the tables by queue, for its charts."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

Row = Mapping[str, Any]
Figure = float | None
"""None: unknown."""

_MOST: Final = 1e24
"""Larger numbers are neither counts nor times."""
POINTS: Final = 200
"""A chart has at most this many steps."""


def seconds(when: datetime) -> float:
    """A time in seconds since 1970; one without a zone is UTC."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def figure(value: Any) -> Figure:
    """A number that can be drawn; None for anything else."""
    if value is None:
        return None
    number = float(value)
    return number if abs(number) <= _MOST else None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Steps in order of time, from `starts` to `ends` (equal for figures at a time), with a figure
    per step in every column. `joined`: how many of the source's steps form one step here.
    """

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    columns: Mapping[str, tuple[Figure, ...]]
    joined: int = 1

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, column: str) -> tuple[Figure, ...]:
        return self.columns[column]

    @property
    def lasts(self) -> bool:
        """Whether its steps are spans of time, not single times."""
        return all(end > start for start, end in zip(self.starts, self.ends, strict=True))

    def middle(self, index: int) -> float:
        """The time at which a step is drawn."""
        return (self.starts[index] + self.ends[index]) / 2

    def rates(self, column: str) -> tuple[Figure, ...]:
        """A column's figures per second of their steps."""
        spans = (max(end - start, 1e-3) for start, end in zip(self.starts, self.ends, strict=True))
        return tuple(
            None if value is None else value / span
            for value, span in zip(self.columns[column], spans, strict=True)
        )


def timeline(rows: Iterable[Row], start: str, columns: Sequence[str]) -> Timeline:
    """The rows' figures, ordered by their time in `start`; without a `step_s` they are for that
    time.
    """
    ordered = sorted(
        ((seconds(row[start]), row) for row in rows if row.get(start) is not None),
        key=lambda pair: pair[0],
    )
    return Timeline(
        tuple(when for when, _ in ordered),
        tuple(when + (figure(row.get("step_s")) or 0.0) for when, row in ordered),
        {name: tuple(figure(row.get(name)) for _, row in ordered) for name in columns},
    )


def summed(values: Sequence[Figure]) -> Figure:
    """The sum over several steps; unknown if one of them is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def worst(values: Sequence[Figure]) -> Figure:
    """The maximum of several steps' known figures."""
    return max((value for value in values if value is not None), default=None)


def filled(line: Timeline, steps: Timeline, column: str) -> Timeline:
    """A timeline of messages with a row for each of the `steps`. A missing row had no messages if
    the steps' `column` is known, else its messages are unknown.
    """
    there = set(line.starts)
    lacking = [index for index, start in enumerate(steps.starts) if start not in there]
    if not lacking:
        return line
    rows = [
        (line.starts[i], line.ends[i], {name: line[name][i] for name in line.columns})
        for i in range(len(line))
    ]
    none: dict[str, Figure] = dict.fromkeys(line.columns)
    for i in lacking:
        messages = None if steps[column][i] is None else 0.0
        rows.append((steps.starts[i], steps.ends[i], {**none, "messages": messages}))
    rows.sort(key=lambda row: row[0])
    return Timeline(
        tuple(start for start, _, _ in rows),
        tuple(end for _, end, _ in rows),
        {name: tuple(values[name] for _, _, values in rows) for name in line.columns},
    )


def thinned(
    line: Timeline,
    join: Callable[[Sequence[Figure]], Figure],
    points: int = POINTS,
    totals: Sequence[str] = (),
) -> Timeline:
    """At most `points` steps: neighbours are joined by `join` (`summed` or `worst`), the columns of
    `totals` always by `summed`.
    """
    every = math.ceil(len(line) / points)
    if every <= 1:
        return line
    parts = [slice(first, first + every) for first in range(0, len(line), every)]
    return replace(
        line,
        starts=tuple(line.starts[part][0] for part in parts),
        ends=tuple(line.ends[part][-1] for part in parts),
        columns={
            name: tuple((summed if name in totals else join)(values[part]) for part in parts)
            for name, values in line.columns.items()
        },
        joined=every,
    )


FIRST_FETCH: Final = "publish-to-first-fetch"
REMOVAL: Final = "publish-to-removal"
RATES: Final = ("published", "published_bytes", "fetched", "redelivered", "removed", "sidelined")
_TOLD_BY: Final = {FIRST_FETCH: "fetched", REMOVAL: "removed"}
"""The rate that must be known for a step's latencies to be known."""
QUANTILES: Final = ("p50_s", "p90_s", "p99_s", "p999_s", "max_s")
LATENCIES: Final = ("messages", "mean_s", *QUANTILES)
BACKLOG: Final = ("messages", "bytes", "oldest_age_s")
COUNTS: Final = ("published", "removed", "ready", "delayed", "leased", "sidelined", "bytes")

FETCHED: Final = "history files of that time, in the root or the archive,"
REMOVED: Final = "an archive or history files of that time"
SIZED: Final = "inodes, an archive or history files"
"""The sources of each figure, in words."""
LEAST_STALL: Final = 3
"""Steps of the shortest stall."""


@dataclass(frozen=True, slots=True)
class Part:
    """The figures of a queue's messages with one priority, or with any (priority None)."""

    priority: int | None
    rates: Timeline
    backlog: Timeline
    latencies: Mapping[str, Timeline]
    overall: Mapping[str, Mapping[str, Figure]]
    """The known latencies of the whole time, for each measure."""
    receives: tuple[tuple[int, float], ...]
    """(receives, messages), in order."""
    sizes: tuple[tuple[int, int, float], ...]
    """(from, to, messages), in order; from and to in bytes."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        lines = (self.rates, self.backlog, *self.latencies.values())
        return not (self.receives or self.sizes or self.overall or any(map(len, lines)))


@dataclass(frozen=True, slots=True)
class Queue:
    """All figures of a queue."""

    name: str
    sources: tuple[str, ...]
    counts: Mapping[str, Figure]
    """The figures of COUNTS for the whole queue."""
    oldest_age_s: Figure
    first: Figure
    last: Figure
    all: Part
    parts: tuple[Part, ...]
    """By priority, the most urgent first; one part if the queue uses no priorities."""

    @property
    def backlog(self) -> Figure:
        """The messages that are published and not yet removed, now, including sidelined ones."""
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
        """How early the report shows the queue: the busiest come first."""
        moved = (self.counts["published"] or 0.0) + (self.counts["removed"] or 0.0)
        return moved + (self.backlog or 0.0)


def queues(tables: Mapping[str, Sequence[Row]]) -> tuple[Queue, ...]:
    """Every queue with a row in any table, the busiest first."""
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
    """The rows' messages by these values, in order; skips rows that lack one."""
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


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which messages waited and none was removed: the first thing that a reader looks
    for. Times are seconds since 1970; `peak`: how many messages waited at its end.
    """

    begin: float
    end: float
    peak: float


def longest_stall(part: Part) -> Stall | None:
    """The longest run of at least LEAST_STALL steps in which nothing was removed though messages
    waited at the end of each. None for a queue from which nothing was ever removed.
    """
    waiting = {
        round(at): messages
        for at, messages in zip(part.backlog.ends, part.backlog["messages"], strict=True)
        if messages
    }
    removed = part.rates["removed"]
    if not any(removed):
        return None
    best: Stall | None = None
    begun: int | None = None
    for index, (value, end) in enumerate(zip(removed, part.rates.ends, strict=True)):
        messages = waiting.get(round(end))
        if value != 0 or messages is None:
            begun = None
            continue
        begun = index if begun is None else begun
        begin = part.rates.starts[begun]
        if index - begun + 1 >= LEAST_STALL and (
            best is None or end - begin > best.end - best.begin
        ):
            best = Stall(begin, end, messages)
    return best


def not_known(queue: Queue, teller: str) -> str:
    """Says that a figure is unknown, which source would show it, and which sources the
    queue has.
    """
    if not queue.sources:
        return f"Not known: no source tells of this queue; {teller} would."
    return f"Not known: {teller} would tell; this is from {named(queue.sources)}."


def named(sources: tuple[str, ...]) -> str:
    """Sources in words: "inodes", "archive and history"."""
    words = {"archive": "the archive", "inodes": "inodes", "history": "history files"}
    said = [words.get(source, source) for source in sources]
    return " and ".join((", ".join(said[:-1]), said[-1]) if len(said) > 1 else said)
