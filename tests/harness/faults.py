"""A Files that fails, or waits, where a test says so; every other call is the real one."""

import os
import threading
from dataclasses import dataclass, field

from harness.processes import PATIENCE_S
from mq.store.files import Files


@dataclass
class Fault:
    """One way to fail: this call, on a path with this in it, so many times (None: always)."""

    call: str
    code: int
    where: str
    times: int | None
    performed: bool
    hits: int = 0


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
        self.calls: list[tuple[str, str]] = []
        """Every call that was made, and its first path; a file's descriptor says its path."""

    # What a test says.

    def fail(
        self,
        call: str,
        code: int,
        where: str = "",
        times: int | None = None,
        performed: bool = False,
    ) -> Fault:
        """Arms a fault; with `performed` the call is made first, and then says that it failed."""
        fault = Fault(call, code, where, times, performed)
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
            for fault in self._faults:
                applies = fault.call == call and (fault.where in path or fault.where in also)
                if applies and fault.times != 0:
                    if fault.times is not None:
                        fault.times -= 1
                    fault.hits += 1
                    if fault.performed:
                        return fault
                    raise OSError(fault.code, os.strerror(fault.code), path)
        return None

    @staticmethod
    def _say(fault: Fault | None) -> None:
        if fault is not None:
            raise OSError(fault.code, os.strerror(fault.code))

    def _opened(self, descriptor: int, path: str) -> int:
        with self._guard:
            self._paths[descriptor] = path
        return descriptor

    def _path(self, descriptor: int) -> str:
        with self._guard:
            return self._paths.get(descriptor, "")

    def create(self, path: str) -> int:
        self._pass("create", path)
        return self._opened(super().create(path), path)

    def open_kept(self, path: str) -> int:
        self._pass("open_kept", path)
        return self._opened(super().open_kept(path), path)

    def open_claimed(self, path: str) -> int:
        self._pass("open_claimed", path)
        return self._opened(super().open_claimed(path), path)

    def open_folder(self, path: str) -> int:
        self._pass("open_folder", path)
        return self._opened(super().open_folder(path), path)

    def duplicate(self, descriptor: int) -> int:
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

    def sync(self, descriptor: int) -> None:
        """`where` may also be the beginning of what was written, as text."""
        self._pass("sync", self._path(descriptor), self._content(descriptor))
        super().sync(descriptor)

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
        self._say(fault)

    def unlink(self, path: str) -> None:
        self._pass("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._pass("mkdir", path)
        super().mkdir(path)

    def _content(self, descriptor: int) -> str:
        with self._guard:
            return self._contents.get(descriptor, b"").decode("latin-1")
