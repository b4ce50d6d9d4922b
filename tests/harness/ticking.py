"""A disk whose folders change by the test's clock, and that says which of them were listed."""

import itertools
import os
import threading
from collections.abc import Iterator

from mq.model.clock import Clock
from mq.store.disk.files import Files

_NS_PER_MS = 1_000_000


class TickingFiles(Files):
    """Every change of a folder gives it an mtime of its own, of the clock's time, as a kernel's
    does whose clock is the test's. `clock` None: the kernel's own.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock
        self._ticks = itertools.count(1)
        self._guard = threading.Lock()
        self.listed: list[str] = []
        """Folders that were listed, in their order."""

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        with self._guard:
            self.listed.append(folder)
        yield from super().entries(folder)

    def create(self, path: str) -> int:
        made = super().create(path)
        self.changed(path)
        return made

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        self.changed(path)
        self.changed(f"{path}/")

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.changed(source)
        self.changed(target)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.changed(path)

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self.changed(path)

    def changed(self, path: str) -> None:
        """Something was done in the folder that the path lies in."""
        if self._clock is None:
            return
        now_ns = self._clock.now_ms() * _NS_PER_MS + next(self._ticks) % _NS_PER_MS
        try:
            os.utime(os.path.dirname(path), ns=(now_ns, now_ns))
        except FileNotFoundError:
            return  # A bucket that went meanwhile.
