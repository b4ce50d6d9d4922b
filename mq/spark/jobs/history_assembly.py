"""Makes the rows of a history's tables from Spark's counts for one queue. Pure."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mq.spark.jobs.history_cells import (
    FETCHED,
    REDELIVERED,
    SIDELINED,
    TO_FETCH,
    TO_REMOVAL,
    Kind,
    Steps,
)
from mq.spark.jobs.history_lives import ARCHIVE, HISTORY, SOURCES, QueueFacts

Row: TypeAlias = tuple[Any, ...]
"""A table's row, in the order of its columns; times in milliseconds since the epoch."""
Priority: TypeAlias = int | None

WHATS: Final = {TO_FETCH: "publish-to-first-fetch", TO_REMOVAL: "publish-to-removal"}
_S_MS: Final = 1000.0
_MADE_OF_STEPS: Final = ("rates", "latencies", "receives", "sizes", "backlog")


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of `cells_of`, of one queue."""

    kind: str
    priority: Priority
    a: int | None
    b: int | None
    v: Sequence[int]


@dataclass(frozen=True, slots=True)
class Known:
    """The time for which a queue's messages are known, in milliseconds since the epoch. Everything
    removed from `removals_ms` on still exists or is archived; history lines cover `lines_ms[0]` to
    `lines_ms[1]`. `now_ms`: when the messages were listed. `drops`: steps in which lines were
    dropped.
    """

    steps: Steps
    now_ms: int
    removals_ms: int | None
    lines_ms: tuple[int, int] | None
    drops: frozenset[int] = frozenset()

    def is_told(self, step: int) -> bool:
        """Whether history lines cover the step."""
        if self.lines_ms is None or step in self.drops:
            return False
        first, last = self.lines_ms
        return self.steps.end(step) > first and self.steps.start(step) <= last

    def is_counted(self, step: int) -> bool:
        """Whether everything published and removed in the step is known."""
        return self._is_kept(step) or self.is_told(step)

    def is_backlog_known(self, step: int) -> bool:
        """Whether everything that existed at the step's end is known. A history that is off by now
        misses later removals.
        """
        goes_on = self.lines_ms is not None and self.lines_ms[1] >= self.now_ms
        is_now = self.steps.end(step) > self.now_ms
        return is_now or self._is_kept(step) or (goes_on and self.is_told(step))

    def _is_kept(self, step: int) -> bool:
        return self.removals_ms is not None and self.steps.end(step) > self.removals_ms


@dataclass(slots=True)
class _Cells:
    """A queue's cells by kind. Those of each priority also count for all priorities (None)."""

    flows: dict[Priority, list[tuple[int, int, Sequence[int]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    counts: dict[tuple[Priority, str, int | None], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    sizes: dict[Priority, dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: [0, 0]))
    )
    latencies: list[Cell] = field(default_factory=list)
    dropped: Counter[int] = field(default_factory=Counter)

    def add(self, cell: Cell) -> None:
        if cell.kind == Kind.LATENCY:
            self.latencies.append(cell)
            return
        assert cell.a is not None  # noqa: S101 - the one kind that has none is above.
        if cell.kind == Kind.DROPPED:
            self.dropped[cell.a] += cell.v[0]
            return
        for priority in (cell.priority, None):
            if cell.kind == Kind.FLOW:
                assert cell.b is not None  # noqa: S101
                self.flows[priority].append((cell.a, cell.b, cell.v))
            elif cell.kind == Kind.SIZE:
                sums = self.sizes[priority][cell.a]
                sums[0] += cell.v[0]
                sums[1] += cell.v[1]
            else:
                self.counts[priority, cell.kind, cell.b][cell.a] += cell.v[0]

    def priorities(self) -> list[Priority]:
        """None, for all priorities together, then each priority that occurs."""
        found = {*self.flows, *(each for each, _, _ in self.counts)} - {None}
        return [None, *sorted(each for each in found if each is not None)]


def queue_row(facts: QueueFacts, now_ms: int) -> Row:
    """A queue's row of the table `queues`."""
    sources = [name for bit, name in SOURCES.items() if facts.sources & bit]
    # Inodes alone do not show past messages.
    is_kept = bool(facts.sources & (ARCHIVE | HISTORY))
    oldest_s = None if facts.oldest_ms is None else max(0, now_ms - facts.oldest_ms) / _S_MS
    return (
        facts.queue,
        sources,
        facts.first_ms,
        facts.last_ms,
        facts.published if is_kept else None,
        facts.removed if is_kept else None,
        facts.ready,
        facts.delayed,
        facts.leased,
        facts.sidelined,
        facts.bytes,
        oldest_s,
    )


def queue_tables(
    queue: str, cells: Iterable[Cell], steps: Steps, known: Known
) -> tuple[Mapping[str, list[Row]], int]:
    """The queue's rows of all tables but `queues`, and how many lines its history lacks."""
    found = _Cells()
    for cell in cells:
        found.add(cell)
    known = Known(steps, known.now_ms, known.removals_ms, known.lines_ms, frozenset(found.dropped))
    tables: dict[str, list[Row]] = {name: [] for name in _MADE_OF_STEPS}
    for priority in found.priorities():
        about = (queue, priority)
        tables["rates"] += _rates(about, found, steps, known)
        tables["latencies"] += _latencies(about, found.latencies, steps, known)
        tables["receives"] += _receives(about, found)
        tables["sizes"] += _sizes(about, found.sizes[priority])
        tables["backlog"] += _backlog(about, found.flows[priority], steps, known)
    return tables, sum(found.dropped.values())


def _rates(about: tuple[str, Priority], cells: _Cells, steps: Steps, known: Known) -> Iterator[Row]:
    priority = about[1]
    published: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    unsized: Counter[int] = Counter()
    for step, _, (messages, size, without, _) in cells.flows[priority]:
        published[step] += messages
        sizes[step] += size
        unsized[step] += without
    removed = {
        cell.a: cell.v[0]
        for cell in cells.latencies
        if cell.priority == priority and cell.b == TO_REMOVAL and cell.a is not None
    }
    fetched, redelivered, sidelined = (
        cells.counts[priority, Kind.EVENT, what] for what in (FETCHED, REDELIVERED, SIDELINED)
    )
    for step in range(steps.count):
        is_counted, is_told = known.is_counted(step), known.is_told(step)
        yield (
            *about,
            steps.start(step),
            steps.step_s,
            published[step] if is_counted else None,
            sizes[step] if is_counted and not unsized[step] else None,
            fetched[step] if is_told else None,
            redelivered[step] if is_told else None,
            removed.get(step, 0) if is_counted else None,
            sidelined[step] if is_told else None,
        )


def _latencies(
    about: tuple[str, Priority], cells: Iterable[Cell], steps: Steps, known: Known
) -> Iterator[Row]:
    mine: dict[tuple[int, int | None], Sequence[int]] = {
        (cell.b or 0, cell.a): cell.v for cell in cells if cell.priority == about[1]
    }
    for what, name in WHATS.items():
        is_known = known.is_told if what == TO_FETCH else known.is_counted
        total = mine.pop((what, None), None)
        if total is not None:
            yield (*about, name, None, steps.step_s, *_latency(total))
        else:
            messages = 0 if any(map(is_known, range(steps.count))) else None
            yield (*about, name, None, steps.step_s, messages, *[None] * 6)
    in_steps = ((step, code, values) for (code, step), values in mine.items() if step is not None)
    for step, code, values in sorted(in_steps):
        yield (*about, WHATS[code], steps.start(step), steps.step_s, *_latency(values))


def _latency(values: Sequence[int]) -> Row:
    messages, total, longest, *quantiles = values
    times = (total / messages, *quantiles, longest)
    return (messages, *(each / _S_MS for each in times))


def _receives(about: tuple[str, Priority], cells: _Cells) -> Iterator[Row]:
    for receives, messages in sorted(cells.counts[about[1], Kind.RECEIVES, None].items()):
        yield (*about, receives, messages)


def _sizes(about: tuple[str, Priority], sizes: Mapping[int, Sequence[int]]) -> Iterator[Row]:
    for power, (messages, size) in sorted(sizes.items()):
        least, most = (0, 1) if power < 0 else (1 << power, 2 << power)
        yield (*about, least, most, messages, size)


def _backlog(
    about: tuple[str, Priority],
    flows: Iterable[tuple[int, int, Sequence[int]]],
    steps: Steps,
    known: Known,
) -> Iterator[Row]:
    """Computed from the messages that came and went in each step. A message that came in one step
    and went in another exists at the ends of the steps between.
    """
    came: dict[int, list[tuple[int, int, Sequence[int]]]] = defaultdict(list)
    went: dict[int, list[Sequence[int]]] = defaultdict(list)
    for published, gone, values in flows:
        came[max(published, 0)].append((values[3], gone, values))
        went[gone].append(values)
    messages = size = unsized = 0
    there: list[tuple[int, int]] = []
    for step in range(steps.count):
        for earliest_ms, gone, values in came[step]:
            messages, size, unsized = messages + values[0], size + values[1], unsized + values[2]
            heapq.heappush(there, (earliest_ms, gone))
        for values in went[step]:
            messages, size, unsized = messages - values[0], size - values[1], unsized - values[2]
        while there and there[0][1] <= step:
            heapq.heappop(there)
        end = steps.end(step)
        if not known.is_backlog_known(step):
            yield (*about, end, None, None, None)
            continue
        oldest_s = (end - there[0][0]) / _S_MS if there else None
        yield (*about, end, messages, None if unsized else size, oldest_s)
