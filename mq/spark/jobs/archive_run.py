"""A run of the archive: batch after batch, whoever runs the tasks.

ARCHIVE.md has what is promised. The root says which messages (its ledger), tasks write them
(archive_task.py), a commit makes their files the archive's (archive_commit.py), and then the root
is told that it may forget them. Whoever dies anywhere leaves what the next run goes on with.

No Spark here: who runs the tasks is given.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

from mq.coordination.root_id import root_id
from mq.model.bulk_limits import (
    ARCHIVE_BATCH_MESSAGES_DEFAULT,
    ARCHIVED_VALUE_BYTES_MAX,
    READ_THREADS_DEFAULT,
    SMALL_FILES_MAX,
)
from mq.model.clock import SystemClock
from mq.model.errors import ArchivedElsewhere, MqError
from mq.spark.jobs.archive_commit import (
    ArchiveDamaged,
    Commit,
    Filed,
    batch_name,
    begin_staging,
    drop_staged,
    end_commit,
    read_commits,
    roll_forward,
    sweep_staging,
    write_commit,
)
from mq.spark.jobs.archive_compaction import Group, plan
from mq.spark.jobs.archive_folder import ArchiveFolder, open_archive, own_archive_folder
from mq.spark.jobs.archive_task import BODY, DAMAGED, FILE, GONE, Fact
from mq.spark.jobs.watching import Unwatched, Watcher
from mq.store.archive.archiving import (
    archive_mark,
    begin_batch,
    enable,
    own_archive,
    stored,
    unfinished_batch,
)
from mq.store.archive.ledger import ArchiveBatch
from mq.store.core.root import Root, attach_root
from mq.store.core.server_clock import ClockFollower
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import choose_flusher

_FLUSH_THREADS: Final = 2
_KINDS: Final = (FILE, BODY)


@dataclass(frozen=True, slots=True)
class Archived:
    """What was archived, and where: `messages` with `body_bytes` of bodies in `batches`; `gone`:
    names of which nothing was there any more; `damaged`: files that are kept as they were found.
    `compacted` small files became `compacted_to` larger ones. `enabled`: by this run.
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
        """For JSON."""
        return {
            "to": self.to,
            "enabled": self.enabled,
            "batches": self.batches,
            "messages": self.messages,
            "bytes": self.body_bytes,
            "files": self.files,
            "gone": self.gone,
            "damaged": self.damaged,
            "compacted": self.compacted,
            "compacted_to": self.compacted_to,
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to archive: `batch_messages` at a time; `threads` of a task read at a time, for a disk
    that lets one wait. A body over `value_bytes_max` is a file of its own. `every_s`: again and
    again, so many seconds apart, until somebody says to end. With `compact`, a folder of more than
    `small_files_max` small files has them made few.
    """

    batch_messages: int = ARCHIVE_BATCH_MESSAGES_DEFAULT
    threads: int = READ_THREADS_DEFAULT
    compact: bool = True
    every_s: float | None = None
    value_bytes_max: int = ARCHIVED_VALUE_BYTES_MAX
    small_files_max: int = SMALL_FILES_MAX


USUAL: Final = Wanted()


class Tasks(Protocol):
    """Whoever runs the tasks: they see the root and the archive by the driver's paths. What raises
    has left nothing of use in the folder `staged`. Durable on return: yes, all but names.
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
    """A root and its archive, for one process alone."""

    root: Root
    flusher: Flusher
    folder: ArchiveFolder
    folder_flusher: Flusher
    enabled: bool


@contextmanager
def opened_archive(
    root: Path, to: Path, files: Files | None = None, folder_files: Files | None = None
) -> Iterator[Opened]:
    """A root and its archive in the folder `to`, for a block of code; the first time, the archive
    is made and enabled. `files` are for the root, `folder_files` for the archive. Raises like
    `archive`. Durable on return: yes.
    """
    clock = SystemClock()
    opened = attach_root(os.fspath(root), files or Files(), clock)
    ClockFollower(opened, clock).follow()
    target, folder_files = os.path.realpath(to), folder_files or Files()
    flusher = choose_flusher(opened.layout.root, opened.files, _FLUSH_THREADS)
    folder_flusher = choose_flusher(target, folder_files, _FLUSH_THREADS)
    try:
        with own_archive(opened):
            mark = archive_mark(opened)
            if mark is not None and mark.to != target:
                raise ArchivedElsewhere(mark.to)
            name, is_known = root_id(opened), mark is not None
            folder = open_archive(
                target, opened.layout.root, name, folder_files, folder_flusher, is_known
            )
            with own_archive_folder(folder):
                if mark is None:
                    enable(opened, flusher, target, opened.now_ms())
                yield Opened(opened, flusher, folder, folder_flusher, mark is None)
    finally:
        folder_flusher.close()
        flusher.close()


class Archiver:
    """One run: passes over what is removed, until nothing is left or it is to end."""

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
        self._wanted = wanted
        self._ending = ending or threading.Event()
        self._watcher: Watcher = watcher or Unwatched()
        self._done = Archived(self._folder.path, opened.enabled)
        self._touched: set[str] | None = None
        """The folders that got files since they were looked at; None: all may have."""

    def run(self) -> Archived:
        """See `archive`."""
        if self._done.enabled:
            self._watcher.noted(
                f"{self._root.layout.root} is archived to {self._folder.path} from now on: "
                "mq-reaper keeps what is not stored there"
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
            self._watcher.began("lists what was removed")
            batch = begin_batch(self._root, self._flusher, self._wanted.batch_messages)
            if batch is None:
                break
            self._archive(batch)
        if self._wanted.compact and not self._ending.is_set():
            self._compact()

    def _go_on(self) -> None:
        """Brings what an earlier run has begun to commit to its end, and sweeps what it left."""
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
            # Best effort: what stays here is swept by the next run.
            with contextlib.suppress(OSError, MqError):
                drop_staged(self._folder, staged)
            raise
        commit = Commit(batch_name(batch.seq), staged, _filed(facts), (), batch.seq)
        run_alone(write_commit(self._folder, commit), self._folder_flusher)
        self._finish(commit)
        self._count(facts)

    def _check(self, batch: ArchiveBatch, facts: list[Fact]) -> None:
        """That the tasks have met each name once: else they read another ledger than this one."""
        met = _messages(facts, FILE) + _messages(facts, GONE)
        if met != batch.messages:
            raise ArchiveDamaged(batch.path, f"names {batch.messages} messages, and {met} were met")

    def _finish(self, commit: Commit) -> None:
        """Of a batch: its files get to their places, the root is told, and it is forgotten."""
        run_alone(roll_forward(self._folder, commit), self._folder_flusher)
        batch = unfinished_batch(self._root)
        if batch is not None and batch.seq == commit.batch:
            stored(self._root, self._flusher, batch)
        run_alone(end_commit(self._folder, commit), self._folder_flusher)
        if self._touched is not None:
            self._touched |= {file.folder for file in commit.files}

    def _count(self, facts: list[Fact]) -> None:
        done, gone, damaged = self._done, _messages(facts, GONE), _messages(facts, DAMAGED)
        self._done = replace(
            done,
            batches=done.batches + 1,
            messages=done.messages + _messages(facts, FILE),
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
            self._watcher.noted("small files are left: others still read what a swap would take")
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
        """Swaps files, unless somebody reads the archive: whether it did."""
        files = self._folder.files
        descriptor = files.open_kept(self._folder.readers)
        try:
            if not files.lock(descriptor):
                self._watcher.noted("small files are left: somebody reads the archive")
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


def _messages(facts: list[Fact], kind: str) -> int:
    return sum(fact.messages for fact in facts if fact.kind == kind)


def _replaced(groups: list[Group]) -> tuple[Filed, ...]:
    return tuple(Filed(file.folder, file.name) for group in groups for file in group.files)
