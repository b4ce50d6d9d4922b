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

from mq.limits import FOLDERS_BEFORE_SYNCFS_MAX
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
        self._on_folder_failure = on_folder_failure

    @contextlib.contextmanager
    def group(self) -> Iterator[FlushRound]:
        """Stateless: an fsync's error is the file's own."""
        yield self._flush

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def _flush(self, asked: Mapping[int, Flush]) -> Failures:
        failed = self._sync_files(asked)
        return failed | sync_folders(self._files, asked, self._on_folder_failure)

    def _sync_files(self, asked: Mapping[int, Flush]) -> Failures:
        todo = [(index, fd) for index, flush in asked.items() for fd in flush.files]
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
        self._on_folder_failure = on_folder_failure

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
        files = [(index, fd) for index, flush in asked.items() for fd in flush.files]
        failed = sync_each(self._files, files)
        return failed | sync_folders(self._files, asked, self._on_folder_failure)


def sync_each(files: Files, todo: list[tuple[int, int]]) -> Failures:
    """fsyncs (operation, descriptor) pairs, one after the other; says which failed."""
    failed: Failures = {}
    for index, descriptor in todo:
        try:
            files.sync(descriptor)
        except OSError as error:
            failed[index] = error
    return failed


def sync_folders(
    files: Files, asked: Mapping[int, Flush], on_failure: Callable[[], None]
) -> Failures:
    """fsyncs each folder once, each flush's in its order: destinations before sources.

    A folder that is gone has nothing left to lose: whoever asked for it decides what that means.
    """
    done = {
        folder: _sync_folder(files, folder, on_failure)
        for folder in _in_order([flush.folders for flush in asked.values()])
    }
    failed: Failures = {}
    for index, flush in asked.items():
        for folder in flush.folders:
            if (error := done[folder]) is not None:
                failed[index] = error
    return failed


def _in_order(sequences: Sequence[tuple[str, ...]]) -> list[str]:
    """The folders in an order that keeps every sequence's own; where two contradict each other
    (a fetch and a release of one queue at a time), in the order of their coming.
    """
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for folders in sequences:
        for earlier, later in itertools.pairwise((None, *folders)):
            sorter.add(str(later), *([] if earlier is None else [earlier]))
    try:
        return list(sorter.static_order())
    except graphlib.CycleError:
        return list(dict.fromkeys(itertools.chain(*sequences)))


def _sync_folder(files: Files, folder: str, on_failure: Callable[[], None]) -> OSError | None:
    try:
        files.sync_folder(folder)
    except OSError as error:
        if is_gone(error):
            return FileNotFoundError(errno.ENOENT, "the folder is gone", folder)
        on_failure()
        return error
    return None


def is_kernel_with_syncfs_errors(release: str) -> bool:
    """Whether Linux of this release tells syncfs callers of write-back errors (5.8 and newer)."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0]
    return os.uname().sysname == "Linux" and (int(major), int(minor)) >= (5, 8)
