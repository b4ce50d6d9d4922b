"""Rows to staged messages: what a task of the sink does, and what its driver does with them.

Pure Python and pyarrow, no pyspark. What is wrong with a row is told by its number and its column.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from mq.model.clock import SystemClock
from mq.model.errors import BadName, BadParameter, DueTooFar, HeadersTooLarge, MqError
from mq.model.headers import Headers, kept, print_block
from mq.model.limits import PRIORITY_MAX
from mq.model.names import (
    Key,
    MessageId,
    QueueName,
    RepeatableIds,
    UuidSource,
    extension_for,
    is_default,
)
from mq.model.settings import QueueSettings
from mq.spark.options import BadOption, WriteOptions
from mq.spark.refusals import explained
from mq.store.bulk.journal import abort, begin_publish, commit, is_published
from mq.store.bulk.roll_forward import roll_all_forward, roll_forward
from mq.store.bulk.staging import Staged, StagingWriter
from mq.store.bulk.windows import WindowIds
from mq.store.core.root import Root, attach_root
from mq.store.core.server_clock import ClockFollower
from mq.store.core.standing import queue_exists
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import choose_flusher, file_system_of
from mq.store.format.pipeline import Attempt
from mq.store.format.settings import DEFAULT_SHAPE, read_fields, settings_in

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "queue": ("string",),
    "key": ("string",),
    "priority": _WHOLE,
    "at": ("timestamp",),
    "headers": ("map<string,string>",),
    "content_type": ("string",),
}
"""What may be written, and of which of Spark's types."""
_FLUSH_WORKERS: Final = 4
_CONTENT_TYPE: Final = "content-type"
_HEADERS_KEPT: Final = "ce-*, x-attribute-*, traceparent, tracestate, content-encoding"


_Ids: TypeAlias = Callable[[int, int], tuple[Sequence[str], bool]]


@dataclass(eq=False)
class BadColumns(MqError):
    """A data frame whose columns are none that can be published."""

    detail: str

    def __str__(self) -> str:
        return f"mq: {self.detail}"


@dataclass(eq=False)
class BadRow(MqError):
    """A row that cannot be published: its number in its partition, from 0, and the column."""

    partition: int
    row: int
    column: str
    expected: str

    def __str__(self) -> str:
        where = f"row {self.row} of partition {self.partition}"
        return f"mq: {where}, column {self.column}: {self.expected}"


def check_columns(columns: Sequence[tuple[str, str]], options: WriteOptions) -> None:
    """Raises BadColumns or BadOption for (name, Spark's type) of a data frame's columns."""
    names = [name for name, _ in columns]
    for name, kind in columns:
        if name not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise BadColumns(f"column {name} is none that is published; those are {known}")
        if kind not in COLUMNS[name]:
            raise BadColumns(f"column {name} is {kind}; it takes {' or '.join(COLUMNS[name])}")
        if names.count(name) > 1:
            raise BadColumns(f"two columns have the name {name}")
    if "value" not in names:
        raise BadColumns("there is no column value, which is the message's body")
    if options.queue is None and "queue" not in names:
        raise BadOption("queue", "is missing: a queue's name, or a column queue")


def open_for(options: WriteOptions) -> Root:
    """The root that is written to; its clock is that of its mount. Raises StartupError."""
    files, clock = Files(), SystemClock()
    root = attach_root(str(options.path), files, clock)
    ClockFollower(root, clock).follow()
    return root


@dataclass(frozen=True, slots=True)
class Task:
    """What a task knows of the publish that it is a part of. `name`: of the publish, in the ledger;
    `repeats`: its ids are made of that.
    """

    job: str
    partition: int
    attempt: int
    name: Key | None = None
    repeats: bool = False


def stage_rows(
    root: Root, options: WriteOptions, task: Task, batches: Iterable[pa.RecordBatch]
) -> Staged:
    """Stages a partition's rows, unless the publish is committed already. Raises BadRow, and
    whatever of Unavailable: nothing is left behind then. Durable on return: yes.
    """
    if task.name is not None and is_published(root, task.name):
        return Staged(task.job, task.partition, task.attempt)
    attempt = Attempt(task.partition, task.attempt)
    ids, ahead_s = _ids(root, options, task)
    with StagingWriter(root, task.job, attempt, options.sync) as writer:
        rows = _Rows(root, options, task, writer, ids)
        for batch in batches:
            rows.put(batch)
        staged = writer.finish()
    # Mostly long over: else a purge right after the publish would leave some.
    threading.Event().wait(ahead_s())
    return staged


