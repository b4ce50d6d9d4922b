"""Staging: one task's attempt writes its messages below new/.spark/, and makes all durable at once.

FORMAT.md, "bulk publishes", has the steps and what a crash after each leaves. What is staged is
never delivered without a journal that names its attempt.
"""

import contextlib
import errno
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from mq.errors import NoInodes, StorageFailed, unavailable
from mq.limits import GROUP_OPERATIONS_MAX
from mq.message import Stamp
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.flush import FsyncFlusher
from mq.store.mounts import FileSystem, file_system_of, tells_syncfs_errors
from mq.store.pipeline_layout import (
    Attempt,
    attempt_folder,
    job_folder,
    staged_beginning,
    staging,
)
from mq.store.root import Root
from mq.store.stamping import stamp_due
from mq.store.steps import Flush
from mq.store.walk import entries_if_there

Sync = Literal["syncfs", "fsync"]

_FSYNC_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class StagedQueue:
    """What an attempt has staged for one queue; `first` is the least of the UUIDs."""

    queue: str
    messages: int
    first: str


@dataclass(frozen=True, slots=True)
class Staged:
    """What an attempt has staged, all of it on stable media."""

    job: str
    partition: int
    attempt: int
    queues: tuple[StagedQueue, ...] = ()
    size: int = 0
    is_keyed: bool = False
    is_scheduled: bool = False

    @property
    def messages(self) -> int:
        """How many."""
        return sum(each.messages for each in self.queues)

    @property
    def name(self) -> Attempt:
        """The attempt."""
        return Attempt(self.partition, self.attempt)


@dataclass(slots=True)
class _Tally:
    size: int = 0
    is_keyed: bool = False
    is_scheduled: bool = False
    messages: Counter[QueueName] = field(default_factory=Counter)
    first: dict[QueueName, str] = field(default_factory=dict)


class StagingWriter:
    """One attempt's writer, for one thread: messages are put one by one in a `with` block, and
    `finish` ends it; what is left by an exception is taken away. `sync`: one syncfs for all, where
    the file system tells its errors, else an fsync a file. Raises Unavailable where the disk does
    not take it.
    """

    def __init__(self, root: Root, job: str, attempt: Attempt, sync: Sync = "syncfs") -> None:
        self._root = root
        self._job = job
        self._attempt = attempt
        self._tally = _Tally()
        self._beginnings: dict[QueueName, str] = {}
        self._open: list[int] = []
        self._file_system = -1
        self._flusher: FsyncFlusher | None = None
        self._begin(chosen_sync(file_system_of(root.layout.root), sync))

    def put(
        self,
        queue: QueueName,
        message_id: MessageId,
        body: bytes | memoryview,
        head: bytes = b"",
        due_ms: int | None = None,
    ) -> None:
        """Writes a message, due at `due_ms` (since the epoch) when it is for later. `head`: its
        header block. Raises NoSpace, NoInodes, DueTooFar. Durable on return: no.
        """
        root = self._root
        size = len(body) + len(head)
        root.space.claim(size)
        beginning = self._beginnings.get(queue)
        if beginning is None:
            beginning = staged_beginning(root.layout, self._job, self._attempt, queue)
            self._beginnings[queue] = beginning
        try:
            self._write(beginning + message_id.text, message_id, body, head, due_ms)
        except OSError as error:
            if error.errno == errno.ENOSPC and root.space.has_no_inode():
                raise NoInodes(str(error)) from error
            raise unavailable(error) from error
        self._count(queue, message_id, size, due_ms is not None)

    def finish(self) -> Staged:
        """What was staged. Raises StorageFailed. Durable on return: yes, and what leads there."""
        layout = self._root.layout
        way = (
            attempt_folder(layout, self._job, self._attempt),
            job_folder(layout, self._job),
            staging(layout),
            layout.new,
        )
        try:
            if self._flusher is None:
                self._root.files.sync_file_system(self._file_system)
            else:
                self._sync_files()
                self._sync(Flush(folders=way))
        except OSError as error:
            raise StorageFailed(f"what was staged is not stored: {error}") from error
        finally:
            self.close()
        tally = self._tally
        queues = tuple(
            StagedQueue(queue.text, count, tally.first[queue])
            for queue, count in sorted(tally.messages.items())
        )
        of = (self._job, self._attempt.partition, self._attempt.attempt)
        return Staged(*of, queues, tally.size, tally.is_keyed, tally.is_scheduled)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def discard(self) -> None:
        """Takes away what was staged, as far as that can be done; what stays is never delivered."""
        self.close()
        with contextlib.suppress(OSError):
            remove_folder(self._root, attempt_folder(self._root.layout, self._job, self._attempt))

    def close(self) -> None:
        """Gives back what it holds."""
        for descriptor in self._open:
            self._root.files.close(descriptor)
        self._open.clear()
        if self._file_system >= 0:
            self._root.files.close(self._file_system)
            self._file_system = -1
        if self._flusher is not None:
            self._flusher.close()

    def _begin(self, sync: Sync) -> None:
        layout, files = self._root.layout, self._root.files
        attempt = attempt_folder(layout, self._job, self._attempt)
        try:
            for folder in (staging(layout), job_folder(layout, self._job)):
                with contextlib.suppress(FileExistsError):
                    files.mkdir(folder)
            files.mkdir(attempt)
            if sync == "syncfs":
                # Opened before the first write: it is told of every error from here on.
                self._file_system = files.open_folder(layout.root)
            else:
                self._flusher = FsyncFlusher(files, _FSYNC_THREADS)
        except OSError as error:
            self.discard()
            raise unavailable(error) from error

    def _write(
        self,
        path: str,
        message_id: MessageId,
        body: bytes | memoryview,
        head: bytes,
        due_ms: int | None,
    ) -> None:
        files = self._root.files
        descriptor = files.create(path)
        is_kept = False
        try:
            if head:
                files.write(descriptor, head)
            if body:
                files.write(descriptor, body)
            stamp_due(self._root, descriptor, Stamp(due_ms or message_id.published_ms))
            is_kept = self._flusher is not None
        finally:
            if not is_kept:
                files.close(descriptor)
        if is_kept:
            self._open.append(descriptor)
            if len(self._open) >= GROUP_OPERATIONS_MAX:
                self._sync_files()

    def _count(
        self, queue: QueueName, message_id: MessageId, size: int, is_scheduled: bool
    ) -> None:
        tally = self._tally
        tally.size += size
        tally.messages[queue] += 1
        if message_id.key is not None:
            tally.is_keyed = True
        if is_scheduled:
            tally.is_scheduled = True
        first = tally.first.get(queue)
        if first is None or message_id.uuid < first:
            tally.first[queue] = message_id.uuid

    def _sync_files(self) -> None:
        if self._open:
            self._sync(Flush(files=tuple(self._open)))
        for descriptor in self._open:
            self._root.files.close(descriptor)
        self._open.clear()

    def _sync(self, flush: Flush) -> None:
        failed = {} if self._flusher is None else self._flusher.flush({0: flush}, 0)
        for error in failed.values():
            raise error


