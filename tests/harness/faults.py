"""A Files that fails, waits, crashes, or lets another act, where a test says so; every other call
is the real one.
"""

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from harness.processes import PATIENCE_S
from harness.tally import tally
from mq.store.core.facts import Facts
from mq.store.disk.files import GONE, Files

DISK_ERRORS: Final = (
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.ESTALE,
)  # fmt: skip
# The steps tell none of these from the others but EDQUOT, which is treated as ENOSPC is: only the
# problem that an answer names depends on them. Each call meets one of them, in turn.
ALIKE: Final = (errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS)
# No way to flush looks at an error's code, and no answer to a code depends on the way: the two
# codes that mean most meet both ways, the others one.
_EACH_WAY: Final = (errno.EIO, errno.ENOSPC)


def each_disk_error(stale: bool = True) -> pytest.MarkDecorator:
    """A test has `codes`, of which each call after another meets the next, and the way to `commit`:
    "fsync" or "syncfs". `stale`: ESTALE, too.
    """
    found = [((code,), way) for code in _EACH_WAY for way in ("fsync", "syncfs")]
    found += [(ALIKE, "fsync"), *([((errno.ESTALE,), "syncfs")] if stale else ())]
    return pytest.mark.parametrize(
        ("codes", "commit"),
        [pytest.param(*each, id=f"{_said_of(each[0])}-{each[1]}") for each in found],
    )


def _said_of(codes: Sequence[int]) -> str:
    return "alike" if codes == ALIKE else errno.errorcode[codes[0]]


def _is_in(function: Callable[..., Any]) -> bool:
    """Whether the function is being called in this thread."""
    frame = sys._getframe()  # noqa: SLF001
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


@dataclass
class Fault:
    """One way to fail: this call (empty: any), on a path with this in it, so many times (None:
    always), after so many such calls that go well.
    """

    call: str
    code: int
    where: str
    times: int | None
    performed: bool
    after: int = 0
    hits: int = 0
    hit: tuple[str, str] = ("", "")
    """The last call that failed so, and its first path."""
    in_look: bool = False
    """Whether that was in a look at the facts of a queue."""

    def takes(self, call: str, *paths: str) -> bool:
        """Whether this call fails; counts it."""
        if self.call not in ("", call) or not any(self.where in path for path in paths):
            return False
        if call in ("status", "linked") and self.code in GONE:
            return False  # What is there has a status.
        if self.after > 0:
            self.after -= 1
            return False
        if self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        self.hits += 1
        self.hit, self.in_look = (call, paths[0]), _is_in(Facts.look)
        tally("faults", 1)
        return True

    def error(self, path: str = "") -> OSError:
        return OSError(self.code, os.strerror(self.code), path)


@dataclass
class Gate:
    """Calls on a path with this in it wait here until it is opened."""

    call: str
    where: str
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    arrivals: int = 0

    def open(self) -> None:
        self.opened.set()