def commit_staged(
    root: Root,
    options: WriteOptions,
    job: str,
    staged: Sequence[Staged],
    name: Key | None,
) -> None:
    """The commit point, then all to its places. After the commit point nothing fails: what is not
    rolled forward yet is for mq-mover. Raises PublishFailed, Unavailable. Durable on return: yes.
    """
    flusher = choose_flusher(root.layout.root, root.files, _FLUSH_WORKERS)
    try:
        try:
            point = commit(root, job, staged, name, options.on_key_taken)
            committed = run_alone(point, flusher)
        except MqError as error:
            raise explained(error) from error
        _roll(root, flusher, committed.name)
    finally:
        flusher.close()


def abort_staged(root: Root, job: str, name: Key | None) -> None:
    """Takes away what the job has staged, unless it is committed."""
    abort(root, job, name)


def _roll(root: Root, flusher: Flusher, name: Key) -> None:
    """Rolls this publish forward, or waits for who does, and then what others have left."""
    with contextlib.suppress(OSError, MqError):  # Told of with the others.
        roll_forward(root, flusher, name, wait=True)
    roll_all_forward(root, flusher)


def _ids(root: Root, options: WriteOptions, task: Task) -> tuple[_Ids, Callable[[], float]]:
    """What gives so many UUIDs from a row on, and whether they are of a window of their own; and
    what tells by how many seconds they are ahead of the time.
    """
    if task.name is None or not task.repeats:
        if _may_go_whole(root, options.queue):
            windows = WindowIds(root, task.job)
            return lambda _, count: windows.many(count), windows.ahead_s
        uuids = UuidSource(root.clock)
        return lambda _, count: (uuids.many(count), False), lambda: 0.0
    flusher = choose_flusher(root.layout.root, root.files, 1)
    try:
        begun_ms = run_alone(begin_publish(root, task.name), flusher)
    finally:
        flusher.close()
    repeatable = RepeatableIds(task.name, begun_ms, task.partition)
    return lambda first, count: (
        [repeatable.uuid(row) for row in range(first, first + count)],
        False,
    ), lambda: 0.0


def _may_go_whole(root: Root, queue: QueueName | None) -> bool:
    """Whether what comes for the queue, the one that all rows go to, may be staged in folders that
    go to their places whole.
    """
    if queue is None or not file_system_of(root.layout.root).leaves_one_name:
        return False
    return root.places.shape(queue) == DEFAULT_SHAPE