def chosen_sync(file_system: FileSystem, wanted: Sync) -> Sync:
    """What of the two a task does there: syncfs only where it tells of every error."""
    return "syncfs" if wanted == "syncfs" and tells_syncfs_errors(file_system) else "fsync"


def remove_job(root: Root, job: str, keep: frozenset[str] = frozenset()) -> None:
    """Takes the job's folder away with every attempt but those of these names, which are only
    taken away when they are empty. What is still being written stays. Raises OSError. Durable on
    return: no; what comes back is never delivered.
    """
    folder = job_folder(root.layout, job)
    for entry in entries_if_there(root.files, folder):
        if not entry.is_dir(follow_symlinks=False):
            continue
        if entry.name in keep:
            _remove_empty(root, entry.path)
        else:
            remove_folder(root, entry.path)
    for entry in entries_if_there(root.files, folder):
        if not entry.is_dir(follow_symlinks=False):
            _unlink(root, entry.path)  # Its lock.
    _remove_empty(root, folder)


def remove_folder(root: Root, folder: str) -> None:
    """Takes an attempt's folder away with what it has staged. Raises OSError."""
    for entry in entries_if_there(root.files, folder):
        _unlink(root, entry.path)
    _remove_empty(root, folder)


def _unlink(root: Root, path: str) -> None:
    try:
        root.files.unlink(path)
    except OSError as error:
        if not is_gone(error):
            raise


def _remove_empty(root: Root, folder: str) -> None:
    try:
        root.files.rmdir(folder)
    except OSError as error:
        if not is_gone(error) and error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def staged_names(root: Root, job: str, attempt: Attempt) -> "list[os.DirEntry[str]]":
    """What lies in an attempt's folder, in the order of the names; nothing where it is gone for
    sure. Raises OSError.
    """
    folder = attempt_folder(root.layout, job, attempt)
    try:
        found = [entry for entry in root.files.entries(folder) if entry.name[:1] != "."]
    except OSError as error:
        # What a network mount's cache hides is not gone.
        if not is_gone(error) or root.files.status(folder) is not None:
            raise
        return []
    return sorted(found, key=lambda entry: entry.name)
