"""Reads the messages of a partition: names in, Arrow batches out. Changes nothing.

A message is found by its name, then opened: one that moves meanwhile is skipped, and so is a name
that belongs to no message. A damaged file gives a row without value and size.
"""

import errno
import logging
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Final, TypeAlias

import pyarrow as pa

from mq.model.clock import Moment
from mq.model.errors import BadName, LeaseLost, MessageUnreadable, MqError
from mq.model.headers import parse_block, tags_in_block
from mq.model.lifecycle import State
from mq.model.limits import MIB, PACK_BYTES_MAX, UUID_CHARS
from mq.model.names import (
    UUID_V7,
    UUIDS_END,
    MessageId,
    QueueName,
    are_uuids,
    items_of,
    messages_of,
)
from mq.model.packs import spans_in
from mq.spark.listing import Block, is_leased
from mq.spark.narrowing import NO_CONDITION, Narrowed
from mq.spark.partitions import Names, groups, lines
from mq.spark.rows import DEFAULT_HEADERS, Attributes, Bodies, Row, Rows, due_us, with_type
from mq.store.core.root import Root
from mq.store.core.unserved import PurgeMark, mark_of
from mq.store.disk.files import is_gone
from mq.store.disk.mounts import file_system_of
from mq.store.format.layout import split_entry
from mq.store.format.pipeline import LeaseName

# Spark gets about this many bytes of bodies at once; the last body may exceed it.
READ_BATCH_BYTES: Final = 16 * MIB
# The largest body of a row: Spark holds it in Java arrays, below 2 GiB with all copies.
VALUE_BYTES_MAX: Final = 1024 * MIB

_SOME_UUID: Final = "00000000-0000-7000-8000-000000000000"
_BARE: Final = Attributes(0, None, 0, DEFAULT_HEADERS)


Entry: TypeAlias = tuple[int, str, str, Attributes, str]
"""A message's name: its index in the group, queue, id, the attributes at the id's end, path."""


def entries(top: str, group: Block, at: int, end: int) -> list[Entry]:
    """The messages among a group's names from `at` up to `end`; skips other names."""
    base = f"{top}/{group.folder}"
    names = group.names[at:end]
    paths = [base + name for name in names]
    if group.queue:
        queues, texts = [group.queue] * len(names), names
    else:
        pairs = [split_entry(name) for name in names]
        queues, texts = [queue for queue, _ in pairs], [text for _, text in pairs]
    if texts and are_uuids(texts):
        return list(zip(range(at, end), queues, texts, repeat(_BARE), paths))
    return [
        (number, queue, text, attributes, path)
        for number, queue, text, path in zip(range(at, end), queues, texts, paths, strict=True)
        if (attributes := attributes_of(text[UUID_CHARS:])) is not None and _is_id(text)
    ]


def _is_id(text: str) -> bool:
    return UUID_V7.fullmatch(text[:UUID_CHARS]) is not None and text < UUIDS_END


@lru_cache(4096)
def attributes_of(end: str) -> Attributes | None:
    """Parses the part of an id after its uuid; None: it is not an id's."""
    try:
        message_id = MessageId.parse(_SOME_UUID + end)
    except BadName:
        return None
    is_said = message_id.extension or not message_id.header_bytes
    return Attributes(
        message_id.priority,
        message_id.key.text if message_id.key else None,
        message_id.header_bytes,
        (("content-type", message_id.content_type),) if is_said else (),
        message_id.group,
        message_id.tags,
        message_id.items or message_id.pack_size,
    )


_log = logging.getLogger("mq.spark")

# How many names a thread reads at a time, and how many such slabs are read ahead per thread.
_SLAB_NAMES: Final = 64
_SLABS_PER_THREAD: Final = 2
# The errors of opening a symbolic link, and a socket.
_NO_FILES: Final = (errno.ELOOP, errno.ENXIO)
_DAMAGED_SHOWN: Final = 10
_SERVED: Final = (State.READY, State.DELAYED)


@dataclass(frozen=True, slots=True)
class Manner:
    """How to read messages. `threads` read at a time, for a slow disk. `receives`: 1 if the read is
    itself a delivery, as a lease's is, and is counted. `due` and `tag`: conditions on due times and
    tags; `ids`: on the ids of packs' items.
    """

    state: State
    include_value: bool = True
    threads: int = 1
    receives: int = 0
    due: Narrowed = NO_CONDITION
    tag: Narrowed = NO_CONDITION
    ids: Narrowed = NO_CONDITION


def batches(root: Root, names: Names, manner: Manner) -> Iterator[pa.RecordBatch]:
    """The messages of these names that are still in their state, in order.

    Raises ValueTooLarge for a body too large for a row; OSError: FileNotFoundError if the listing
    was removed before it was read.
    """
    reader = _Reader(root, manner)
    found = groups(lines(root.files, names))
    for rows in reader.in_turn(found) if manner.threads == 1 else reader.at_once(found):
        yield rows.batch(manner.state, manner.receives)
    if reader.damaged:
        shown = ", ".join(reader.damaged[:_DAMAGED_SHOWN])
        _log.warning("%d damaged, in rows without value and size: %s", len(reader.damaged), shown)