class _Rows:
    """Puts a partition's rows, one batch after the other."""

    def __init__(
        self,
        root: Root,
        options: WriteOptions,
        task: Task,
        writer: StagingWriter,
        ids: _Ids,
    ) -> None:
        self._root = root
        self._task = task
        self._writer = writer
        self._ids = ids
        self._queue = options.queue
        self._row = 0
        self._queues: dict[str, tuple[QueueName, QueueSettings]] = {}
        self._like: dict[tuple[int, int, str], MessageId] = {}

    def put(self, batch: pa.RecordBatch) -> None:
        """Each of the batch's rows."""
        if not batch.num_rows:
            return
        uuids, are_apart = self._ids(self._row, batch.num_rows)
        columns = _columns(batch)
        values = columns.pop("value")
        if not columns and self._queue is not None:
            self._put_plain(self._queue, uuids, values, are_apart)
            return
        names = tuple(columns)
        more: Iterator[tuple[object, ...]] = zip(*columns.values(), strict=True)
        for uuid, value, facts in zip(uuids, values, more, strict=True):
            self._put_one(uuid, value, dict(zip(names, facts, strict=True)))
            self._row += 1

    def _put_plain(
        self, name: QueueName, uuids: Sequence[str], values: Sequence[object], goes_whole: bool
    ) -> None:
        """Rows of which nothing is said but their values."""
        queue, settings = self._queue_of(name.text)
        bodies = []
        for value in values:
            bodies.append(self._body(value, settings))
            self._row += 1
        like = self._id_like(settings.priority_default, 0, "")
        self._writer.put_alike(queue, like, uuids, bodies, goes_whole)

    def _put_one(self, uuid: str, value: object, facts: Mapping[str, object]) -> None:
        named = facts.get("queue")
        queue, settings = self._queue_of(named if isinstance(named, str) else None)
        body = self._body(value, settings)
        extension, headers = self._headers(facts.get("headers"), facts.get("content_type"))
        head = print_block(headers) if headers else b""
        priority = self._priority(facts.get("priority"), settings)
        like = self._id_like(priority, len(head), extension)
        key = self._key(facts.get("key"))
        message_id = like.with_uuid(uuid)
        if key is not None:
            message_id = MessageId(uuid, priority, key, None, len(head), extension)
        at = facts.get("at")
        due_ms = None
        if isinstance(at, int) and at // 1000 > self._root.now_ms():
            due_ms = at // 1000
        try:
            self._writer.put(queue, message_id, body, head, due_ms)
        except DueTooFar:
            raise self._bad("at", "a time that the root's file system can keep") from None

    def _bad(self, column: str, expected: str) -> BadRow:
        return BadRow(self._task.partition, self._row, column, expected)

    def _queue_of(self, name: str | None) -> tuple[QueueName, QueueSettings]:
        if name is None:
            if self._queue is None:
                raise self._bad("queue", "is null, and there is no option queue")
            name = self._queue.text
        known = self._queues.get(name)
        if known is not None:
            return known
        try:
            queue = QueueName.parse(name)
        except BadName as error:
            raise self._bad("queue", f"{name!r} is no queue's name: {error.expected}") from None
        if not queue_exists(self._root, queue):
            raise self._bad("queue", f"there is no queue {name}")
        fields = read_fields(self._root.layout, self._root.files, queue)
        found = self._queues[name] = queue, settings_in(fields, QueueSettings())
        return found

    def _body(self, value: object, settings: QueueSettings) -> bytes:
        if not isinstance(value, bytes):
            raise self._bad("value", "is null; a message has a body, if an empty one")
        if len(value) > settings.body_bytes_max:
            most = settings.body_bytes_max
            raise self._bad("value", f"has {len(value)} bytes; the queue takes at most {most}")
        return value

    def _priority(self, value: object, settings: QueueSettings) -> int:
        if not isinstance(value, int):
            return settings.priority_default
        if not 0 <= value <= PRIORITY_MAX:
            raise self._bad("priority", f"is {value}; it takes 0 to {PRIORITY_MAX}")
        return value

    def _key(self, value: object) -> Key | None:
        if not isinstance(value, str):
            return None
        try:
            return Key.parse(value)
        except BadName as error:
            raise self._bad("key", f"{value!r} is no key: {error.expected}") from None

    def _id_like(self, priority: int, header_bytes: int, extension: str) -> MessageId:
        """A message's id but for its UUID."""
        known = self._like.get((priority, header_bytes, extension))
        if known is None:
            uuid = "00000000-0000-7000-8000-000000000000"
            known = MessageId(uuid, priority, None, None, header_bytes, extension)
            self._like[priority, header_bytes, extension] = known
        return known

    def _headers(self, given: object, content_type: object) -> tuple[str, Headers]:
        """The extension, and the headers that the name cannot say."""
        pairs = list(given) if isinstance(given, list) else []
        types = [value for name, value in pairs if name.lower() == _CONTENT_TYPE]
        pairs = [pair for pair in pairs if pair[0].lower() != _CONTENT_TYPE]
        if isinstance(content_type, str):
            # What was read has the default where nothing was said.
            types = [each for each in types if each is None or not is_default(each)]
            types.append(content_type)
        if len(types) > 1:
            raise self._bad("headers", "content-type is told twice; there is a column content_type")
        if not pairs and not types:
            return "", ()
        if any(value is None for _, value in pairs) or None in types:
            raise self._bad("headers", "a header's value is null")
        extension = extension_for(types[0]) if types else ""
        if types and not extension and not is_default(types[0]):
            pairs.append(("Content-Type", types[0]))
        try:
            found = kept(pairs)
        except HeadersTooLarge as error:
            most = f"at most {error.headers_max} headers, of {error.bytes_max} bytes together"
            raise self._bad("headers", most) from None
        except BadParameter as error:
            raise self._bad("headers", f"takes {error.expected}") from None
        if len(found) != len(pairs):
            others = ", ".join(name for name, value in pairs if (name, value) not in found)
            raise self._bad("headers", f"keeps no {others}; it takes {_HEADERS_KEPT}")
        return extension, found


def _columns(batch: pa.RecordBatch) -> dict[str, Sequence[object]]:
    """The batch's columns, as Python's values: bytes for values, microseconds for times."""
    found: dict[str, Sequence[object]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "value":
            found[name] = column.cast(pa.large_binary()).to_pylist()
        elif name == "at":
            found[name] = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        else:
            found[name] = column.to_pylist()
    return found
