"""Archived messages on their way to Parquet: what a file says of its message, and the columns that
the rows of one queue and day become.

No Spark here; ARCHIVE (archive_schema.py) has the same columns in Spark's words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from mq.model.headers import Headers, parse_block
from mq.model.limits import RECEIVES_MAX
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId
from mq.spark.rows import DEFAULT_HEADERS, with_type
from mq.store.core.unreadable import is_readable
from mq.store.format.archive import Removal, RemovedName

_US_PER_MS: Final = 1000
_TIME: Final = pa.timestamp("us", tz="UTC")
_EVENT: Final = pa.struct(
    [
        ("time", _TIME),
        ("event", pa.string()),
        ("receives", pa.int32()),
        ("due", _TIME),
        ("lease", pa.string()),
        ("reason", pa.string()),
        ("process", pa.string()),
    ]
)
FILE_SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("priority", pa.int32()),
        ("published", _TIME),
        ("removed", _TIME),
        ("removal", pa.string()),
        ("receives", pa.int32()),
        ("reason", pa.string()),
        ("size", pa.int64()),
        ("sha256", pa.string()),
        ("body", pa.string()),
        ("damaged", pa.bool_()),
        ("events", pa.list_(_EVENT)),
        ("batch", pa.int64()),
    ]
)
"""A file's columns; the queue and the day are in its path."""

Event = Mapping[str, Any]
"""One of `events`: times are microseconds since the epoch."""


class Body(NamedTuple):
    """What is kept of a message's content. `value` None: it is in the file `path`, below the
    archive. `size` and `sha256` are of its body; None of a damaged one, whose `value` is its file.
    """

    value: bytes | None
    size: int | None
    sha256: str | None
    headers: Headers
    path: str | None = None


def removed_ms(message: RemovedName, ctime_ms: int) -> int:
    """When it was removed, milliseconds since the epoch, its file's ctime being this: in a lease,
    and mostly with its queue, a file keeps the one of before.
    """
    if message.folder_ms is None:
        return ctime_ms
    if message.removal is Removal.LEASE:
        return message.folder_ms
    return max(message.folder_ms, ctime_ms)


def headers_of(message_id: MessageId, block: bytes) -> Headers | None:
    """All headers of a message whose file begins with this block, as a map has them; None: the
    block is none, and the file is damaged.
    """
    of_name: Headers = ()
    if message_id.extension:
        of_name = (("content-type", message_id.content_type),)
    if not message_id.header_bytes:
        return of_name or DEFAULT_HEADERS
    if len(block) < message_id.header_bytes or not is_readable(block):
        return None
    return with_type(parse_block(block), of_name)


@dataclass(slots=True)
class Rows:
    """Rows of one queue and day: a list for each column, as mq.spark.rows has them."""

    batch: int
    ids: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    published_us: list[int] = field(default_factory=list)
    removed_us: list[int] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)
    receives: list[int] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)
    sha256s: list[str | None] = field(default_factory=list)
    bodies: list[str | None] = field(default_factory=list)
    damaged: list[bool] = field(default_factory=list)
    events: list[Sequence[Event] | None] = field(default_factory=list)
    held_bytes: int = 0

    def add(
        self,
        message: RemovedName,
        mtime_ns: int,
        came_ms: int,
        body: Body,
        events: Sequence[Event] | None = None,
    ) -> None:
        """Puts one behind these. `came_ms`: when it was removed."""
        message_id, is_leased = message.id, message.removal is Removal.LEASE
        stamp = Stamp.from_mtime_ns(mtime_ns)
        reason = Reason(stamp.reason) if message.queue.is_sideline else Reason.UNKNOWN
        # A lease counts its delivery only where it is given back.
        receives = stamp.receives + 1 if is_leased else stamp.receives
        self.ids.append(message_id.text)
        self.keys.append(message_id.key.text if message_id.key else None)
        self.values.append(body.value)
        self.headers.append(body.headers)
        self.priorities.append(message_id.priority)
        self.published_us.append(message_id.published_ms * _US_PER_MS)
        self.removed_us.append(came_ms * _US_PER_MS)
        self.removals.append(message.removal.value)
        self.receives.append(min(receives, RECEIVES_MAX))
        self.reasons.append(reason.name.lower() if reason else None)
        self.sizes.append(body.size)
        self.sha256s.append(body.sha256)
        self.bodies.append(body.path)
        self.damaged.append(body.size is None)
        self.events.append(events)
        self.held_bytes += len(body.value or b"")

    def table(self) -> pa.Table:
        """The rows as a file has them."""
        count = len(self.ids)
        columns: tuple[Any, ...] = (
            self.ids,
            self.keys,
            self.values,
            [list(headers) for headers in self.headers],
            self.priorities,
            self.published_us,
            self.removed_us,
            self.removals,
            self.receives,
            self.reasons,
            self.sizes,
            self.sha256s,
            self.bodies,
            self.damaged,
            self.events if any(self.events) else pa.nulls(count, FILE_SCHEMA.field("events").type),
            pa.repeat(pa.scalar(self.batch, pa.int64()), count),
        )
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, kind)
            for kind, column in zip(FILE_SCHEMA.types, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=FILE_SCHEMA)
