"""The only calls that change the disk, and the reads beside them: the seam for faults.

A test that wants an fsync to fail, a rename's answer to be lost or a disk to be full gives the
store a Files of its own. Every call here may block; none but a close is made on the event loop.
"""

import ctypes
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Final

from mq.model.bulk_limits import READ_AT_ONCE_BYTES_MAX

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO put under a message's name must not hang a daemon. Opened for writing too,
# since on NFS an exclusive lock needs that.
_CLAIMED_FILE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPENDED_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

# A name that is not there, or no longer the same: a lost race, never a failure.
GONE: Final = (errno.ENOENT, errno.ESTALE)
# What an open says of a name that is no folder's.
_NO_FOLDER: Final = (errno.ENOTDIR, errno.ELOOP)
# Of a listing that goes on, every so many are told of.
_ENTRIES_TOLD: Final = 1_000
# What a file system answers that has no fsync for folders.
_NO_FOLDER_FSYNC: Final = (errno.EINVAL, errno.ENOTSUP)

_libc: Final = ctypes.CDLL(None, use_errno=True)


def is_gone(error: OSError) -> bool:
    """Whether the error only says that the name is not there (any more)."""
    return error.errno in GONE


class Files:
    """System calls on files, one method each. Raises OSError as the system does."""

    def __init__(self) -> None:
        self.folder_fsync_missing = False
        """True once the file system refused to fsync a folder, which is then tolerated."""

    # Changes.

    def create(self, path: str) -> int:
        """A new file, open for writing. EEXIST when the name is taken."""
        return os.open(path, _NEW_FILE, FILE_MODE)

    def open_kept(self, path: str) -> int:
        """The file, made when missing, open for writing."""
        return os.open(path, _KEPT_FILE, FILE_MODE)

    def open_append(self, path: str) -> int:
        """The file, made when missing, open for writing at its end, wherever that is by then."""
        return os.open(path, _APPENDED_FILE | os.O_NONBLOCK, FILE_MODE)

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        """Writes all of it: a short write goes on where it ended."""
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
        """A new symbolic link, whose target is a text and never followed. EEXIST when the name is
        taken.
        """
        os.symlink(target, path)

    def unlink(self, path: str) -> None:
        """Takes a file's name away."""
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        """Takes an empty folder away."""
        os.rmdir(path)

    def set_mode(self, path: str, mode: int) -> None:
        """Sets a file's or a folder's permissions; EOPNOTSUPP for a symbolic link."""
        descriptor = os.open(path, _NAMED)
        try:
            # A descriptor that may not read has no fchmod.
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
        finally:
            os.close(descriptor)

    def set_owner(self, path: str, user: int, group: int = -1) -> None:
        """Gives a file or a folder to a user, by number, and to a group where one is said; symbolic
        links are not followed.
        """
        os.chown(path, user, group, follow_symlinks=False)

    def sync(self, descriptor: int) -> None:
        """The file is on stable media on return. An error is final: never call it again."""
        os.fsync(descriptor)

    def sync_folder(self, path: str) -> None:
        """The folder's entries are on stable media on return, where the file system can say so."""
        descriptor = os.open(path, _FOLDER)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_FSYNC:
                raise
            self.folder_fsync_missing = True
        finally:
            os.close(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        """All that was written to the descriptor's file system is on stable media on return.

        syncfs(2); it tells each descriptor of an error once, from Linux 5.8 on.
        """
        if _libc.syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    # Reads, locks and descriptors.

    def open_claimed(self, path: str) -> int:
        """An existing file, open for reading and locking. ELOOP for a symbolic link."""
        return os.open(path, _CLAIMED_FILE)

    def open_read(self, path: str) -> int:
        """An existing file, open for reading alone. ELOOP for a symbolic link."""
        return os.open(path, _READ_FILE)

    def open_folder(self, path: str) -> int:
        """A folder, open for syncfs."""
        return os.open(path, _FOLDER)

    def close(self, descriptor: int) -> None:
        """Gives the descriptor back; its lock goes with it. An error of the storage is passed
        over: it is closed all the same, and what had to be stored was fsynced before.
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
        """Takes the inode's lock, or says False at once when another has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait_to_share_lock(self, descriptor: int) -> None:
        """Takes the inode's lock beside others who share it, however long one has it alone."""
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def wait_for_lock(self, descriptor: int) -> None:
        """Takes the inode's lock, however long another has it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def unlock(self, descriptor: int) -> None:
        """Gives the inode's lock back."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def status(self, path: str) -> os.stat_result | None:
        """What is under the name, symbolic links not followed; None when nothing is."""
        try:
            return os.stat(path, follow_symlinks=False)
        except OSError as error:
            if is_gone(error):
                return None
            raise

    def asked_status(self, path: str) -> os.stat_result | None:
        """`status` of a folder as the server of a network mount knows it: the mount asks that when
        a folder is opened, where it may answer a `status` by what it remembers.
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
        """The text that a symbolic link says; None when nothing, or something else, is there."""
        try:
            return os.readlink(path)
        except OSError as error:
            if is_gone(error) or error.errno == errno.EINVAL:
                return None
            raise

    def is_there(self, path: str) -> bool:
        """Whether something is under the name, symbolic links not followed; False also when nobody
        can tell. It takes less than `status` where mostly nothing is.
        """
        return os.access(path, os.F_OK, follow_symlinks=False)

    def descriptor_status(self, descriptor: int) -> os.stat_result:
        """What the descriptor is open on."""
        return os.fstat(descriptor)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """`size` bytes from `offset`, or fewer at the end of the file."""
        parts = []
        while size > 0 and (part := os.pread(descriptor, size, offset)):
            parts.append(part)
            size -= len(part)
            offset += len(part)
        return b"".join(parts)

    def read_file(self, path: str, size: int) -> bytes:
        """The first `size` bytes of a file, or fewer where it ends: for many files, one by one.
        ELOOP for a symbolic link.
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
        """What a file says of itself when it is open, and its bytes: for many files, one by one.
        None for the bytes of a long one, of what is no file, and where they are fewer than it says.
        ELOOP for a symbolic link.
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
        """Whether a symbolic link is under the name."""
        try:
            return stat.S_ISLNK(os.lstat(path).st_mode)
        except OSError as error:
            if is_gone(error):
                return False
            raise

    def refuse_links(self, *folders: str) -> None:
        """For what is done below folders that lie below each other: the kernel follows links among
        those, whatever an open says of its last name. Raises OSError (ELOOP) when one is a link.
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
        """Free and total bytes and inodes of the path's file system."""
        return os.statvfs(path)


class OwnersFiles(Files):
    """What is made is the root's owner's at once, whoever runs fsck: daemons beside it are to use
    it. For a process that may give files away.
    """

    def __init__(self, owner: int) -> None:
        super().__init__()
        self._owner = owner

    def create(self, path: str) -> int:
        """See Files."""
        return self._given(super().create(path), path)

    def open_kept(self, path: str) -> int:
        """See Files."""
        return self._given(super().open_kept(path), path)

    def open_append(self, path: str) -> int:
        """See Files."""
        return self._given(super().open_append(path), path)

    def mkdir(self, path: str) -> None:
        """See Files."""
        super().mkdir(path)
        self.set_owner(path, self._owner)

    def link(self, path: str, target: str) -> None:
        """See Files."""
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


class ProgressFiles(Files):
    """Tells after each look, rename and unlink, and while it lists, of the thread that made it
    alone: what others do says nothing of that one.
    """

    def __init__(self, on_progress: Callable[[], None]) -> None:
        super().__init__()
        self._on_progress = on_progress
        self._whose = threading.get_ident()

    def rename(self, source: str, target: str) -> None:
        """See Files."""
        super().rename(source, target)
        self._came_back()

    def unlink(self, path: str) -> None:
        """See Files."""
        super().unlink(path)
        self._came_back()

    def status(self, path: str) -> os.stat_result | None:
        """See Files."""
        found = super().status(path)
        self._came_back()
        return found

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        """See Files."""
        for count, entry in enumerate(super().entries(folder)):
            if count % _ENTRIES_TOLD == 0:
                self._came_back()
            yield entry

    def _came_back(self) -> None:
        if threading.get_ident() == self._whose:
            self._on_progress()
