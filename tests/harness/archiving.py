"""Archives without Spark: tasks in this process, removed messages, and what an archive has."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.messages import make_body, new_id, number_in, put_file
from mq.model.message import Stamp
from mq.spark.jobs.archive import Archived, Archiver, opened_archive
from mq.spark.jobs.archive_folder import ArchiveFolder, read_commits
from mq.spark.jobs.archive_rows import Fact
from mq.spark.jobs.archive_staging import task_of
from mq.spark.jobs.archive_task import Group, Wanted, archive_part, rewrite
from mq.spark.jobs.archived import hidden_names, last_batch
from mq.spark.jobs.tasks import Watcher
from mq.store.archive.ledger import ArchiveBatch
from mq.store.core.root import Root
from mq.store.disk.files import Files

DUE_MS = 1_700_000_000_000


class TasksHere:
    """Runs the tasks one after the other, with these Files."""

    def __init__(self, files: Files | None = None) -> None:
        self.files = files or Files()

    def stage_batch(
        self, root: Root, batch: ArchiveBatch, staged: str, wanted: Wanted, watcher: Watcher
    ) -> list[Fact]:
        task = task_of(root, batch, staged, wanted)
        parts = range(len(task.ranges))
        return [fact for number in parts for fact in archive_part(self.files, task, number)]

    def stage_groups(
        self, archive: str, staged: str, groups: Sequence[Group], watcher: Watcher
    ) -> list[Fact]:
        return [rewrite(self.files, archive, staged, group) for group in groups]


def put_removed(root: Path, count: int, queue: str = "orders", first: int = 0) -> list[Path]:
    """Messages in remove/, with the bodies of these numbers."""
    names = (f"{queue}:{new_id().text}" for _ in range(count))
    return [
        put_file(root / "remove" / name, make_body(first + number), DUE_MS, receives=number % 7)
        for number, name in enumerate(names)
    ]


def sidelined_at(path: Path, receives: int, reason: int) -> None:
    """What whoever sidelines a message does to its file."""
    mtime_ns = Stamp(DUE_MS, receives, reason).mtime_ns()
    os.utime(path, ns=(mtime_ns, mtime_ns))


def archive_here(
    root: Path,
    to: Path,
    wanted: Wanted | None = None,
    *,
    files: Files | None = None,
    folder_files: Files | None = None,
    watcher: Watcher | None = None,
) -> Archived:
    """A run of the archive in this process. The tasks have the archive's Files."""
    wanted = wanted or Wanted()
    with opened_archive(root, to, files, folder_files, wanted.kind) as opened:
        tasks = TasksHere(folder_files)
        return Archiver(tasks, opened, wanted, watcher=watcher).run()


def rows_of(archive: Path) -> list[dict[str, Any]]:
    """All rows that a reader of the archive is to see, in no order, each with its queue and day."""
    folder = ArchiveFolder.of(str(archive), Files())
    commits = read_commits(folder)
    hidden = hidden_names(folder, [commit for commit in commits if commit.batch is None])
    last = last_batch(folder, commits)
    return [
        row | {"queue": file.folder.split("/")[0][6:], "day": file.folder.split("/")[1][4:]}
        for file in folder.data_files()
        if file.name not in hidden
        for row in _rows(archive / file.path)
        if last is None or row["batch"] <= last
    ]


def numbers_in(archive: Path) -> list[int]:
    """The numbers of all bodies, sorted. AssertionError where one is torn."""
    return sorted(number_in(row["value"]) for row in rows_of(archive))


def data_files(archive: Path) -> list[Path]:
    """All files of rows."""
    return sorted(archive.glob("queue=*/day=*/*.parquet"))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with pa.OSFile(str(path), "rb") as file:
        yield from pq.ParquetFile(file).read().to_pylist()
