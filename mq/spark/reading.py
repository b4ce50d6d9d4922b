"""Reading the messages of a partition: names go in, Arrow batches come out. Nothing changes.

A message is seen by its name, then opened: what moves or goes between is passed over, and so is
what is none. One file that is damaged hides no other: its row has neither value nor size.
"""

import logging
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa

from mq.errors import BadName, LeaseLost, MqError
from mq.headers import Headers, parse_block
from mq.lifecycle import State
from mq.limits import READ_BATCH_BYTES, RECEIVES_MAX, UUID_CHARS, VALUE_BYTES_MAX
from mq.message import Stamp
from mq.names import MessageId, QueueName
from mq.spark.listing import is_leased
from mq.spark.partitions import Names, groups, lines
from mq.spark.rows import Rows, as_map
from mq.store.files import is_gone
from mq.store.layout import split_entry
from mq.store.pipeline_layout import LeaseName
from mq.store.purged import PurgeMark, mark_of
from mq.store.read import latest
from mq.store.root import Root

_log = logging.getLogger("mq.spark")

_NS_PER_MS: Final = 1_000_000
_US_PER_MS: Final = 1000
# Due times that every Spark and Python can tell: the years 1 to 9999.
_DUE_MS_MIN: Final = -62_135_596_800_000
_DUE_MS_MAX: Final = 253_402_300_799_999
# What a thread reads at a time, and how many of these are ahead for each thread.
_SLAB_NAMES: Final = 64
_SLABS_PER_THREAD: Final = 2
_SOME_UUID: Final = "00000000-0000-7000-8000-000000000000"
_SERVED: Final = (State.READY, State.DELAYED)


@dataclass(frozen=True, slots=True)
class Manner:
    """How messages are read. `threads` read at a time, for a disk that lets one wait. `receives`
    is 1 where the read is a delivery of its own, as a lease's is, and is counted.
    """

    state: State
    include_value: bool = True
    threads: int = 1
    receives: int = 0


def batches(root: Root, names: Names, manner: Manner) -> Iterator[pa.RecordBatch]:
    """The messages of these names that are still in their state, in their order.

    Raises ValueTooLarge for a body that no row can have; OSError: FileNotFoundError when the
    listing was taken away before it was read.
    """
    reader = _Reader(root, manner)
    found = groups(lines(root.files, names))
    damaged = 0
    for rows in reader.in_turn(found) if manner.threads == 1 else reader.at_once(found):
        for damage in rows.damaged if not damaged else ():
            _log.warning("damaged, in a row without value and size: %s", damage)
            break
        damaged += len(rows.damaged)
        yield rows.batch(manner.state)
    if damaged > 1:
        _log.warning("%d messages of the partition are damaged", damaged)


@dataclass(eq=False)
class ValueTooLarge(MqError):
    """A body that no row can have."""

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
    """The same of names in a lease, all of them but what was deleted by its id. Raises LeaseLost
    at the end when the lease is no longer open: then some may be missing.
    """
    yield from batches(root, names, manner)
    if not is_leased(root, lease):
        raise LeaseLost(lease.text)


class _Group(NamedTuple):
    """Names of one folder: like listing.Block."""

    queue: str
    folder: str
    names: list[str]


@dataclass(frozen=True, slots=True)
class _Attributes:
    """What the end of an id says."""

    priority: int
    key: str | None
    header_bytes: int
    headers: Headers


