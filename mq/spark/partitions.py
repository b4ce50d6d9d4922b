"""Cuts a listing into Spark's partitions, each one blob of names, which is cheap to pickle.

The blob is lines of ASCII: `/{queue} {folder}` begins the names of a folder (listing.Block), each
name is a line. A long listing is written to a file of the root (a spool), and a partition is a
range of it, so that the driver's memory does not grow with the listing.
"""

import logging
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mq.model.names import PACKED, items_of
from mq.spark.listing import BLOCK_NAMES, Block
from mq.spark.options import MESSAGES_PER_PARTITION_DEFAULT
from mq.store.bulk.spools import Spool, read_spool
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.layout import split_entry

# The most tasks that read by default, and the number of messages that justifies another task.
PARTITIONS_DEFAULT: Final = 8
MESSAGES_PER_PARTITION_WORTH: Final = 1_000
# A longer listing is written to a file.
HELD_NAMES_MAX: Final = 1_000_000

_log = logging.getLogger("mq.spark")

_HEAD: Final = "/"


@dataclass(frozen=True, slots=True)
class Names:
    """One partition: its blob, or its range in the spool at this path."""

    blob: bytes = b""
    spool: str = ""
    offset: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """How to cut a listing: at most `names_max` names in a partition, and at least `partitions_min`
    partitions if there are as many names (None: several, if each has enough to do). A listing of
    more than `held_max` names is written to a file.
    """

    names_max: int = MESSAGES_PER_PARTITION_DEFAULT
    partitions_min: int | None = 1
    held_max: int = HELD_NAMES_MAX

    def segment_names(self) -> int:
        """Names in a segment, the smallest unit of a long listing."""
        cut_min = self.partitions_min or PARTITIONS_DEFAULT
        return max(1, min(BLOCK_NAMES, self.names_max, self.held_max // cut_min))

    def per_partition(self, names: int) -> int:
        """Names in each partition, for this total."""
        if self.partitions_min is None:
            several = max(1, min(PARTITIONS_DEFAULT, names // MESSAGES_PER_PARTITION_WORTH))
            return max(1, min(self.names_max, -(-names // several)))
        return max(1, min(self.names_max, names // self.partitions_min))


def partitions(root: Root, blocks: Iterable[Block], cut: Cut) -> list[Names]:
    """The partitions of a listing; none if it is empty.

    Raises what the listing raises. Durable on return: no. The file of a long listing stays;
    mq-mover removes it after a day.
    """
    held: list[Block] = []
    count = 0
    rest = iter(blocks)
    for block in rest:
        if block.names:
            held.append(block)
            count += messages_in(block.names)
            if count > cut.held_max:
                return _spooled(root, held, rest, cut)
    return _held(held, cut.per_partition(count))


def lines(files: Files, names: Names) -> list[str]:
    """A partition's lines. Raises FileNotFoundError if its spool is gone."""
    blob = read_spool(files, names.spool, names.offset, names.size) if names.spool else names.blob
    return blob.decode("ascii").splitlines()


def groups(lines: list[str]) -> Iterator[Block]:
    """The names in a partition's lines, folder by folder."""
    heads = [at for at, line in enumerate(lines) if line.startswith(_HEAD)]
    for at, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        queue, _, folder = lines[at][len(_HEAD) :].partition(" ")
        yield Block(queue, folder, lines[at + 1 : end])


def _held(blocks: Iterable[Block], names_max: int) -> list[Names]:
    return [Names(blob) for blob, _ in _segments(blocks, names_max)]


def _segments(blocks: Iterable[Block], names_max: int) -> Iterator[tuple[bytes, int]]:
    """Blobs of `names_max` names each (the last has fewer), and their numbers of names. A pack
    counts as the names of its items, and may exceed the limit by them.
    """
    found: list[str] = []
    count = 0
    for block in blocks:
        at = 0
        while at < len(block.names):
            taken, messages = first_names(block.names[at:], names_max - count)
            head = f"{_HEAD}{block.queue} {block.folder}"
            found += (head, *taken)
            at, count = at + len(taken), count + messages
            if count >= names_max:
                yield _blob(found), count
                found, count = [], 0
    if count:
        yield _blob(found), count


def messages_in(names: Sequence[str]) -> int:
    """How many messages files of these names have."""
    if not any(PACKED in name for name in names):
        return len(names)
    return sum(map(_weight, names))


def _weight(name: str) -> int:
    """The messages of a file: those of a pack; 1 of any other name, which the reader judges."""
    if PACKED not in name:
        return 1
    before, message_id = split_entry(name)
    return max(1, items_of(message_id or before))


def first_names(names: list[str], limit: int) -> tuple[list[str], int]:
    """The first names that together are of at least `limit` messages, or all; and the number of
    these.
    """
    taken, messages = names[:limit], 0
    if not any(PACKED in name for name in taken):
        return taken, len(taken)
    for end, name in enumerate(taken, 1):
        messages += _weight(name)
        if messages >= limit:
            return taken[:end], messages
    return taken, messages


def _blob(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("ascii")


def _spooled(root: Root, held: list[Block], rest: Iterator[Block], cut: Cut) -> list[Names]:
    """The same through a file: memory grows only by some bytes per segment."""
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
    """The held blocks, each freed once it is yielded, then the rest."""
    held.reverse()
    while held:
        yield held.pop()
    yield from rest


def _ranges(path: str, sizes: "array[int]", counts: "array[int]", most: int) -> Iterator[Names]:
    """Joins consecutive segments into ranges of at most `most` names."""
    offset = size = names = 0
    for segment_size, count in zip(sizes, counts, strict=True):
        if names and names + count > most:
            yield Names(spool=path, offset=offset, size=size)
            offset, size, names = offset + size, 0, 0
        size, names = size + segment_size, names + count
    if names:
        yield Names(spool=path, offset=offset, size=size)
