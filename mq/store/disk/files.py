"""The only calls that change the disk, and the reads beside them: the seam for faults.

A test that needs a failing fsync, a lost rename answer or a full disk gives the store its own
Files. Every call may block; only a close is made on the event loop.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from mq.model.limits import MIB

# A file of at most this size is read in one call.
READ_AT_ONCE_BYTES_MAX: Final = MIB


_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO under a message's name must not hang a daemon. Opened for writing too, since an
# exclusive lock on NFS needs that.
_CLAIMED_FILE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPENDED_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
# Linux only, as is /proc, which names the opened file for a change.
_NAMED: Final = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMELESS_FILE: Final = os.O_WRONLY | getattr(os, "O_TMPFILE", 0) | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

# The errors of a name that is gone or has changed: a lost race, never a failure.
GONE: Final = (errno.ENOENT, errno.ESTALE)
# The errors of opening a name that is not a folder.
_NO_FOLDER: Final = (errno.ENOTDIR, errno.ELOOP)
# A listing reports progress every this many entries.
_ENTRIES_TOLD: Final = 1_000
# The errors of a file system without fsync for folders.
_NO_FOLDER_FSYNC: Final = (errno.EINVAL, errno.ENOTSUP)

_libc: Final = ctypes.CDLL(None, use_errno=True)
FLUSHED: Final = ("file", "folder", "syncfs")
"""The kinds of flushes: of a file, a folder, or the file system."""
_OF_FILE, _OF_FOLDER, _OF_SYNCFS = range(len(FLUSHED))

OnFlush: TypeAlias = Callable[[tuple[int, bool, float]], None]
"""Called with a flush's kind (index in FLUSHED), whether it failed, and its seconds, in the thread
that flushed.
"""


def _syncfs(descriptor: int) -> None:
    if _libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def is_gone(error: OSError) -> bool:
    """Whether the error only says that the name does not exist (any more)."""
    return error.errno in GONE


class Files:
    """System calls on files, one method each. Raises OSError as the system does."""

    def __init__(self) -> None:
        self.flushes_whole = False
        """Whether each flush is one of the whole file system, which keeps no other in order."""
        self.folder_fsync_missing = False
        """Whether the file system has refused to fsync a folder, which is then tolerated."""

    # Changes.

    def create(self, path: str) -> int:
        """Creates a file, open for writing. EEXIST if the name is taken."""
        return os.open(path, _NEW_FILE, FILE_MODE)

    def open_kept(self, path: str) -> int:
        """Opens a file for writing; creates it if missing."""
        return os.open(path, _KEPT_FILE, FILE_MODE)

    def open_append(self, path: str) -> int:
        """Opens a file for appending; creates it if missing."""
        return os.open(path, _APPENDED_FILE | os.O_NONBLOCK, FILE_MODE)

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        """Writes all bytes; continues after a short write."""
        written = os.write(descriptor, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        """Sets mtime (and atime) in nanoseconds."""
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))

    def touch(self, path: str) -> None:
        """Sets mtime to now, by the file system's clock."""
        os.utime(path)

    def mkdir(self, path: str) -> None:
        """A new folder. EEXIST when the name is taken."""
        os.mkdir(path, FOLDER_MODE)

    def rename(self, source: str, target: str) -> None:
        """Moves one name to another of the same file system, atomically."""
        os.rename(source, target)

    def link(self, path: str, target: str) -> None:
        """Creates a symbolic link whose target is a text and never followed. EEXIST if the name is
        taken.
        """
        os.symlink(target, path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def set_mode(self, path: str, mode: int) -> None:
        """Sets a file's or a folder's permissions; EOPNOTSUPP for a symbolic link."""
        descriptor = os.open(path, _NAMED)
        try:
            # fchmod needs a readable descriptor.
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
        finally:
            os.close(descriptor)

    def set_owner(self, path: str, user: int, group: int = -1) -> None:
        """Changes the owner of a file or folder, by number, and its group if given. Does not follow
        symbolic links.
        """
        os.chown(path, user, group, follow_symlinks=False)

    def sync(self, descriptor: int) -> None:
        """Flushes the file to stable media. An error is final: never call it again."""
        self._flush(descriptor)

    def sync_folder(self, path: str) -> None:
        """Flushes the folder's entries to stable media, if the file system can."""
        descriptor = os.open(path, _FOLDER)
        try:
            self._flush(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_FSYNC:
                raise
            self.folder_fsync_missing = True
        finally:
            os.close(descriptor)

    def _flush(self, descriptor: int) -> None:
        if self.flushes_whole:
            _syncfs(descriptor)
        else:
            os.fsync(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        """Flushes everything that was written to the descriptor's file system to stable media.

        syncfs(2). It reports an error once to each descriptor, from Linux 5.8 on.
        """
        _syncfs(descriptor)

    def flush_nameless(self, folder: str) -> None:
        """Writes and flushes a file without a name, on the folder's file system."""
        descriptor = os.open(folder, _NAMELESS_FILE, FILE_MODE)
        try:
            os.write(descriptor, b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # Reads, locks and descriptors.

    def open_claimed(self, path: str) -> int:
        """Opens an existing file for reading and locking. ELOOP for a symbolic link."""
        return os.open(path, _CLAIMED_FILE)

    def open_read(self, path: str) -> int:
        """Opens an existing file for reading only. ELOOP for a symbolic link."""
        return os.open(path, _READ_FILE)

    def open_folder(self, path: str) -> int:
        """Opens a folder, for syncfs."""
        return os.open(path, _FOLDER)

    def close(self, descriptor: int) -> None:
        """Closes the descriptor and frees its lock. Ignores storage errors: the descriptor is
        closed anyway, and what had to be stored was fsynced before.
        """
        try:
            os.close(descriptor)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise

    def duplicate(self, descriptor: int) -> int:
        """Another descriptor of the same open file."""
        return os.dup(descriptor)

    def lock(self, descriptor: int) -> bool:
        """Takes the inode's exclusive lock. False at once if another process has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait_to_share_lock(self, descriptor: int) -> None:
        """Takes the inode's shared lock; waits for the holder of an exclusive one."""
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def wait_for_lock(self, descriptor: int) -> None:
        """Takes the inode's exclusive lock; waits for its holder."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def unlock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def status(self, path: str) -> os.stat_result | None:
        """The status of a name, without following symbolic links; None: it does not exist."""
        try:
            return os.stat(path, follow_symlinks=False)
        except OSError as error:
            if is_gone(error):
                return None
            raise

    def asked_status(self, path: str) -> os.stat_result | None:
        """A folder's status as the server of a network mount has it: the mount asks the server when
        a folder is opened, but may answer `status` from its cache.
        """
        try:
            descriptor = os.open(path, _FOLDER)
        except OSError as error:
            if is_gone(error):
                return None
            if error.errno in _NO_FOLDER:
                return self.status(path)
            raise
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def linked(self, path: str) -> str | None:
        """The target of a symbolic link; None: the name does not exist, or is something else."""
        try:
            return os.readlink(path)
        except OSError as error:
            if is_gone(error) or error.errno == errno.EINVAL:
                return None
            raise

    def is_there(self, path: str) -> bool:
        """Whether the name exists, without following symbolic links; also False if that cannot be
        seen. Faster than `status` where most names do not exist.
        """
        return os.access(path, os.F_OK, follow_symlinks=False)

    def descriptor_status(self, descriptor: int) -> os.stat_result:
        """The status of the open file."""
        return os.fstat(descriptor)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Reads `size` bytes from `offset`, or fewer at the end of the file."""
        parts = []
        while size > 0 and (part := os.pread(descriptor, size, offset)):
            parts.append(part)
            size -= len(part)
            offset += len(part)
        return b"".join(parts)

    def read_file(self, path: str, size: int) -> bytes:
        """Reads the first `size` bytes of a file, or fewer: for many files one by one. ELOOP for a
        symbolic link.
        """
        descriptor = os.open(path, _READ_FILE)
        try:
            content = os.read(descriptor, size)
            if len(content) < size:
                content += self.read(descriptor, size - len(content), len(content))
        finally:
            self.close(descriptor)
        return content

    def read_opened(self, path: str) -> tuple[os.stat_result, bytes | None]:
        """An opened file's status and its bytes: for many files one by one. The bytes are None for
        a long file, for anything else than a file, and if fewer than its size were read. ELOOP for
        a symbolic link.
        """
        descriptor = os.open(path, _READ_FILE)
        try:
            status = os.fstat(descriptor)
            size = status.st_size
            if size > READ_AT_ONCE_BYTES_MAX or not stat.S_ISREG(status.st_mode):
                return status, None
            content = os.read(descriptor, size)
        finally:
            os.close(descriptor)
        return status, content if len(content) == size else None

    def is_link(self, path: str) -> bool:
        """Whether the name is a symbolic link."""
        try:
            return stat.S_ISLNK(os.lstat(path).st_mode)
        except OSError as error:
            if is_gone(error):
                return False
            raise

    def refuse_links(self, *folders: str) -> None:
        """Raises OSError (ELOOP) if one of the folders is a symbolic link. For calls below nested
        folders: the kernel follows links among these, whatever the open flags say about the last
        name.
        """
        for folder in folders:
            if self.is_link(folder):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        """The folder's entries, in no order. ELOOP for a symbolic link."""
        self.refuse_links(folder)
        with os.scandir(folder) as found:
            yield from found

    def free(self, path: str) -> os.statvfs_result:
        """The free and total bytes and inodes of the path's file system."""
        return os.statvfs(path)

    def lacks_inodes(self, path: str) -> bool:
        """Whether it is inodes that the path's file system lacks, of all that ENOSPC may mean."""
        free = self.free(path)
        return free.f_files > 0 and free.f_favail == 0


class OwnersFiles(Files):
    """Gives new files to the root's owner at once, whichever user runs fsck: daemons must be able
    to use them. For a process that may change owners.
    """

    def __init__(self, owner: int) -> None:
        super().__init__()
        self._owner = owner

    def create(self, path: str) -> int:
        return self._given(super().create(path), path)

    def open_kept(self, path: str) -> int:
        return self._given(super().open_kept(path), path)

    def open_append(self, path: str) -> int:
        return self._given(super().open_append(path), path)

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self.set_owner(path, self._owner)

    def link(self, path: str, target: str) -> None:
        super().link(path, target)
        self.set_owner(path, self._owner)

    def _given(self, descriptor: int, path: str) -> int:
        try:
            if self.descriptor_status(descriptor).st_uid != self._owner:
                self.set_owner(path, self._owner)
        except BaseException:
            self.close(descriptor)
            raise
        return descriptor


class ClockFiles(Files):
    """Sets the mtimes of files and folders by a clock that may differ from the machine's; each
    change is later than the one before. ctimes stay the machine's.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._last_ns = 0
        self.changes = 0
        """The number of changes."""

    def create(self, path: str) -> int:
        return self._made(path, super().create(path))

    def open_kept(self, path: str) -> int:
        return self._made(path, super().open_kept(path))

    def open_append(self, path: str) -> int:
        return self._made(path, super().open_append(path))

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        super().write(descriptor, data)
        self.stamp(descriptor, self._later_ns())

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        super().stamp(descriptor, mtime_ns)
        self.changes += 1

    def touch(self, path: str) -> None:
        self._changed(path)

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self._changed(path, os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._changed(os.path.dirname(source), os.path.dirname(target))

    def link(self, path: str, target: str) -> None:
        super().link(path, target)
        self._changed(path, os.path.dirname(path))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._changed(os.path.dirname(path))

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self._changed(os.path.dirname(path))

    def _made(self, path: str, descriptor: int) -> int:
        self._changed(os.path.dirname(path))
        return descriptor

    def _changed(self, *paths: str) -> None:
        later_ns = self._later_ns()
        self.changes += 1
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, ns=(later_ns, later_ns), follow_symlinks=False)

    def _later_ns(self) -> int:
        self._last_ns = max(self._last_ns + 1000, self._now_ms() * 1_000_000)
        return self._last_ns


class ProgressFiles(Files):
    """Reports progress after each stat, rename and unlink, and during listings, in the thread that
    made this object only: other threads' calls say nothing about it.
    """

    def __init__(self, on_progress: Callable[[], None]) -> None:
        super().__init__()
        self._on_progress = on_progress
        self._whose = threading.get_ident()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._came_back()

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._came_back()

    def status(self, path: str) -> os.stat_result | None:
        found = super().status(path)
        self._came_back()
        return found

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        for count, entry in enumerate(super().entries(folder)):
            if count % _ENTRIES_TOLD == 0:
                self._came_back()
            yield entry

    def _came_back(self) -> None:
        if threading.get_ident() == self._whose:
            self._on_progress()


class TimedFiles(Files):
    """Reports each flush with its duration. `steady_s`: a clock in seconds."""

    def __init__(self, steady_s: Callable[[], float], on_flush: OnFlush) -> None:
        super().__init__()
        self._steady_s = steady_s
        self._on_flush = on_flush

    def sync(self, descriptor: int) -> None:
        self._timed(_OF_FILE, super().sync, descriptor)

    def sync_folder(self, path: str) -> None:
        self._timed(_OF_FOLDER, super().sync_folder, path)

    def sync_file_system(self, descriptor: int) -> None:
        self._timed(_OF_SYNCFS, super().sync_file_system, descriptor)

    def _timed(self, kind: int, act: Callable[[Any], None], what: int | str) -> None:
        began_s = self._steady_s()
        try:
            act(what)
        except OSError as error:
            # A missing folder is an outcome, not a failure.
            if not is_gone(error):
                self._on_flush((kind, True, self._steady_s() - began_s))
            raise
        self._on_flush((kind, False, self._steady_s() - began_s))
