"""Builds Arrow batches of rows, column by column. No Spark here."""

import re
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from mq.model.headers import Headers
from mq.model.lifecycle import State
from mq.model.limits import PUBLISHED_MS_MAX, RECEIVES_MAX, UUID_CHARS
from mq.model.message import Stamp
from mq.model.names import CONTENT_TYPE_DEFAULT
from mq.spark.options import SCHEMA

READ_BATCH_ROWS: Final = 5000

_NS_PER_MS: Final = 1_000_000
_US_PER_MS: Final = 1000
# Due times that every Spark and Python can represent: the years 1 to 9999.
_DUE_MS_MIN: Final = -62_135_596_800_000
_DUE_MS_MAX: Final = PUBLISHED_MS_MAX
_NS_MIN: Final = _DUE_MS_MIN * _NS_PER_MS
_NS_MAX: Final = _DUE_MS_MAX * _NS_PER_MS

_CONTENT_TYPE: Final = "content-type"
DEFAULT_HEADERS: Final[Headers] = ((_CONTENT_TYPE, CONTENT_TYPE_DEFAULT),)
"""The headers of a message without any of its own."""

_TIME_MS: Final = pa.timestamp("ms", tz="UTC")
_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "double": pa.float64(),
    "timestamp": _TIME,
    "date": pa.date32(),
}


def arrow_schema(columns: str) -> pa.Schema:
    """Arrow's schema of columns in Spark SQL's syntax: `id string, sizes array<bigint>`."""
    pairs = (column.split(" ") for column in columns.split(", "))
    return pa.schema([(name, _arrow_type(kind)) for name, kind in pairs])


def _arrow_type(kind: str) -> pa.DataType:
    outer, _, inner = kind.removesuffix(">").partition("<")
    if outer == "array":
        return pa.list_(_arrow_type(inner))
    if outer == "map":
        return pa.map_(*map(_arrow_type, inner.split(",")))
    if outer == "struct":
        pairs = re.findall(r"(\w+):(\w+)", inner)
        return pa.struct([(name, _arrow_type(each)) for name, each in pairs])
    return _TYPES[kind]


class Columns:
    """Rows of a schema that become one batch: a list per column, since Python's garbage collector
    would traverse a tuple per row again and again.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._lists: dict[str, list[Any]] = {name: [] for name in schema.names}

    def __len__(self) -> int:
        return len(self._lists[self._schema.names[0]])

    def add(self, *values: Any) -> None:
        """Appends a row: a value for each column, in order."""
        for column, value in zip(self._lists.values(), values, strict=True):
            column.append(value)

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(self._lists, self._schema)


ARROW_SCHEMA: Final = arrow_schema(SCHEMA)


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes at the end of an id, behind its uuid. `headers`: the content type that they
    give, which the file may replace; `group`: the digits of its group, or ""; `tags`: their number.
    """

    priority: int
    key: str | None
    header_bytes: int
    headers: Headers
    group: str = ""
    tags: int = 0
    pack_size: int = 0
    """The items of the pack that it is, or that the message is or was an item of."""


Row: TypeAlias = tuple[str, str, Attributes, int, Headers, int | None, bytes | None]
"""A message: queue, id, attributes, mtime in nanoseconds, headers, size, value; a damaged one has
neither size nor value.
"""


class Bodies(NamedTuple):
    """Those of a pack's items: their sizes, and their contents if wanted."""

    sizes: Sequence[int | None]
    values: Sequence[bytes | None]


@dataclass(slots=True)
class Rows:
    """Rows that become one batch: full after READ_BATCH_ROWS rows, or once bodies exceed
    `bytes_max` bytes. A list per column, as in Columns.
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
        """Whether no more rows fit."""
        return len(self.ids) >= READ_BATCH_ROWS or self.value_bytes >= self.bytes_max

    def add(self, row: Row) -> None:
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

    def add_items(self, pack: Row, ids: Sequence[str], bodies: Bodies) -> None:
        """Adds a row for each item of a pack; `pack`: what they have in common."""
        queue, _, attributes, mtime_ns, headers, _, _ = pack
        count = len(ids)
        self.queues += [queue] * count
        self.ids += ids
        self.attributes += [attributes] * count
        self.mtimes_ns += [mtime_ns] * count
        self.headers += [headers] * count
        self.sizes += bodies.sizes
        self.values += bodies.values
        self.value_bytes += sum(len(value) for value in bodies.values if value is not None)

    def extend(self, others: "Rows") -> None:
        for column, more in zip(self._columns(), others._columns(), strict=True):  # noqa: SLF001
            column.extend(more)
        self.value_bytes += others.value_bytes

    def mark(self) -> tuple[int, int]:
        """A mark for `cut`."""
        return len(self.ids), self.value_bytes

    def cut(self, mark: tuple[int, int]) -> None:
        """Removes the rows added since the mark."""
        for column in self._columns():
            del column[mark[0] :]
        self.value_bytes = mark[1]

    def _columns(self) -> tuple[list[Any], ...]:
        return (
            self.queues, self.ids, self.attributes, self.mtimes_ns, self.headers, self.sizes,
            self.values,
        )  # fmt: skip

    def batch(self, state: State, receives_more: int) -> pa.RecordBatch:
        """The rows as an Arrow batch, all in one state; each with `receives_more` deliveries more
        than its file has.
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
                # The usual case, which takes a third of the time.
                receives_more if ns % _NS_PER_MS == 0 else _receives(ns, receives_more)
                for ns in mtimes_ns
            ],
            self.sizes,
            pa.repeat(pa.scalar(state.value, pa.string()), len(ids)),
        )
        named = dict(zip(ARROW_SCHEMA.names, columns, strict=True))
        return pa.RecordBatch.from_pydict(named, ARROW_SCHEMA)


def _published(ids: Sequence[str]) -> pa.Array:
    """The publish times in ids: 48 bits, milliseconds since the epoch. Reads all at once, in a
    fraction of the time.
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
    return [due_us(ns) for ns in mtimes_ns]


def due_us(mtime_ns: int) -> int:
    """The due time of a row, in microseconds since the epoch."""
    return min(max(mtime_ns // _NS_PER_MS, _DUE_MS_MIN), _DUE_MS_MAX) * _US_PER_MS


def _receives(mtime_ns: int, more: int) -> int:
    return min(Stamp.from_mtime_ns(mtime_ns).receives + more, RECEIVES_MAX)


def as_map(headers: Headers) -> Headers:
    """Headers as a map: names in lower case, repeated names once with their values joined by commas
    (RFC 9110, section 5.2).
    """
    found: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        found[lower] = f"{found[lower]}, {value}" if lower in found else value
    return tuple(found.items())


def with_type(headers: Headers, of_name: Headers) -> Headers:
    """The headers of a message's block as a map, with its content type: the name's, the block's, or
    the default, as over HTTP.
    """
    found = as_map((*of_name, *headers))
    if any(name == _CONTENT_TYPE for name, _ in found):
        return found
    return (*DEFAULT_HEADERS, *found)


def _maps(rows: Sequence[Headers]) -> pa.Array:
    if rows and rows.count(rows[0]) == len(rows):  # The usual case, in a fraction of the time.
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
