"""The archive job: stores removed messages as Parquet before mq-reaper unlinks them."""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from mq.coordination.opening import root_id
from mq.model.clock import rfc3339
from mq.model.errors import ArchivedElsewhere, MqError
from mq.spark.jobs import drained_folder
from mq.spark.jobs.archive_folder import (
    ArchiveDamaged,
    ArchiveFolder,
    Commit,
    Filed,
    Mark,
    batch_name,
    begin_staging,
    check_archive,
    drop_staged,
    end_commit,
    open_archive,
    own_archive_folder,
    read_commits,
    roll_forward,
    sweep_staging,
    write_commit,
)
from mq.spark.jobs.archive_rows import (
    BODY,
    DAMAGED,
    FILE,
    GONE,
    SUFFIX,
    TABLE_SCHEMA,
    Fact,
    messages_of,
    names_met,
)
from mq.spark.jobs.archive_staging import SparkTasks
from mq.spark.jobs.archive_task import USUAL, Group, Wanted, plan
from mq.spark.jobs.tables import Table, table_of
from mq.spark.jobs.tasks import Unwatched, Watcher, named_bytes
from mq.spark.opening import attached, following, opened_root
from mq.store.archive.archiving import (
    archive_mark,
    begin_batch,
    disable,
    enable,
    own_archive,
    stored,
    unfinished_batch,
)
from mq.store.archive.ledger import ArchiveBatch
from mq.store.archive.removed_names import LagLook
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import choose_flusher
from mq.store.format.members import root_id_path

_FLUSH_THREADS: Final = 4
_KINDS: Final = (FILE, BODY)
_NAMES_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of a run: `messages` with `body_bytes` of bodies in `batches`; `gone`: names whose
    files were missing; `damaged`: files that were stored as they were. `compacted` small files
    became `compacted_to` larger ones. `enabled`: this run enabled the archive.
    """

    to: str
    enabled: bool = False
    batches: int = 0
    messages: int = 0
    body_bytes: int = 0
    files: int = 0
    gone: int = 0
    damaged: int = 0
    compacted: int = 0
    compacted_to: int = 0

    def facts(self) -> dict[str, Any]:
        return named_bytes(asdict(self), "body_bytes")


@dataclass(frozen=True, slots=True)
class Archivable:
    """What a run would store: `messages`, of which the `oldest` was removed at this time."""

    to: str
    messages: int
    oldest: str | None
    is_enabled: bool

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Tasks(Protocol):
    """Runs the tasks, which see the root and the archive by the driver's paths. What a task that
    raised left in the folder `staged` is useless. Durable on return: yes, except for the files'
    names.
    """

    def stage_batch(
        self, root: Root, batch: ArchiveBatch, staged: str, wanted: Wanted, watcher: Watcher
    ) -> list[Fact]:
        """Writes a batch's messages to files in `staged`."""
        ...

    def stage_groups(
        self, archive: str, staged: str, groups: Sequence[Group], watcher: Watcher
    ) -> list[Fact]:
        """Writes the rows of each group of files to one file in `staged`."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A root and its archive, locked by this process."""

    root: Root
    flusher: Flusher
    folder: ArchiveFolder
    folder_flusher: Flusher
    enabled: bool
    table: Table


@contextmanager
def opened_archive(
    root: Path,
    to: Path,
    files: Files | None = None,
    folder_files: Files | None = None,
    kind: str = "",
) -> Iterator[Opened]:
    """Opens a root and its archive in the folder `to`, for a block of code; the first time it
    creates and enables the archive. `files`: for the root; `folder_files`: for the archive; `kind`:
    of the table that gets its files. Raises as `archive` does. Durable on return: yes.
    """
    opened = following(root, files)
    target, folder_files = os.path.realpath(to), folder_files or Files()
    flusher = choose_flusher(opened.layout.root, opened.files, _FLUSH_THREADS)
    folder_flusher = choose_flusher(target, folder_files, _FLUSH_THREADS)
    try:
        with own_archive(opened):
            mark = archive_mark(opened)
            if mark is not None and mark.to != target:
                raise ArchivedElsewhere(mark.to)
            folder = ArchiveFolder.of(target, folder_files)
            is_known = mark is not None
            belongs = Mark(root_id(opened), kind)
            open_archive(folder, opened.layout.root, belongs, folder_flusher, is_known)
            with own_archive_folder(folder):
                writer = f"archive-{belongs.root_id}"
                table = table_of(kind, folder.path, writer, folder_files)
                table.check(TABLE_SCHEMA)
                if mark is None:
                    enable(opened, flusher, target, opened.now_ms())
                yield Opened(opened, flusher, folder, folder_flusher, mark is None, table)
    finally:
        folder_flusher.close()
        flusher.close()


