"""A root's messages over time, as tables: rates, latencies, receives, sizes and backlog, from an
archive, the inodes and the history files.

Spark counts what many messages have in common (history_cells). The driver, which works on the root,
makes rows of it, queue by queue (history_assembly), and writes them (history_folder).
"""

import itertools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from mq.model.clock import Clock, SystemClock, rfc3339
from mq.model.errors import QueueNotFound, SettingsUnreadable
from mq.model.names import QueueName, UuidSource
from mq.spark.jobs.archived import archived
from mq.spark.jobs.history_assembly import Cell, Known, queue_row, queue_tables
from mq.spark.jobs.history_cells import BadSpan, Steps, cells_of, steps_between
from mq.spark.jobs.history_folder import FolderTaken, owned
from mq.spark.jobs.history_lives import (
    ARCHIVE,
    HISTORY,
    INODES,
    QueueFacts,
    archive_rows,
    event_rows,
    facts_of,
    inode_rows,
    merged,
    told,
)
from mq.spark.jobs.history_sources import (
    archived_events,
    drops_of,
    events_of,
    history_paths,
    home_column,
    lines_of,
    listed,
)
from mq.spark.jobs.tasks import Unwatched, Watcher
from mq.spark.listing import home_of, queues_there
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import Files
from mq.store.format.settings import read_fields
from mq.store.opening import attach_root

Render: TypeAlias = Callable[[Mapping[str, list[dict[str, Any]]], datetime], str]
"""Makes a report from the tables' rows and the time at which they were made."""

_UNWATCHED: Final = Unwatched()
_ONE: Final = ("home", "id", "at", "event")


@dataclass(frozen=True, slots=True)
class History:
    """A history that was written. Times are milliseconds since the epoch. `rows`: the number of
    rows of each table. `dropped`: lines missing from the history files, by their own count.
    """

    to: str
    queues: tuple[str, ...]
    since_ms: int
    until_ms: int
    step_s: int
    steps: int
    messages: int
    rows: Mapping[str, int]
    dropped: int
    has_report: bool

    def facts(self) -> dict[str, Any]:
        return {
            "to": self.to,
            "queues": list(self.queues),
            "since": rfc3339(self.since_ms),
            "until": rfc3339(self.until_ms),
            "step_s": self.step_s,
            "steps": self.steps,
            "messages": self.messages,
            "rows": dict(self.rows),
            "dropped": self.dropped,
            "report": f"{self.to}/report.html" if self.has_report else None,
        }


