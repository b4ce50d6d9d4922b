"""Audit: a root held against the disk format, by as many tasks as Spark has; read-only, beside
daemons that work. What is broken is what `mqctl fsck` calls so: the looks are the same.

Folders are screened in parallel; what is not plainly as it must be gets an auditor's look, and is
believed when a second look, some time later, sees it again. What lies in two places is found by a
hash of every message's name, grouped by Spark.
"""

import heapq
import os
import pickle
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mq.model.clock import SystemClock
from mq.model.errors import BadName
from mq.model.fsck_limits import AGAIN_AFTER_S, OVERDUE_S_DEFAULT
from mq.model.names import QueueName
from mq.spark.jobs.archived import archived
from mq.spark.jobs.audit_bodies import checked_bodies
from mq.spark.jobs.audit_counts import counting_of, reconciled
from mq.spark.jobs.audit_findings import COUNTED, FIELDS, FOUND, Finding
from mq.spark.jobs.audit_findings import ROWS as FINDING_ROWS
from mq.spark.jobs.audit_progress import watched
from mq.spark.jobs.audit_report import Audited
from mq.spark.jobs.audit_tasks import (
    FOLDERS,
    ROWS,
    Counted,
    Looking,
    Task,
    comparing,
    confirming,
    packed,
    screening,
)
from mq.spark.jobs.watching import Unwatched, Watcher
from mq.store.audit.breaches import Amounts
from mq.store.audit.folders import FolderAuditor, NameFolder
from mq.store.audit.opening import open_for_audit
from mq.store.audit.taking import Suspect
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.walk import entries_if_there

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES_DEFAULT: Final = 20
# Of a folder's own size, on the file systems that take the least a name.
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
    """Holds the root against FORMAT.md; changes nothing in it.

    `archive`: the root's archive, which counts are held against; with `bodies` its digests too.
    `bodies`: every body is read, and held against the digest that there is of it. `queues`: these
    alone, and what all of them need; none: all. `is_by_name`: by listings alone, nothing of what
    only the files themselves show. `again_after_s`: between the two looks at what is suspect.
    `overdue_s`: how late mq-mover may be. `examples`: so many findings of each kind are in the
    report. `to`: a folder that is not there yet, for all findings, as Parquet.

    Raises StartupError where there is no root that can be read, OSError where the storage keeps it
    from looking at all; what Spark raises.
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
        counted, found = watched(
            spark, partial(_collected, rows, examples), watcher, plan.tasks, plan.names
        )
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
    """The queues that there are, or those of them that are asked for."""
    asked = {queue.text for queue in queues}
    there = amounts.of_queues.keys() | {
        entry.name
        for entry in entries_if_there(root.files, root.layout.queues)
        if is_queue(entry.name) and entry.is_dir(follow_symlinks=False)
    }
    return [name for name in there if not asked or name in asked]


def is_queue(name: str) -> bool:
    """Whether it can be a queue's name."""
    try:
        QueueName.parse(name)
    except BadName:
        return False
    return True


def check_is_root(root: Path) -> None:
    """Raises StartupError where there is no root that can be read: for who asks before there is a
    session.
    """
    open_for_audit(root, Files(), SystemClock(), "spark")


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the folders are shared out: rows of folders, for so many tasks."""

    task: Task
    parts: tuple[tuple[NameFolder, ...], ...]
    tasks: int
    names: int

    @classmethod
    def of(cls, task: Task, folders: Sequence[NameFolder]) -> "_Plan":
        """By what the folders' sizes say of how many names they have."""
        names = sum(_weight(folder) for folder in folders)
        tasks = min(max(_TASKS_MIN, -(-names // _NAMES_PER_TASK)), _TASKS_MAX)
        groups = 1
        while groups * _NAMES_PER_GROUP < names:
            groups *= 2
        parts: list[list[NameFolder]] = [[] for _ in range(tasks * _ROWS_PER_TASK)]
        lightest = [(0, at) for at in range(len(parts))]
        # The largest first, each to the part that has the least.
        for folder in sorted(folders, key=_weight, reverse=True):
            weight, at = lightest[0]
            parts[at].append(folder)
            heapq.heapreplace(lightest, (weight + _weight(folder), at))
        made = Task(
            task.root,
            task.overdue_s,
            task.again_after_s,
            task.queues,
            task.is_by_name,
            groups,
            min(tasks, _CONFIRMING_MAX),
        )
        return cls(made, tuple(tuple(part) for part in parts if part), tasks, names)


def _weight(folder: NameFolder) -> int:
    return folder.size // _BYTES_PER_NAME + 1


def looked_around(auditor: FolderAuditor, looking: Looking) -> tuple[list[Suspect], int]:
    """What is suspect of all that lies in no folder of names, and how much was looked at."""
    suspects: list[Suspect] = []
    looked = 0
    for _, looks in auditor.parts():
        for look in looks:
            looked += 1
            suspects += looking.suspected(look)
    return suspects, looked


def folders_of(root: Root, task: Task) -> list[NameFolder]:
    """The folders of names that there are now. Raises OSError."""
    auditor = FolderAuditor(root, task.overdue_s, task.queues)
    for _ in auditor.looks():
        pass  # They are found on the way; nothing is looked at.
    return auditor.folders


def _rows(spark: "SparkSession", plan: _Plan) -> "DataFrame":
    made = [
        (what, at, bytes(blob))
        for batch in packed((FOLDERS, at, part) for at, part in enumerate(plan.parts))
        for what, at, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    folders = spark.createDataFrame(made, ROWS).repartition(plan.tasks)
    screened = folders.mapInArrow(screening(plan.task), ROWS)
    groups = min(plan.task.groups, _TASKS_MAX)
    compared = screened.repartition(groups, "at").mapInArrow(comparing(plan.task), ROWS)
    spread = plan.task.spread
    return compared.repartition(spread, "at").mapInArrow(confirming(plan.task), FINDING_ROWS)


def _collected(rows: "DataFrame", examples: int) -> tuple[Counted, list[Finding]]:
    """What was counted, and the first findings of each kind of each task."""
    counted, found = Counted(), []
    for row in rows.where(f"part = '{COUNTED}' OR nth < {examples}").collect():
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
    """All findings to a folder, which must not be there. Durable on return: no."""
    found = rows.where(f"part = '{FOUND}'").select(*FIELDS)
    if mine:
        found = found.union(spark.createDataFrame(list(map(astuple, mine)), found.schema))
    found.write.parquet(str(to))
