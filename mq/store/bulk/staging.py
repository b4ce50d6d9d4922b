"""Staging: one task's attempt writes its messages below new/.spark/, and makes all of them durable
at once.

PROTOCOL.md, "bulk publishes", has the steps and what a crash after each leaves. Staged files are
delivered only if a journal names their attempt.
"""

import contextlib
import errno
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from mq.model.errors import NoInodes, StagedFileGone, StorageFailed, Unavailable, unavailable
from mq.model.limits import GROUP_OPERATIONS_MAX, UUID_CHARS
from mq.model.message import Stamp
from mq.model.names import UUIDS_END, MessageId, QueueName
from mq.store.bulk.giving_up import is_given_up
from mq.store.bulk.staged import remove_folder
from mq.store.core.message_file import stamp_due
from mq.store.core.root import Root
from mq.store.disk.files import GONE
from mq.store.disk.flush import FSYNC_THREADS, FsyncFlusher, Writeback
from mq.store.disk.mounts import FileSystem, file_system_of, tells_syncfs_errors
from mq.store.disk.steps import Flush
from mq.store.format.pipeline import (
    Attempt,
    Fold,
    attempt_folder,
    fold_folder,
    job_folder,
    staged_beginning,
    staging,
)

# After this many messages a task starts their write-back, and writes on.
STAGED_PER_WRITEBACK: Final = 10_000

Sync = Literal["syncfs", "fsync"]

_NO_FOLDER: Final = (*GONE, errno.ENOTDIR)
# The characters of a UUID that hold its time.
_MOMENT_CHARS: Final = 13


@dataclass(frozen=True, slots=True)
class StagedQueue:
    """An attempt's staged messages of one queue; `first`: the least of their UUIDs."""

    queue: str
    messages: int
    first: str


@dataclass(frozen=True, slots=True)
class Staged:
    """An attempt's staged messages, all on stable media."""

    job: str
    partition: int
    attempt: int
    queues: tuple[StagedQueue, ...] = ()
    size: int = 0
    is_keyed: bool = False
    is_scheduled: bool = False

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.queues)

    @property
    def name(self) -> Attempt:
        return Attempt(self.partition, self.attempt)


@dataclass(slots=True)
class _Tally:
    size: int = 0
    is_keyed: bool = False
    is_scheduled: bool = False
    messages: Counter[QueueName] = field(default_factory=Counter)
    first: dict[QueueName, str] = field(default_factory=dict)


