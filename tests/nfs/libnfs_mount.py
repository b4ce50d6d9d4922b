"""The process that serves an NFS export through FUSE, with libnfs for a client.

    python -m nfs.libnfs_mount MOUNT_POINT PORT EXPORT

One mount for all that runs on it: locks are this process's. A file that is unlinked while it is
open is renamed by libfuse, as NFS clients do. One request is served at a time, and waits while
the server is away, though not for ever. Ends when it is unmounted, or when a request is not over in
time: whoever waits at the mount then hears of it.
"""

import errno
import faulthandler
import fcntl
import itertools
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any

import mfusepy  # type: ignore[import-untyped]
from nfs.imitation import Fuse
from nfs.libnfs import PATIENCE_S, Connection


class Client(mfusepy.Operations):  # type: ignore[misc]
    """The calls that mq makes; a file's handle is a number."""

    use_ns = True

    def __init__(self, connection: Connection) -> None:
        self._server = connection
        self._handles = itertools.count(1)
        self._inodes: dict[int, int] = {}
        self._locked: dict[int, int] = {}
        """The handle that has an inode's lock."""

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = self._server.status(path)
        names = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks")
        facts = {f"st_{name}": getattr(found, name) for name in names}
        for name in ("atime", "mtime", "ctime"):
            facts[f"st_{name}"] = getattr(found, name) * 10**9 + getattr(found, f"{name}_nsec")
        return facts

    def readdir(self, path: str, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
        # libnfs tells no inodes here, and a listing leaves out what has inode 0.
        yield from ((name, {"st_mode": stat.S_IFDIR, "st_ino": 1}, 0) for name in (".", ".."))
        for name, mode in list(self._server.names(path)):
            yield name, {"st_mode": mode, "st_ino": 1}, 0

    def statfs(self, path: str) -> dict[str, int]:
        """Room for all: it is not tested here."""
        blocks = dict.fromkeys(("f_blocks", "f_bfree", "f_bavail"), 2**24)
        return blocks | {"f_bsize": 4096, "f_frsize": 4096, "f_namemax": 255}

    def open(self, path: str, flags: int) -> int:
        return self._opened(path)

    def create(self, path: str, mode: int, flags: int) -> int:
        self._server.with_open(path, (flags & os.O_EXCL) | os.O_CREAT | os.O_RDWR)
        return self._opened(path)

    def _opened(self, path: str) -> int:
        handle = next(self._handles)
        self._inodes[handle] = self._server.status(path).ino
        return handle

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self._server.read(path, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return self._server.write(path, data, offset)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        return self._server.with_open(path, os.O_RDWR, ("nfs_fsync",))

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0  # An NFS server answers when it is done.

    def flush(self, path: str, fh: int) -> int:
        return 0

    def flock(self, path: str | None, fh: int, operation: int) -> int:
        inode = self._inodes[fh]
        if operation & fcntl.LOCK_UN:
            if self._locked.get(inode) == fh:
                del self._locked[inode]
        elif self._locked.setdefault(inode, fh) != fh:
            raise mfusepy.FuseOSError(errno.EWOULDBLOCK)
        return 0

    def release(self, path: str, fh: int) -> int:
        inode = self._inodes.pop(fh)
        if self._locked.get(inode) == fh:
            del self._locked[inode]
        return 0

    def utimens(self, path: str, times: tuple[int, int]) -> int:
        self._server.set_times(path, *times)
        return 0

    def rename(self, old: str, new: str) -> int:
        return self._server.call("nfs_rename", old.encode(), new.encode())

    def unlink(self, path: str) -> int:
        return self._server.call("nfs_unlink", path.encode())

    def mkdir(self, path: str, mode: int) -> int:
        return self._server.call("nfs_mkdir2", path.encode(), mode & 0o7777)

    def rmdir(self, path: str) -> int:
        return self._server.call("nfs_rmdir", path.encode())


class Watched(Fuse):
    """Ends the process where a request is stuck, even in libnfs."""

    def _wrapper(self, *call: Any, **named: Any) -> Any:
        faulthandler.dump_traceback_later(2 * PATIENCE_S, exit=True)
        try:
            # The only place that every request passes; mfusepy's public hooks are one a call.
            return super()._wrapper(*call, **named)
        finally:
            faulthandler.cancel_dump_traceback_later()


def serve(where: str, port: str, export: str) -> None:
    """Serves until the file system is unmounted."""
    Watched(
        Client(Connection(int(port), export)),
        where,
        foreground=True,
        nothreads=True,
        fsname="mq-libnfs",
        # No kind that mq knows for a network's: the server's clock is this machine's, and what two
        # daemons measured of it would differ by half a round trip.
        subtype="libnfs",
        use_ino=True,
        direct_io=True,
        entry_timeout=1.0,
        negative_timeout=0.0,
        attr_timeout=0.0,
    )


if __name__ == "__main__":
    serve(*sys.argv[1:])