class Archiver:
    """One run: archives the removed messages until none is left, or `ending` is set."""

    def __init__(
        self,
        tasks: Tasks,
        opened: Opened,
        wanted: Wanted = USUAL,
        ending: threading.Event | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self._tasks = tasks
        self._root, self._flusher = opened.root, opened.flusher
        self._folder, self._folder_flusher = opened.folder, opened.folder_flusher
        self._table = opened.table
        self._wanted = wanted
        self._ending = ending or threading.Event()
        self._watcher: Watcher = watcher or Unwatched()
        self._done = Archived(self._folder.path, opened.enabled)
        self._touched: set[str] | None = None
        """The folders that got files since the last compaction; None: any may have."""

    def run(self) -> Archived:
        """Archives all; with `every_s` repeatedly, until `ending`. Durable on return: yes."""
        if self._done.enabled:
            self._watcher.noted(
                f"{self._root.layout.root} is archived to {self._folder.path} from now on: "
                "mq-reaper keeps messages that are not stored there"
            )
        self._pass()
        while self._wanted.every_s is not None and not self._ending.is_set():
            self._watcher.began("waits for more")
            if not self._ending.wait(self._wanted.every_s):
                self._pass()
        return self._done

    def _pass(self) -> None:
        self._go_on()
        while not self._ending.is_set():
            self._watcher.began("lists removed messages")
            batch = begin_batch(self._root, self._flusher, self._wanted.batch_messages)
            if batch is None:
                break
            self._archive(batch)
        if self._wanted.compact and not self._wanted.kind and not self._ending.is_set():
            self._compact()

    def _go_on(self) -> None:
        """Finishes the commits of an earlier run, and removes the rest of its staging."""
        left = []
        for commit in read_commits(self._folder):
            if commit.batch is not None:
                self._finish(commit)
            elif not self._swap(commit):
                left.append(commit)
        sweep_staging(self._folder, left)

    def _archive(self, batch: ArchiveBatch) -> None:
        staged = f"{batch.seq}-{uuid4().hex}"
        path = run_alone(begin_staging(self._folder, staged), self._folder_flusher)
        try:
            facts = self._tasks.stage_batch(self._root, batch, path, self._wanted, self._watcher)
            self._check(batch, facts)
        except BaseException:
            # Best effort: the next run removes what stays here.
            with contextlib.suppress(OSError, MqError):
                drop_staged(self._folder, staged)
            raise
        commit = Commit(batch_name(batch.seq), staged, _filed(facts), (), batch.seq)
        run_alone(write_commit(self._folder, commit), self._folder_flusher)
        self._finish(commit)
        self._count(facts)

    def _check(self, batch: ArchiveBatch, facts: list[Fact]) -> None:
        """Raises ArchiveDamaged unless the tasks met each name once, which shows that they read the
        same ledger.
        """
        met = names_met(facts)
        if met != batch.messages:
            raise ArchiveDamaged(batch.path, f"names {batch.messages} messages, and {met} were met")

    def _finish(self, commit: Commit) -> None:
        """Moves a batch's files to their places, adds them to the table, records the batch as
        stored in the root, and removes the commit.
        """
        run_alone(roll_forward(self._folder, commit), self._folder_flusher)
        if self._wanted.kind:
            self._add(commit)
        batch = unfinished_batch(self._root)
        if batch is not None and batch.seq == commit.batch:
            stored(self._root, self._flusher, batch)
        run_alone(end_commit(self._folder, commit), self._folder_flusher)
        if self._touched is not None:
            self._touched |= {file.folder for file in commit.files}

    def _add(self, commit: Commit) -> None:
        """Adds a batch's files of rows to the table, once."""
        parts = []
        for file in commit.files:
            if file.name.endswith(SUFFIX):
                name = f"{file.folder}/{file.name}"
                path = Path(self._folder.path, name)
                rows = pq.read_metadata(path).num_rows
                parts.append(drained_folder.Part(name, "", rows, path.stat().st_size, ""))
        if parts:
            added = drained_folder.Commit(commit.batch or 0, "", tuple(parts), {})
            self._table.add(added, TABLE_SCHEMA)

    def _count(self, facts: list[Fact]) -> None:
        done, gone, damaged = self._done, messages_of(facts, GONE), messages_of(facts, DAMAGED)
        self._done = replace(
            done,
            batches=done.batches + 1,
            messages=done.messages + messages_of(facts, FILE),
            body_bytes=done.body_bytes + sum(fact.body_bytes for fact in facts),
            files=done.files + sum(fact.kind in _KINDS for fact in facts),
            gone=done.gone + gone,
            damaged=done.damaged + damaged,
        )
        for kind, count, what in (
            (GONE, gone, "gone before they were archived"),
            (DAMAGED, damaged, "damaged; their files are archived as they are"),
        ):
            if count:
                one = next(fact.name for fact in facts if fact.kind == kind)
                self._watcher.noted(f"{count} {what}: {one}{', ...' if count > 1 else ''}")

    def _compact(self) -> None:
        files = (
            self._folder.data_files()
            if self._touched is None
            else (file for folder in self._touched for file in self._folder.files_of(folder))
        )
        groups = plan(files, self._wanted.small_files_max)
        self._touched = set()
        if not groups:
            return
        commits = read_commits(self._folder)
        if commits:
            self._watcher.noted(
                "small files are left: readers have files open that a swap would remove"
            )
            self._touched = None
            return
        staged = f"swap-{uuid4().hex}"
        path = run_alone(begin_staging(self._folder, staged), self._folder_flusher)
        facts = self._tasks.stage_groups(self._folder.path, path, groups, self._watcher)
        replaced = _replaced(groups)
        if self._swap(Commit(staged, staged, _filed(facts), replaced), is_new=True):
            self._done = replace(
                self._done,
                compacted=self._done.compacted + len(replaced),
                compacted_to=self._done.compacted_to + len(groups),
            )
        else:
            drop_staged(self._folder, staged)

    def _swap(self, commit: Commit, is_new: bool = False) -> bool:
        """Swaps files, unless a reader has the archive open; returns whether it did."""
        files = self._folder.files
        descriptor = files.open_kept(self._folder.readers)
        try:
            if not files.lock(descriptor):
                self._watcher.noted("small files are left: a reader has the archive open")
                self._touched = None
                return False
            if is_new:
                run_alone(write_commit(self._folder, commit), self._folder_flusher)
            run_alone(roll_forward(self._folder, commit), self._folder_flusher)
            run_alone(end_commit(self._folder, commit), self._folder_flusher)
            return True
        finally:
            files.close(descriptor)


def _filed(facts: list[Fact]) -> tuple[Filed, ...]:
    return tuple(Filed(fact.folder, fact.name) for fact in facts if fact.kind in _KINDS)


def _replaced(groups: list[Group]) -> tuple[Filed, ...]:
    return tuple(Filed(file.folder, file.name) for group in groups for file in group.files)


def archive(
    spark: SparkSession,
    root: Path,
    to: Path,
    wanted: Wanted = USUAL,
    *,
    ending: threading.Event | None = None,
    watcher: Watcher | None = None,
) -> Archived:
    """Archives the messages in the root's remove/ that are not archived yet, in the folder `to`,
    which it creates. The first run enables the archive: from then on mq-reaper keeps messages until
    they are stored. Once `ending` is set, the job ends after the current batch.

    Raises ArchivedElsewhere, ArchiveBusy, ArchiveFolderBusy, NoArchive, TableRefused,
    PathIsPattern, ArchiveDamaged and other MqErrors; ValueError; StartupError if there is no root;
    OSError; and Spark's error if a task fails: stored batches stay, and the next run continues.
    Durable on return: yes.
    """
    with opened_archive(root, to, kind=wanted.kind) as opened:
        return Archiver(SparkTasks(spark), opened, wanted, ending, watcher).run()


def archivable(root: Path, to: Path, kind: str = "") -> Archivable:
    """What a run of the archive would store, with a table of this `kind`, at which it does not
    look. Changes nothing. Blocking for as long as listing
    remove/ takes. Raises ArchivedElsewhere, NoArchive, PathIsPattern, MqError, StartupError,
    OSError.
    """
    opened = attached(root)
    folder = ArchiveFolder.of(os.path.realpath(to), Files())
    mark = archive_mark(opened)
    if mark is not None and mark.to != folder.path:
        raise ArchivedElsewhere(mark.to)
    known = opened.files.linked(root_id_path(opened.layout)) or ""
    check_archive(folder, opened.layout.root, Mark(known, kind), is_known=mark is not None)
    look = LagLook(opened)
    while look.advance(_NAMES_AT_ONCE):
        pass
    oldest = None if look.oldest_ms is None else rfc3339(look.oldest_ms)
    return Archivable(folder.path, look.messages, oldest, is_enabled=mark is not None)


def end_archiving(root: Path) -> bool:
    """Disables a root's archive: mq-reaper unlinks removed messages again. The archive's files
    stay. Returns False if it was not enabled. Raises ArchiveBusy, other MqErrors, StartupError,
    OSError. Durable on return: yes.
    """
    with opened_root(root) as (opened, flusher), own_archive(opened):
        return disable(opened, flusher)
