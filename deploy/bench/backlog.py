"""Queues of any size, written straight to disk as the format says, faster than any server would.

A message's id, time and place all follow from its number, so several processes write ranges of
one queue side by side. Messages are published at a steady rate that ended just now: the first
SHARD_FILES (or as many as is said) lie flat, later ones in a bucket by their ids' first eight hex
digits (65.5 s), and what a bucket that holds as many cannot take in folders by the next two.
"""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from deploy.bench.ceiling import BODY

SHARD_FILES: Final = 10_000
"""How many a folder takes before the next are sharded."""

_SHIFT_BUCKET, _SHIFT_SUB = 16, 8
_NS_PER_MS: Final = 1_000_000
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
_ENDED_BEFORE_MS: Final = 1000
_NOISE: Final = 0x9E3779B97F4A7C15  # Odd, its bits half ones: all digits of an id change.
# Files that a process writes in one go.
_RANGE: Final = 20_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """`messages` of a queue, published `per_s` a second from `began_ms` on (since the epoch), each
    with this header block.
    """

    messages: int
    per_s: int
    began_ms: int
    shard_files: int = SHARD_FILES
    block: bytes = b""

    @classmethod
    def until_now(
        cls, messages: int, per_s: int, shard_files: int = SHARD_FILES, block: bytes = b""
    ) -> Self:
        """One whose last message was published a second ago."""
        lasted_ms = messages * 1000 // per_s
        began_ms = time.time_ns() // _NS_PER_MS - lasted_ms - _ENDED_BEFORE_MS
        return cls(messages, per_s, began_ms, shard_files, block)

    def published_ms(self, number: int) -> int:
        """When a message was published."""
        return self.began_ms + number * 1000 // self.per_s

    def id(self, number: int) -> str:
        """A UUIDv7: the time, how many came before it in that millisecond, and noise."""
        ms = self.published_ms(number)
        within = number - self._first_at(ms)
        noise = number * _NOISE % (1 << 62)
        digits = f"{ms:012x}7{within:03x}{(0b10 << 62) | noise:016x}"
        attributes = f",h={len(self.block)}" if self.block else ""
        return "-".join(
            (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:] + attributes)
        )

    def folder(self, number: int) -> str:
        """Where it lies below its queue's folder; empty for flat."""
        if number < self.shard_files:
            return ""
        ms = self.published_ms(number)
        bucket = ms >> _SHIFT_BUCKET
        before = number - max(self.shard_files, self._first_at(bucket << _SHIFT_BUCKET))
        if before < self.shard_files:
            return f"{bucket:08x}"
        return f"{bucket:08x}/{ms >> _SHIFT_SUB & 0xFF:02x}"

    def ids(self, most: int) -> Iterator[str]:
        """At most this many ids, spread evenly over all."""
        step = max(1, self.messages // most)
        return (self.id(number) for number in range(0, self.messages, step))

    def _first_at(self, ms: int) -> int:
        """The number of the first message that was published at `ms` or later."""
        return -((self.began_ms - ms) * self.per_s // 1000)


def write_backlog(queue: Path, backlog: Backlog, processes: int, *, flushed: bool = True) -> None:
    """Fills the folder of a queue that was made; on the disk when it returns, if `flushed`."""
    tasks = [
        (os.fspath(queue), backlog, range(start, min(start + _RANGE, backlog.messages)))
        for start in range(0, backlog.messages, _RANGE)
    ]
    if len(tasks) == 1:
        _write(tasks[0])
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for _ in pool.imap(_write, tasks):
                pass
    if flushed:
        os.sync()


def _write(task: tuple[str, Backlog, range]) -> None:
    queue, backlog, numbers = task
    folder, made = "", queue
    for number in numbers:
        if (its := backlog.folder(number)) != folder:
            folder, made = its, _make_folders(queue, its)
        descriptor = os.open(f"{made}/{backlog.id(number)}", _NEW_FILE, _FILE_MODE)
        os.write(descriptor, backlog.block + BODY)
        published_ns = backlog.published_ms(number) * _NS_PER_MS
        os.utime(descriptor, ns=(published_ns, published_ns))
        os.close(descriptor)


def _make_folders(queue: str, below: str) -> str:
    path = queue
    for name in below.split("/"):
        path = f"{path}/{name}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, _FOLDER_MODE)
    return path
