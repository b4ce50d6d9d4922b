"""Files of messages as a drain writes them: Parquet, JSON lines or CSV, one row per message.

All writes go through Files, so that they can be flushed, and tests can make them fail.
"""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mq.model.errors import MqError
from mq.spark.rows import ARROW_SCHEMA, DEFAULT_HEADERS
from mq.store.disk.files import Files

Format = Literal["parquet", "json", "csv"]
FORMATS: Final[tuple[Format, ...]] = ("parquet", "json", "csv")
COMPRESSIONS: Final[Mapping[Format, tuple[str, ...]]] = {
    "parquet": ("zstd", "snappy", "gzip", "none"),
    "json": ("none", "gzip"),
    "csv": ("none", "gzip"),
}
"""The compressions of each format; the first is the default."""
SUFFIXES: Final[Mapping[str, Format]] = {
    ".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv",
}  # fmt: skip
GZIPPED: Final = ".gz"
COLUMNS: Final = tuple(name for name in ARROW_SCHEMA.names if name != "state")
"""The columns of a drained row: the source's, except for its state."""
ROWS: Final = pa.schema([ARROW_SCHEMA.field(name) for name in COLUMNS])

_SUFFIX: Final[Mapping[Format, str]] = {"parquet": ".parquet", "json": ".jsonl", "csv": ".csv"}
_GROUP_BYTES: Final = 64 << 20
_BUFFER_BYTES: Final = 1 << 20
_TIME_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(eq=False)
class BadCompression(MqError):
    """Files of this format do not have this compression."""

    format: Format
    compression: str

    def __str__(self) -> str:
        known = ", ".join(COMPRESSIONS[self.format])
        return f"{self.format} is not compressed with {self.compression}; it takes {known}"


def compression_of(format: Format, said: str | None) -> str:  # noqa: A002 - the option's name.
    """The given compression, or the format's default. Raises BadCompression."""
    if said is None:
        return COMPRESSIONS[format][0]
    if said not in COMPRESSIONS[format]:
        raise BadCompression(format, said)
    return said


def suffix_of(format: Format, compression: str) -> str:  # noqa: A002
    """The suffix of such files' names."""
    is_wrapped = format != "parquet" and compression == "gzip"
    return _SUFFIX[format] + (GZIPPED if is_wrapped else "")


class Output(io.RawIOBase):
    """A new file that counts and hashes its bytes. Durable only after `finish`."""

    def __init__(self, files: Files, path: str, *, is_hashed: bool = True) -> None:
        """Raises OSError."""
        super().__init__()
        self._files = files
        self._descriptor = files.create(path)
        self._hash = hashlib.sha256() if is_hashed else None
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        """Writes all of `data`; after `abandon`, nothing. Raises OSError."""
        view = memoryview(data).cast("B")
        if self._descriptor >= 0:
            self._files.write(self._descriptor, view)
        if self._hash is not None:
            self._hash.update(view)
        self.size += len(view)
        return len(view)

    def finish(self) -> str:
        """Closes the file; returns the SHA-256 of its bytes. Raises OSError. Durable on return:
        yes, except for its name.
        """
        self._files.sync(self._descriptor)
        self.close()
        return "" if self._hash is None else self._hash.hexdigest()

    def abandon(self) -> None:
        """Closes the descriptor and drops later writes. Durable on return: no."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._files.close(descriptor)

    def close(self) -> None:
        """See io. Durable on return: no."""
        self.abandon()
        super().close()


class ParquetRows:
    """A Parquet file in progress, with options for pyarrow's ParquetWriter."""

    def __init__(self, out: Output, schema: pa.Schema, **options: Any) -> None:
        self._out = out
        # pyarrow writes many small pieces.
        self._buffer = io.BufferedWriter(out, _BUFFER_BYTES)
        file = pa.PythonFile(self._buffer, mode="w")
        self._writer = pq.ParquetWriter(file, schema, **options)

    @property
    def size(self) -> int:
        return self._out.size

    def write(self, table: pa.Table) -> None:
        """Appends rows as a row group. Raises OSError. Durable on return: no."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        """Writes the rest; the Output stays open. Raises OSError. Durable on return: no."""
        self._writer.close()
        self._buffer.flush()

    def finish(self) -> None:
        """Finishes the file. Raises OSError. Durable on return: yes, except for its name."""
        self.close()
        self._out.finish()

    def abandon(self) -> None:
        """Closes the descriptor, whether the file is finished or not."""
        self._out.abandon()
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()
            self._buffer.close()


class RowWriter(Protocol):
    """Writes rows to an Output."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows of COLUMNS. Raises OSError."""

    def close(self) -> None:
        """Writes the rest; the Output stays open. Raises OSError."""


