"""A listing cut into Spark's partitions, each one blob of names: cheap to pickle.

The blob is lines of ASCII: `/{queue} {folder}` begins the names of a folder (listing.Block), each
name is a line. A long listing goes to a file of the root, and a partition is a range of that: the
driver's memory does not grow with it.
"""

import logging
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.bulk_limits import (
    HELD_NAMES_MAX,
    MESSAGES_PER_PARTITION_DEFAULT,
    MESSAGES_PER_PARTITION_WORTH,
    PARTITIONS_DEFAULT,
)
from mq.spark.listing import BLOCK_NAMES, Block
from mq.store.bulk.spools import Spool, read_spool
from mq.store.core.root import Root
from mq.store.disk.files import Files

_log = logging.getLogger("mq.spark")

_HEAD: Final = "/"


@dataclass(frozen=True, slots=True)
class Names:
    """One partition: its blob, or where it lies in the spool of this path."""

    blob: bytes = b""
    spool: str = ""
    offset: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """How a listing is cut: `names_max` in a partition, `partitions_min` of them where there are
    as many names (None: several, where each has enough to do). Of more than `held_max` names the
    listing goes to a file.
    """

    names_max: int = MESSAGES_PER_PARTITION_DEFAULT
    partitions_min: int | None = 1
    held_max: int = HELD_NAMES_MAX

    def segment_names(self) -> int:
        """A segment is what a long listing is not cut below."""
        cut_min = self.partitions_min or PARTITIONS_DEFAULT
        return max(1, min(BLOCK_NAMES, self.names_max, self.held_max // cut_min))

    def per_partition(self, names: int) -> int:
        """How many names a partition has, of so many in all."""
        if self.partitions_min is None:
            several = max(1, min(PARTITIONS_DEFAULT, names // MESSAGES_PER_PARTITION_WORTH))
            return max(1, min(self.names_max, -(-names // several)))
        return max(1, min(self.names_max, names // self.partitions_min))


def partitions(root: Root, blocks: Iterable[Block], cut: Cut) -> list[Names]:
    """The partitions of a listing; none of an empty one.

    Raises what the listing raises. Durable: nothing; the file of a long listing stays, mq-mover
    takes it away after a day.
    """
    held: list[Block] = []
    count = 0
    rest = iter(blocks)
    for block in rest:
        if block.names:
            held.append(block)
            count += len(block.names)
            if count > cut.held_max:
                return _spooled(root, held, rest, cut)
    return _held(held, cut.per_partition(count))


def lines(files: Files, names: Names) -> list[str]:
    """A partition's lines. Raises FileNotFoundError when its spool is gone."""
    blob = read_spool(files, names.spool, names.offset, names.size) if names.spool else names.blob
    return blob.decode("ascii").splitlines()


def groups(lines: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """The names of a partition's lines, folder by folder: (queue, folder, names)."""
    heads = [at for at, line in enumerate(lines) if line.startswith(_HEAD)]
    for at, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        queue, _, folder = lines[at][len(_HEAD) :].partition(" ")
        yield queue, folder, lines[at + 1 : end]


def _held(blocks: Iterable[Block], names_max: int) -> list[Names]:
    return [Names(blob) for blob, _ in _segments(blocks, names_max)]


def _segments(blocks: Iterable[Block], names_max: int) -> Iterator[tuple[bytes, int]]:
    """The blocks as blobs of so many names each, but for the last, and how many they are."""
    found: list[str] = []
    count = 0
    for block in blocks:
        at = 0
        while at < len(block.names):
            taken = block.names[at : at + names_max - count]
            head = f"{_HEAD}{block.queue} {block.folder}"
            found += (head, *taken)
            at, count = at + len(taken), count + len(taken)
            if count == names_max:
                yield _blob(found), count
                found, count = [], 0
    if count:
        yield _blob(found), count


def _blob(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("ascii")


def _spooled(root: Root, held: list[Block], rest: Iterator[Block], cut: Cut) -> list[Names]:
    """The same through a file, in memory that does not grow, but for some bytes a segment."""
    sizes, counts = array("Q"), array("Q")
    try:
        spool = Spool(root)
    except OSError as error:
        _log.warning("a listing of over %d names is held in memory: %s", cut.held_max, error)
        return _held([*held, *rest], cut.names_max)
    with spool:
        for blob, count in _segments(_and_then(held, rest), cut.segment_names()):
            spool.append(blob)
            sizes.append(len(blob))
            counts.append(count)
    return list(_ranges(spool.path, sizes, counts, cut.per_partition(sum(counts))))


def _and_then(held: list[Block], rest: Iterator[Block]) -> Iterator[Block]:
    """What is held, forgotten as it is given, and the rest."""
    held.reverse()
    while held:
        yield held.pop()
    yield from rest


def _ranges(path: str, sizes: "array[int]", counts: "array[int]", most: int) -> Iterator[Names]:
    """Consecutive segments, of at most so many names together."""
    offset = size = names = 0
    for segment_size, count in zip(sizes, counts, strict=True):
        if names and names + count > most:
            yield Names(spool=path, offset=offset, size=size)
            offset, size, names = offset + size, 0, 0
        size, names = size + segment_size, names + count
    if names:
        yield Names(spool=path, offset=offset, size=size)
