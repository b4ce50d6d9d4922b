"""An archive task: reads the messages of its part of a batch's names, and writes them to files in
staging.

No Spark here: it sees the root and the archive by the driver's paths.
"""

import errno
import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from mq.model.errors import MessageUnreadable
from mq.model.history import Event as Kind
from mq.model.limits import CHUNK_BYTES, MIB, PACK_BYTES_MAX
from mq.model.packs import bodies_in
from mq.spark.jobs.archive_folder import DataFile
from mq.spark.jobs.archive_rows import (
    ARCHIVED_FILE_BYTES_MAX,
    ARCHIVED_HELD_BYTES_MAX,
    ARCHIVED_HELD_ROWS_MAX,
    BODIES,
    BODY,
    DAMAGED,
    FILE,
    FILE_SCHEMA,
    GONE,
    MORE,
    SUFFIX,
    TABLE_SCHEMA,
    Body,
    Event,
    Fact,
    Parts,
    Place,
    Told,
    as_now,
    failures_told,
    headers_of,
    parquet_file,
    removed_ms,
)
from mq.spark.jobs.tables import TABLES, kind_of
from mq.spark.options import READ_THREADS_DEFAULT
from mq.store.archive.archiving import ARCHIVE_BATCH_MESSAGES_DEFAULT
from mq.store.archive.ledger import NameRange
from mq.store.core.failures import FAILURES_BYTES_MAX, failures_in
from mq.store.disk.files import Files, is_gone
from mq.store.format.archive import RemovedName, parse_removed
from mq.store.format.history import date_of
from mq.store.format.layout import Layout
from mq.store.history.read import HISTORY_EVENTS_MAX

# The largest body that a row holds; a larger one has a file of its own.
ARCHIVED_VALUE_BYTES_MAX: Final = 256 * MIB

# Compaction begins once there are more than SMALL_FILES_MAX files below SMALL_FILE_BYTES_MAX.
SMALL_FILE_BYTES_MAX: Final = 64 * MIB
SMALL_FILES_MAX: Final = 8

_BODY_SUFFIX: Final = ".body"
_SLAB_NAMES: Final = 64
_SLABS_PER_THREAD: Final = 2
# The errors of opening a symbolic link and a socket, which are no messages.
_NO_FILES: Final = (errno.ELOOP, errno.ENXIO)


@dataclass(frozen=True, slots=True)
class Task:
    """A batch as its tasks receive it, pickled with each of them. `removed`: the folder below which
    the names are; `ranges`: where the names of each part are. `threads` read at a time, for a slow
    disk. `events`: the folder of the messages' history events, by part; None: there are none.
    `has_failures`: whether the root has failures of messages. `is_table`: whether the files are for
    a table.
    """

    removed: str
    batch: int
    staging: str
    ranges: tuple[NameRange, ...]
    threads: int = 1
    events: str | None = None
    value_bytes_max: int = ARCHIVED_VALUE_BYTES_MAX
    has_failures: bool = False
    is_table: bool = False


class _Seen(NamedTuple):
    """A message's file as it was read; `content` None: it is too long for one read."""

    message: RemovedName
    path: str
    status: os.stat_result
    content: bytes | None
    failures: Sequence[Event] | None


_Look: TypeAlias = _Seen | str
"""A name's file, or the name itself if it is gone."""


def archive_part(files: Files, task: Task, number: int) -> list[Fact]:
    """Archives one part of a batch. Durable on return: yes, except for the files' names.

    Reports names without a file. Raises OSError if a read or a write fails, BadName for a damaged
    ledger: then nothing of the batch is archived.
    """
    return _Part(files, task, number).facts(task.ranges[number].names(files))


