"""Flush policies: how a group gets what its operations wrote onto stable media.

One class a policy, all alike: `group()` opens one for a group of operations, before their
first write, and the policy it yields makes one flush after another, each for many operations,
and says which of them failed, by operation.
"""

import contextlib
import errno
import graphlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias

from mq.limits import FLUSHED_ENTRIES_MAX, FOLDERS_BEFORE_SYNCFS_MAX
from mq.store.files import Files, is_gone
from mq.store.steps import Flush

Failures: TypeAlias = dict[int, OSError]
FlushRound: TypeAlias = Callable[[Mapping[int, Flush]], Failures]


class Flusher(Protocol):
    """A flush policy."""

    name: str

    def group(self) -> contextlib.AbstractContextManager[FlushRound]:
        """For one group of operations."""
        ...

    def close(self) -> None:
        """Gives its threads back."""
        ...


class NoFlusher:
    """Flushes nothing: for tmpfs, where nothing outlives the power anyway."""

    name = "none"

    @contextlib.contextmanager
    def group(self) -> Iterator[FlushRound]:
        """Every flush succeeds at once."""
        yield lambda asked: {}

    def close(self) -> None:
        """Nothing to give back."""


class FolderFlusher:
    """fsyncs each folder once, each flush's in its order: destinations before sources.

    A folder's own entry is flushed at this process's first use of it, and again when it was
    made anew since: whoever made it may have died before its own flush. Threads share it.
    """

    def __init__(self, files: Files, on_failure: Callable[[], None]) -> None:
        self._files = files
        self._on_failure = on_failure
        self._flushed: dict[str, int] = {}
        """The inodes of folders whose entries are on stable media."""

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        """A folder that is gone has nothing left to lose: whoever asked decides what it means."""
        sequences = list(dict.fromkeys(flush.folders for flush in asked.values()))
        done = {folder: self._sync(folder) for folder in _in_order(sequences)}
        for entry in dict.fromkeys(itertools.chain(*(flush.entries for flush in asked.values()))):
            done[_entry_of(entry)] = self._sync_entry(entry, done.get(os.path.dirname(entry)))
        failed: Failures = {}
        for index, flush in asked.items():
            for folder in (*flush.folders, *map(_entry_of, flush.entries)):
                # That a folder is gone may be all right: a failure is told before that.
                if (error := done[folder]) is not None and not _is_failure(failed.get(index)):
                    failed[index] = error
        return failed

    def _sync_entry(self, folder: str, parent_error: OSError | None) -> OSError | None:
        try:
            status = self._files.status(folder)
        except OSError as error:
            return error
        if status is None or self._flushed.get(folder) == status.st_ino:
            return parent_error
        failure = self._sync(os.path.dirname(folder))
        if failure is None:
            if len(self._flushed) >= FLUSHED_ENTRIES_MAX:
                self._flushed.clear()
            self._flushed[folder] = status.st_ino
        return failure

    def _sync(self, folder: str) -> OSError | None:
        try:
            self._files.sync_folder(folder)
        except OSError as error:
            if is_gone(error):
                return FileNotFoundError(errno.ENOENT, "the folder is gone", folder)
            self._on_failure()
            return error
        return None


class FsyncFlusher:
    """An fsync for each file, in parallel, and one for each folder, whoever shares it.

    fsyncs one after the other would each wait for a commit of the journal; side by side they
    share one. Works on every file system.
    """

    name = "fsync"

    def __init__(
        self, files: Files, threads: int, on_folder_failure: Callable[[], None] = lambda: None
    ) -> None:
        self._files = files
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="mq-fsync")
        self._folders = FolderFlusher(files, on_folder_failure)

    @contextlib.contextmanager
    def group(self) -> Iterator[FlushRound]:
        """Stateless: an fsync's error is the file's own."""
        yield self._flush

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def _flush(self, asked: Mapping[int, Flush]) -> Failures:
        failed = self._sync_files(asked)
        return failed | self._folders.flush(asked)

    def _sync_files(self, asked: Mapping[int, Flush]) -> Failures:
        todo = files_of(asked)
        if len(todo) < 2:
            return sync_each(self._files, todo)
        shares = [todo[start :: self._threads] for start in range(min(self._threads, len(todo)))]
        failed: Failures = {}
        for share in self._pool.map(lambda part: sync_each(self._files, part), shares):
            failed |= share
        return failed


class SyncfsFlusher:
    """One syncfs for all the files of a flush, where the file system is the root's own.

    A flush of a few folders alone is an fsync each. The kernel tells an error of write-back
    once to each descriptor that was open before, so each group opens its own; what is then not
    known to be stored is fsynced once, file by file, and what fails that has failed.
    """

    name = "syncfs"

    def __init__(
        self, files: Files, root: str, on_folder_failure: Callable[[], None] = lambda: None
    ) -> None:
        self._files = files
        self._root = root
        self._folders = FolderFlusher(files, on_folder_failure)

    @contextlib.contextmanager
    def group(self) -> Iterator[FlushRound]:
        """Opens the group's descriptor; where none is left, each file is fsynced."""
        try:
            descriptor = self._files.open_folder(self._root)
        except OSError:
            yield self._flush_each
            return
        try:
            yield lambda asked: self._flush(descriptor, asked)
        finally:
            self._files.close(descriptor)

    def close(self) -> None:
        """Nothing to give back."""

    def _flush(self, descriptor: int, asked: Mapping[int, Flush]) -> Failures:
        has_files = any(flush.files for flush in asked.values())
        folders = {folder for flush in asked.values() for folder in flush.folders}
        if not has_files and len(folders) <= FOLDERS_BEFORE_SYNCFS_MAX:
            return self._flush_each(asked)
        try:
            self._files.sync_file_system(descriptor)
        except OSError:
            return self._flush_each(asked)
        return {}

    def _flush_each(self, asked: Mapping[int, Flush]) -> Failures:
        failed = sync_each(self._files, files_of(asked))
        return failed | self._folders.flush(asked)


def files_of(asked: Mapping[int, Flush]) -> list[tuple[int, int]]:
    """(operation, descriptor) of every file that is asked for."""
    return [(index, fd) for index, flush in asked.items() for fd in flush.files]


def sync_each(files: Files, todo: list[tuple[int, int]]) -> Failures:
    """fsyncs (operation, descriptor) pairs, one after the other; says which failed."""
    failed: Failures = {}
    for index, descriptor in todo:
        try:
            files.sync(descriptor)
        except OSError as error:
            failed[index] = error
    return failed


def _in_order(sequences: Sequence[tuple[str, ...]]) -> list[str]:
    """The folders in an order that keeps every sequence's own; where two contradict each other
    (a fetch, or a delete, and a release of one queue at a time), in the order of their coming.
    """
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for folders in sequences:
        for earlier, later in itertools.pairwise((None, *folders)):
            sorter.add(str(later), *([] if earlier is None else [earlier]))
    try:
        return list(sorter.static_order())
    except graphlib.CycleError:
        return list(dict.fromkeys(itertools.chain(*sequences)))


def _is_failure(error: OSError | None) -> bool:
    return error is not None and not is_gone(error)


def _entry_of(folder: str) -> str:
    """What stands for a folder's entry beside folders' paths: no path ends so."""
    return folder + "/"


def is_kernel_with_syncfs_errors(release: str) -> bool:
    """Whether Linux of this release tells syncfs callers of write-back errors (5.8 and newer)."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0]
    return os.uname().sysname == "Linux" and (int(major), int(minor)) >= (5, 8)
