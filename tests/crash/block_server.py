"""The process that serves a `LoggedDisk`'s two files through FUSE (see `blocks.py`).

    python -m crash.block_server MOUNT_POINT IMAGE LOG

`disk` has the image's bytes; every write and flush of it goes into the log, and every write to
`marks` as a mark. One request is served at a time, so the log has one order. Ends when it is
unmounted.
"""

import errno
import json
import os
import stat
import sys
from typing import Any, BinaryIO

import mfusepy  # type: ignore[import-untyped]
from crash.images import Flush, Mark, Write, Zeros, append_entry, write_zeros

DISK, MARKS = "disk", "marks"


class Serving(mfusepy.Operations):  # type: ignore[misc]
    """The calls that a loop device makes. A file's handle is 1 for the disk, 0 for marks."""

    use_ns = True

    def __init__(self, disk: int, log: BinaryIO) -> None:
        self._disk = disk
        self._log = log

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        if path not in (f"/{DISK}", f"/{MARKS}"):
            raise mfusepy.FuseOSError(errno.ENOENT)
        size = os.fstat(self._disk).st_size if path == f"/{DISK}" else 0
        return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": size}

    def open(self, path: str, flags: int) -> int:
        return int(path == f"/{DISK}")

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(self._disk, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if fh:
            os.pwrite(self._disk, data, offset)
        append_entry(self._log, Write(offset, data) if fh else Mark(json.loads(data)))
        return len(data)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        append_entry(self._log, Flush())
        return 0

    def fallocate(self, path: str, mode: int, offset: int, size: int, fh: int) -> int:
        """Discards and zeroes, which may both be read as zeros afterwards."""
        write_zeros(self._disk, offset, size)
        append_entry(self._log, Zeros(offset, size))
        return 0


def serve(where: str, image: str, log_path: str) -> None:
    """Serves until the file system is unmounted."""
    disk = os.open(image, os.O_RDWR)
    with open(log_path, "wb") as log:
        mfusepy.FUSE(
            Serving(disk, log), where, foreground=True, nothreads=True, fsname="mq-logged-disk"
        )


if __name__ == "__main__":
    serve(*sys.argv[1:])
