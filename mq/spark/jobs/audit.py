"""Audits a root against the disk format, in parallel, read-only, beside running daemons. It makes
the same checks as `mqctl fsck`.

Tasks screen folders; an auditor examines each name that is not plainly right, and a finding counts
once a second look, some time later, confirms it. Spark groups a hash of every message's name to
find messages in two places.
"""

import heapq
import os
import pickle
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mq.model.clock import SystemClock
from mq.model.names import QueueName
from mq.spark.jobs.archived import archived
from mq.spark.jobs.audit_bodies import checked_bodies
from mq.spark.jobs.audit_counts import counting_of, reconciled
from mq.spark.jobs.audit_findings import COUNTED, FIELDS, FOUND, Audited, Finding
from mq.spark.jobs.audit_findings import ROWS as FINDING_ROWS
from mq.spark.jobs.audit_tasks import (
    ROWS,
    Counted,
    Looking,
    Task,
    comparing,
    confirming,
    rows_of,
    screening,
)
from mq.spark.jobs.tasks import Unwatched, Watcher, watched
from mq.spark.listing import queues_there
from mq.store.audit.findings import AGAIN_AFTER_S, OVERDUE_S_DEFAULT, Amounts
from mq.store.audit.folders import FolderAuditor, NameFolder
from mq.store.audit.taking import Suspect
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.walk import if_there
from mq.store.opening import open_for_audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES_DEFAULT: Final = 20
# Bytes of a folder's own size per name, on the file systems that need the least.
_BYTES_PER_NAME: Final = 20
_NAMES_PER_TASK: Final = 250_000
_NAMES_PER_GROUP: Final = 1_000_000
_TASKS_MIN: Final = 2
_TASKS_MAX: Final = 4096
_ROWS_PER_TASK: Final = 8
_CONFIRMING_MAX: Final = 8
_UNWATCHED: Final = Unwatched()


def audit(
    spark: "SparkSession",
    root: Path,
    *,
    archive: Path | None = None,
    bodies: bool = False,
    queues: Sequence[QueueName] = (),
    is_by_name: bool = False,
    again_after_s: float = AGAIN_AFTER_S,
    overdue_s: float = OVERDUE_S_DEFAULT,
    examples: int = EXAMPLES_DEFAULT,
    to: Path | None = None,
    watcher: Watcher = _UNWATCHED,
) -> Audited:
    """Checks the root against FORMAT.md; changes nothing in it.

    `archive`: the root's archive, whose counts are compared, with `bodies` its digests too.
    `bodies`: reads every body, and compares it with its digest, if it has one. `queues`: only
    these, and what all of them need; none: all. `is_by_name`: only listings, without the checks
    that need the files themselves. `again_after_s`: seconds between the two looks at a suspect.
    `overdue_s`: how late mq-mover may be. `examples`: how many findings of each kind the report
    shows. `to`: a folder, not existing yet, for all findings as Parquet.

    Raises StartupError if there is no readable root, OSError if the storage prevents the audit; and
    what Spark raises.
    """
    task = Task(os.path.realpath(root), overdue_s, again_after_s, tuple(queues) or None, is_by_name)
    opened = task.opened()
    clock = SystemClock()
    began_s = clock.steady_s()
    watcher.began("looks for folders")
    auditor = FolderAuditor(opened, overdue_s, task.queues)
    looking = Looking(task, opened)
    mine, looked = looked_around(auditor, looking)
    plan = _Plan.of(task, auditor.folders)
    watcher.began("looks at names", plan.names)
    rows = _rows(spark, plan)
    if to is not None:
        rows.persist()
    try:
        counted, found = _collected(rows, examples, _Progress.of(spark, plan, watcher))
        watcher.began("looks again")
        believed = [
            Finding.of(each) for each in looking.again(mine, auditor, threading.Event().wait)
        ]
        seconds = clock.steady_s() - began_s
        counted.amounts.add(auditor.amounts)
        counted.names += looked
        watcher.began("counts")
        kept = None if archive is None else archived(spark, archive)
        counting = counting_of(opened, _queues_of(opened, counted.amounts, queues))
        folders = folders_of(opened, task)
        counts = reconciled(spark, opened, plan.task, counting, folders, kept)
        believed += counts.findings
        checked = None
        if bodies:
            watcher.began("reads bodies", sum(counted.amounts.messages.values()))
            checked, wrong = checked_bodies(spark, plan.task, folders, archive, kept)
            believed += wrong
        if to is not None:
            watcher.began("writes the findings")
            _write(spark, rows, believed, to)
    finally:
        if to is not None:
            rows.unpersist()
    kinds = counted.kinds + Counter(each.kind for each in believed)
    return Audited(
        task.root,
        counted.amounts,
        counted.names,
        counted.folders,
        seconds,
        dict(kinds),
        tuple(_first([*found, *believed], examples)),
        counts.balances,
        checked,
        "" if to is None else str(to),
    )


