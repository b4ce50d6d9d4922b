"""Crash images: what a disk may hold after its power was cut at some place of its log.

A disk may lose, keep or tear what was written since its last flush; what a flush covered stays.
A log holds what a disk was told, in the order in which it said that it was done. Everything here
is a function of a log and a `Cut`; `Images` writes the result to files.
"""

import json
import os
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

_RECORD = struct.Struct("<cQQ")
_COPIED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that the disk took; on stable media only after the next flush."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Zeros:
    """A range that was discarded or zeroed."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Flush:
    """All that was written before is on stable media."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a client asked for, or was told, at this place of the log."""

    facts: dict[str, Any]


Change: TypeAlias = Write | Zeros
Entry: TypeAlias = Change | Flush | Mark


def append_entry(log: BinaryIO, entry: Entry) -> None:
    """Writes one entry behind a log."""
    match entry:
        case Write(offset, data):
            log.write(_RECORD.pack(b"w", offset, len(data)) + data)
        case Zeros(offset, size):
            log.write(_RECORD.pack(b"z", offset, size))
        case Flush():
            log.write(_RECORD.pack(b"f", 0, 0))
        case Mark(facts):
            text = json.dumps(facts).encode()
            log.write(_RECORD.pack(b"m", 0, len(text)) + text)


def read_log(log: BinaryIO) -> Iterator[Entry]:
    """The entries of a log, first to last."""
    while head := log.read(_RECORD.size):
        kind, offset, size = _RECORD.unpack(head)
        match kind:
            case b"w":
                yield Write(offset, log.read(size))
            case b"z":
                yield Zeros(offset, size)
            case b"f":
                yield Flush()
            case _:
                yield Mark(json.loads(log.read(size)))


class Kept(Enum):
    """What the disk keeps of the writes since its last flush."""

    NOTHING = "nothing"
    ALL = "all"
    PREFIX = "the first ones"
    TORN = "the first ones, the last of them torn at a sector"
    SUBSET = "some"


@dataclass(frozen=True, slots=True)
class Cut:
    """A power cut before the log's entry `at`; `seed` decides what chance decides."""

    at: int
    kept: Kept
    seed: int
    sector_bytes: int = 512
    """What the disk writes whole or not at all."""


def last_flush(log: Sequence[Entry], at: int) -> int:
    """The place behind the last flush before `at`; 0 when there is none."""
    return next((place + 1 for place in reversed(range(at)) if log[place] == Flush()), 0)


def surviving(log: Sequence[Entry], cut: Cut) -> list[Change]:
    """What the disk keeps of what was written between the last flush and the cut."""
    chance = random.Random(f"{cut.at} {cut.seed}")
    loose = [e for e in log[last_flush(log, cut.at) : cut.at] if isinstance(e, Write | Zeros)]
    match cut.kept:
        case Kept.NOTHING:
            return []
        case Kept.ALL:
            return loose
        case Kept.PREFIX:
            return loose[: chance.randint(0, len(loose))]
        case Kept.TORN:
            first = loose[: chance.randint(0, len(loose))]
            return [*first[:-1], *(_torn(each, cut.sector_bytes, chance) for each in first[-1:])]
        case Kept.SUBSET:
            return [change for change in loose if chance.random() < 0.5]


def _torn(change: Change, sector_bytes: int, chance: random.Random) -> Change:
    if isinstance(change, Zeros):
        return change
    sectors = chance.randint(0, len(change.data) // sector_bytes)
    return Write(change.offset, change.data[: sectors * sector_bytes])


def choose_cuts(
    log: Sequence[Entry], count: int, sector_bytes: int, chance: random.Random
) -> list[Cut]:
    """Cuts in the order of the log, every way to keep in turn: half of them right behind a mark,
    where an answer is as young as it can be, a tenth before the first mark, the others anywhere.
    """
    marks = [place + 1 for place, entry in enumerate(log) if isinstance(entry, Mark)]
    cuts = []
    for seed in range(count):
        rarely = seed % 10 == 3
        places = range(1, marks[0]) if rarely else marks if seed % 2 else range(1, len(log) + 1)
        kept = list(Kept)[seed // 2 % len(Kept)]
        cuts.append(Cut(chance.choice(places), kept, seed, sector_bytes))
    return sorted(cuts, key=lambda cut: cut.at)


class Images:
    """Writes the images of cuts that come in the order of the log.

    `stable` is the disk as it was before the log's first entry; it is brought forward to the last
    flush before each cut.
    """

    def __init__(self, log: Sequence[Entry], stable: Path) -> None:
        self._log = log
        self._stable = stable
        self._done = 0

    def write(self, cut: Cut, image: Path) -> None:
        """The disk after the cut, as a sparse file."""
        flushed = last_flush(self._log, cut.at)
        assert flushed >= self._done, "cuts come in the order of the log"
        _apply(self._stable, self._log[self._done : flushed])
        self._done = flushed
        _copy_sparse(self._stable, image)
        _apply(image, surviving(self._log, cut))


def _apply(disk: Path, entries: Sequence[Entry]) -> None:
    descriptor = os.open(disk, os.O_WRONLY)
    try:
        for entry in entries:
            match entry:
                case Write(offset, data):
                    os.pwrite(descriptor, data, offset)
                case Zeros(offset, size):
                    write_zeros(descriptor, offset, size)
                case _:
                    pass
    finally:
        os.close(descriptor)


def write_zeros(descriptor: int, offset: int, size: int, chunk: bytes = bytes(1 << 20)) -> None:
    """Zeroes a range of a file, in chunks."""
    for start in range(offset, offset + size, len(chunk)):
        os.pwrite(descriptor, chunk[: offset + size - start], start)


def _copy_sparse(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        size = os.fstat(read.fileno()).st_size
        written.truncate(size)
        for start, end in _data_ranges(read.fileno(), size):
            for at in range(start, end, _COPIED_BYTES):
                data = os.pread(read.fileno(), min(end - at, _COPIED_BYTES), at)
                os.pwrite(written.fileno(), data, at)


def _data_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole behind `end`.
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end
