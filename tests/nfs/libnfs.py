"""libnfs, the NFS client as a library, as far as a file system needs it (NFS 4.0)."""

import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

_LIBRARY: Final = "libnfs.so.13"
_FIELDS: Final = (
    "dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks",
    "atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used",
)  # fmt: skip
# What is asked again: the server has restarted and does not know who we are, or the connection
# broke, and nobody knows whether the call was done.
_AGAIN: Final = (
    b"STALE_CLIENTID", b"STALE_STATEID", b"BAD_STATEID", b"EXPIRED",
    b"nfs_service failed", b"ommand was cancelled", b"ommand timed out", b"Socket",
)  # fmt: skip
# libnfs 4 has 4 KiB for a call with all that belongs to it ("Failed to encode COMPOUND4args").
_WRITE_BYTES: Final = 3072
_PAUSE_S: Final = 0.05
# A server that is away for longer is gone: EIO, as of a soft mount.
PATIENCE_S: Final = 20.0


class Status(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]


class _Entry(ctypes.Structure):
    pass


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("inode", ctypes.c_uint64),
    ("type", ctypes.c_uint32),
    ("mode", ctypes.c_uint32),
]


class _Times(ctypes.Structure):
    _fields_ = [
        ("accessed_s", ctypes.c_long),
        ("accessed_us", ctypes.c_long),
        ("modified_s", ctypes.c_long),
        ("modified_us", ctypes.c_long),
    ]


def load() -> ctypes.CDLL:
    """Raises OSError where it is not installed."""
    return ctypes.CDLL(_LIBRARY)


class Connection:
    """One client of one export, for one thread. While the server is away, its calls wait for it,
    but not for ever.
    """

    def __init__(self, port: int, export: str) -> None:
        self._library = load()
        for name in ("nfs_init_context", "nfs_parse_url_dir"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._library.nfs_readdir.restype = ctypes.POINTER(_Entry)
        self._library.nfs_get_error.restype = ctypes.c_char_p
        self._url = (
            f"nfs://127.0.0.1{export}?version=4&nfsport={port}&autoreconnect=0&dircache=0".encode()
        )
        self._export = export.encode()
        self._pause = threading.Event()
        self._mount(time.monotonic() + PATIENCE_S)

    def _mount(self, until_s: float) -> None:
        """When the server is there."""
        while True:
            self._context = ctypes.c_void_p(self._library.nfs_init_context())
            assert self._library.nfs_parse_url_dir(self._context, self._url)
            self._library.nfs_set_timeout(self._context, int(PATIENCE_S * 1000))
            if self._library.nfs_mount(self._context, b"127.0.0.1", self._export) == 0:
                return
            if time.monotonic() > until_s:
                raise OSError(errno.EIO, self._error().decode())
            self._library.nfs_destroy_context(self._context)
            self._pause.wait(_PAUSE_S)

    def _is_asked_again(self, until_s: float) -> bool:
        """After a failure; a new connection then stands."""
        error = self._error()
        if not any(word in error for word in _AGAIN):
            return False
        if time.monotonic() > until_s:
            raise OSError(errno.EIO, error.decode())
        self._library.nfs_destroy_context(self._context)
        self._mount(until_s)
        return True

    def _error(self) -> bytes:
        return bytes(self._library.nfs_get_error(self._context) or b"")

    def call(self, name: str, *arguments: Any) -> int:
        """A call, sent again where no answer came. Raises OSError."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            code = int(getattr(self._library, name)(self._context, *arguments))
            if code >= 0:
                return code
            failure = OSError(-code, f"{name}: {self._error().decode()}")
            if not self._is_asked_again(until_s):
                raise failure

    def status(self, path: str) -> Status:
        found = Status()
        self.call("nfs_lstat64", path.encode(), ctypes.byref(found))
        return found

    def names(self, path: str) -> Iterator[tuple[str, int]]:
        """Name and mode of what is in a folder."""
        folder = ctypes.c_void_p()
        self.call("nfs_opendir", path.encode(), ctypes.byref(folder))
        while entry := self._library.nfs_readdir(self._context, folder):
            yield entry.contents.name.decode(), entry.contents.mode
        self._library.nfs_closedir(self._context, folder)

    def with_open(self, path: str, flags: int, *steps: tuple[Any, ...]) -> int:
        """Opens the file, makes these calls on it and closes it: no open file outlives a restart.
        The sum of what the calls returned.
        """
        until_s = time.monotonic() + PATIENCE_S
        while True:
            handle = ctypes.c_void_p()
            self.call("nfs_open2", path.encode(), flags, 0o600, ctypes.byref(handle))
            code = self._make(handle, steps)
            failure = OSError(-code, self._error().decode()) if code < 0 else None
            if failure is not None and self._is_asked_again(until_s):
                continue  # The handle went with its connection.
            self._library.nfs_close(self._context, handle)
            if failure is not None:
                raise failure
            return code

    def _make(self, handle: ctypes.c_void_p, steps: tuple[tuple[Any, ...], ...]) -> int:
        """The sum, or the first failure's code."""
        total = 0
        for name, *arguments in steps:
            code = int(getattr(self._library, name)(self._context, handle, *arguments))
            if code < 0:
                return code
            total += code
        return total

    def read(self, path: str, size: int, offset: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        place, length = ctypes.c_uint64(offset), ctypes.c_uint64(size)
        got = self.with_open(path, os.O_RDONLY, ("nfs_pread", place, length, buffer))
        return buffer.raw[:got]

    def write(self, path: str, data: bytes, offset: int) -> int:
        starts = range(0, len(data), _WRITE_BYTES)
        parts = [(offset + start, data[start : start + _WRITE_BYTES]) for start in starts]
        steps = (
            ("nfs_pwrite", ctypes.c_uint64(place), ctypes.c_uint64(len(part)), part)
            for place, part in parts
        )
        return self.with_open(path, os.O_RDWR, *steps)

    def set_times(self, path: str, accessed_ns: int, modified_ns: int) -> None:
        """In whole microseconds: libnfs knows no others."""
        times = _Times(
            accessed_ns // 10**9, accessed_ns % 10**9 // 1000,
            modified_ns // 10**9, modified_ns % 10**9 // 1000,
        )  # fmt: skip
        self.call("nfs_lutimes", path.encode(), ctypes.byref(times))
