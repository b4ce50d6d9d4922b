"""Flush policies: how written files and renames get onto stable media.

Each policy is a class. `session()` gives the driver of a group an object that flushes for many
operations at once, and reports the failures by operation.
"""

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, Self, TypeAlias

from mq.store.disk.files import Files, is_gone
from mq.store.disk.steps import FilesFailed, Flush

# Threads that fsync the files of one group in parallel.
FSYNC_THREADS: Final = 16
# Above these numbers of files and folders in one flush, one syncfs is cheaper than an fsync each.
FILES_BEFORE_SYNCFS_MAX: Final = 1
FOLDERS_BEFORE_SYNCFS_MAX: Final = 4

Failures: TypeAlias = dict[int, OSError]


class Session(Protocol):
    """The flushes of one group of operations. For one thread."""

    def begin(self) -> None: ...

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        """Flushes what operations asked for; which of them failed. Each operation that has acted
        since the last flush is among them, or has ended.
        """
        ...

    def rest(self) -> None:
        """No operation stands: nothing is kept open."""
        ...


class Flusher(Protocol):
    name: str

    def session(self) -> Session:
        """For one driver of operations."""
        ...

    def close(self) -> None: ...


class _Stateless:
    """A policy whose sessions have nothing to remember."""

    def session(self) -> Self:
        return self

    def begin(self) -> None:
        return

    def rest(self) -> None:
        return


class NoFlusher(_Stateless):
    """Flushes nothing. For tmpfs, which a power cut clears anyway."""

    name = "none"

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        return {}

    def close(self) -> None: ...


class FolderFlusher:
    """fsyncs folders, each once; of renames the targets before the sources. Says which files are to
    be flushed before. `on_failure` is called where a folder could not be flushed. Threads share it.
    """

    stamps_wait = True
    """Whether an mtime needs a flush of its file."""

    def __init__(self, files: Files, on_failure: Callable[[], None] = lambda: None) -> None:
        self._files = files
        self._on_failure = on_failure

    def files(self, asked: Mapping[int, Flush]) -> list[tuple[int, int]]:
        """The pairs (operation, descriptor) of all files to flush."""
        if self.stamps_wait:
            return [
                (each, fd) for each, flush in asked.items() for fd in flush.files + flush.stamps
            ]
        return [(each, fd) for each, flush in asked.items() for fd in flush.files]

    def are_few(self, asked: Mapping[int, Flush]) -> bool:
        """Whether a flush of the folders takes few fsyncs."""
        each_once = {folder for flush in asked.values() for folder in flush.folders}
        return len(each_once) <= FOLDERS_BEFORE_SYNCFS_MAX

    def flush(self, asked: Mapping[int, Flush], failed: Container[int] = ()) -> Failures:
        """A folder that is gone has nothing left to lose: the operation decides what it means.
        `failed`: operations whose files could not be flushed.
        """
        targets: dict[str, None] = {}
        sources: dict[str, None] = {}
        for flush in asked.values():
            end = len(flush.folders) - flush.covered
            targets |= dict.fromkeys(flush.folders[:end])
            sources |= dict.fromkeys(flush.folders[end:])
        errors: dict[str, OSError] = {}
        for folder in targets | sources:
            if (error := self._sync(folder)) is not None:
                errors[folder] = error
        if not errors:
            return {}
        return _failed({number: flush.folders for number, flush in asked.items()}, errors)

    def _sync(self, folder: str) -> OSError | None:
        try:
            self._files.sync_folder(folder)
        except OSError as error:
            if is_gone(error):
                return FileNotFoundError(errno.ENOENT, "the folder is gone", folder)
            self._on_failure()
            return error
        return None


class OrderedFolders(FolderFlusher):
    """For a file system that makes names and mtimes durable in the order in which they changed. An
    fsync makes all changes durable, of any process, up to the last change of what it is of; of an
    unchanged file or folder it may do nothing. `touched`: a folder to change where an operation
    depends on changes of others.
    """

    stamps_wait = False  # They are in the order of changes, as names are.

    def __init__(self, files: Files, on_failure: Callable[[], None], touched: str) -> None:
        super().__init__(files, on_failure)
        self._touched = touched

    def are_few(self, asked: Mapping[int, Flush]) -> bool:
        return True

    def flush(self, asked: Mapping[int, Flush], failed: Container[int] = ()) -> Failures:
        """Flushes the last change of the operations, which are in the order in which they acted:
        the one whose files were flushed, or that has a change of its own that can be.
        """
        failures: Failures = {}
        later: list[int] = []
        for number in reversed(list(asked)):
            flush = asked[number]
            if number in failed:
                continue
            if not flush.has_last:
                later += [number] if flush.files or flush.stamps or flush.folders else []
            elif flush.files or (error := self._sync_last(number, flush)) is None:
                break
            else:
                failures[number] = error
        if later and (error := self._sync_all()) is not None:
            failures |= dict.fromkeys(later, error)
        return failures

    def _sync_last(self, number: int, flush: Flush) -> OSError | None:
        if flush.stamps:
            failed = sync_each(self._files, [(number, flush.stamps[-1])])
            return by_operation(failed).get(number)
        return self._sync(flush.folders[-flush.covered - 1])

    def _sync_all(self) -> OSError | None:
        """Makes all changes durable that were made so far."""
        try:
            self._files.touch(self._touched)
        except OSError as error:
            self._on_failure()
            return error
        return self._sync(self._touched)


class NamesAtOnce(FolderFlusher):
    """For NFS: a change of a name or an mtime is on the server's stable media once it is answered,
    and an fsync of a folder does nothing but ask the server for the folder.
    """

    stamps_wait = False

    def flush(self, asked: Mapping[int, Flush], failed: Container[int] = ()) -> Failures:
        return {}


