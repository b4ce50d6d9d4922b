"""Turns rows into staged messages: the work of a sink's tasks, and of its driver.

Pure Python and pyarrow, no pyspark. Errors name a row by its number and its column.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from mq.model.errors import BadName, BadParameter, DueTooFar, HeadersTooLarge, MqError
from mq.model.headers import (
    FIRED_BY,
    GROUPED_BY,
    TAGS,
    Headers,
    kept,
    print_block,
    tags_of,
    with_own,
    with_tags,
)
from mq.model.limits import MESSAGE_TTL_S_MAX, PRIORITY_MAX, TAGS_MAX, VISIBILITY_S_MAX
from mq.model.names import (
    Group,
    Key,
    MessageId,
    QueueName,
    RepeatableIds,
    UuidSource,
    extension_for,
    is_default,
)
from mq.model.settings import QueueSettings
from mq.spark.opening import explained
from mq.spark.options import BadOption, WriteOptions
from mq.store.bulk.journal import abort, begin_publish, commit, is_published
from mq.store.bulk.roll_forward import roll_all_forward, roll_forward
from mq.store.bulk.staging import Staged, StagingWriter
from mq.store.bulk.windows import WindowIds
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import choose_flusher
from mq.store.format.pipeline import Attempt
from mq.store.format.settings import DEFAULT_SHAPE, read_fields, settings_in
from mq.store.totals.writing import write_totals

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "queue": ("string",),
    "key": ("string",),
    "priority": _WHOLE,
    "at": ("timestamp",),
    "headers": ("map<string,string>",),
    "content_type": ("string",),
    "group": ("string",),
    "tags": ("array<string>",),
    "ttl_s": _WHOLE,
    "visibility_s": _WHOLE,
}
"""The columns that can be written, and their Spark types."""
_FLUSH_THREADS: Final = 8
_CONTENT_TYPE: Final = "content-type"
_HEADERS_KEPT: Final = "ce-*, x-attribute-*, traceparent, tracestate, content-encoding"
# Headers that mq itself writes: rows that were read have them.
_GROUPED_BY: Final = GROUPED_BY.lower()
_TAGS: Final = TAGS.lower()
_OWN: Final = frozenset({_GROUPED_BY, _TAGS, FIRED_BY.lower()})


_Ids: TypeAlias = Callable[[int, int], tuple[Sequence[str], bool]]


@dataclass(eq=False)
class BadColumns(MqError):
    """The data frame has columns that cannot be published."""

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
    """Raises BadColumns, BadOption for (name, Spark's type) of a data frame's columns."""
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


@dataclass(frozen=True, slots=True)
class Task:
    """A task's part of a publish. `name`: the publish's name in the ledger, from which `repeats`
    makes its ids.
    """

    job: str
    partition: int
    attempt: int
    name: Key | None = None
    repeats: bool = False


def stage_rows(
    root: Root, options: WriteOptions, task: Task, batches: Iterable[pa.RecordBatch]
) -> Staged:
    """Stages a partition's rows, unless the publish is committed already. Raises BadRow, and errors
    of kind Unavailable; after an error nothing is left behind. Durable on return: yes.
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
    # Ids may be ahead of the time: a purge right after the publish would leave their messages.
    # Usually that time is over.
    threading.Event().wait(ahead_s())
    return staged


def commit_staged(
    root: Root, options: WriteOptions, job: str, staged: Sequence[Staged], name: Key | None
) -> None:
    """Commits the publish, then moves all messages to their places. After the commit point nothing
    fails: mq-mover rolls the rest forward. Raises PublishFailed, Unavailable. Durable on return:
    yes.
    """
    flusher = choose_flusher(root.layout.root, root.files, _FLUSH_THREADS)
    try:
        try:
            point = commit(root, job, staged, name, options.on_key_taken)
            committed = run_alone(point, flusher)
        except MqError as error:
            raise explained(error) from error
        _roll(root, committed.name)
        write_totals(root, at_end=True)
    finally:
        flusher.close()


def abort_staged(root: Root, job: str, name: Key | None) -> None:
    """Removes the messages that the job has staged, unless it is committed."""
    abort(root, job, name)


def _roll(root: Root, name: Key) -> None:
    """Rolls this publish forward, or waits for the process that does; then those that
    others left.
    """
    with contextlib.suppress(OSError, MqError):  # Logged with the others.
        roll_forward(root, name, wait=True)
    roll_all_forward(root)


def _ids(root: Root, options: WriteOptions, task: Task) -> tuple[_Ids, Callable[[], float]]:
    """Two functions: one gives a number of UUIDs from a row on, and whether they have a window of
    their own; one gives how many seconds they are ahead of the time.
    """
    if task.name is None or not task.repeats:
        if _may_go_whole(root, options.queue):
            windows = WindowIds(root, task.job)
            return lambda _, count: windows.many(count), windows.ahead_s
        uuids = UuidSource(root.clock)
        return lambda _, count: (uuids.many(count), False), lambda: 0.0
    flusher = choose_flusher(root.layout.root, root.files, 2)
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
    """Whether messages for the queue, to which all rows go, may be staged in folders that move to
    their places whole.
    """
    if queue is None or root.over_network:
        return False
    return root.facts.shape_now(queue) == DEFAULT_SHAPE


class _Rows:
    """Stages a partition's rows, one batch after the other."""

    def __init__(
        self, root: Root, options: WriteOptions, task: Task, writer: StagingWriter, ids: _Ids
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
        if not batch.num_rows:
            return
        uuids, are_apart = self._ids(self._row, batch.num_rows)
        columns = _columns(batch)
        values = columns.pop("value")
        if not columns and self._queue is not None:
            queue, settings = self._queue_of(self._queue.text)
            if not settings.delay_default_s:
                self._put_plain((queue, settings), uuids, values, are_apart)
                return
        names = tuple(columns)
        more: Iterator[tuple[object, ...]] = (
            zip(*columns.values(), strict=True) if columns else itertools.repeat((), len(values))
        )
        for uuid, value, facts in zip(uuids, values, more, strict=True):
            self._put_one(uuid, value, dict(zip(names, facts, strict=True)))
            self._row += 1

    def _put_plain(
        self,
        to: tuple[QueueName, QueueSettings],
        uuids: Sequence[str],
        values: Sequence[object],
        goes_whole: bool,
    ) -> None:
        """Stages rows that have only values."""
        queue, settings = to
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
        given = facts.get("headers")
        pairs = list(given) if isinstance(given, list) else []
        own = {name.lower(): text for name, text in pairs if name.lower() in _OWN}
        if own:
            pairs = [pair for pair in pairs if pair[0].lower() not in _OWN]
        extension, headers = self._headers(pairs, facts.get("content_type"))
        group = self._group(facts.get("group") or own.get(_GROUPED_BY))
        tags = self._tags(facts.get("tags"), own.get(_TAGS))
        if group is not None or tags:
            headers = self._with_own(headers, group, tags)
        head = print_block(headers) if headers else b""
        priority = self._priority(facts.get("priority"), settings)
        key = self._key(facts.get("key"))
        ttl_s = self._seconds("ttl_s", facts, MESSAGE_TTL_S_MAX)
        visibility_s = self._seconds("visibility_s", facts, VISIBILITY_S_MAX)
        if (key, ttl_s, visibility_s, group, tags) == (None, None, None, None, ()):
            message_id = self._id_like(priority, len(head), extension).with_uuid(uuid)
        else:
            of = (visibility_s, len(head), extension, ttl_s)
            digits = "" if group is None else group.digits
            message_id = MessageId(uuid, priority, key, *of, digits, len(tags))
        at = facts.get("at")
        due_ms = settings.due_ms_default(message_id.published_ms)
        if isinstance(at, int):
            due_ms = at // 1000
        if due_ms is not None and due_ms <= self._root.now_ms():
            due_ms = None
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
            raise self._bad("queue", f"{name!r} is not a queue name: {error.expected}") from None
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
            raise self._bad("key", f"{value!r} is not a key: {error.expected}") from None

    def _group(self, value: object) -> Group | None:
        if not isinstance(value, str):
            return None
        try:
            return Group.parse(value)
        except BadName as error:
            raise self._bad("group", f"{value!r} is not a group: {error.expected}") from None

    def _tags(self, value: object, written: str | None) -> tuple[Key, ...]:
        """The tags without repetitions; those of a header if the column has none."""
        if not isinstance(value, list):
            return tags_of(written or "")
        try:
            found = tuple(dict.fromkeys(map(Key.parse, map(str, value))))
        except BadName as error:
            raise self._bad("tags", f"{value!r} are not tags: {error.expected}") from None
        if None in value or len(found) > TAGS_MAX:
            raise self._bad(
                "tags", f"are {value!r}; it takes at most {TAGS_MAX}, none of them null"
            )
        return found

    def _with_own(self, headers: Headers, group: Group | None, tags: Sequence[Key]) -> Headers:
        try:
            if group is not None:
                headers = with_own(headers, GROUPED_BY, group.text)
            return with_tags(headers, tags) if tags else headers
        except HeadersTooLarge as error:
            raise self._too_large(error) from None

    def _seconds(self, column: str, facts: Mapping[str, object], most: int) -> int | None:
        value = facts.get(column)
        if isinstance(value, int) and not 1 <= value <= most:
            raise self._bad(column, f"is {value}; it takes 1 to {most} seconds")
        return value if isinstance(value, int) else None

    def _too_large(self, error: HeadersTooLarge) -> BadRow:
        most = f"at most {error.headers_max} headers, of {error.bytes_max} bytes together"
        return self._bad("headers", most)

    def _id_like(self, priority: int, header_bytes: int, extension: str) -> MessageId:
        """A message's id without its UUID."""
        known = self._like.get((priority, header_bytes, extension))
        if known is None:
            uuid = "00000000-0000-7000-8000-000000000000"
            known = MessageId(uuid, priority, None, None, header_bytes, extension)
            self._like[priority, header_bytes, extension] = known
        return known

    def _headers(self, pairs: list[tuple[str, str]], content_type: object) -> tuple[str, Headers]:
        """The extension, and the headers that the name cannot express."""
        types = [value for name, value in pairs if name.lower() == _CONTENT_TYPE]
        pairs = [pair for pair in pairs if pair[0].lower() != _CONTENT_TYPE]
        if isinstance(content_type, str):
            # Rows that were read have the default type if their message has none.
            types = [each for each in types if each is None or not is_default(each)]
            types.append(content_type)
        if len(types) > 1:
            raise self._bad(
                "headers", "content-type is given twice; use the column content_type alone"
            )
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
            raise self._too_large(error) from None
        except BadParameter as error:
            raise self._bad("headers", f"takes {error.expected}") from None
        if len(found) != len(pairs):
            others = ", ".join(name for name, value in pairs if (name, value) not in found)
            raise self._bad("headers", f"keeps no {others}; it takes {_HEADERS_KEPT}")
        return extension, found


def _columns(batch: pa.RecordBatch) -> dict[str, Sequence[object]]:
    """The batch's columns as Python values: bytes for values, microseconds for times."""
    found: dict[str, Sequence[object]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "value":
            found[name] = column.cast(pa.large_binary()).to_pylist()
        elif name == "at":
            found[name] = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        else:
            found[name] = column.to_pylist()
    return found