@dataclass(eq=False)
class ValueTooLarge(MqError):
    queue: str
    id: str
    size: int

    def __str__(self) -> str:
        return (
            f"mq: the body of {self.queue} {self.id} has {self.size} bytes, and a row's value at "
            f"most {VALUE_BYTES_MAX}: read it over HTTP, or without values (includeValue=false)"
        )


def leased_batches(
    root: Root, lease: LeaseName, names: Names, manner: Manner
) -> Iterator[pa.RecordBatch]:
    """The same for names in a lease: all messages that were not deleted by id. Raises LeaseLost at
    the end if the lease is no longer open: then some may be missing.
    """
    yield from batches(root, names, manner)
    if not is_leased(root, lease):
        raise LeaseLost(lease.text)


class _Reader:
    def __init__(self, root: Root, manner: Manner) -> None:
        self._root = root
        self._manner = manner
        self._marks: dict[str, PurgeMark | None] = {}
        self.damaged: list[str] = []
        """The messages without value and size."""
        self._is_swift = (
            manner.include_value
            and not manner.due.conditions
            and file_system_of(root.layout.root).has_own_times
        )
        self._rows_bytes = READ_BATCH_BYTES // (_SLABS_PER_THREAD * manner.threads)

    def in_turn(self, found: Iterable[Block]) -> Iterator[Rows]:
        """Reads all of them, one after the other."""
        rows = Rows(READ_BATCH_BYTES)
        for group in found:
            at = 0
            while at < len(group.names):
                at = self._take(rows, group, at)
                if rows.is_full:
                    yield rows
                    rows = Rows(READ_BATCH_BYTES)
        if rows.ids:
            yield rows

    def at_once(self, found: Iterable[Block]) -> Iterator[Rows]:
        """The same with threads, in the same order."""
        rows = Rows(READ_BATCH_BYTES)
        for more in self._slabs(found):
            rows.extend(more)
            if rows.is_full:
                yield rows
                rows = Rows(READ_BATCH_BYTES)
        if rows.ids:
            yield rows

    def _slabs(self, found: Iterable[Block]) -> Iterator[Rows]:
        ahead: deque[tuple[Block, Future[tuple[Rows, int]]]] = deque()
        threads = ThreadPoolExecutor(self._manner.threads)
        try:
            for group in _parted(found):
                ahead.append((group, threads.submit(self._slab, group, 0)))
                if len(ahead) == _SLABS_PER_THREAD * self._manner.threads:
                    yield from self._finished(*ahead.popleft())
            while ahead:
                yield from self._finished(*ahead.popleft())
        finally:
            threads.shutdown(cancel_futures=True)

    def _finished(self, group: Block, slab: "Future[tuple[Rows, int]]") -> Iterator[Rows]:
        """A slab's rows, and those for which it had no room."""
        rows, at = slab.result()
        yield rows
        while at < len(group.names):
            rows, at = self._slab(group, at)
            yield rows

    def _slab(self, group: Block, at: int) -> tuple[Rows, int]:
        rows = Rows(self._rows_bytes)
        return rows, self._take(rows, group, at)

    def _take(self, rows: Rows, group: Block, at: int) -> int:
        """Reads from a name on, until the end or until the rows are full; returns where it
        stopped.
        """
        top, last = self._root.layout.root, len(group.names)
        while at < last:
            end = min(at + _SLAB_NAMES, last)
            found = self._served(entries(top, group, at, end))
            is_swift = self._is_swift and not any(map(_is_pack, found))
            full_at = self._swiftly(rows, found) if is_swift else self._surely(rows, found)
            if full_at is not None:
                return full_at
            at = end
        return last

    def _swiftly(self, rows: Rows, found: list[Entry]) -> int | None:
        """Like `_surely`, without a stat by name: the message existed when it was opened, and its
        file's status is that of its state if the file did not change since.
        """
        begun, mark = Moment.now(), rows.mark()
        full_at = None
        read, is_before, add = self._root.files.read_opened, begun.is_behind, rows.add
        for entry in found:
            if rows.is_full:
                full_at = entry[0]
                break
            _, queue, text, attributes, path = entry
            try:
                status, content = read(path)
            except OSError as error:
                if is_gone(error):
                    continue
                if error.errno not in _NO_FILES:
                    raise
                content = None
            if content is None or not is_before(status.st_ctime_ns):
                row = self._row(entry)
            elif attributes.header_bytes:
                is_whole = len(content) >= attributes.header_bytes
                row = self._whole(entry, status, content) if is_whole else self._row(entry)
            else:
                size = len(content)
                row = queue, text, attributes, status.st_mtime_ns, attributes.headers, size, content
            if row is not None:
                add(row)
        if begun.was_steady(Moment.now()):
            return full_at
        rows.cut(mark)
        return self._surely(rows, found)

    def _surely(self, rows: Rows, found: list[Entry]) -> int | None:
        """Reads these until the rows are full; returns where it stopped, None: it read all
        of them.
        """
        for entry in found:
            if rows.is_full:
                return entry[0]
            if _is_pack(entry):
                self._add_pack(rows, entry)
            elif (row := self._row(entry)) is not None:
                rows.add(row)
        return None

    def _add_pack(self, rows: Rows, entry: Entry) -> None:
        """Adds the rows of a pack's items; none if it is gone. As `_row` reads a message."""
        path = entry[-1]
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return
        if not self._is_chosen(status):
            return
        try:
            content = self._root.files.read_file(path, PACK_BYTES_MAX + 1)
        except OSError as error:
            if is_gone(error):
                return
            raise
        self._add_items(rows, entry, status, content)

    def _add_items(self, rows: Rows, entry: Entry, status: os.stat_result, content: bytes) -> None:
        """Adds the rows of the items of a pack with this content; of a damaged one a row of the
        pack itself, without value and size.
        """
        _, queue, text, attributes, _ = entry
        pack, headers = MessageId.parse(text), attributes.headers
        common = (queue, text, attributes, status.st_mtime_ns, headers, None, None)
        takes = self._manner.ids
        try:
            spans = spans_in(content, pack)
        except MessageUnreadable:
            if takes.take(id=text):
                self.damaged.append(f"{queue} {text}")
                rows.add(common)
            return
        if pack.header_bytes:
            headers = with_type(parse_block(content[: pack.header_bytes]), headers)
            common = (queue, text, attributes, status.st_mtime_ns, headers, None, None)
        ids = messages_of(text)
        if takes.conditions:
            spans = [span for each, span in zip(ids, spans, strict=True) if takes.take(id=each)]
            ids = [each for each in ids if takes.take(id=each)]
        values: Sequence[bytes | None] = [None] * len(ids)
        if self._manner.include_value:
            values = [content[begins : begins + size] for begins, size in spans]
        rows.add_items(common, ids, Bodies([size for _, size in spans], values))

    def _row(self, entry: Entry) -> Row | None:
        """A message's row; None: it is not a message, or is gone. Raises ValueTooLarge.

        The status is read before the file is opened: while the name exists, it belongs to its
        state, and the content never changes.
        """
        _, queue, text, attributes, path = entry
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode) or not self._is_chosen(status):
            return None
        headers, head_bytes = attributes.headers, attributes.header_bytes
        size = status.st_size - head_bytes
        wanted = status.st_size if self._manner.include_value else head_bytes
        if not wanted:
            value = b"" if self._manner.include_value else None
            return queue, text, attributes, status.st_mtime_ns, headers, size, value
        if wanted - head_bytes > VALUE_BYTES_MAX:
            raise ValueTooLarge(queue, text, size)
        try:
            content = self._root.files.read_file(path, wanted)
        except OSError as error:
            if is_gone(error):
                return None
            raise
        if size < 0 or len(content) != wanted:
            if self._manner.tag.conditions:
                return None
            self.damaged.append(f"{queue} {text}")
            return queue, text, attributes, status.st_mtime_ns, headers, None, None
        return self._whole(entry, status, content)

    def _whole(self, entry: Entry, status: os.stat_result, content: bytes) -> Row | None:
        """The row of a file that begins with this content; reads all of it if the value is
        wanted. None if its tags are not chosen.
        """
        _, queue, text, attributes, _ = entry
        headers, head_bytes = attributes.headers, attributes.header_bytes
        tag = self._manner.tag
        if tag.conditions and not tag.takes_tags(tags_in_block(content[:head_bytes])):
            return None
        if head_bytes:
            headers = with_type(parse_block(content[:head_bytes]), headers)
            content = content[head_bytes:]
        value = content if self._manner.include_value else None
        size = status.st_size - head_bytes
        return queue, text, attributes, status.st_mtime_ns, headers, size, value

    def _is_chosen(self, status: os.stat_result) -> bool:
        due = self._manner.due
        return not due.conditions or due.take(due=due_us(status.st_mtime_ns))

    def _served(self, found: list[Entry]) -> list[Entry]:
        """Those that were not purged since the listing, and whose queues have valid names."""
        is_all = self._is_all_served
        if all(is_all(queue) for queue in {each[1] for each in found}):
            return found
        return [each for each in found if self._is_served(each[1], each[2])]

    def _is_all_served(self, queue: str) -> bool:
        return queue in self._marks and self._marks[queue] is None

    def _is_served(self, queue: str, text: str) -> bool:
        """Whether it was not purged since the listing, and its queue has a valid name."""
        if queue not in self._marks:
            try:
                name = QueueName.parse(queue)
            except BadName:
                return False
            is_asked = self._manner.state in _SERVED
            self._marks[queue] = mark_of(self._root, name) if is_asked else None
        mark = self._marks[queue]
        return mark is None or not mark.covers(text)


def _is_pack(entry: Entry) -> bool:
    return entry[3].pack_size > 0 and items_of(entry[2]) > 1


def _parted(found: Iterable[Block]) -> Iterator[Block]:
    """Splits the names into the slabs that a thread reads at a time."""
    for block in found:
        for at in range(0, len(block.names), _SLAB_NAMES):
            yield block._replace(names=block.names[at : at + _SLAB_NAMES])
