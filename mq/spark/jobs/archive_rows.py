"""The Parquet rows of archived messages: their columns, and the files that a task writes, one per
queue and day. A file is on stable media when the task reports it.

No Spark here. All files of an attempt lie flat in the staging folder, under unique names; the
commit decides which of them count.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

import pyarrow as pa

from mq.model.clock import parse_rfc3339
from mq.model.headers import Headers, parse_block
from mq.model.limits import MIB, RECEIVES_MAX
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId
from mq.spark.jobs.row_files import Output, ParquetRows
from mq.spark.rows import DEFAULT_HEADERS, Columns, arrow_schema, with_type
from mq.store.core.message_file import is_readable
from mq.store.disk.files import Files
from mq.store.format.archive import Removal, RemovedName
from mq.store.format.history import date_of

# Bytes of rows that a task holds before it writes them, open files of a task, and bytes of a full
# file.
ARCHIVED_HELD_BYTES_MAX: Final = 64 * MIB
ARCHIVED_HELD_ROWS_MAX: Final = 100_000
ARCHIVED_OPEN_FILES_MAX: Final = 64
ARCHIVED_FILE_BYTES_MAX: Final = 256 * MIB

_FILE_COLUMNS: Final = (
    "id string",
    "key string",
    "value binary",  # null: `body` names its file, or it is damaged
    "headers map<string,string>",
    "priority int",
    "published timestamp",
    "removed timestamp",  # the inode's ctime, or the time in its lease's name
    "removal string",  # message, queue (deleted or purged), lease
    "receives int",
    "reason string",  # why it was sidelined; null in other queues
    "size long",  # bytes of the body; null if damaged
    "sha256 string",  # of the body, 64 hexadecimal digits
    "body string",  # the file of a body too large for a row, below the archive
    "damaged boolean",  # shorter than its header block: `value` is the file
    # Lines of its queue's history (FORMAT.md, "History"), by time; null if unknown.
    "events array<struct<time:timestamp,event:string,receives:int,due:timestamp,lease:string,"
    "reason:string,process:string>>",
    # Why it was released or sidelined (FORMAT.md, "Failures"), the newest last; null if it never
    # was.
    "failures array<struct<time:timestamp,event:string,queue:string,receives:int,type:string,"
    "text:string,trace:string,handler:string>>",
    "batch long",  # the archive's batch that stored it
)
FILE_SCHEMA: Final = arrow_schema(", ".join(_FILE_COLUMNS))
"""A file's columns; the queue and the day are in its path."""
ARCHIVE: Final = ", ".join((*_FILE_COLUMNS, "queue string", "day date"))
"""An archive's columns in Spark SQL's syntax, partitioned by queue and the UTC day of `removed`."""
TABLE_SCHEMA: Final = arrow_schema(ARCHIVE)
"""The columns of a file that belongs to a table: such a file says its queue and day itself."""

_US_PER_MS: Final = 1000
Event = Mapping[str, Any]
"""One of `events` or `failures`: times are microseconds since the epoch."""
_FAILURE_TEXTS: Final = ("event", "queue", "type", "text", "trace", "handler")


class Told(NamedTuple):
    """Facts about a message that are not in its file: its history's events and its failures; None
    if there are none.
    """

    events: Sequence[Event] | None = None
    failures: Sequence[Event] | None = None


class Body(NamedTuple):
    """A message's content in the archive. `value` None: it is in the file `path`, below the
    archive. `size` and `sha256` of the body; None if the message is damaged, whose `value` is the
    whole file.
    """

    value: bytes | None
    size: int | None
    sha256: str | None
    headers: Headers
    path: str | None = None


def failures_told(said: Iterable[Mapping[str, Any]]) -> list[Event] | None:
    """A message's failures as a row's list. A field with an impossible value is null."""
    return [_failure(each) for each in said] or None


def _failure(said: Mapping[str, Any]) -> Event:
    texts = {name: said.get(name) for name in _FAILURE_TEXTS}
    found: dict[str, Any] = {
        name: text.encode(errors="replace").decode() if isinstance(text, str) else None
        for name, text in texts.items()
    }
    with contextlib.suppress(ValueError):
        found["time"] = parse_rfc3339(str(said.get("time"))) * _US_PER_MS
    receives = said.get("receives")
    is_whole = isinstance(receives, int) and not isinstance(receives, bool)
    is_count = is_whole and 0 <= cast(int, receives) <= RECEIVES_MAX
    return {"time": None, **found, "receives": receives if is_count else None}


