"""The process behind a slow disk: its reads and writes cost nothing, its flushes take their time.

    python -m deploy.bench.flush_server FILE IMAGE COUNT FLUSH_S

Mounts at FILE (a file that is there) a file system that is that one file, with the bytes of IMAGE.
The kernel itself passes reads and writes through to IMAGE (FUSE passthrough, Linux 6.9), so that
only flushes come here: each is answered FLUSH_S after it came, one after another as a disk does
it, and counted in COUNT, a file of 8 bytes. It speaks the kernel's protocol itself (linux/fuse.h),
since the libfuse of today's distributions knows no passthrough. Ends when it is unmounted.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
import sys
import time
from enum import IntEnum
from typing import Final

_IN_HEADER: Final = struct.Struct("<IIQ24x")  # length, operation, unique
_OUT_HEADER: Final = struct.Struct("<IiQ")
_INIT_IN: Final = struct.Struct("<4I")  # major, minor, readahead, flags
_INIT_OUT: Final = struct.Struct("<IIIIHHIIHHII24x")
_OPEN_OUT: Final = struct.Struct("<QIi")
_ATTRIBUTES_OUT: Final = struct.Struct("<QII6Q10I")
_BACKING_MAP: Final = struct.Struct("<iIQ")
_COUNT: Final = struct.Struct("<Q")


class _Asks(IntEnum):
    """What of the kernel's requests has an answer here; all else is not supported."""

    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


_UNANSWERED: Final = (_Asks.FORGET, _Asks.INTERRUPT, _Asks.BATCH_FORGET)
_PROTOCOL: Final = (7, 40)  # The first that knows passthrough.
_INIT_EXT: Final = 1 << 30
_PASSTHROUGH_FLAGS2: Final = 1 << 5
_OPENED_PASSTHROUGH: Final = 1 << 7
# _IOW(229, 1, struct fuse_backing_map)
_BACKING_OPEN: Final = (1 << 30) | (_BACKING_MAP.size << 16) | (229 << 8) | 1
_REQUEST_BYTES_MAX: Final = 1 << 17
_WRITE_BYTES_MAX: Final = 4096
_MS_NOSUID_NODEV: Final = 2 | 4


class FlushServer:
    """Answers the kernel's requests about the one file, which is node 1."""

    def __init__(self, channel: int, image: int, count: mmap.mmap, flush_s: float) -> None:
        self._channel = channel
        self._image = image
        self._count = count
        self._flush_s = flush_s

    def serve(self) -> None:
        """Until the file system is unmounted. Raises OSError where passthrough is not known."""
        while (request := self._next()) is not None:
            came_s = time.monotonic()
            _, operation, unique = _IN_HEADER.unpack_from(request)
            if operation in _UNANSWERED:
                continue
            answer = self._answer(operation, request[_IN_HEADER.size :], came_s)
            failed, body = (errno.ENOSYS, b"") if answer is None else (0, answer)
            head = _OUT_HEADER.pack(_OUT_HEADER.size + len(body), -failed, unique)
            with contextlib.suppress(FileNotFoundError):  # The caller waits no more.
                os.write(self._channel, head + body)

    def _next(self) -> bytes | None:
        """The next request; None when the file system is unmounted."""
        while True:
            try:
                return os.read(self._channel, _REQUEST_BYTES_MAX)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return None
                if error.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    raise

    def _answer(self, operation: int, asked: bytes, came_s: float) -> bytes | None:
        """The answer's body; None: there is no such operation here, and the kernel learns it."""
        match operation:
            case _Asks.FSYNC:
                self._flush(came_s)
                return b""
            case _Asks.GETATTR | _Asks.SETATTR:
                return self._attributes()
            case _Asks.OPEN:
                return self._open()
            case _Asks.INIT:
                return self._begin(asked)
            case _Asks.RELEASE | _Asks.FLUSH | _Asks.DESTROY:
                return b""
        return None

    def _flush(self, came_s: float) -> None:
        (flushes,) = _COUNT.unpack_from(self._count)
        _COUNT.pack_into(self._count, 0, flushes + 1)
        # The slow disk itself: what a flush takes.
        time.sleep(max(0.0, came_s + self._flush_s - time.monotonic()))

    def _attributes(self) -> bytes:
        status = os.fstat(self._image)
        mode = stat.S_IFREG | 0o600
        sizes = (1, status.st_size, status.st_blocks, 0, 0, 0)
        return _ATTRIBUTES_OUT.pack(1, 0, 0, *sizes, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _open(self) -> bytes:
        asked = bytearray(_BACKING_MAP.pack(self._image, 0, 0))
        backing = fcntl.ioctl(self._channel, _BACKING_OPEN, asked)
        return _OPEN_OUT.pack(0, _OPENED_PASSTHROUGH, backing)

    def _begin(self, asked: bytes) -> bytes:
        major, minor, readahead, _ = _INIT_IN.unpack_from(asked)
        if (major, minor) < _PROTOCOL:
            raise OSError(errno.ENOSYS, f"FUSE protocol {major}.{minor} knows no passthrough")
        return _INIT_OUT.pack(
            *_PROTOCOL,
            readahead,
            _INIT_EXT,
            0,
            0,
            _WRITE_BYTES_MAX,
            1,
            0,
            0,
            _PASSTHROUGH_FLAGS2,
            1,
        )


def _mounted(file: str) -> int:
    """Mounts at the file; the kernel's channel. Raises OSError."""
    channel = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={channel},rootmode={stat.S_IFREG:o},user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"mq-slow-disk", file.encode(), b"fuse", _MS_NOSUID_NODEV, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount at {file}")
    return channel


def main(file: str, image: str, count: str, flush_s: str) -> None:
    """Mounts and serves."""
    # Before all other processes, so that a flush takes its time however busy the cores are.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with open(image, "r+b") as disk, open(count, "r+b") as counted:
        flushes = mmap.mmap(counted.fileno(), _COUNT.size)
        FlushServer(_mounted(file), disk.fileno(), flushes, float(flush_s)).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
