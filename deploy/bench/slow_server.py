"""`python -m deploy.bench.slow_server WHERE SOURCE SECONDS`: SOURCE again at WHERE, through FUSE,
where each call takes some seconds more, as on a network's file system.
"""

import errno
import os
import sys
import time
from typing import Any, Final

import mfusepy

_TIMES: Final = ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")


class Slow(mfusepy.Operations):  # type: ignore[misc]
    """Passes each call on, after a pause."""

    use_ns = True

    def __init__(self, source: str, pause_s: float) -> None:
        self._source = source
        self._pause_s = pause_s

    def _at(self, path: str) -> str:
        time.sleep(self._pause_s)
        return self._source + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._at(path)) if fh is None else os.fstat(self._slow(fh))
        names = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size")
        told = {name: getattr(found, name) for name in names}
        return told | {name[:-3]: getattr(found, name) for name in _TIMES}

    def _slow(self, descriptor: int) -> int:
        time.sleep(self._pause_s)
        return descriptor

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(self._slow(fh), size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(self._slow(fh), data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._at(path), length)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)  # No caller waits for it.
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        os.fsync(self._slow(fh))
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        time.sleep(self._pause_s)
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._at(old), self._source + new)
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._at(path))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._at(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._at(path))
        return 0

    def symlink(self, target: str, source: str) -> int:
        os.symlink(source, self._at(target))
        return 0

    def readlink(self, path: str) -> str:
        return os.readlink(self._at(path))

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._at(path), ns=times) if times else os.utime(self._at(path))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._at(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._at(path))
        names = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files")
        return {name: getattr(found, name) for name in (*names, "f_frsize", "f_namemax")}

    def link(self, target: str, source: str) -> int:
        raise mfusepy.FuseOSError(errno.ENOTSUP)


if __name__ == "__main__":
    where, source, pause_s = sys.argv[1:]
    mfusepy.FUSE(Slow(source, float(pause_s)), where, foreground=True, nothreads=False)
