"""Flush policies: how what operations wrote gets onto stable media.

One class a policy, all alike: `session()` gives whoever drives operations what makes their
flushes one after another, each for many operations, and says which of them failed, by operation.
"""

import errno
import graphlib
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self, TypeAlias

from mq.model.limits import FILES_BEFORE_SYNCFS_MAX, FLUSHED_ENTRIES_MAX, FOLDERS_BEFORE_SYNCFS_MAX
from mq.store.disk.files import Files, is_gone
from mq.store.disk.steps import FilesFailed, Flush

Failures: TypeAlias = dict[int, OSError]


class Session(Protocol):
    """The flushes of one driver of operations. Its threads may share it; one flushes at a time."""

    def begin(self) -> int:
        """Before operations act. What it gives goes with what they then ask to flush."""
        ...

    def flush(self, asked: Mapping[int, Flush], begun: int) -> Failures:
        """Flushes what operations asked for; `begun`: the least that `begin` gave any of them."""
        ...

    def rest(self) -> None:
        """No operation stands: nothing is kept open."""
        ...


class Flusher(Protocol):
    """A flush policy."""

    name: str

    def session(self) -> Session:
        """For one driver of operations."""
        ...

    def close(self) -> None:
        """Gives its threads back."""
        ...


class _Stateless:
    """A policy whose sessions have nothing to remember."""

    def session(self) -> Self:
        return self

    def begin(self) -> int:
        return 0

    def rest(self) -> None:
        return


class NoFlusher(_Stateless):
    """Flushes nothing: for tmpfs, where nothing outlives the power anyway."""

    name = "none"

    def flush(self, asked: Mapping[int, Flush], begun: int) -> Failures:
        """Succeeds at once."""
        return {}

    def close(self) -> None:
        """Nothing to give back."""


class _Looks:
    """What one flush has found of folders, each looked at once; `failed` where that failed."""

    def __init__(self, files: Files) -> None:
        self.failed: dict[str, OSError] = {}
        self._files = files
        self._inodes: dict[str, int | None] = {}

    def inode(self, folder: str) -> int | None:
        """The folder's inode; None: it is not there. -1 when nobody can tell."""
        try:
            return self._inodes[folder]
        except KeyError:
            found = self._inodes[folder] = self._look(folder)
            return found

    def _look(self, folder: str) -> int | None:
        try:
            status = self._files.status(folder)
        except OSError as error:
            self.failed[folder] = error
            return -1
        # What is no folder holds nothing of ours: what a link leads to is not flushed.
        return status.st_ino if status is not None and stat.S_ISDIR(status.st_mode) else None


class FolderFlusher:
    """fsyncs each folder once, each flush's in its order: destinations before sources.

    A folder's own entry is flushed at this process's first use of it, and again when it was
    made anew since: whoever made it may have died before its own flush. Threads share it.
    """

    def __init__(
        self, files: Files, on_failure: Callable[[], None], whole_renames: bool = False
    ) -> None:
        self._files = files
        self._on_failure = on_failure
        self._whole_renames = whole_renames
        self._flushed: dict[str, int] = {}
        """The inodes of folders whose entries are on stable media."""

    def needed(self, flush: Flush) -> tuple[str, ...]:
        """The folders that a flush of it takes."""
        return flush.folders[: -flush.covered] if self._covers(flush) else flush.folders

    def _covers(self, flush: Flush) -> bool:
        return self._whole_renames and flush.covered > 0

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        """A folder that is gone has nothing left to lose: whoever asked decides what it means."""
        looks = _Looks(self._files)
        entries = dict.fromkeys(itertools.chain(*(flush.entries for flush in asked.values())))
        made = {folder: inode for folder in entries if (inode := self._made(folder, looks))}
        sequences = {
            index: self._sequence(flush, made, looks)
            if made or flush.beside
            else self.needed(flush)
            for index, flush in asked.items()
        }
        ordered = _in_order(list(dict.fromkeys(sequences.values())))
        done = {folder: looks.failed.get(folder) or self._sync(folder) for folder in ordered}
        for entry, inode in made.items():
            if entry not in looks.failed and done[os.path.dirname(entry)] is None:
                self._remember(entry, inode)
        failed: Failures = {}
        for index, folders in sequences.items():
            for folder in folders:
                # That a folder is gone may be all right: a failure is told before that.
                if (error := done[folder]) is not None and not _is_failure(failed.get(index)):
                    failed[index] = error
        return failed

    def _made(self, folder: str, looks: "_Looks") -> int | None:
        """The folder's inode, when its entry is not known to be flushed; None: nothing is to do."""
        inode = looks.inode(folder)
        return None if self._flushed.get(folder) == inode else inode

    def _sequence(self, flush: Flush, made: Mapping[str, int], looks: "_Looks") -> tuple[str, ...]:
        """The folders of one flush: those that lead to what was made come first, since a message
        moves there for good when the folder that it leaves is flushed. Where it could not be
        looked whether a folder is there, that folder itself stands for the failure.
        """
        found = [
            entry if entry in looks.failed else os.path.dirname(entry)
            for entry in flush.entries
            if entry in made
        ]
        beside: list[str] = []
        for row in () if self._covers(flush) else flush.beside:
            beside += itertools.takewhile(looks.inode, row)
        return (*found, *self.needed(flush), *beside)

    def _remember(self, entry: str, inode: int) -> None:
        if len(self._flushed) >= FLUSHED_ENTRIES_MAX:
            self._flushed.clear()
        self._flushed[entry] = inode

    def _sync(self, folder: str) -> OSError | None:
        try:
            self._files.sync_folder(folder)
        except OSError as error:
            if is_gone(error):
                return FileNotFoundError(errno.ENOENT, "the folder is gone", folder)
            self._on_failure()
            return error
        return None