class _Reader:
    """One partition's reader."""

    def __init__(self, root: Root, manner: Manner) -> None:
        self._root = root
        self._manner = manner
        self._marks: dict[str, PurgeMark | None] = {}
        self._rows_bytes = READ_BATCH_BYTES // (_SLABS_PER_THREAD * manner.threads)

    def in_turn(self, found: Iterable[tuple[str, str, list[str]]]) -> Iterator[Rows]:
        """All of them, one after the other."""
        rows = Rows(READ_BATCH_BYTES)
        for group in found:
            at = 0
            while at < len(group[2]):
                at = self._take(rows, _Group(*group), at)
                if rows.is_full:
                    yield rows
                    rows = Rows(READ_BATCH_BYTES)
        if rows.ids:
            yield rows

    def at_once(self, found: Iterable[tuple[str, str, list[str]]]) -> Iterator[Rows]:
        """The same by threads, in the same order."""
        rows = Rows(READ_BATCH_BYTES)
        for more in self._slabs(found):
            rows.extend(more)
            if rows.is_full:
                yield rows
                rows = Rows(READ_BATCH_BYTES)
        if rows.ids:
            yield rows

    def _slabs(self, found: Iterable[tuple[str, str, list[str]]]) -> Iterator[Rows]:
        ahead: deque[tuple[_Group, Future[tuple[Rows, int]]]] = deque()
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

    def _finished(self, group: _Group, slab: "Future[tuple[Rows, int]]") -> Iterator[Rows]:
        """A slab's rows, and those that it had no room for."""
        rows, at = slab.result()
        yield rows
        while at < len(group.names):
            rows, at = self._slab(group, at)
            yield rows

    def _slab(self, group: _Group, at: int) -> tuple[Rows, int]:
        rows = Rows(self._rows_bytes)
        return rows, self._take(rows, group, at)

    def _take(self, rows: Rows, group: _Group, at: int) -> int:
        """Reads from a name on until there are no more, or the rows are full: up to which."""
        base = f"{self._root.layout.root}/{group.folder}"
        queue, text = group.queue, ""
        for number in range(at, len(group.names)):
            if rows.is_full:
                return number
            name = group.names[number]
            if group.queue:
                text = name
            else:
                queue, text = split_entry(name)
            attributes = _attributes(text[UUID_CHARS:])
            if attributes is not None and MessageId.is_written(text[:UUID_CHARS]):
                self._row(rows, queue, text, attributes, base + name)
        return len(group.names)

    def _row(self, rows: Rows, queue: str, text: str, attributes: _Attributes, path: str) -> None:
        """One message's row, if it is one and is there."""
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode) or not self._is_served(queue, text):
            return
        if status.st_nlink > 1 and not self._is_latest(queue, text, status):
            return
        size: int | None = status.st_size - attributes.header_bytes
        headers, value = attributes.headers, None
        if self._manner.include_value or attributes.header_bytes:
            content = self._content(queue, text, attributes, path, status.st_size)
            if content is None:
                return
            block, value = content
            if len(block) < attributes.header_bytes:
                size = None
            headers = as_map((*headers, *parse_block(block))) if block else headers
        if size is None or (self._manner.include_value and value is None):
            size = value = None
            rows.damaged.append(text)
        due_ms, received = divmod(status.st_mtime_ns, _NS_PER_MS)
        if received:
            received = Stamp.from_mtime_ns(status.st_mtime_ns).receives
        rows.queues.append(queue)
        rows.ids.append(text)
        rows.keys.append(attributes.key)
        rows.values.append(value)
        rows.headers.append(headers)
        rows.priorities.append(attributes.priority)
        rows.published.append(int(text[:8] + text[9:13], 16) * _US_PER_MS)
        rows.due.append(min(max(due_ms, _DUE_MS_MIN), _DUE_MS_MAX) * _US_PER_MS)
        rows.receives.append(min(received + self._manner.receives, RECEIVES_MAX))
        rows.sizes.append(size)
        rows.value_bytes += len(value) if value else 0

    def _content(
        self, queue: str, text: str, attributes: _Attributes, path: str, file_bytes: int
    ) -> tuple[bytes, bytes | None] | None:
        """A message's header block and, where it is wanted and whole, its body; None: it is gone.

        Raises ValueTooLarge.
        """
        wanted = file_bytes if self._manner.include_value else attributes.header_bytes
        if wanted - attributes.header_bytes > VALUE_BYTES_MAX:
            raise ValueTooLarge(queue, text, wanted - attributes.header_bytes)
        files = self._root.files
        try:
            descriptor = files.open_read(path)
        except OSError as error:
            if is_gone(error):
                return None
            raise
        try:
            content = files.read(descriptor, wanted, 0)
        finally:
            files.close(descriptor)
        if not attributes.header_bytes:
            return b"", content if len(content) == file_bytes else None
        is_whole = self._manner.include_value and len(content) == file_bytes
        block = content[: attributes.header_bytes]
        return block, content[attributes.header_bytes :] if is_whole else None

    def _is_served(self, queue: str, text: str) -> bool:
        """Whether it is not purged since the listing; and whether its queue's name is one."""
        if queue not in self._marks:
            try:
                name = QueueName.parse(queue)
            except BadName:
                return False
            is_asked = self._manner.state in _SERVED
            self._marks[queue] = mark_of(self._root, name) if is_asked else None
        mark = self._marks[queue]
        return mark is None or not mark.covers(text)

    def _is_latest(self, queue: str, text: str, status: os.stat_result) -> bool:
        """Whether the state is the message's, of a file that has two names."""
        state = self._manner.state
        message_id = MessageId.parse(text)
        return latest(self._root, state, QueueName.parse(queue), message_id, status) is state


def _parted(found: Iterable[tuple[str, str, list[str]]]) -> Iterator[_Group]:
    """What a thread reads at a time."""
    for queue, folder, names in found:
        for at in range(0, len(names), _SLAB_NAMES):
            yield _Group(queue, folder, names[at : at + _SLAB_NAMES])


@lru_cache(4096)
def _attributes(end: str) -> _Attributes | None:
    """What stands behind an id's uuid; None: it is no id's."""
    try:
        message_id = MessageId.parse(_SOME_UUID + end)
    except BadName:
        return None
    content_type = message_id.content_type if message_id.extension else ""
    return _Attributes(
        message_id.priority,
        message_id.key.text if message_id.key else None,
        message_id.header_bytes,
        (("content-type", content_type),) if content_type else (),
    )