class _Part:
    """One part of a batch, in its task."""

    def __init__(self, files: Files, task: Task, number: int) -> None:
        self._files = files
        self._task = task
        self._layout = Layout.of(os.path.dirname(task.removed))
        schema = TABLE_SCHEMA if task.is_table else FILE_SCHEMA
        self._parts = Parts(files, task.staging, task.batch, number, schema)
        self._events: Mapping[tuple[str, str], Sequence[Event]] = (
            {} if task.events is None else events_of(task.events, number)
        )
        self._facts: list[Fact] = []
        self._gone: list[str] = []
        self._damaged: list[str] = []
        self._more = 0
        """How many messages more than names there were."""

    def facts(self, names: Iterable[str]) -> list[Fact]:
        """Archives these names."""
        try:
            for look in self._looks(names):
                if isinstance(look, str):
                    self._gone.append(look)
                else:
                    self._add(look)
            self._facts += self._parts.finish()
        finally:
            self._parts.abandon()
        gone = sum(parse_removed(name).id.items or 1 for name in self._gone)
        self._more += gone - len(self._gone)
        if self._gone:
            self._facts.append(Fact(GONE, self._gone[0], "", gone))
        if self._damaged:
            self._facts.append(Fact(DAMAGED, self._damaged[0], "", len(self._damaged)))
        if self._more:
            self._facts.append(Fact(MORE, "", "", self._more))
        return self._facts

    def _looks(self, names: Iterable[str]) -> Iterator[_Look]:
        rest = iter(names)
        slabs = iter(lambda: list(islice(rest, _SLAB_NAMES)), [])
        if self._task.threads == 1:
            for slab in slabs:
                yield from self._slab(slab)
            return
        yield from self._by_threads(slabs)

    def _by_threads(self, slabs: Iterable[list[str]]) -> Iterator[_Look]:
        ahead: deque[Future[list[_Look]]] = deque()
        threads = ThreadPoolExecutor(self._task.threads)
        try:
            for slab in slabs:
                ahead.append(threads.submit(self._slab, slab))
                if len(ahead) == _SLABS_PER_THREAD * self._task.threads:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)

    def _slab(self, names: list[str]) -> list[_Look]:
        return [self._look(name) for name in names]

    def _look(self, name: str) -> _Look:
        message = parse_removed(name)
        path = f"{self._task.removed}/{name}"
        try:
            status, content = self._files.read_opened(path)
        except OSError as error:
            if is_gone(error) or error.errno in _NO_FILES:
                return name
            raise
        if not stat.S_ISREG(status.st_mode):
            return name
        return _Seen(message, path, status, content, self._failures(message))

    def _failures(self, message: RemovedName) -> Sequence[Event] | None:
        """Why it was released or sidelined. Unreadable failures are left out."""
        if not self._task.has_failures:
            return None
        path = self._layout.failure(message.id)[1]
        try:
            return failures_told(failures_in(self._files.read_file(path, FAILURES_BYTES_MAX)))
        except OSError:
            return None

    def _add(self, seen: _Seen) -> None:
        message, status = seen.message, seen.status
        queue, message_id = message.queue, message.id
        came_ms = removed_ms(message, status.st_ctime_ns // 1_000_000)
        if message_id.items and status.st_size <= PACK_BYTES_MAX and self._add_items(seen):
            return
        if status.st_size <= self._task.value_bytes_max:
            body = _held(message, self._whole(seen))
        else:
            body = self._copied(seen, Place(queue.text, date_of(came_ms)))
        if body.size is None:
            self._damaged.append(f"{queue.text} {message_id.text}")
        # None: its history is unknown, or no history file mentions it.
        told = Told(self._events_of(message), seen.failures)
        self._parts.add(message, status.st_mtime_ns, came_ms, body, told)

    def _events_of(self, message: RemovedName) -> Sequence[Event] | None:
        """The message's events, and those of the pack that it is or was an item of."""
        queue, message_id = message.queue.text, message.id
        events = self._events.get((queue, message_id.text))
        if not message_id.pack_size:
            return events
        of_pack = self._events.get((queue, message_id.pack().text))
        if of_pack is None or events is None:
            return events or of_pack
        return _in_order([*of_pack, *events])

    def _add_items(self, seen: _Seen) -> bool:
        """Archives the items of a pack; False: its file is damaged."""
        pack, status, content = seen.message.id, seen.status, self._whole(seen)
        headers = headers_of(pack, content[: pack.header_bytes])
        try:
            bodies = bodies_in(content, pack)
        except MessageUnreadable:
            return False
        if headers is None:
            return False
        came_ms = removed_ms(seen.message, status.st_ctime_ns // 1_000_000)
        for item, value in zip(pack.all_items(), bodies, strict=True):
            message = replace(seen.message, id=item)
            body = Body(value, len(value), hashlib.sha256(value).hexdigest(), headers)
            told = Told(self._events_of(message), seen.failures)
            self._parts.add(message, status.st_mtime_ns, came_ms, body, told)
        self._more += pack.items - 1
        return True

    def _whole(self, seen: _Seen) -> bytes:
        if seen.content is not None:
            return seen.content
        content = self._files.read_file(seen.path, seen.status.st_size)
        _check_size(seen, len(content))
        return content

    def _copied(self, seen: _Seen, place: Place) -> Body:
        """Copies a body that is too large for a row to a file of its own in staging."""
        head_bytes = seen.message.id.header_bytes
        name = self._parts.new_name(_BODY_SUFFIX)
        source = self._files.open_read(seen.path)
        try:
            # If the header block is unreadable, the file gets the block's bytes too, so nothing is
            # lost.
            headers = headers_of(seen.message.id, self._files.read(source, head_bytes, 0))
            headers = None if seen.message.id.items else headers
            begin = 0 if headers is None else head_bytes
            digest = self._copy(source, begin, name, seen)
        finally:
            self._files.close(source)
        folder = f"{BODIES}/{place.folder}"
        size = seen.status.st_size - begin
        self._facts.append(Fact(BODY, name, folder, 0, size, size))
        path = f"{folder}/{name}"
        return (
            Body(None, None, None, (), path)
            if headers is None
            else Body(None, size, digest, headers, path)
        )

    def _copy(self, source: int, begin: int, name: str, seen: _Seen) -> str:
        """Copies the body; returns its SHA-256. Durable on return: yes, except for the name."""
        digest, at = hashlib.sha256(), begin
        target = self._files.create(f"{self._task.staging}/{name}")
        try:
            while chunk := self._files.read(source, CHUNK_BYTES, at):
                self._files.write(target, chunk)
                digest.update(chunk)
                at += len(chunk)
            self._files.sync(target)
        finally:
            self._files.close(target)
        _check_size(seen, at)
        return digest.hexdigest()


def _held(message: RemovedName, content: bytes) -> Body:
    head_bytes = message.id.header_bytes
    headers = headers_of(message.id, content[:head_bytes])
    if headers is None or message.id.items:  # A pack whose items cannot be read.
        return Body(content, None, None, ())
    value = content[head_bytes:] if head_bytes else content
    return Body(value, len(value), hashlib.sha256(value).hexdigest(), headers)


def _check_size(seen: _Seen, size: int) -> None:
    if size != seen.status.st_size:
        # mq never changes a message's file, so the storage returned less than it holds.
        raise OSError(errno.EIO, "the file ended early", seen.path)


@dataclass(frozen=True, slots=True)
class Group:
    """Small files of one folder to be merged into one file."""

    folder: str
    files: tuple[DataFile, ...]


def plan(files: Iterable[DataFile], small_max: int = SMALL_FILES_MAX) -> list[Group]:
    """Chooses the files to merge: in a folder with more than `small_max` files under
    SMALL_FILE_BYTES_MAX bytes, those, in groups of at most ARCHIVED_FILE_BYTES_MAX. Pure.
    """
    folders: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size < SMALL_FILE_BYTES_MAX:
            folders.setdefault(file.folder, []).append(file)
    return [
        Group(folder, group)
        for folder, small in sorted(folders.items())
        if len(small) > small_max
        for group in _filled(sorted(small, key=lambda file: file.name))
        if len(group) > 1
    ]


def _filled(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Groups of files that are neighbours by name, and so by batch."""
    taken: list[DataFile] = []
    size = 0
    for file in files:
        if taken and size + file.size > ARCHIVED_FILE_BYTES_MAX:
            yield tuple(taken)
            taken, size = [], 0
        taken.append(file)
        size += file.size
    if taken:
        yield tuple(taken)


def rewrite(files: Files, archive: str, staged: str, group: Group) -> Fact:
    """Writes a group's rows to one new file in the folder `staged`. Durable on return: yes, except
    for its name. Raises OSError, and pyarrow's errors for a damaged file.
    """
    name = f"{group.files[0].name.partition('-')[0]}-c-{uuid4().hex}{SUFFIX}"
    target = parquet_file(files, f"{staged}/{name}")
    try:
        messages = 0
        for table in _joined(archive, group):
            target.write(table)
            messages += table.num_rows
        target.finish()
    finally:
        target.abandon()
    return Fact(FILE, name, group.folder, messages, target.size)


def _joined(archive: str, group: Group) -> Iterator[pa.Table]:
    """The rows of all files, at most as many at a time as may be held."""
    held: list[pa.Table] = []
    for file in group.files:
        for table in _tables(f"{archive}/{file.path}"):
            held.append(table)
            if (
                sum(each.nbytes for each in held) >= ARCHIVED_HELD_BYTES_MAX
                or sum(each.num_rows for each in held) >= ARCHIVED_HELD_ROWS_MAX
            ):
                yield pa.concat_tables(held)
                held = []
    if held:
        yield pa.concat_tables(held)


def _tables(path: str) -> Iterator[pa.Table]:
    """A file's rows, one row group at a time."""
    with pa.OSFile(path, "rb") as source:
        reader = pq.ParquetFile(source)
        for number in range(reader.num_row_groups):
            yield as_now(reader.read_row_group(number))


# The order of events with one time: a message's life begins with the first and ends with the last.
_RANK: Final = {Kind.PUBLISHED.value: 0, Kind.REMOVED.value: 2}


def events_of(folder: str, number: int) -> dict[tuple[str, str], Sequence[Event]]:
    """The history events of a part's messages, by queue and id: by time, the last
    HISTORY_EVENTS_MAX of each. Raises OSError.
    """
    part = f"{folder}/part={number}"
    if not os.path.isdir(part):
        return {}
    found: dict[tuple[str, str], list[Event]] = {}
    for name in sorted(os.listdir(part)):
        if not name.startswith((".", "_")):
            for row in _rows(f"{part}/{name}"):
                found.setdefault((row.pop("queue"), row.pop("id")), []).append(row)
    return {message: _in_order(events) for message, events in found.items()}


def _rows(path: str) -> Iterable[dict[str, Any]]:
    with pa.OSFile(path, "rb") as file:
        rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def _in_order(events: list[Event]) -> Sequence[Event]:
    events.sort(key=lambda event: (event["time"], _RANK.get(event["event"], 1)))
    return events[-HISTORY_EVENTS_MAX:]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to archive: `batch_messages` at a time; `threads` of a task read at a time, for a slow
    disk; a body over `value_bytes_max` in a file of its own; repeatedly, every `every_s` seconds,
    until the run is ended. `compact`: whether to merge small files in folders with more than
    `small_files_max` of them; files of a table are left to it. `format`: parquet, `delta`, or
    `iceberg` with its `table`.
    """

    batch_messages: int = ARCHIVE_BATCH_MESSAGES_DEFAULT
    threads: int = READ_THREADS_DEFAULT
    compact: bool = True
    every_s: float | None = None
    value_bytes_max: int = ARCHIVED_VALUE_BYTES_MAX
    small_files_max: int = SMALL_FILES_MAX
    format: str = "parquet"
    table: str | None = None

    @property
    def kind(self) -> str:
        """The kind of table, as tables.table_of takes it. Raises ValueError."""
        if self.format not in ("parquet", *TABLES):
            raise ValueError("the format is parquet, delta, or iceberg with a table")
        return kind_of(self.format, self.table)


USUAL: Final = Wanted()