def history(
    spark: SparkSession,
    root: Path,
    to: Path,
    *,
    archive: Path | DataFrame | None = None,
    queues: Sequence[QueueName] | None = None,
    step_s: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    render: Render | None = None,
    clock: Clock | None = None,
    watcher: Watcher = _UNWATCHED,
) -> History:
    """Writes the tables (`history_folder.TABLES`), and the report that `render` makes of them, to
    the folder `to`. They replace earlier ones.

    `queues`: only these; None: all queues with any data. A sideline's messages count for its queue.
    Steps of `step_s` seconds begin at `since` (default: the first publish) and end at `until`
    (default: now), both with a time zone. `archive`: its folder, or its rows, with the columns of
    `archive_rows.ARCHIVE`. Changes nothing in the root.

    Raises StartupError if there is no root, QueueNotFound for a queue without any data, BadSpan,
    FolderTaken, OSError, and what Spark raises. Durable on return: yes. A run that raises or is
    killed leaves the tables as they were.
    """
    clock = SystemClock() if clock is None else clock
    opened = attach_root(os.fspath(root), Files(), clock)
    if _lies_in(to, opened.layout.root):
        raise FolderTaken(f"{to} lies in the root")
    with owned(opened.files, to) as folder:
        now_ms = clock.now_ms()
        watcher.began("lists messages")
        found = _found(spark, opened, archive, queues, now_ms)
        lives = found.lives.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            watcher.began("reads the events of messages")
            facts = _facts(opened, lives, queues)
            steps = _steps(facts, step_s, since, until, now_ms)
            known = _Knowing(opened, facts, steps, now_ms, found.removal_ms)
            dropped = 0
            with folder.writing(UuidSource(clock).next()) as run:
                run.add({"queues": [queue_row(each, now_ms) for each in facts.values()]})
                watcher.began("counts by queues", len(facts))
                cells = cells_of(lives, found.events, found.drops, steps, len(facts))
                for queue, mine in _by_queue(cells, facts):
                    rows, lost = queue_tables(queue, mine, steps, known.of(facts[queue]))
                    run.add(rows)
                    dropped += lost
                    watcher.advanced(1)
                if render is not None:
                    watcher.began("draws the report")
                    made_at = datetime.fromtimestamp(now_ms / 1000, UTC)
                    run.report(lambda tables: render(tables, made_at))
        finally:
            lives.unpersist()
    if dropped:
        watcher.noted(f"{dropped} lines of history were dropped when they came: those are unknown")
    return History(
        os.path.abspath(to),
        tuple(facts),
        steps.start_ms,
        steps.until_ms,
        steps.step_s,
        steps.count,
        sum(each.published for each in facts.values()),
        run.rows,
        dropped,
        run.has_report,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The data of all sources. `removal_ms`: the earliest removal in the whole archive."""

    lives: DataFrame
    events: DataFrame | None
    drops: DataFrame | None
    removal_ms: int | None


def _found(
    spark: SparkSession,
    root: Root,
    archive: Path | DataFrame | None,
    queues: Sequence[QueueName] | None,
    now_ms: int,
) -> _Found:
    inodes = listed(root, queues).rows(spark, root.layout.root)
    sources = [inode_rows(inodes)]
    events: list[DataFrame] = []
    drops = None
    removal_ms = None
    if archive is not None:
        rows = archived(spark, archive) if isinstance(archive, Path) else archive
        (row,) = rows.selectExpr("unix_millis(min(removed))").collect()
        removal_ms = row[0]
        if queues is not None:
            names = [home_of(queue).text for queue in queues]
            rows = rows.where(home_column(rows["queue"]).isin(names))
        sources.append(archive_rows(rows))
        events.append(archived_events(rows, ARCHIVE))
    since_ms = None if queues is None else dict.fromkeys((home_of(each).text for each in queues), 0)
    if paths := history_paths(root, since_ms):
        lines = lines_of(spark, paths).where(f"at <= {now_ms}")
        events.append(events_of(lines, HISTORY))
        drops = drops_of(lines)
    if not events:
        return _Found(merged(sources, now_ms), None, None, removal_ms)
    together = told(reduce(DataFrame.unionByName, events))
    sources.append(event_rows(together))
    # A line may be in a history file and already in the archive.
    once = together.dropDuplicates(list(_ONE)) if len(events) > 1 else together
    return _Found(merged(sources, now_ms), once, drops, removal_ms)


def _facts(
    root: Root, lives: DataFrame, queues: Sequence[QueueName] | None
) -> dict[str, QueueFacts]:
    """The facts by queue name, in order, also of existing queues without data. Raises
    QueueNotFound.
    """
    found = facts_of(lives)
    there = (queue for queue in queues_there(root) if not queue.is_sideline)
    for name in there if queues is None else {home_of(queue) for queue in queues}:
        if name.text not in found:
            if not queue_exists(root, name):
                raise QueueNotFound(name.text)
            found[name.text] = QueueFacts(name.text, INODES)
    return dict(sorted(found.items()))


def _steps(
    facts: Mapping[str, QueueFacts],
    step_s: int | None,
    since: datetime | None,
    until: datetime | None,
    now_ms: int,
) -> Steps:
    """The steps; by default up to now, including the current millisecond."""
    firsts = [each.first_ms for each in facts.values() if each.first_ms is not None]
    since_ms = min(firsts, default=now_ms) if since is None else _ms(since)
    until_ms = now_ms + 1 if until is None else min(_ms(until), now_ms + 1)
    return steps_between(since_ms, until_ms, step_s)


def _ms(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise BadSpan(f"{moment} has no time zone")
    return round(moment.timestamp() * 1000)


class _Knowing:
    """The time that the sources cover, for each queue."""

    def __init__(
        self,
        root: Root,
        facts: Mapping[str, QueueFacts],
        steps: Steps,
        now_ms: int,
        removal_ms: int | None,
    ) -> None:
        self._root = root
        self._steps = steps
        self._now_ms = now_ms
        # From all queues: mq-reaper unlinks removed messages by age, across queues.
        removals = [removal_ms, *(each.removal_ms for each in facts.values())]
        self._removals_ms = min((each for each in removals if each is not None), default=None)

    def of(self, facts: QueueFacts) -> Known:
        lines_ms = None
        if facts.line_first_ms is not None and facts.line_last_ms is not None:
            last_ms = self._now_ms if self._is_written(facts.queue) else facts.line_last_ms
            lines_ms = (facts.line_first_ms, last_ms)
        return Known(self._steps, self._now_ms, self._removals_ms, lines_ms)

    def _is_written(self, queue: str) -> bool:
        """Whether the queue's history is on now; False if its settings are unreadable."""
        try:
            fields = read_fields(self._root.layout, self._root.files, QueueName(queue))
        except SettingsUnreadable:
            return False
        return fields.get("history") is True


def _by_queue(
    cells: DataFrame, facts: Mapping[str, QueueFacts]
) -> Iterator[tuple[str, Iterator[Cell]]]:
    """The cells of each queue; queues without cells get none."""
    waiting = set(facts)
    rows = cells.toLocalIterator(prefetchPartitions=True)
    for queue, mine in itertools.groupby(rows, key=operator.itemgetter(0)):
        if queue in waiting:
            waiting.remove(queue)
            yield queue, (Cell(*row[1:]) for row in mine)
    for queue in sorted(waiting):
        yield queue, iter(())


def _lies_in(path: Path, folder: str) -> bool:
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath((real, top)) == top
