"""Reading the messages of a partition: names go in, Arrow batches come out. Nothing changes.

A message is seen by its name, then opened: what moves or goes between is passed over, and so is
what is none. One file that is damaged hides no other: its row has neither value nor size.
"""

import errno
import logging
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mq.model.bulk_limits import READ_BATCH_BYTES, VALUE_BYTES_MAX
from mq.model.clock import Moment
from mq.model.errors import BadName, LeaseLost, MqError
from mq.model.headers import parse_block
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.spark.entries import Entry, Group, entries
from mq.spark.listing import is_leased
from mq.spark.partitions import Names, groups, lines
from mq.spark.rows import Row, Rows, with_type
from mq.store.core.purged import PurgeMark, mark_of
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.mounts import file_system_of
from mq.store.format.pipeline import LeaseName
from mq.store.operations.read import latest

_log = logging.getLogger("mq.spark")

# What a thread reads at a time, and how many of these are ahead for each thread.
_SLAB_NAMES: Final = 64
_SLABS_PER_THREAD: Final = 2
# What an open says of a symbolic link, and of a socket.
_NO_FILES: Final = (errno.ELOOP, errno.ENXIO)
_DAMAGED_SHOWN: Final = 10
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
    for rows in reader.in_turn(found) if manner.threads == 1 else reader.at_once(found):
        yield rows.batch(manner.state, manner.receives)
    if reader.damaged:
        shown = ", ".join(reader.damaged[:_DAMAGED_SHOWN])
        _log.warning("%d damaged, in rows without value and size: %s", len(reader.damaged), shown)


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


class _Reader:
    """One partition's reader."""

    def __init__(self, root: Root, manner: Manner) -> None:
        self._root = root
        self._manner = manner
        self._marks: dict[str, PurgeMark | None] = {}
        self.damaged: list[str] = []
        """The messages whose value and size nobody can tell."""
        self._is_swift = manner.include_value and file_system_of(root.layout.root).has_own_times
        self._rows_bytes = READ_BATCH_BYTES // (_SLABS_PER_THREAD * manner.threads)

    def in_turn(self, found: Iterable[tuple[str, str, list[str]]]) -> Iterator[Rows]:
        """All of them, one after the other."""
        rows = Rows(READ_BATCH_BYTES)
        for group in found:
            at = 0
            while at < len(group[2]):
                at = self._take(rows, Group(*group), at)
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
        ahead: deque[tuple[Group, Future[tuple[Rows, int]]]] = deque()
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

    def _finished(self, group: Group, slab: "Future[tuple[Rows, int]]") -> Iterator[Rows]:
        """A slab's rows, and those that it had no room for."""
        rows, at = slab.result()
        yield rows
        while at < len(group.names):
            rows, at = self._slab(group, at)
            yield rows

    def _slab(self, group: Group, at: int) -> tuple[Rows, int]:
        rows = Rows(self._rows_bytes)
        return rows, self._take(rows, group, at)

    def _take(self, rows: Rows, group: Group, at: int) -> int:
        """Reads from a name on until there are no more, or the rows are full: up to which."""
        top, last = self._root.layout.root, len(group.names)
        read = self._swiftly if self._is_swift else self._surely
        while at < last:
            end = min(at + _SLAB_NAMES, last)
            full_at = read(rows, self._served(entries(top, group, at, end)))
            if full_at is not None:
                return full_at
            at = end
        return last

    def _swiftly(self, rows: Rows, found: list[Entry]) -> int | None:
        """Like `_surely`, without asking by the name: the message was there when it was opened, and
        what its file says then is of its state, where the file did not change since.
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
            if content is None or status.st_nlink != 1 or not is_before(status.st_ctime_ns):
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
        """Reads these until the rows are full: up to which; None: all of them."""
        for entry in found:
            if rows.is_full:
                return entry[0]
            row = self._row(entry)
            if row is not None:
                rows.add(row)
        return None

    def _row(self, entry: Entry) -> Row | None:
        """A message's row; None: it is none, or gone. Raises ValueTooLarge.

        What a file says of itself is asked before it is opened: while the name is there, that
        belongs to its state, and what is in the file never changes.
        """
        _, queue, text, attributes, path = entry
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        if status.st_nlink > 1 and not self._is_latest(queue, text, status):
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
            self.damaged.append(f"{queue} {text}")
            return queue, text, attributes, status.st_mtime_ns, headers, None, None
        return self._whole(entry, status, content)

    def _whole(self, entry: Entry, status: os.stat_result, content: bytes) -> Row:
        """The row of a file that begins so, all of it where the value is wanted."""
        _, queue, text, attributes, _ = entry
        headers, head_bytes = attributes.headers, attributes.header_bytes
        if head_bytes:
            headers = with_type(parse_block(content[:head_bytes]), headers)
            content = content[head_bytes:]
        value = content if self._manner.include_value else None
        size = status.st_size - head_bytes
        return queue, text, attributes, status.st_mtime_ns, headers, size, value

    def _served(self, found: list[Entry]) -> list[Entry]:
        """Those that are not purged since the listing, and whose queues' names are such."""
        is_all = self._is_all_served
        if all(is_all(queue) for queue in {each[1] for each in found}):
            return found
        return [each for each in found if self._is_served(each[1], each[2])]

    def _is_all_served(self, queue: str) -> bool:
        return queue in self._marks and self._marks[queue] is None

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


def _parted(found: Iterable[tuple[str, str, list[str]]]) -> Iterator[Group]:
    """What a thread reads at a time."""
    for queue, folder, names in found:
        for at in range(0, len(names), _SLAB_NAMES):
            yield Group(queue, folder, names[at : at + _SLAB_NAMES])