def _queues_of(root: Root, amounts: Amounts, queues: Sequence[QueueName]) -> list[str]:
    """The existing queues, or the requested ones among them."""
    asked = {queue.text for queue in queues}
    there = amounts.of_queues.keys() | {queue.text for queue in if_there(queues_there(root))}
    return [name for name in there if not asked or name in asked]


def check_is_root(root: Path) -> None:
    """Raises StartupError if there is no readable root. For callers that have no session yet."""
    open_for_audit(root, Files(), SystemClock(), "spark")


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the work is divided: rows of folders, and the number of tasks."""

    task: Task
    parts: tuple[tuple[NameFolder, ...], ...]
    tasks: int
    names: int

    @classmethod
    def of(cls, task: Task, folders: Sequence[NameFolder]) -> "_Plan":
        """Estimates the number of names from the folders' sizes."""
        names = sum(_weight(folder) for folder in folders)
        tasks = min(max(_TASKS_MIN, -(-names // _NAMES_PER_TASK)), _TASKS_MAX)
        groups = 1
        while groups * _NAMES_PER_GROUP < names:
            groups *= 2
        parts: list[list[NameFolder]] = [[] for _ in range(tasks * _ROWS_PER_TASK)]
        lightest = [(0, at) for at in range(len(parts))]
        # The largest first, each to the lightest part.
        for folder in sorted(folders, key=_weight, reverse=True):
            weight, at = lightest[0]
            parts[at].append(folder)
            heapq.heapreplace(lightest, (weight + _weight(folder), at))
        made = replace(task, groups=groups, spread=min(tasks, _CONFIRMING_MAX))
        return cls(made, tuple(tuple(part) for part in parts if part), tasks, names)


def _weight(folder: NameFolder) -> int:
    return folder.size // _BYTES_PER_NAME + 1


def looked_around(auditor: FolderAuditor, looking: Looking) -> tuple[list[Suspect], int]:
    """The suspects outside the folders of names, and how many names were checked."""
    suspects: list[Suspect] = []
    looked = 0
    for _, looks in auditor.parts():
        for look in looks:
            looked += 1
            suspects += looking.suspected(look)
    return suspects, looked


def folders_of(root: Root, task: Task) -> list[NameFolder]:
    """The existing folders of names. Raises OSError."""
    auditor = FolderAuditor(root, task.overdue_s, task.queues)
    for _ in auditor.looks():
        pass  # The walk collects the folders; its looks are not needed.
    return auditor.folders


def _rows(spark: "SparkSession", plan: _Plan) -> "DataFrame":
    folders = rows_of(spark, plan.parts).repartition(plan.tasks)
    screened = folders.mapInArrow(screening(plan.task), ROWS)
    groups = min(plan.task.groups, _TASKS_MAX)
    compared = screened.repartition(groups, "at").mapInArrow(comparing(plan.task), ROWS)
    spread = plan.task.spread
    return compared.repartition(spread, "at").mapInArrow(confirming(plan.task), FINDING_ROWS)


class _Progress:
    """Spark's progress through the names, by the tasks that have ended."""

    def __init__(self, tracker: Any, plan: _Plan, watcher: Watcher) -> None:
        self._tracker = tracker
        self._plan = plan
        self._watcher = watcher
        self._reported = 0

    @classmethod
    def of(cls, spark: "SparkSession", plan: _Plan, watcher: Watcher) -> "_Progress | None":
        """None on a Spark Connect server, which does not report it."""
        try:
            return cls(spark.sparkContext.statusTracker(), plan, watcher)
        except Exception:  # Its type differs between versions of Spark Connect.
            return None

    def look(self) -> None:
        """Reports the names of newly ended tasks to the watcher."""
        tasks, done = self._plan.tasks, 0
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None and info.numTasks == tasks:
                done = max(done, self._plan.names * info.numCompletedTasks // tasks)
        if done > self._reported:
            self._watcher.advanced(done - self._reported)
            self._reported = done


def _collected(
    rows: "DataFrame", examples: int, progress: _Progress | None
) -> tuple[Counted, list[Finding]]:
    """The counts, and the first findings of each kind from each task."""
    counted, found = Counted(), []
    shown = rows.where(f"part = '{COUNTED}' OR nth < {examples}")
    for row in shown.collect() if progress is None else watched(shown.collect, progress.look):
        if row.part == COUNTED:
            counted.add(pickle.loads(bytes(row.blob)))  # noqa: S301 - its own tasks' row.
        else:
            found.append(Finding(*(row[name] for name in FIELDS)))
    return counted, sorted(found, key=lambda each: (each.kind, each.path))


def _first(found: Iterable[Finding], examples: int) -> Iterator[Finding]:
    of_kind: Counter[str] = Counter()
    for each in found:
        of_kind[each.kind] += 1
        if of_kind[each.kind] <= examples:
            yield each


def _write(spark: "SparkSession", rows: "DataFrame", mine: Sequence[Finding], to: Path) -> None:
    """Writes all findings to a folder that must not exist. Durable on return: no."""
    found = rows.where(f"part = '{FOUND}'").select(*FIELDS)
    if mine:
        found = found.union(spark.createDataFrame(list(map(astuple, mine)), found.schema))
    found.write.parquet(str(to))
