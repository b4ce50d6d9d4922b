"""Stages a batch of the archive as a Spark job, with the histories of its messages: small files in
staging, one folder per part. Bodies never pass through Spark: it joins only names and lines.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mq.spark.jobs.archive_rows import Fact, names_met
from mq.spark.jobs.archive_task import Group, Task, Wanted, archive_part, rewrite
from mq.spark.jobs.folders import check_path, url
from mq.spark.jobs.history_sources import history_paths, home_column
from mq.spark.jobs.tasks import Batches, Watcher, by_numbers, watched
from mq.spark.listing import home_of
from mq.spark.rows import Columns, arrow_schema
from mq.store.archive.ledger import ArchiveBatch
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.archive import parse_removed
from mq.store.format.walk import entries_if_there
from mq.store.history.sweep import recorded_queues

# The names of one task, at most; and at least, when there are few names.
ARCHIVED_PER_TASK_MAX: Final = 50_000
ARCHIVED_PER_TASK_MIN: Final = 5_000
ARCHIVE_TASKS_MIN: Final = 8

NAMES: Final = "part int, base string, queue string, id string"
_LINE: Final = (
    "time string, event string, id string, receives int, due string, lease string, "
    "reason string, process string"
)
_COLUMNS: Final = ("time", "event", "receives", "due", "lease", "reason", "process")
_FACTS: Final = (
    "kind string, name string, folder string, messages long, size_bytes long, body_bytes long"
)
_ARROW_FACTS: Final = arrow_schema(_FACTS)
_SINCE: Final = "base string, since_ms long"
_EVENTS: Final = "events"
_DONE: Final = "done."
_NAMES_AT_ONCE: Final = 10_000


def write_events(spark: SparkSession, names: DataFrame, paths: Sequence[str], folder: str) -> None:
    """Writes the events in these history files that concern `names` (NAMES), by part. Skips torn
    lines, and files that were removed meanwhile. Durable on return: no.
    """
    lines = spark.read.option("ignoreMissingFiles", "true").text([url(path) for path in paths])
    path = F.split(F.col("_metadata.file_path"), "/")
    base = home_column(F.element_at(path, -3))
    said = lines.select(base.alias("base"), F.from_json("value", _LINE).alias("line"))
    events = said.select("base", "line.*").where("time IS NOT NULL AND event IS NOT NULL")
    timed = events.withColumns(
        {name: F.expr(f"unix_micros(try_to_timestamp({name}))") for name in ("time", "due")}
    ).where("time IS NOT NULL")
    joined = names.join(timed, ["base", "id"]).select("part", "queue", "id", *_COLUMNS)
    joined.write.partitionBy("part").parquet(url(folder))


class SparkTasks:
    """Runs archive.Tasks in a session. Raises Spark's error if a task fails."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def stage_batch(
        self, root: Root, batch: ArchiveBatch, staged: str, wanted: Wanted, watcher: Watcher
    ) -> list[Fact]:
        task = task_of(root, batch, staged, wanted)
        if recorded_queues(root.layout, root.files):
            watcher.began(f"looks into the histories of batch {batch.seq}")
            task = replace(task, events=_events(self._spark, root, task))
        watcher.began(f"archives batch {batch.seq}", batch.messages)
        done = _Done(root.files, staged, watcher)
        rows = watched(_parts(self._spark, task, _archived, _FACTS).collect, done.look)
        done.look()
        return [Fact(*row) for row in rows]

    def stage_groups(
        self, archive: str, staged: str, groups: Sequence[Group], watcher: Watcher
    ) -> list[Fact]:
        watcher.began("compacts small files")
        task = partial(_rewritten, archive, staged, tuple(groups))
        frame = by_numbers(self._spark, len(groups), task, _FACTS)
        return [Fact(*row) for row in watched(frame.collect)]


