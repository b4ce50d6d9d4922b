"""Files of messages as a drain writes them: Parquet, JSON lines or CSV, one row a message.

What is written goes through Files, so that it can be flushed, and fails as a disk does.
"""

import gzip
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mq.model.errors import MqError
from mq.spark.jobs.row_text import CSV_COLUMNS, csv_fields, csv_line, json_line
from mq.spark.rows import ARROW_SCHEMA
from mq.store.disk.files import Files

Format = Literal["parquet", "json", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("parquet", "json", "csv")
COMPRESSIONS: Final[Mapping[Format, tuple[str, ...]]] = {
    "parquet": ("zstd", "snappy", "gzip", "none"),
    "json": ("none", "gzip"),
    "csv": ("none", "gzip"),
}
"""What each may be compressed with; the first is the default."""
SUFFIXES: Final[Mapping[str, Format]] = {
    ".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv",
}  # fmt: skip
GZIPPED: Final = ".gz"
COLUMNS: Final = tuple(name for name in ARROW_SCHEMA.names if name != "state")
"""Of a drained row: the source's, but for the state that it was in."""

_SUFFIX: Final[Mapping[Format, str]] = {"parquet": ".parquet", "json": ".jsonl", "csv": ".csv"}
_SCHEMA: Final = pa.schema([ARROW_SCHEMA.field(name) for name in COLUMNS])
_GROUP_BYTES: Final = 64 << 20
_TIME_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(eq=False)
class BadCompression(MqError):
    """A compression that files of this format do not have."""

    format: Format
    compression: str

    def __str__(self) -> str:
        known = ", ".join(COMPRESSIONS[self.format])
        return f"{self.format} is not compressed with {self.compression}; it takes {known}"


def compression_of(format: Format, said: str | None) -> str:  # noqa: A002 - the option's name.
    """The compression that was said, or the format's own. Raises BadCompression."""
    if said is None:
        return COMPRESSIONS[format][0]
    if said not in COMPRESSIONS[format]:
        raise BadCompression(format, said)
    return said


def suffix_of(format: Format, compression: str) -> str:  # noqa: A002
    """How the names of such files end."""
    is_wrapped = format != "parquet" and compression == "gzip"
    return _SUFFIX[format] + (GZIPPED if is_wrapped else "")


class Output(io.RawIOBase):
    """A new file: what is written to it, counted and hashed. It is nobody's until `finish`."""

    def __init__(self, files: Files, path: str) -> None:
        """Raises OSError."""
        super().__init__()
        self._files = files
        self._descriptor = files.create(path)
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """See io."""
        return True

    def tell(self) -> int:
        """See io."""
        return self.size

    def write(self, data: Any) -> int:
        """All of it. Raises OSError."""
        view = memoryview(data).cast("B")
        self._files.write(self._descriptor, view)
        self._hash.update(view)
        self.size += len(view)
        return len(view)

    def finish(self) -> str:
        """Closes it; the SHA-256 of what is in it. Raises OSError. Durable on return: yes, but for
        its name.
        """
        self._files.sync(self._descriptor)
        self.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Gives the descriptor back. Durable: no."""
        if not self.closed:
            self._files.close(self._descriptor)
        super().close()


class RowWriter(Protocol):
    """What writes rows to an Output."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Rows of COLUMNS, behind those that were written. Raises OSError."""

    def close(self) -> None:
        """Writes what is still held; the Output stays open. Raises OSError."""


def row_writer(out: Output, format: Format, compression: str) -> RowWriter:  # noqa: A002
    """The writer of a file of this format."""
    if format == "parquet":
        return _Parquet(out, compression)
    return _Lines(out, format, is_gzipped=compression == "gzip")


class _Parquet:
    def __init__(self, out: Output, compression: str) -> None:
        self._writer = pq.ParquetWriter(
            out, _SCHEMA, compression=compression, version="2.6", store_schema=False
        )
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Row groups are of many batches: each is a piece that readers read at a time."""
        self._held.append(batch.select(COLUMNS))
        self._bytes += batch.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._put()

    def close(self) -> None:
        self._put()
        self._writer.close()

    def _put(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held, _SCHEMA)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held, self._bytes = [], 0


class _Lines:
    def __init__(self, out: Output, format: Format, *, is_gzipped: bool) -> None:  # noqa: A002
        # Without a time in it: the same rows are the same bytes.
        self._out: Any = gzip.GzipFile("", "wb", 6, out, 0) if is_gzipped else out
        self._is_gzipped = is_gzipped
        self._is_csv = format == "csv"
        if self._is_csv:
            self._out.write(csv_line(CSV_COLUMNS).encode())

    def write(self, batch: pa.RecordBatch) -> None:
        rows = _rows(batch)
        if self._is_csv:
            lines = [csv_line(csv_fields(row)) for row in rows]
        else:
            lines = [json_line(row) for row in rows]
        self._out.write("".join(lines).encode())

    def close(self) -> None:
        if self._is_gzipped:
            self._out.close()


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    columns: list[Sequence[Any]] = []
    for name in COLUMNS:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            column = _times(column)
        columns.append(column.to_pylist())
    return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]


def _times(column: pa.Array) -> pa.Array:
    """As texts; all that mq tells is of whole milliseconds."""
    in_ms = column.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms"))
    return pc.strftime(in_ms, _TIME_FORM)
