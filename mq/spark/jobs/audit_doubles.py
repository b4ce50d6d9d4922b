"""Messages in two places, found among all names of a root: 8 bytes a name, in groups that are no
larger than a task's memory. No Spark here.

Two places of one message have one hash, whatever else has it too: who is told of a hash looks.
A sideline's messages are hashed as its queue's, since none is to lie in both.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mq.model.limits import UUID_CHARS
from mq.model.names import QueueName
from mq.store.audit.folders import NameFolder
from mq.store.audit.screened import Ids

_HASH_BYTES: Final = 8


class Hashes(NamedTuple):
    """Of messages of these folders: 8 bytes each, and of each which folder it lies in (4 bytes)."""

    folders: tuple[NameFolder, ...]
    hashes: bytes
    at: bytes


class Doubled(NamedTuple):
    """Hashes of a folder's messages that others have too."""

    folder: NameFolder
    hashes: tuple[int, ...]


def hashes_of(ids: Ids) -> pa.Array:
    """Those of ids of one queue, in their order, as int64."""
    texts = "".join([text[:UUID_CHARS] for text in ids.texts])
    halves = array("q", bytes.fromhex(texts.replace("-", "")))
    first, second = (
        pa.Array.from_buffers(pa.int64(), len(half), [None, pa.py_buffer(half)])
        for half in (halves[::2], halves[1::2])
    )
    return pc.bit_wise_xor(pc.bit_wise_xor(first, second), pa.scalar(_of_queue(ids.queue)))


def _of_queue(queue: QueueName) -> int:
    owner = queue.counterpart() if queue.is_sideline else queue
    digest = hashlib.blake2b(owner.text.encode("ascii"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little", signed=True)


class Hashing:
    """The hashes of many folders' messages, parted into groups by themselves."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._folders: list[NameFolder] = []
        self._found: list[pa.Array] = []
        self._at: list[tuple[int, int]] = []
        self.count = 0

    def add(self, folder: NameFolder, messages: Sequence[Ids]) -> None:
        """More of a folder's messages."""
        if not messages:
            return
        if not self._folders or self._folders[-1] is not folder:
            self._folders.append(folder)
        for ids in messages:
            self._found.append(hashes_of(ids))
            self._at.append((len(self._folders) - 1, len(ids.texts)))
            self.count += len(ids.texts)

    def taken(self) -> Iterator[tuple[int, Hashes]]:
        """What was added, by groups; nothing is left."""
        if not self.count:
            return
        hashes = pa.concat_arrays(self._found)
        at = array("i")
        for number, count in self._at:
            at.extend(array("i", [number]) * count)
        table = pa.table({"hash": hashes, "at": _int32(at)})
        folders = tuple(self._folders)
        self._folders, self._found, self._at, self.count = [], [], [], 0
        if self._groups == 1:
            yield 0, _packed(folders, table)
            return
        # The hash's own low bits are as good as chance.
        group = pc.bit_wise_and(table["hash"], pa.scalar(self._groups - 1, pa.int64()))
        for number in range(self._groups):
            part = table.filter(pc.equal(group, number))
            if part.num_rows:
                yield number, _packed(folders, part)


def _packed(folders: tuple[NameFolder, ...], table: pa.Table) -> Hashes:
    hashes, at = (table[name].combine_chunks() for name in ("hash", "at"))
    return Hashes(folders, _bytes(hashes, 8), _bytes(at, 4))


def _bytes(values: pa.Array, width: int) -> bytes:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else values.chunk(0)
    data = values.buffers()[1]
    return bytes(data[values.offset * width : (values.offset + len(values)) * width])


def _int32(values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def doubled(parts: Iterable[Hashes]) -> Iterator[Doubled]:
    """Which folders have messages whose hash comes twice in a group, and these hashes. Memory: some
    40 bytes a message of the group.
    """
    folders: list[NameFolder] = []
    hashes, at = [], []
    for part in parts:
        count = len(part.hashes) // _HASH_BYTES
        numbers = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(part.at)])
        hashes.append(pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(part.hashes)]))
        at.append(pc.add(numbers, pa.scalar(len(folders), pa.int32())))
        folders += part.folders
    if not hashes:
        return
    table = pa.table({"hash": pa.chunked_array(hashes), "at": pa.chunked_array(at)})
    counted = table.group_by("hash").aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))["hash"]
    if not len(twice):
        return
    found = table.filter(pc.is_in(table["hash"], value_set=twice.combine_chunks()))
    by_folder: dict[int, list[int]] = {}
    for number, each in zip(found["at"].to_pylist(), found["hash"].to_pylist(), strict=True):
        by_folder.setdefault(number, []).append(each)
    for number, of_folder in by_folder.items():
        yield Doubled(folders[number], tuple(of_folder))