def task_of(root: Root, batch: ArchiveBatch, staged: str, wanted: Wanted) -> Task:
    """The batch as its tasks receive it."""
    return Task(
        root.layout.remove,
        batch.seq,
        staged,
        tuple(batch.ranges(parts_of(batch.messages))),
        wanted.threads,
        value_bytes_max=wanted.value_bytes_max,
        has_failures=root.files.is_there(root.layout.failures),
        is_table=bool(wanted.kind),
    )


def parts_of(messages: int) -> int:
    """The number of tasks for this many messages."""
    few = min(ARCHIVE_TASKS_MIN, -(-messages // ARCHIVED_PER_TASK_MIN))
    return max(few, -(-messages // ARCHIVED_PER_TASK_MAX))


def _facts_of(facts: list[Fact]) -> pa.RecordBatch:
    """Facts as a batch of Arrow rows."""
    return pa.RecordBatch.from_pylist([fact._asdict() for fact in facts], schema=_ARROW_FACTS)


class _Done:
    """Follows the parts that are done: each leaves a name in the folder with its number of
    messages.
    """

    def __init__(self, files: Files, staged: str, watcher: Watcher) -> None:
        self._files = files
        self._staged = staged
        self._watcher = watcher
        self._known: set[str] = set()

    def look(self) -> None:
        """Reports newly finished parts to the watcher."""
        for entry in entries_if_there(self._files, self._staged):
            if entry.name.startswith(_DONE) and entry.name not in self._known:
                self._known.add(entry.name)
                self._watcher.advanced(int(entry.name.rpartition(".")[2]))


def _archived(task: Task, number: int) -> Batches:
    files = Files()
    facts = archive_part(files, task, number)
    yield _facts_of(facts)
    files.close(files.open_kept(f"{task.staging}/{_DONE}{number}.{names_met(facts)}"))


def _rewritten(archive: str, staged: str, groups: Sequence[Group], number: int) -> Batches:
    yield _facts_of([rewrite(Files(), archive, staged, groups[number])])


def _parts(
    spark: SparkSession, task: Task, what: Callable[[Task, int], Batches], columns: str
) -> DataFrame:
    return by_numbers(spark, len(task.ranges), partial(what, task), columns)


def _events(spark: SparkSession, root: Root, task: Task) -> str | None:
    """Writes the batch's events from the histories; returns their folder, None without any."""
    since_ms: dict[str, int] = {}
    for base, ms in _parts(spark, task, _since, _SINCE).collect():
        since_ms[base] = min(ms, since_ms.get(base, ms))
    paths = history_paths(root, since_ms)
    if not paths:
        return None
    check_path(root.layout.root)
    folder = f"{task.staging}/{_EVENTS}"
    write_events(spark, _parts(spark, task, _names, NAMES), paths, folder)
    return folder


def _since(task: Task, number: int) -> Batches:
    """The earliest publish time of each queue of a part."""
    since_ms: dict[str, int] = {}
    for name in task.ranges[number].names(Files()):
        message = parse_removed(name)
        base, ms = home_of(message.queue).text, message.id.published_ms
        since_ms[base] = min(ms, since_ms.get(base, ms))
    found = {"base": list(since_ms), "since_ms": list(since_ms.values())}
    yield pa.RecordBatch.from_pydict(found, arrow_schema(_SINCE))


def _names(task: Task, number: int) -> Batches:
    """A part's messages, as rows of NAMES; beside items of packs also the packs, whose events
    are theirs.
    """
    rows = Columns(arrow_schema(NAMES))
    packs: set[tuple[str, str]] = set()
    for name in task.ranges[number].names(Files()):
        message = parse_removed(name)
        base, queue = home_of(message.queue).text, message.queue.text
        rows.add(number, base, queue, message.id.text)
        if message.id.pack_size and (pack := (queue, message.id.pack().text)) not in packs:
            packs.add(pack)
            rows.add(number, base, *pack)
        if len(rows) >= _NAMES_AT_ONCE:
            yield rows.batch()
            rows = Columns(arrow_schema(NAMES))
    yield rows.batch()
