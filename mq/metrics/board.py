"""A board of numbers that the processes of one mq share, with a region for each.

It is anonymous memory of their supervisor, so nothing is left of it on disk. Each process writes
only to its own region, which outlives the process: its replacement counts on, and no counter
decreases. Any of the processes can add up all regions.
"""

import mmap
import os
from collections.abc import Sequence
from typing import Final

from mq.model.log import logger

_log = logger("mq.metrics")

_BYTES: Final = 8
_PID: Final = 0
_FIRST: Final = 1
"""A region's first number after the id of its process."""


def make_shared(numbers: int, processes: int, more: int = 0) -> int | None:
    """Makes shared memory: a board of `numbers` for each process, then `more` bytes for other uses.
    Returns its descriptor, which child programs inherit; None if the system has no such memory.
    """
    if not hasattr(os, "memfd_create"):
        return None
    try:
        descriptor = os.memfd_create("mq-metrics")
    except OSError as error:
        fields = {"error": repr(error)}
        _log.warning(
            "cannot share memory between processes; each reports only its own counters, and "
            "does not know the consumers of others",
            extra={"fields": fields},
        )
        return None
    os.ftruncate(descriptor, _bytes(numbers) * processes + more)
    return descriptor


def behind(descriptor: int, numbers: int, processes: int) -> "memoryview[int]":
    """The bytes for other uses in the memory of `make_shared`. Raises OSError."""
    return memoryview(mmap.mmap(descriptor, 0))[_bytes(numbers) * processes :]


def _bytes(numbers: int) -> int:
    return (_FIRST + numbers) * _BYTES


class Board:
    """One process's view of the board. `own`: its own numbers, as floats; other regions are only
    read.
    """

    def __init__(
        self, numbers: int, processes: int = 1, index: int = 0, descriptor: int | None = None
    ) -> None:
        """`descriptor`: from `make_shared`; without one the process counts by itself. Raises
        OSError.
        """
        self._width = _FIRST + numbers
        self._processes = processes if descriptor is not None else 1
        self._index = index if descriptor is not None else 0
        self.index = index
        """The process's number among all processes."""
        size = _bytes(numbers) * self._processes
        memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._all = memoryview(memory).cast("d")
        first = self._index * self._width
        self.own = self._all[first + _FIRST : first + self._width]
        self._all[first + _PID] = os.getpid()

    def living(self) -> dict[int, int]:
        """The process ids of living processes, by number."""
        if self._processes == 1:
            return {self.index: os.getpid()}
        pids = {
            index: int(self._all[index * self._width + _PID]) for index in range(self._processes)
        }
        return {index: pid for index, pid in pids.items() if pid and _lives(pid)}

    def summed(self, first: int, end: int, among: Sequence[int] | None = None) -> list[float]:
        """The sums of the numbers from `first` up to `end` over all processes, also ended ones; or
        only over `among`.
        """
        indexes: Sequence[int] = range(self._processes)
        if among is not None and self._processes > 1:
            indexes = among
        rows = [self._of(index)[first:end] for index in indexes]
        return [sum(column) for column in zip(*rows, strict=True)]

    def _of(self, index: int) -> "memoryview[float]":
        at = index * self._width + _FIRST
        return self._all[at : at + self._width - _FIRST]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