def row_writer(out: Output, format: Format, compression: str) -> RowWriter:  # noqa: A002
    """The writer of a file of this format."""
    if format == "parquet":
        return ParquetGroups(out, compression)
    return _Lines(out, format, is_gzipped=compression == "gzip")


class ParquetGroups:
    """A Parquet file of rows of a schema, in row groups of some size. A RowWriter."""

    def __init__(self, out: Output, compression: str, schema: pa.Schema = ROWS) -> None:
        self._rows = ParquetRows(
            out, schema, compression=compression, version="2.6", store_schema=False
        )
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Collects many batches into one row group, which readers read as a whole."""
        self._held.append(batch.select(self._schema.names).cast(self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._put()

    def close(self) -> None:
        self._put()
        self._rows.close()

    def _put(self) -> None:
        if self._held:
            self._rows.write(pa.Table.from_batches(self._held, self._schema))
        self._held, self._bytes = [], 0


class _Lines:
    def __init__(self, out: Output, format: Format, *, is_gzipped: bool) -> None:  # noqa: A002
        # Without a timestamp, so that the same rows give the same bytes.
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
    """Times as text; mq's times are whole milliseconds."""
    in_ms = column.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms"))
    return pc.strftime(in_ms, _TIME_FORM)


CSV_COLUMNS: Final = (
    "queue", "id", "key", "value", "value_base64", "headers", "priority", "published", "due",
    "receives", "size",
)  # fmt: skip
"""The columns of a drained CSV file, in order; its first line names them."""


# Characters that JSON writes as \uXXXX: legal, but many readers cannot handle them.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


# The same, and all that some reader takes for a line end.
_CONTROL_OR_END: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")


_QUOTED: Final = re.compile('[",\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|^\\s|\\s$|^#')


def json_line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON, with its line end. Leaves out a null `key`, and default `headers`.
    Times are texts already; `value` is bytes.
    """
    fields: dict[str, Any] = {}
    for name, value in row.items():
        if name == "value":
            text = _text(value, _CONTROL)
            if text is None:
                fields["value_base64"] = base64.b64encode(value).decode("ascii")
            else:
                fields["value"] = text
        elif name == "headers":
            if headers := _headers(value):
                fields[name] = headers
        elif value is not None or name == "size":
            fields[name] = value
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _headers(pairs: Any) -> dict[str, str]:
    """Headers other than the default."""
    said = dict(pairs or ())
    return {} if said == dict(DEFAULT_HEADERS) else said


def csv_line(fields: Sequence[object]) -> str:
    """Fields as a line of CSV, with its line end, quoted where RFC 4180 requires it; None is an
    empty field.
    """
    return ",".join(["" if field is None else _quoted(str(field)) for field in fields]) + "\n"


def csv_fields(row: Mapping[str, Any]) -> list[object]:
    """A row's fields in the order of CSV_COLUMNS. Times are texts already; `value` is bytes."""
    text = _text(row["value"], _CONTROL_OR_END)
    encoded = base64.b64encode(row["value"]).decode("ascii") if text is None else None
    headers = _headers(row["headers"])
    said = json.dumps(headers, ensure_ascii=False) if headers else None
    instead = {"value": text, "value_base64": encoded, "headers": said}
    return [instead[name] if name in instead else row[name] for name in CSV_COLUMNS]


def _text(value: bytes, control: "re.Pattern[str]") -> str | None:
    """A body as text, if it is text and can be written as such; else None."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if control.search(text) else text


def _quoted(field: str) -> str:
    return '"' + field.replace('"', '""') + '"' if _QUOTED.search(field) else field