class StagingWriter:
    """The writer of one attempt, for one thread: `put` messages in a `with` block, then `finish`;
    an exception removes the files. `sync`: one syncfs for all files, if the file system reports its
    errors, else an fsync for each file. Raises Unavailable on disk errors: StagedFileGone if the
    job was abandoned.
    """

    def __init__(self, root: Root, job: str, attempt: Attempt, sync: Sync = "syncfs") -> None:
        self._root = root
        self._job = job
        self._attempt = attempt
        self._tally = _Tally()
        self._beginnings: dict[QueueName, str] = {}
        self._folds: dict[Fold, str] = {}
        self._open: list[int] = []
        self._file_system = -1
        self._flusher: FsyncFlusher | None = None
        self._writeback: Writeback | None = None
        self._unwritten = 0
        self._begin(chosen_sync(file_system_of(root.layout.root), sync))

    def put(
        self,
        queue: QueueName,
        message_id: MessageId,
        body: bytes | memoryview,
        head: bytes = b"",
        due_ms: int | None = None,
    ) -> None:
        """Writes a message; `due_ms`: a later due time, in milliseconds since the epoch; `head`:
        its header block. Raises NoSpace, NoInodes, DueTooFar. Durable on return: no.
        """
        size = len(body) + len(head)
        self._root.space.claim(size)
        with self._told():
            beginning = self._beginning(queue)
            stamp = Stamp(due_ms or message_id.published_ms)
            self._write(beginning + message_id.text, stamp, body, head)
        self._count(queue, message_id, 1, size)
        self._tally.is_keyed = self._tally.is_keyed or message_id.key is not None
        self._tally.is_scheduled = self._tally.is_scheduled or due_ms is not None

    def put_alike(
        self,
        queue: QueueName,
        like: MessageId,
        uuids: Sequence[str],
        bodies: Sequence[bytes],
        goes_whole: bool = False,
    ) -> None:
        """Writes messages with the attributes of `like`, which has no key, and rising UUIDs.
        `goes_whole`: they are of one window that only this attempt uses, for a queue of the usual
        shape. Raises as `put`. Durable on return: no.
        """
        size = sum(map(len, bodies))
        self._root.space.claim(size, len(uuids))
        rest, moment, stamp = like.text[UUID_CHARS:], "", Stamp(0)
        with self._told():
            first = like.with_uuid(uuids[0])
            beginning = self._fold(Fold.of(queue, first)) if goes_whole else self._beginning(queue)
            for uuid, body in zip(uuids, bodies, strict=True):
                if uuid[:_MOMENT_CHARS] != moment:
                    moment = uuid[:_MOMENT_CHARS]
                    stamp = Stamp(like.with_uuid(uuid).published_ms)
                self._write(f"{beginning}{uuid}{rest}", stamp, body)
        self._count(queue, first, len(uuids), size)

    def finish(self) -> Staged:
        """Flushes everything, and returns a description of the staged messages. Raises
        StorageFailed, StagedFileGone. Durable on return: the files' contents; their names are
        with the journal that publishes them.
        """
        try:
            if self._flusher is None:
                self._root.files.sync_file_system(self._file_system)
            else:
                self._sync_files()
            folder = attempt_folder(self._root.layout, self._job, self._attempt)
            if self._root.files.status(folder) is None:
                raise FileNotFoundError(errno.ENOENT, "the staged messages are gone", folder)
        except OSError as error:
            gone = self._given_up(error)
            raise gone or StorageFailed(f"the staged messages are not stored: {error}") from error
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
        """Removes the staged files as far as possible; remaining ones are never delivered."""
        self.close()
        with contextlib.suppress(OSError):
            remove_folder(self._root, attempt_folder(self._root.layout, self._job, self._attempt))

    def close(self) -> None:
        if self._writeback is not None:
            self._writeback.end()
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
        made = staging(layout), job_folder(layout, self._job)
        try:
            files.refuse_links(*made)
            for folder in made:
                with contextlib.suppress(FileExistsError):
                    files.mkdir(folder)
            files.mkdir(attempt)
            if sync == "syncfs":
                # Opened before the first write, so that it gets every later error.
                self._file_system = files.open_folder(layout.root)
                self._writeback = Writeback(files, layout.root)
            else:
                self._flusher = FsyncFlusher(files, FSYNC_THREADS)
        except OSError as error:
            self.discard()
            raise self._given_up(error) or unavailable(error) from error

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turns disk errors into errors of a publish."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOSPC and self._root.space.has_no_inode():
                raise NoInodes(str(error)) from error
            raise self._given_up(error) or unavailable(error) from error

    def _given_up(self, error: OSError) -> Unavailable | None:
        """The error if a folder of the job is gone because the job was abandoned; otherwise
        None.
        """
        if error.errno not in _NO_FOLDER or not is_given_up(self._root, self._job):
            return None
        return StagedFileGone("the job was given up before this task had staged its part")

    def _beginning(self, queue: QueueName) -> str:
        """The path of the queue's messages up to the id."""
        known = self._beginnings.get(queue)
        if known is None:
            known = staged_beginning(self._root.layout, self._job, self._attempt, queue)
            self._beginnings[queue] = known
        return known

    def _fold(self, fold: Fold) -> str:
        """The path of a fold's messages up to the id. Makes the fold's folder on first use."""
        known = self._folds.get(fold)
        if known is None:
            folder = fold_folder(self._root.layout, self._job, self._attempt, fold)
            self._root.files.mkdir(folder)
            known = self._folds[fold] = f"{folder}/"
        return known

    def _write(self, path: str, stamp: Stamp, body: bytes | memoryview, head: bytes = b"") -> None:
        files = self._root.files
        descriptor = files.create(path)
        is_kept = False
        try:
            if head:
                files.write(descriptor, head)
            if body:
                files.write(descriptor, body)
            stamp_due(self._root, descriptor, stamp)
            is_kept = self._flusher is not None
        finally:
            if not is_kept:
                files.close(descriptor)
        if is_kept:
            self._open.append(descriptor)
            if len(self._open) >= GROUP_OPERATIONS_MAX:
                self._sync_files()

    def _count(self, queue: QueueName, first: MessageId, count: int, size: int) -> None:
        tally = self._tally
        tally.size += size
        tally.messages[queue] += count
        self._unwritten += count
        if self._writeback is not None and self._unwritten >= STAGED_PER_WRITEBACK:
            self._unwritten = 0
            self._writeback.begin()
        if first.uuid < tally.first.get(queue, UUIDS_END):
            tally.first[queue] = first.uuid

    def _sync_files(self) -> None:
        if self._open:
            flush = Flush(files=tuple(self._open))
            failed = {} if self._flusher is None else self._flusher.flush({0: flush})
            for error in failed.values():
                raise error
        for descriptor in self._open:
            self._root.files.close(descriptor)
        self._open.clear()


def chosen_sync(file_system: FileSystem, wanted: Sync) -> Sync:
    """The sync to use: syncfs only if it reports every error there."""
    return "syncfs" if wanted == "syncfs" and tells_syncfs_errors(file_system) else "fsync"