class FsyncFlusher(_Stateless):
    """An fsync for each file, in parallel, and one for each folder, whoever shares it.

    fsyncs one after the other would each wait for a commit of the journal; side by side they
    share one. Works on every file system.
    """

    name = "fsync"

    def __init__(
        self,
        files: Files,
        threads: int,
        on_folder_failure: Callable[[], None] = lambda: None,
        whole_renames: bool = False,
    ) -> None:
        self._files = files
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="mq-fsync")
        self._folders = FolderFlusher(files, on_folder_failure, whole_renames)

    def flush(self, asked: Mapping[int, Flush], begun: int) -> Failures:
        """An fsync's error is the file's own."""
        failed = self._sync_files(asked)
        return failed | self._folders.flush(asked)

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def _sync_files(self, asked: Mapping[int, Flush]) -> Failures:
        todo = files_of(asked)
        if len(todo) < 2:
            return by_operation(sync_each(self._files, todo))
        shares = [todo[start :: self._threads] for start in range(min(self._threads, len(todo)))]
        failed = self._pool.map(lambda part: sync_each(self._files, part), shares)
        return by_operation(itertools.chain(*failed))


class SyncfsFlusher:
    """One syncfs for all the files of a flush, where the file system is the root's own.

    A flush of one file and a few folders is an fsync each, which takes less.
    """

    name = "syncfs"

    def __init__(
        self,
        files: Files,
        root: str,
        on_folder_failure: Callable[[], None] = lambda: None,
        whole_renames: bool = False,
    ) -> None:
        self._files = files
        self._root = root
        self._folders = FolderFlusher(files, on_folder_failure, whole_renames)

    def session(self) -> "_SyncfsSession":
        """With a descriptor of its own."""
        return _SyncfsSession(self._files, self._root, self._folders)

    def close(self) -> None:
        """Nothing to give back."""


class _SyncfsSession:
    """The kernel tells an error of write-back once to each descriptor that was open before, at its
    next syncfs. So each session has its own, opened before the first write, and after a syncfs
    that failed, whatever was begun before that is fsynced once, file by file; what fails that has
    failed.
    """

    def __init__(self, files: Files, root: str, folders: FolderFlusher) -> None:
        self._files = files
        self._root = root
        self._folders = folders
        self._opening = threading.Lock()
        self._descriptor = -1
        self._failures = 0

    def begin(self) -> int:
        """How many syncfs have failed; where no descriptor is left, each file is fsynced."""
        with self._opening:
            if self._descriptor < 0:
                try:
                    self._descriptor = self._files.open_folder(self._root)
                except OSError:
                    return -1
            return self._failures

    def flush(self, asked: Mapping[int, Flush], begun: int) -> Failures:
        """A syncfs, unless it is for little, or tells nothing of what began before."""
        files = sum(len(flush.files) for flush in asked.values())
        folders = {folder for flush in asked.values() for folder in self._folders.needed(flush)}
        little = files <= FILES_BEFORE_SYNCFS_MAX and len(folders) <= FOLDERS_BEFORE_SYNCFS_MAX
        if little or begun != self._failures or self._descriptor < 0:
            return self._flush_each(asked)
        try:
            self._files.sync_file_system(self._descriptor)
        except OSError:
            self._failures += 1
            return self._flush_each(asked)
        return {}

    def rest(self) -> None:
        with self._opening:
            if self._descriptor >= 0:
                self._files.close(self._descriptor)
                self._descriptor = -1

    def _flush_each(self, asked: Mapping[int, Flush]) -> Failures:
        failed = by_operation(sync_each(self._files, files_of(asked)))
        return failed | self._folders.flush(asked)


def files_of(asked: Mapping[int, Flush]) -> list[tuple[int, int]]:
    """(operation, descriptor) of every file that is asked for."""
    return [(index, fd) for index, flush in asked.items() for fd in flush.files]


def sync_each(files: Files, todo: list[tuple[int, int]]) -> list[tuple[int, int, OSError]]:
    """fsyncs (operation, descriptor) pairs, one after the other; those that failed, and how."""
    failed: list[tuple[int, int, OSError]] = []
    for index, descriptor in todo:
        try:
            files.sync(descriptor)
        except OSError as error:
            failed.append((index, descriptor, error))
    return failed


def by_operation(failed: Iterable[tuple[int, int, OSError]]) -> Failures:
    """What each operation is told of its files that failed."""
    errors: dict[int, dict[int, OSError]] = {}
    for index, descriptor, error in failed:
        errors.setdefault(index, {})[descriptor] = error
    return {index: FilesFailed(each) for index, each in errors.items()}


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


def is_kernel_with_syncfs_errors(release: str) -> bool:
    """Whether Linux of this release tells syncfs callers of write-back errors (5.8 and newer)."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0]
    return os.uname().sysname == "Linux" and (int(major), int(minor)) >= (5, 8)
