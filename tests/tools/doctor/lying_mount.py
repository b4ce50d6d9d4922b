"""The process that serves a folder through FUSE as no file system should (see `conftest.py`).

    python -m tools.doctor.lying_mount MOUNT_POINT FOLDER KIND LIES OPTIONS

KIND is what Linux calls it, behind `fuse.`; LIES are words of the list below, parted by commas;
OPTIONS as those of `nfs.imitation`, in JSON. What it is told to do wrong:

- `folders`: refuses an fsync of a folder, with EINVAL
- `types`: does not tell the types of a folder's entries
- `links`: has no symbolic links
- `cases`: tells no upper case from lower case
- `lengths`: has no names over 143 bytes
- `locks`: gives a lock to everybody
- `claims`: leaves the old name of a rename
- `contents`: remembers what it has read, whatever another client writes
- `times`: remembers mtimes likewise
- `fsync`: fails every fsync of a file
"""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import mfusepy  # type: ignore[import-untyped]
from nfs.imitation import Client, Fuse, Options

NAME_BYTES_MAX = 143


class Liar(Client):
    """A client that does some things wrong."""

    def __init__(self, folder: str, options: Options, lies: set[str]) -> None:
        super().__init__(folder, options)
        self._lies = lies
        self._contents: dict[str, bytes] = {}
        self._mtimes: dict[int, int] = {}

    def _refuse(self, lie: str, code: int) -> None:
        if lie in self._lies:
            raise mfusepy.FuseOSError(code)

    def _spelled(self, path: str) -> str:
        if "lengths" in self._lies and len(os.path.basename(path)) > NAME_BYTES_MAX:
            raise mfusepy.FuseOSError(errno.ENAMETOOLONG)
        folder, name = os.path.split(path)
        return os.path.join(folder, name.lower()) if "cases" in self._lies else path

    def _led(self, path: str) -> str:
        return super()._led(self._spelled(path))

    def _named(self, path: str) -> str:
        return super()._named(self._spelled(path))

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        self._refuse("folders", errno.EINVAL)
        return super().fsyncdir(path, datasync, fh)

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        self._refuse("fsync", errno.EIO)
        return super().fsync(path, datasync, fh)

    def readdir(self, path: str | None, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
        for name, facts, offset in super().readdir(path, fh):
            untold = {**facts, "st_mode": 0}
            yield name, untold if "types" in self._lies else facts, offset

    def symlink(self, target: str, source: str) -> int:
        self._refuse("links", errno.EPERM)
        return super().symlink(target, source)

    def flock(self, path: str | None, fh: int, operation: int) -> int:
        return 0 if "locks" in self._lies else super().flock(path, fh, operation)

    def rename(self, old: str, new: str) -> int:
        self._contents.pop(new, None)
        if old in self._contents:
            self._contents[new] = self._contents.pop(old)
        if "claims" not in self._lies or os.path.isdir(self._here(old)):
            return super().rename(old, new)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._here(new))
        os.link(self._here(old), self._made(new))
        return 0

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        if "contents" not in self._lies:
            return super().read(path, size, offset, fh)
        content = self._contents.setdefault(self._opened[fh].path, os.pread(fh, 1 << 16, 0))
        return content[offset : offset + size]

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        written = super().write(path, data, offset, fh)
        self._contents[self._opened[fh].path] = data
        return written

    def utimens(self, path: str, times: tuple[int, int] | None) -> int:
        with contextlib.suppress(FileNotFoundError):
            self._mtimes.pop(os.stat(self._here(path)).st_ino, None)
        return super().utimens(path, times)

    def _facts(self, found: os.stat_result) -> dict[str, Any]:
        facts = super()._facts(found)
        if "times" in self._lies and found.st_nlink == 1:
            facts["st_mtime"] = self._mtimes.setdefault(found.st_ino, facts["st_mtime"])
        return facts


def serve(where: str, folder: str, kind: str, lies: str, options: str) -> None:
    """Serves until the file system is unmounted."""
    Fuse(
        Liar(folder, Options(**json.loads(options)), set(filter(None, lies.split(",")))),
        where,
        foreground=True,
        nothreads=True,
        fsname="mq-lies",
        subtype=kind,
        use_ino=True,
        hard_remove=True,
        direct_io=True,
        entry_timeout=0.0,
        negative_timeout=0.0,
        attr_timeout=0.0,
    )


if __name__ == "__main__":
    serve(*sys.argv[1:])