def removed_ms(message: RemovedName, ctime_ms: int) -> int:
    """When the message was removed, milliseconds since the epoch. `ctime_ms`: its file's ctime,
    which is older for a message that was removed with its lease, or with its queue.
    """
    if message.folder_ms is None:
        return ctime_ms
    if message.removal is Removal.LEASE:
        return message.folder_ms
    return max(message.folder_ms, ctime_ms)


def headers_of(message_id: MessageId, block: bytes) -> Headers | None:
    """All headers of a message whose file begins with this block, as a map; None: the block is
    malformed, and the file damaged.
    """
    of_name: Headers = ()
    if message_id.extension:
        of_name = (("content-type", message_id.content_type),)
    if not message_id.header_bytes:
        return of_name or DEFAULT_HEADERS
    if len(block) < message_id.header_bytes or not is_readable(block):
        return None
    return with_type(parse_block(block), of_name)


_NOTHING: Final = Told()


class Rows:
    """Rows of archived messages, until they are written."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._columns = Columns(FILE_SCHEMA)
        self.held_bytes = self.body_bytes = 0

    def __len__(self) -> int:
        return len(self._columns)

    def add(
        self,
        message: RemovedName,
        mtime_ns: int,
        removed_ms: int,
        body: Body,
        told: Told = _NOTHING,
    ) -> None:
        """Appends a message that was removed at `removed_ms`."""
        message_id, is_leased = message.id, message.removal is Removal.LEASE
        stamp = Stamp.from_mtime_ns(mtime_ns)
        reason = Reason(stamp.reason) if message.queue.is_sideline else Reason.UNKNOWN
        # A lease counts its delivery only when its messages are returned.
        receives = stamp.receives + 1 if is_leased else stamp.receives
        self._columns.add(
            message_id.text,
            message_id.key.text if message_id.key else None,
            body.value,
            list(body.headers),
            message_id.priority,
            message_id.published_ms * _US_PER_MS,
            removed_ms * _US_PER_MS,
            message.removal.value,
            min(receives, RECEIVES_MAX),
            reason.name.lower() if reason else None,
            body.size,
            body.sha256,
            body.path,
            body.size is None,
            told.events,
            told.failures,
            self._batch,
        )
        self.held_bytes += len(body.value or b"")
        for failure in told.failures or ():
            self.held_bytes += sum(len(failure[name] or "") for name in _FAILURE_TEXTS)
        self.body_bytes += body.size or 0

    def table(self) -> pa.Table:
        return pa.Table.from_batches([self._columns.batch()])


SUFFIX: Final = ".parquet"
BODIES: Final = "_bodies"
# Other columns have many different values, or are never filtered on.
_DICTIONARY: Final = ["key", "removal", "reason", "priority", "receives", "damaged", "batch"]
_STATISTICS: Final = ["id", "published", "removed", "priority", "receives", "size", "batch"]


class Place(NamedTuple):
    """The queue and the day of a file, as in its folder's path."""

    queue: str
    day: str

    @property
    def folder(self) -> str:
        return f"queue={self.queue}/day={self.day}"

    def beside(self, table: pa.Table) -> pa.Table:
        """The rows with the place, as TABLE_SCHEMA has it."""
        for name, value in (("queue", self.queue), ("day", date.fromisoformat(self.day))):
            field = TABLE_SCHEMA.field(name)
            table = table.append_column(field, pa.repeat(pa.scalar(value, field.type), len(table)))
        return table


class Fact(NamedTuple):
    """A task's report. FILE, BODY: a file's name in staging, the folder below the archive that it
    belongs to, its bytes, and the bytes of the bodies in it. GONE, DAMAGED: the number of such
    messages, and the name of one. MORE: how many messages more than names there were, of packs.
    """

    kind: str
    name: str
    folder: str
    messages: int
    size_bytes: int = 0
    body_bytes: int = 0


FILE: Final = "file"
BODY: Final = "body"
GONE: Final = "gone"
DAMAGED: Final = "damaged"
MORE: Final = "more"


