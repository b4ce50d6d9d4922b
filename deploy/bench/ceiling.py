"""The raw ceiling: a publish's file operations in a bare loop, without HTTP and without mq.

Two kinds of loop, both with the names, bytes and times that mq would write. Own fsyncs: each
thread makes one message after the other durable, alone. Groups: many are written,
flushed together and renamed, and share one fsync of the queue's folder.
"""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from deploy.bench.load import BODY_BYTES

BODY: Final = b"x" * BODY_BYTES
GROUP_MESSAGES: Final = 64
THREADS: Final = (1, 2, 4, 8, 16, 32)

Commit: TypeAlias = Literal["fsync", "syncfs", "none"]
Flush: TypeAlias = Callable[[Sequence[int]], None]
Turn: TypeAlias = Callable[[int, int], int]
"""Publishes some messages, told which thread and which turn of it; how many they were."""

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class BareLoop:
    """A way to publish: `measure(folder, seconds)` gives messages a second."""

    name: str
    measure: Callable[[Path, float], float]


@dataclass(frozen=True, slots=True)
class Folders:
    """new/ and a queue's folder of a root, and a descriptor of each."""

    new: str
    queue: str
    new_fd: int
    queue_fd: int

    @classmethod
    @contextlib.contextmanager
    def made(cls, root: Path) -> "Iterator[Folders]":
        """Makes both folders, durably, in a root that is not there yet."""
        new, queue = root / "new", root / "queues" / "q"
        new.mkdir(parents=True)
        queue.mkdir(parents=True)
        new_fd, queue_fd = os.open(new, os.O_RDONLY), os.open(queue, os.O_RDONLY)
        try:
            syncfs(new_fd)
            yield cls(str(new), str(queue), new_fd, queue_fd)
        finally:
            os.close(new_fd)
            os.close(queue_fd)

    def write(self, name: str) -> int:
        """Writes a new message to new/, not flushed; its open descriptor."""
        descriptor = os.open(f"{self.new}/q:{name}", _NEW_FILE, 0o600)
        os.write(descriptor, BODY)
        now_ns = time.time_ns() // 1_000_000 * 1_000_000
        os.utime(descriptor, ns=(now_ns, now_ns))
        return descriptor

    def deliver(self, name: str) -> None:
        """Renames a message to the queue's folder, not flushed."""
        os.rename(f"{self.new}/q:{name}", f"{self.queue}/{name}")


def bare_loops(commit: Commit, group: int = GROUP_MESSAGES) -> list[BareLoop]:
    """The loops that a commit mode is compared with; `group`: messages of a group. With `none`,
    nothing is flushed at all.
    """
    own = [_own(threads, commit != "none") for threads in THREADS]
    if commit == "syncfs":
        return own + [_group_syncfs(loops, group) for loops in (1, 2)]
    if commit == "fsync":
        return own + [_group_fsync(threads, group) for threads in THREADS]
    return own


def _own(threads: int, flushed: bool) -> BareLoop:
    def measure(root: Path, seconds: float) -> float:
        with Folders.made(root) as folders:

            def turn(thread: int, number: int) -> int:
                name = _name(thread, number)
                descriptor = folders.write(name)
                if flushed:
                    os.fsync(descriptor)
                os.close(descriptor)
                folders.deliver(name)
                if flushed:
                    os.fsync(folders.queue_fd)
                    os.fsync(folders.new_fd)
                return 1

            return _rate(threads, turn, seconds)

    return BareLoop(f"bare loop, {_count(threads, 'thread')}", measure)


def _group_fsync(threads: int, group: int) -> BareLoop:
    def measure(root: Path, seconds: float) -> float:
        with Folders.made(root) as folders, ThreadPoolExecutor(threads) as pool:

            def flush(descriptors: Sequence[int]) -> None:
                shares = [descriptors[start::threads] for start in range(threads)]
                for _ in pool.map(_fsync_each, shares):
                    pass

            return _rate(1, _group_turn(folders, group, flush), seconds)

    return BareLoop(f"bare groups of {group}, fsync in {_count(threads, 'thread')}", measure)


def _group_syncfs(loops: int, group: int) -> BareLoop:
    def measure(root: Path, seconds: float) -> float:
        with Folders.made(root) as folders:
            turn = _group_turn(folders, group, lambda descriptors: syncfs(folders.new_fd))
            return _rate(loops, turn, seconds)

    return BareLoop(f"bare groups of {group}, syncfs, {loops} at a time", measure)


def _group_turn(folders: Folders, group: int, flush: Flush) -> Turn:
    def turn(thread: int, number: int) -> int:
        first = number * group
        names = [_name(thread, first + place) for place in range(group)]
        descriptors = [folders.write(name) for name in names]
        flush(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        for name in names:
            folders.deliver(name)
        os.fsync(folders.queue_fd)
        return len(names)

    return turn


def _rate(threads: int, turn: Turn, seconds: float) -> float:
    """Messages a second of this many threads, each taking one turn after the other."""
    counts = [0] * threads
    start = threading.Barrier(threads + 1)

    def work(thread: int) -> None:
        start.wait()
        end = time.perf_counter() + seconds
        number = 0
        while time.perf_counter() < end:
            counts[thread] += turn(thread, number)
            number += 1

    with ThreadPoolExecutor(threads) as pool:
        working = [pool.submit(work, thread) for thread in range(threads)]
        start.wait()
        began = time.perf_counter()
        for each in working:
            each.result()
        return sum(counts) / (time.perf_counter() - began)


def _name(thread: int, number: int) -> str:
    """As long as a UUID, and rising, as mq's names are."""
    return f"{number:08x}-0000-7000-8000-{thread:012x}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _fsync_each(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.fsync(descriptor)


def syncfs(descriptor: int) -> None:
    """Flushes the whole file system that the descriptor is on. Raises OSError."""
    if _libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
