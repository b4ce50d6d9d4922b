"""Rows of `format("mq")` on their way to Arrow: columns that grow, and the batch that they become.

No Spark here; `schema.py` has the same columns in Spark's words.
"""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from mq.model.bulk_limits import READ_BATCH_ROWS
from mq.model.headers import Headers
from mq.model.lifecycle import State
from mq.model.limits import PUBLISHED_MS_MAX, RECEIVES_MAX, UUID_CHARS
from mq.model.message import Stamp
from mq.model.names import CONTENT_TYPE_DEFAULT

_NS_PER_MS: Final = 1_000_000
_US_PER_MS: Final = 1000
# Due times that every Spark and Python can tell: the years 1 to 9999.
_DUE_MS_MIN: Final = -62_135_596_800_000
_DUE_MS_MAX: Final = PUBLISHED_MS_MAX
_NS_MIN: Final = _DUE_MS_MIN * _NS_PER_MS
_NS_MAX: Final = _DUE_MS_MAX * _NS_PER_MS

_CONTENT_TYPE: Final = "content-type"
DEFAULT_HEADERS: Final[Headers] = ((_CONTENT_TYPE, CONTENT_TYPE_DEFAULT),)
"""Of a message of which nothing is said."""

_TIME_MS: Final = pa.timestamp("ms", tz="UTC")
_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.map_(pa.string(), pa.string())
ARROW_SCHEMA: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("id", pa.string()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("priority", pa.int32()),
        ("published", _TIME),
        ("due", _TIME),
        ("receives", pa.int32()),
        ("size", pa.int64()),
        ("state", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the end of an id says, behind its uuid; `headers` are those that a row has for it, its
    content type, where the file may not say another.
    """

    priority: int
    key: str | None
    header_bytes: int
    headers: Headers


Row: TypeAlias = tuple[str, str, Attributes, int, Headers, int | None, bytes | None]
"""A message: queue, id, what its end says, mtime in nanoseconds, headers, size, value; neither of
the last two is there of a damaged one.
"""


@dataclass(slots=True)
class Rows:
    """Rows that become one batch: full after READ_BATCH_ROWS of them, or, but for the last of them,
    so many bytes of bodies. A list for each column of a Row: Python's collector of garbage would
    look at as many tuples over and over.
    """

    bytes_max: int
    queues: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    attributes: list[Attributes] = field(default_factory=list)
    mtimes_ns: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    value_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Whether no row more is to be put here."""
        return len(self.ids) >= READ_BATCH_ROWS or self.value_bytes >= self.bytes_max

    def add(self, row: Row) -> None:
        """Puts one behind these."""
        queue, text, attributes, mtime_ns, headers, size, value = row
        self.queues.append(queue)
        self.ids.append(text)
        self.attributes.append(attributes)
        self.mtimes_ns.append(mtime_ns)
        self.headers.append(headers)
        self.sizes.append(size)
        self.values.append(value)
        if value is not None:
            self.value_bytes += len(value)

    def extend(self, others: "Rows") -> None:
        """Puts others behind these."""
        for column, more in zip(self._columns(), others._columns(), strict=True):  # noqa: SLF001
            column.extend(more)
        self.value_bytes += others.value_bytes

    def mark(self) -> tuple[int, int]:
        """Where to `cut`."""
        return len(self.ids), self.value_bytes

    def cut(self, mark: tuple[int, int]) -> None:
        """Takes away what came since the mark."""
        for column in self._columns():
            del column[mark[0] :]
        self.value_bytes = mark[1]

    def _columns(self) -> tuple[list[Any], ...]:
        return (
            self.queues, self.ids, self.attributes, self.mtimes_ns, self.headers, self.sizes,
            self.values,
        )  # fmt: skip

    def batch(self, state: State, receives_more: int) -> pa.RecordBatch:
        """The rows as Arrow has them, all of one state, of which each had so many deliveries more
        than its file says.
        """
        ids, mtimes_ns = self.ids, self.mtimes_ns
        columns: tuple[Any, ...] = (
            self.queues,
            ids,
            [each.key for each in self.attributes],
            self.values,
            _maps(self.headers),
            [each.priority for each in self.attributes],
            _published(ids),
            _due_us(mtimes_ns),
            [
                # As nearly always: this takes a third.
                receives_more if ns % _NS_PER_MS == 0 else _receives(ns, receives_more)
                for ns in mtimes_ns
            ],
            self.sizes,
            pa.repeat(pa.scalar(state.value, pa.string()), len(ids)),
        )
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, kind)
            for kind, column in zip(ARROW_SCHEMA.types, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _published(ids: Sequence[str]) -> pa.Array:
    """The times in ids: 48 bits, milliseconds since the epoch. All read at once: it takes a
    fraction.
    """
    texts = "".join(ids)
    if len(texts) != UUID_CHARS * len(ids):  # Ids are at least as long as a uuid.
        texts = "".join([text[:UUID_CHARS] for text in ids])
    halves = array("Q", bytes.fromhex(texts.replace("-", "")))
    if sys.byteorder == "little":
        halves.byteswap()
    times_ms = array("q", [half >> 16 for half in halves[::2]])
    buffers = [None, pa.py_buffer(times_ms)]
    return pa.Array.from_buffers(_TIME_MS, len(ids), buffers).cast(_TIME)


def _due_us(mtimes_ns: Sequence[int]) -> list[int]:
    if min(mtimes_ns) >= _NS_MIN and max(mtimes_ns) <= _NS_MAX:
        return [ns // _NS_PER_MS * _US_PER_MS for ns in mtimes_ns]
    return [min(max(ns // _NS_PER_MS, _DUE_MS_MIN), _DUE_MS_MAX) * _US_PER_MS for ns in mtimes_ns]


def _receives(mtime_ns: int, more: int) -> int:
    return min(Stamp.from_mtime_ns(mtime_ns).receives + more, RECEIVES_MAX)


def as_map(headers: Headers) -> Headers:
    """Headers as a map has them: names in lower case, one that came several times once, its values
    joined by commas as RFC 9110, section 5.2, has it.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        found[lower] = f"{found[lower]}, {value}" if lower in found else value
    return tuple(found.items())


def with_type(headers: Headers, of_name: Headers) -> Headers:
    """The headers of a message's block as a map has them, with its content type: as the name says,
    the block, or the default, as over HTTP.
    """
    found = as_map((*of_name, *headers))
    if any(name == _CONTENT_TYPE for name, _ in found):
        return found
    return (*DEFAULT_HEADERS, *found)


def _maps(rows: Sequence[Headers]) -> pa.Array:
    if rows and rows.count(rows[0]) == len(rows):  # As nearly always: this takes a fraction.
        first = rows[0]
        return pa.MapArray.from_arrays(
            pa.array([len(first) * at for at in range(len(rows) + 1)], pa.int32()),
            pa.array([name for name, _ in first] * len(rows), pa.string()),
            pa.array([value for _, value in first] * len(rows), pa.string()),
        )
    offsets, names, values = [0], [], []
    for headers in rows:
        for name, value in headers:
            names.append(name)
            values.append(value)
        offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )
