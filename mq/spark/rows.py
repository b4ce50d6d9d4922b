"""Rows of `format("mq")` on their way to Arrow: columns that grow, and the batch that they become.

No Spark here; `schema.py` has the same columns in Spark's words.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from mq.headers import Headers
from mq.lifecycle import State
from mq.limits import READ_BATCH_ROWS

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


@dataclass(slots=True)
class Rows:
    """Rows as columns; full after READ_BATCH_ROWS of them, or, but for the last of them, so many
    bytes of bodies. Times are microseconds since the epoch. `damaged` are the messages whose value
    and size nobody can tell.
    """

    bytes_max: int
    queues: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    receives: list[int] = field(default_factory=list)
    sizes: list[int | None] = field(default_factory=list)
    value_bytes: int = 0
    damaged: list[str] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether no row more is to be put here."""
        return len(self.ids) >= READ_BATCH_ROWS or self.value_bytes >= self.bytes_max

    def extend(self, others: "Rows") -> None:
        """Puts others behind these."""
        self.queues += others.queues
        self.ids += others.ids
        self.keys += others.keys
        self.values += others.values
        self.headers += others.headers
        self.priorities += others.priorities
        self.published += others.published
        self.due += others.due
        self.receives += others.receives
        self.sizes += others.sizes
        self.value_bytes += others.value_bytes
        self.damaged += others.damaged

    def batch(self, state: State) -> pa.RecordBatch:
        """The rows as Arrow has them, all of one state."""
        columns: dict[str, Any] = {
            "queue": self.queues,
            "id": self.ids,
            "key": self.keys,
            "value": self.values,
            "headers": _maps(self.headers),
            "priority": self.priorities,
            "published": self.published,
            "due": self.due,
            "receives": self.receives,
            "size": self.sizes,
            "state": pa.repeat(pa.scalar(state.value, pa.string()), len(self.ids)),
        }
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for field, column in zip(ARROW_SCHEMA, columns.values(), strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def as_map(headers: Headers) -> Headers:
    """Headers as a map has them: names in lower case, one that came several times once, its values
    joined by commas as RFC 9110, section 5.2, has it.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        found[lower] = f"{found[lower]}, {value}" if lower in found else value
    return tuple(found.items())


def _maps(rows: list[Headers]) -> pa.Array:
    if not any(rows):
        return pa.MapArray.from_arrays(
            pa.array([0] * (len(rows) + 1), pa.int32()),
            pa.array([], pa.string()),
            pa.array([], pa.string()),
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