class FaultyFiles(Files):
    """Does the real calls, but for the faults that are armed. Threads share it."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._faults: list[Fault] = []
        self._gates: list[Gate] = []
        self._paths: dict[int, str] = {}
        self._contents: dict[int, bytes] = {}
        self._failed_syncs: set[int] = set()
        self.calls: list[tuple[str, str]] = []
        """Every call that was made, and its first path; a file's descriptor says its path."""
        self.retried: list[str] = []
        """Files that were fsynced again, by the same descriptor, after that had failed."""

    # What a test says.

    def fail(
        self,
        call: str,
        code: int,
        where: str = "",
        times: int | None = None,
        performed: bool = False,
        after: int = 0,
    ) -> Fault:
        """Arms a fault; with `performed` the call is made first, and then says that it failed."""
        fault = Fault(call, code, where, times, performed, after)
        self._faults.append(fault)
        return fault

    def hold(self, call: str, where: str = "") -> Gate:
        """Lets such calls wait from now on."""
        gate = Gate(call, where)
        self._gates.append(gate)
        return gate

    def heal(self) -> None:
        """Disarms every fault."""
        self._faults.clear()

    def open_paths(self, where: str = "") -> list[str]:
        """The paths of descriptors that nobody has closed."""
        with self._guard:
            return [path for path in self._paths.values() if where in path]

    def count(self, call: str, where: str = "") -> int:
        with self._guard:
            return sum(1 for name, path in self.calls if name == call and where in path)

    # The calls.

    def _pass(self, call: str, path: str, also: str = "") -> Fault | None:
        """Waits at gates; raises what is armed, or gives what to raise afterwards."""
        with self._guard:
            self.calls.append((call, path))
        for gate in list(self._gates):
            if gate.call == call and (gate.where in path or gate.where in also):
                with self._guard:
                    gate.arrivals += 1
                gate.reached.set()
                assert gate.opened.wait(PATIENCE_S), f"the gate of {call} was never opened"
        with self._guard:
            fault = next((each for each in self._faults if each.takes(call, path, also)), None)
        if fault is not None and not fault.performed:
            raise fault.error(path)
        return fault

    def _opened(self, descriptor: int, path: str) -> int:
        with self._guard:
            self._paths[descriptor] = path
            self._failed_syncs.discard(descriptor)
        return descriptor

    def _path(self, descriptor: int) -> str:
        with self._guard:
            return self._paths.get(descriptor, "")

    def _content(self, descriptor: int) -> str:
        with self._guard:
            return self._contents.get(descriptor, b"").decode("latin-1")

    def create(self, path: str) -> int:
        self._pass("create", path)
        return self._opened(super().create(path), path)

    def open_kept(self, path: str) -> int:
        self._pass("open_kept", path)
        return self._opened(super().open_kept(path), path)

    def open_append(self, path: str) -> int:
        self._pass("open_append", path)
        return self._opened(super().open_append(path), path)

    def open_claimed(self, path: str) -> int:
        self._pass("open_claimed", path)
        return self._opened(super().open_claimed(path), path)

    def open_read(self, path: str) -> int:
        self._pass("open_read", path)
        return self._opened(super().open_read(path), path)

    def open_folder(self, path: str) -> int:
        self._pass("open_folder", path)
        return self._opened(super().open_folder(path), path)

    def duplicate(self, descriptor: int) -> int:
        self._pass("duplicate", self._path(descriptor))
        return self._opened(super().duplicate(descriptor), self._path(descriptor))

    def close(self, descriptor: int) -> None:
        with self._guard:
            self._paths.pop(descriptor, None)
            self._contents.pop(descriptor, None)
        super().close(descriptor)

    def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
        with self._guard:
            self._contents[descriptor] = bytes(data[:64])
        self._pass("write", self._path(descriptor), self._content(descriptor))
        super().write(descriptor, data)

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        self._pass("stamp", self._path(descriptor))
        super().stamp(descriptor, mtime_ns)

    def set_mode(self, path: str, mode: int) -> None:
        self._pass("set_mode", path)
        super().set_mode(path, mode)

    def set_owner(self, path: str, user: int, group: int = -1) -> None:
        self._pass("set_owner", path)
        super().set_owner(path, user, group)

    def sync(self, descriptor: int) -> None:
        """`where` may also be the beginning of what was written, as text."""
        path = self._path(descriptor)
        with self._guard:
            if descriptor in self._failed_syncs:
                self.retried.append(path)
        try:
            self._pass("sync", path, self._content(descriptor))
            super().sync(descriptor)
        except OSError:
            with self._guard:
                self._failed_syncs.add(descriptor)
            raise

    def sync_folder(self, path: str) -> None:
        self._pass("sync_folder", path)
        super().sync_folder(path)

    def sync_file_system(self, descriptor: int) -> None:
        self._pass("sync_file_system", self._path(descriptor))
        super().sync_file_system(descriptor)

    def rename(self, source: str, target: str) -> None:
        """`where` may be in either name."""
        fault = self._pass("rename", source, target)
        super().rename(source, target)
        _say(fault)

    def link(self, path: str, target: str) -> None:
        fault = self._pass("link", path)
        super().link(path, target)
        _say(fault)

    def linked(self, path: str) -> str | None:
        self._pass("linked", path)
        return super().linked(path)

    def unlink(self, path: str) -> None:
        self._pass("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        fault = self._pass("mkdir", path)
        super().mkdir(path)
        _say(fault)

    def rmdir(self, path: str) -> None:
        self._pass("rmdir", path)
        super().rmdir(path)

    def lock(self, descriptor: int) -> bool:
        self._pass("lock", self._path(descriptor))
        return super().lock(descriptor)

    def status(self, path: str) -> os.stat_result | None:
        self._pass("status", path)
        return super().status(path)

    def asked_status(self, path: str) -> os.stat_result | None:
        self._pass("asked_status", path)
        return super().asked_status(path)

    def touch(self, path: str) -> None:
        self._pass("touch", path)
        super().touch(path)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        self._pass("read", self._path(descriptor))
        return super().read(descriptor, size, offset)

    def read_file(self, path: str, size: int) -> bytes:
        self._pass("read_file", path)
        return super().read_file(path, size)

    def read_opened(self, path: str) -> tuple[os.stat_result, bytes | None]:
        self._pass("read_opened", path)
        return super().read_opened(path)

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        self._pass("entries", folder)
        yield from super().entries(folder)

    def free(self, path: str) -> os.statvfs_result:
        self._pass("free", path)
        return super().free(path)


class UntilTheYear2106(FaultyFiles):
    """A file system whose times end there, as an old one's do earlier: later ones are cut."""

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        super().stamp(descriptor, min(mtime_ns, 2**32 * 10**9))


class FlushedInCalls(FaultyFiles):
    """Flushes in the calls alone: for tests of their order, in which no power is cut."""

    def sync(self, descriptor: int) -> None:
        self._pass("sync", self._path(descriptor))

    def sync_folder(self, path: str) -> None:
        self._pass("sync_folder", path)
        os.stat(path)


def _say(fault: Fault | None) -> None:
    if fault is not None:
        raise fault.error()


CHANGES = ("create", "open_kept", "write", "stamp", "mkdir", "rename", "link", "unlink", "rmdir")


class Died(BaseException):
    """The process is no more."""


class CrashingFiles(Files):
    """Dies instead of a change of the disk, once so many were made (None: never). Whatever cleans
    up after that finds that it cannot; descriptors are closed, as the kernel would.
    """

    def __init__(self, changes_left: int | None = None) -> None:
        super().__init__()
        self.changes_left = changes_left
        self.changes = 0
        self.is_dead = False
        for name in CHANGES:
            setattr(self, name, self._until_the_crash(getattr(self, name)))

    def _until_the_crash(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any) -> Any:
            if self.is_dead:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.changes_left == 0:
                self.is_dead = True
                raise Died
            if self.changes_left is not None:
                self.changes_left -= 1
            self.changes += 1
            return call(*arguments)

        return change


class Met(FlushedInCalls):
    """What others do once, just before a call on a path with this in it. Flushes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._others: tuple[str, str, Callable[[], object]] | None = None

    def before(self, call: str, where: str, act: Callable[[], object]) -> None:
        self._others = (call, where, act)

    def _pass(self, call: str, path: str, also: str = "") -> Any:
        if self._others is not None and self._others[0] == call:
            _, where, act = self._others
            if where in path or where in also:
                self._others = None
                act()
        return super()._pass(call, path, also)
