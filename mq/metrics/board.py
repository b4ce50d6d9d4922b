"""A board of numbers that the processes of one mq share, a region for each.

It lies in memory that their supervisor made and that no path leads to, so nothing is left of it.
Each process writes into its own region alone, which outlives it: the one that is started in its
place counts on, and no counter goes down however a process ended. Any of them can add all up.
"""

import logging
import mmap
import os
from collections.abc import Sequence
from typing import Final

_log = logging.getLogger("mq.metrics")

_BYTES: Final = 8
_PID: Final = 0
_FIRST: Final = 1
"""A region's first number after that of the process it is of."""


def make_shared(numbers: int, processes: int) -> int | None:
    """A descriptor of memory for a board of so many numbers a process, to be handed on; None where
    the system has none to give that goes to other programs.
    """
    if not hasattr(os, "memfd_create"):
        return None
    try:
        descriptor = os.memfd_create("mq-metrics")
    except OSError as error:
        fields = {"error": repr(error)}
        _log.warning("each process tells of itself alone", extra={"fields": fields})
        return None
    os.ftruncate(descriptor, _bytes(numbers) * processes)
    return descriptor


def _bytes(numbers: int) -> int:
    return (_FIRST + numbers) * _BYTES


class Board:
    """One process's view of it. Its own numbers are `own`, as floats; the rest is read alone."""

    def __init__(
        self, numbers: int, processes: int = 1, index: int = 0, descriptor: int | None = None
    ) -> None:
        """`descriptor`: what `make_shared` gave; without one the process is on its own. Raises
        OSError.
        """
        self._width = _FIRST + numbers
        self._processes = processes if descriptor is not None else 1
        self._index = index if descriptor is not None else 0
        self.index = index
        """The process's number among all."""
        size = _bytes(numbers) * self._processes
        memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._all = memoryview(memory).cast("d")
        first = self._index * self._width
        self.own = self._all[first + _FIRST : first + self._width]
        self._all[first + _PID] = os.getpid()

    def living(self) -> dict[int, int]:
        """The process ids of those that live, by their number."""
        if self._processes == 1:
            return {self.index: os.getpid()}
        pids = {
            index: int(self._all[index * self._width + _PID]) for index in range(self._processes)
        }
        return {index: pid for index, pid in pids.items() if pid and _lives(pid)}

    def summed(self, first: int, end: int, among: Sequence[int] | None = None) -> list[float]:
        """The numbers from `first` up to `end`, of all processes together, also of those that have
        ended; or of these alone.
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
