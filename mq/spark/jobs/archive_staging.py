"""A batch of the archive as a job of Spark: its tasks read and write, and tell what they wrote."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mq.model.bulk_limits import (
    ARCHIVE_LOOK_S,
    ARCHIVE_TASKS_MIN,
    ARCHIVED_PER_TASK_MAX,
    ARCHIVED_PER_TASK_MIN,
)
from mq.spark.jobs.archive_compaction import Group, rewrite
from mq.spark.jobs.archive_events import NAMES, base_of, history_paths, write_events
from mq.spark.jobs.archive_run import Wanted
from mq.spark.jobs.archive_task import FILE, GONE, Fact, Task, archive_part
from mq.spark.jobs.archive_urls import check_path
from mq.spark.jobs.watching import Watcher
from mq.store.archive.ledger import ArchiveBatch
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.archive import parse_removed
from mq.store.format.walk import entries_if_there
from mq.store.history.sweep import recorded_queues

T = TypeVar("T")

_FACTS: Final = (
    "kind STRING, name STRING, folder STRING, messages LONG, size_bytes LONG, body_bytes LONG"
)
_ARROW_FACTS: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("name", pa.string()),
        ("folder", pa.string()),
        ("messages", pa.int64()),
        ("size_bytes", pa.int64()),
        ("body_bytes", pa.int64()),
    ]
)
_SINCE: Final = "base STRING, since_ms LONG"
_EVENTS: Final = "events"
_DONE: Final = "done."
_NAMES_AT_ONCE: Final = 10_000

Batches = Iterator[pa.RecordBatch]


class SparkTasks:
    """See archive_run.Tasks: a session's. What Spark raises when a task fails is raised."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def stage_batch(
        self, root: Root, batch: ArchiveBatch, staged: str, wanted: Wanted, watcher: Watcher
    ) -> list[Fact]:
        """See Tasks."""
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
        """See Tasks."""
        watcher.began("compacts small files")
        swap, count = _Swap(archive, staged, tuple(groups)), len(groups)
        frame = self._spark.range(0, count, 1, count).mapInArrow(partial(_rewritten, swap), _FACTS)
        return [Fact(*row) for row in watched(frame.collect, lambda: None)]


@dataclass(frozen=True, slots=True)
class _Swap:
    """What tasks know of a compaction; pickled with each of them."""

    archive: str
    staged: str
    groups: tuple[Group, ...]


def task_of(root: Root, batch: ArchiveBatch, staged: str, wanted: Wanted) -> Task:
    """The batch as its tasks know it."""
    return Task(
        root.layout.remove,
        batch.seq,
        staged,
        tuple(batch.ranges(parts_of(batch.messages))),
        wanted.threads,
        value_bytes_max=wanted.value_bytes_max,
    )


def parts_of(messages: int) -> int:
    """How many tasks archive so many messages."""
    few = min(ARCHIVE_TASKS_MIN, -(-messages // ARCHIVED_PER_TASK_MIN))
    return max(few, -(-messages // ARCHIVED_PER_TASK_MAX))


def watched(action: Callable[[], T], look: Callable[[], None]) -> T:
    """What an action gives that runs in a thread of its own, while this one looks now and then how
    far it is. An exception here leaves it to itself: whoever stops the session ends it.
    """
    threads = ThreadPoolExecutor(1, thread_name_prefix="mq-spark")
    try:
        running = threads.submit(action)
        while not running.done():
            try:
                return running.result(ARCHIVE_LOOK_S)
            except TimeoutError:
                look()
        return running.result()
    finally:
        threads.shutdown(wait=False)


def _facts_of(facts: list[Fact]) -> pa.RecordBatch:
    """Facts as a task gives them to Spark."""
    return pa.RecordBatch.from_pylist([fact._asdict() for fact in facts], schema=_ARROW_FACTS)


class _Done:
    """Which parts are done: each leaves a name in the folder that says how many it was of."""

    def __init__(self, files: Files, staged: str, watcher: Watcher) -> None:
        self._files = files
        self._staged = staged
        self._watcher = watcher
        self._known: set[str] = set()

    def look(self) -> None:
        """Tells the watcher of those that are new."""
        for entry in entries_if_there(self._files, self._staged):
            if entry.name.startswith(_DONE) and entry.name not in self._known:
                self._known.add(entry.name)
                self._watcher.advanced(int(entry.name.rpartition(".")[2]))


def _archived(task: Task, batches: Batches) -> Batches:
    files = Files()
    for number in _numbers(batches):
        facts = archive_part(files, task, number)
        yield _facts_of(facts)
        messages = sum(fact.messages for fact in facts if fact.kind in (FILE, GONE))
        done = f"{task.staging}/{_DONE}{number}.{messages}"
        files.close(files.open_kept(done))


def _rewritten(swap: _Swap, batches: Batches) -> Batches:
    for number in _numbers(batches):
        yield _facts_of([rewrite(Files(), swap.archive, swap.staged, swap.groups[number])])


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _parts(spark: SparkSession, task: Task, what: Callable[..., Batches], schema: str) -> DataFrame:
    """A task for each part."""
    count = len(task.ranges)
    return spark.range(0, count, 1, count).mapInArrow(partial(what, task), schema)


def _events(spark: SparkSession, root: Root, task: Task) -> str | None:
    """The folder of what histories say of the batch; None: nothing."""
    since_ms: dict[str, int] = {}
    for base, ms in _parts(spark, task, _since, _SINCE).collect():
        since_ms[base] = min(ms, since_ms.get(base, ms))
    paths = history_paths(root.layout, root.files, since_ms)
    if not paths:
        return None
    check_path(root.layout.root)
    folder = f"{task.staging}/{_EVENTS}"
    write_events(spark, _parts(spark, task, _names, NAMES), paths, folder)
    return folder


def _since(task: Task, batches: Batches) -> Batches:
    """Of each queue of a part, the first publish."""
    for number in _numbers(batches):
        since_ms: dict[str, int] = {}
        for name in task.ranges[number].names(Files()):
            message = parse_removed(name)
            base, ms = base_of(message.queue), message.id.published_ms
            since_ms[base] = min(ms, since_ms.get(base, ms))
        yield pa.RecordBatch.from_pydict(
            {"base": list(since_ms), "since_ms": list(since_ms.values())},
            pa.schema([("base", pa.string()), ("since_ms", pa.int64())]),
        )


def _names(task: Task, batches: Batches) -> Batches:
    """A part's messages: see NAMES."""
    kinds = [("part", pa.int32()), ("base", pa.string()), ("queue", pa.string())]
    schema = pa.schema([*kinds, ("id", pa.string())])
    for number in _numbers(batches):
        rows: list[dict[str, Any]] = []
        for name in task.ranges[number].names(Files()):
            message = parse_removed(name)
            base = base_of(message.queue)
            queue = message.queue.text
            rows.append({"part": number, "base": base, "queue": queue, "id": message.id.text})
            if len(rows) >= _NAMES_AT_ONCE:
                yield pa.RecordBatch.from_pylist(rows, schema)
                rows = []
        yield pa.RecordBatch.from_pylist(rows, schema)