def messages_of(facts: Iterable[Fact], kind: str) -> int:
    return sum(fact.messages for fact in facts if fact.kind == kind)


def names_met(facts: Sequence[Fact]) -> int:
    """How many names of the ledger are behind the facts: a pack has one."""
    met = messages_of(facts, FILE) + messages_of(facts, GONE)
    return met - messages_of(facts, MORE)


def as_now(table: pa.Table) -> pa.Table:
    """A file's rows with all columns: an older mq wrote fewer."""
    for field in FILE_SCHEMA:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(FILE_SCHEMA.names)


def parquet_file(files: Files, path: str, schema: pa.Schema = FILE_SCHEMA) -> ParquetRows:
    """Creates a file of rows with these columns. Raises OSError."""
    places = [name for name in Place._fields if name in schema.names]
    return ParquetRows(
        Output(files, path, is_hashed=False),
        schema,
        compression="zstd",
        use_dictionary=[*_DICTIONARY, *places],
        write_statistics=[*_STATISTICS, *places],
    )


@dataclass(slots=True)
class _Part:
    """The held rows of a place, and their file."""

    rows: Rows
    name: str = ""
    file: ParquetRows | None = None
    messages: int = 0
    body_bytes: int = 0


class Parts:
    """A task's files, with the columns of FILE_SCHEMA or of TABLE_SCHEMA. Rows are added in any
    order of places, and held in memory up to a limit.
    """

    def __init__(
        self, files: Files, staging: str, batch: int, number: int, schema: pa.Schema = FILE_SCHEMA
    ) -> None:
        self._files = files
        self._schema = schema
        self._staging = staging
        self._batch = batch
        self._prefix = f"{batch:09d}-{number:05d}"
        self._parts: dict[Place, _Part] = {}
        self._held_bytes = self._held_rows = 0
        self._written: list[Fact] = []

    def new_name(self, suffix: str = SUFFIX) -> str:
        return f"{self._prefix}-{uuid4().hex}{suffix}"

    def add(
        self, message: RemovedName, mtime_ns: int, removed_ms: int, body: Body, told: Told
    ) -> None:
        """Adds a message that was removed at `removed_ms`. Raises OSError."""
        place = Place(message.queue.text, date_of(removed_ms))
        part = self._parts.get(place)
        if part is None:
            part = self._parts[place] = _Part(Rows(self._batch))
        before = part.rows.held_bytes
        part.rows.add(message, mtime_ns, removed_ms, body, told)
        self._held_bytes += part.rows.held_bytes - before
        self._held_rows += 1
        if self._held_bytes >= ARCHIVED_HELD_BYTES_MAX or self._held_rows >= ARCHIVED_HELD_ROWS_MAX:
            self._write_out()

    def finish(self) -> list[Fact]:
        """Finishes all files and reports them. Durable on return: yes, except for their names.
        Raises OSError.
        """
        for place in list(self._parts):
            self._write(place)
            self._finish(place)
        return self._written

    def abandon(self) -> None:
        for part in self._parts.values():
            if part.file is not None:
                part.file.abandon()

    def _write_out(self) -> None:
        """Writes the held rows. Finishes full files, and all files if too many are open."""
        for place in list(self._parts):
            self._write(place)
            file = self._parts[place].file
            is_many = len(self._parts) > ARCHIVED_OPEN_FILES_MAX
            if is_many or (file is not None and file.size >= ARCHIVED_FILE_BYTES_MAX):
                self._finish(place)
        self._held_bytes = self._held_rows = 0

    def _write(self, place: Place) -> None:
        part = self._parts[place]
        if not len(part.rows):
            return
        if part.file is None:
            part.name = self.new_name()
            path = f"{self._staging}/{part.name}"
            part.file = parquet_file(self._files, path, self._schema)
        table = part.rows.table()
        part.file.write(place.beside(table) if self._schema is TABLE_SCHEMA else table)
        part.messages += len(part.rows)
        part.body_bytes += part.rows.body_bytes
        part.rows = Rows(self._batch)

    def _finish(self, place: Place) -> None:
        part = self._parts.pop(place)
        if part.file is not None:
            part.file.finish()
            size = part.file.size
            fact = Fact(FILE, part.name, place.folder, part.messages, size, part.body_bytes)
            self._written.append(fact)