class FsyncFlusher(_Stateless):
    """An fsync for each file, in parallel, and one for each folder, shared by all operations.

    Sequential fsyncs would each wait for a commit of the file system's journal; parallel ones share
    one. Works on every file system.
    """

    name = "fsync"

    def __init__(self, files: Files, threads: int, folders: FolderFlusher | None = None) -> None:
        self._files = files
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="mq-fsync")
        self._folders = folders or FolderFlusher(files)

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        """An fsync's error is the file's own."""
        todo = self._folders.files(asked)
        failed = self._sync_files(todo) if todo else {}
        return failed | self._folders.flush(asked, failed)

    def close(self) -> None:
        self._pool.shutdown()

    def _sync_files(self, todo: list[tuple[int, int]]) -> Failures:
        if len(todo) == 1:
            return by_operation(sync_each(self._files, todo))
        shares = [todo[start :: self._threads] for start in range(min(self._threads, len(todo)))]
        failed = self._pool.map(lambda part: sync_each(self._files, part), shares)
        return by_operation(itertools.chain(*failed))


class SyncfsFlusher:
    """One syncfs for all files of a flush, for a root that is a file system of its own.

    A flush of one file and a few folders uses fsync, which is cheaper, unless each flush is one of
    the whole file system (`Files.flushes_whole`).
    """

    name = "syncfs"

    def __init__(self, files: Files, root: str, folders: FolderFlusher | None = None) -> None:
        self._files = files
        self._root = root
        self._folders = folders or FolderFlusher(files)

    def session(self) -> "_SyncfsSession":
        """With a descriptor of its own."""
        return _SyncfsSession(self._files, self._root, self._folders)

    def close(self) -> None: ...


class _SyncfsSession:
    """The kernel reports a write-back error once to each descriptor that was open before, at its
    next syncfs. So each session has its own descriptor, opened before the first write. After a
    failed syncfs it fsyncs each file of the flush once, to learn which ones failed.
    """

    def __init__(self, files: Files, root: str, folders: FolderFlusher) -> None:
        self._files = files
        self._root = root
        self._folders = folders
        self._descriptor = -1
        self._is_blind = False
        """Whether operations have acted without a descriptor since the last flush."""

    def begin(self) -> None:
        """Where no descriptor is left, each file is fsynced."""
        if self._descriptor < 0:
            try:
                self._descriptor = self._files.open_folder(self._root)
            except OSError:
                self._is_blind = True

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        """A syncfs, unless it is for little."""
        is_blind, self._is_blind = self._is_blind, False
        files, whole = self._folders.files(asked), self._files.flushes_whole
        little = len(files) <= FILES_BEFORE_SYNCFS_MAX and self._folders.are_few(asked)
        if (little and not whole) or is_blind or self._descriptor < 0:
            return self._flush_each(asked, files)
        try:
            self._files.sync_file_system(self._descriptor)
        except OSError as error:
            if whole:
                return dict.fromkeys(asked, error)
            return self._flush_each(asked, files)
        return {}

    def rest(self) -> None:
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1

    def _flush_each(self, asked: Mapping[int, Flush], files: list[tuple[int, int]]) -> Failures:
        failed = by_operation(sync_each(self._files, files))
        return failed | self._folders.flush(asked, failed)


def sync_each(files: Files, todo: list[tuple[int, int]]) -> list[tuple[int, int, OSError]]:
    """fsyncs the files of pairs (operation, descriptor), one by one. Returns those that failed,
    with the error.
    """
    failed: list[tuple[int, int, OSError]] = []
    for index, descriptor in todo:
        try:
            files.sync(descriptor)
        except OSError as error:
            failed.append((index, descriptor, error))
    return failed


def by_operation(failed: Iterable[tuple[int, int, OSError]]) -> Failures:
    """The error of each operation whose files failed."""
    errors: dict[int, dict[int, OSError]] = {}
    for index, descriptor, error in failed:
        errors.setdefault(index, {})[descriptor] = error
    return {index: FilesFailed(each) for index, each in errors.items()}


def _failed(sequences: Mapping[int, tuple[str, ...]], errors: Mapping[str, OSError]) -> Failures:
    """The error of each operation that failed: of the first of its folders that could not be
    flushed, or else of the first that is gone.
    """
    failed: Failures = {}
    for index, folders in sequences.items():
        for folder in folders:
            # An operation may accept that a folder is gone, and no failure.
            if (error := errors.get(folder)) is not None and not _is_failure(failed.get(index)):
                failed[index] = error
    return failed


def _is_failure(error: OSError | None) -> bool:
    return error is not None and not is_gone(error)


def is_kernel_with_syncfs_errors(release: str) -> bool:
    """Whether Linux of this release tells syncfs callers of write-back errors (5.8 and newer)."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0]
    return os.uname().sysname == "Linux" and (int(major), int(minor)) >= (5, 8)


class Writeback:
    """Has a thread write a file system's dirty pages now and then, from the first `begin` on. It
    has a descriptor of its own, so that the descriptor of the final flush gets every error too.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._wake = threading.Event()
        self._ends = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Starts writing dirty pages to the disk, unless that goes on already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="writeback", daemon=True)
            self._thread.start()
        self._wake.set()

    def end(self) -> None:
        self._ends = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            descriptor = self._files.open_folder(self._folder)
            try:
                while self._wake.wait() and not self._ends:
                    self._wake.clear()
                    self._files.sync_file_system(descriptor)
            finally:
                self._files.close(descriptor)
