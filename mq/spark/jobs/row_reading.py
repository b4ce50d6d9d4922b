"""Reads files of messages: Parquet, JSON lines or CSV in, rows to publish out. No Spark here.
Errors name the file, its row (from 1) and its column.
"""

import base64
import binascii
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mq.model.errors import MqError
from mq.spark.jobs.row_files import COLUMNS, GZIPPED, SUFFIXES, Format
from mq.spark.reading import READ_BATCH_BYTES, VALUE_BYTES_MAX
from mq.spark.rows import READ_BATCH_ROWS, arrow_schema

PUBLISHED_SQL: Final = (
    "value binary, queue string, key string, priority int, at timestamp, "
    "headers map<string,string>, content_type string, group string, tags array<string>, "
    "ttl_s int, visibility_s int"
)
"""The columns of a row for the sink of `format("mq")`."""
PUBLISHED: Final = arrow_schema(PUBLISHED_SQL)
_KNOWN: Final = frozenset({*PUBLISHED.names, *COLUMNS, "value_base64"})
_TEXT_CHARS_MAX: Final = 2 * VALUE_BYTES_MAX
_NOT_GZIP: Final = (EOFError, gzip.BadGzipFile, zlib.error)
_Row = dict[str, Any]


@dataclass(eq=False)
class BadFile(MqError):
    """A file, or one of its rows, cannot be published. `row`: from 1, None: the whole file."""

    file: str
    row: int | None
    why: str

    def __str__(self) -> str:
        where = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{where}: {self.why}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read files. `keeps_due`: a drained message's due time, if it is in the future, becomes
    the new message's. `is_drained`: a drain wrote the files, so that a row without `size` stands
    for a damaged file, and is skipped.
    """

    format: Format | None = None
    keeps_due: bool = False
    is_drained: bool = False


def format_of(path: Path) -> Format | None:
    """The format that a file's name indicates; None: none."""
    name = path.name.removesuffix(GZIPPED)
    return SUFFIXES.get(Path(name).suffix.lower())


def read_rows(path: Path, reading: Reading) -> Iterator[pa.RecordBatch]:
    """The rows of a file in order, with the columns of PUBLISHED; missing ones are null. Raises
    BadFile, OSError.
    """
    found = reading.format or format_of(path)
    if found is None:
        raise BadFile(str(path), None, f"its name ends with none of {', '.join(SUFFIXES)}")
    if found == "parquet":
        yield from _parquet(path, reading)
        return
    rows = _json_rows(path) if found == "json" else _csv_rows(path)
    yield from _batched(_published(path, rows, reading, is_csv=found == "csv"))


def ids_in(path: Path) -> Iterator[str]:
    """The ids of a drained file's messages. Raises BadFile, OSError."""
    found = format_of(path)
    if found == "parquet":
        for batch in pq.ParquetFile(path).iter_batches(columns=["id"]):
            yield from batch.column(0).to_pylist()
        return
    for _, fields in _json_rows(path) if found == "json" else _csv_rows(path):
        yield str(fields["id"])


# Lines of text.


def _opened(path: Path) -> Any:
    if path.name.endswith(GZIPPED):
        return gzip.open(path, "rb")
    return open(path, "rb")


def _json_rows(path: Path) -> Iterator[tuple[int, _Row]]:
    """(row, its fields) of each line that has any."""
    row = 0
    try:
        with _opened(path) as file:
            for row, line in enumerate(file, 1):
                if not line.strip():
                    continue
                fields = json.loads(line.decode("utf-8-sig" if row == 1 else "utf-8"))
                if not isinstance(fields, dict):
                    raise BadFile(str(path), row, "is not a JSON object")
                _check_columns(path, row, fields)
                yield row, fields
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadFile(str(path), row, f"is not JSON in UTF-8: {error}") from None
    except _NOT_GZIP as error:
        raise BadFile(str(path), row + 1, f"is not a complete gzip file: {error}") from None


def _csv_rows(path: Path) -> Iterator[tuple[int, _Row]]:
    csv.field_size_limit(_TEXT_CHARS_MAX)
    row = 0
    try:
        with _opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            names = next(lines, None)
            if not names:
                raise BadFile(str(path), None, "has no first line with the columns' names")
            _check_columns(path, None, names)
            for row, fields in enumerate(lines, 1):
                if not fields:
                    continue
                if len(fields) != len(names):
                    why = f"has {len(fields)} fields, and the first line names {len(names)}"
                    raise BadFile(str(path), row, why)
                yield row, dict(zip(names, fields, strict=True))
    except UnicodeDecodeError as error:
        raise BadFile(str(path), row + 1, f"is not UTF-8: {error.reason}") from None
    except csv.Error as error:
        raise BadFile(str(path), row + 1, f"is not CSV: {error}") from None
    except _NOT_GZIP as error:
        raise BadFile(str(path), row + 1, f"is not a complete gzip file: {error}") from None


def _check_columns(path: Path, row: int | None, names: Iterable[str]) -> None:
    told = list(names)
    for name in told:
        if name not in _KNOWN:
            known = ", ".join(["value_base64", *PUBLISHED.names])
            raise BadFile(str(path), row, f"column {name} is none that is published: {known}")
    if len(set(told)) != len(told):
        raise BadFile(str(path), row, "two columns have one name")
    if "value" not in told and "value_base64" not in told:
        raise BadFile(str(path), row, "there is no column value, which is the message's body")


def _published(
    path: Path, rows: Iterable[tuple[int, _Row]], reading: Reading, *, is_csv: bool
) -> Iterator[_Row]:
    for number, fields in rows:
        if reading.is_drained and fields.get("size") in (None, ""):
            continue
        try:
            yield _row(fields, reading, is_csv=is_csv)
        except BadField as error:
            raise BadFile(str(path), number, str(error)) from None


def _row(fields: Mapping[str, Any], reading: Reading, *, is_csv: bool) -> _Row:
    at = moment_in("at", fields.get("at"))
    if reading.keeps_due and at is None:
        at = moment_in("due", fields.get("due"))
    return {
        "value": body_of(fields, is_csv=is_csv),
        "queue": text_in("queue", fields.get("queue")),
        "key": text_in("key", fields.get("key")),
        "priority": whole_in("priority", fields.get("priority")),
        "at": at,
        "headers": headers_in(fields.get("headers")),
        "content_type": text_in("content_type", fields.get("content_type")),
        "group": text_in("group", fields.get("group")),
        "tags": texts_in("tags", fields.get("tags")),
        "ttl_s": whole_in("ttl_s", fields.get("ttl_s")),
        "visibility_s": whole_in("visibility_s", fields.get("visibility_s")),
    }


def _batched(rows: Iterable[_Row]) -> Iterator[pa.RecordBatch]:
    held: list[_Row] = []
    held_bytes = 0
    for row in rows:
        held.append(row)
        held_bytes += len(row["value"])
        if len(held) >= READ_BATCH_ROWS or held_bytes >= READ_BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(held, PUBLISHED)
            held, held_bytes = [], 0
    if held:
        yield pa.RecordBatch.from_pylist(held, PUBLISHED)


# Parquet.


def _parquet(path: Path, reading: Reading) -> Iterator[pa.RecordBatch]:
    row = 1
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _check_columns(path, None, names)
            if "value" not in names:
                raise BadFile(str(path), None, "there is no column value")
            wanted = [*(name for name in PUBLISHED.names if name in names)]
            wanted += [name for name in ("due", "size") if name in names]
            for batch in file.iter_batches(_rows_at_once(file), columns=wanted):
                yield _as_published(path, row, batch, reading)
                row += batch.num_rows
    except pa.ArrowException as error:
        raise BadFile(str(path), row, f"is not readable Parquet: {error}") from None


def _rows_at_once(file: Any) -> int:
    """The number of rows that take some megabytes, by the file's own metadata."""
    about = file.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
    return int(max(1, min(READ_BATCH_ROWS, READ_BATCH_BYTES // max(1, widest))))


def _as_published(
    path: Path, first: int, batch: pa.RecordBatch, reading: Reading
) -> pa.RecordBatch:
    names = batch.schema.names
    if batch.column("value").null_count:
        row = first + batch.column("value").is_null().to_pylist().index(True)
        raise BadFile(
            str(path), row, "column value: is null; a message has a body, if an empty one"
        )
    if reading.is_drained and "size" in names and batch.column("size").null_count:
        batch = batch.filter(batch.column("size").is_valid())
    columns = []
    for field in PUBLISHED:
        name = field.name
        if name == "at" and reading.keeps_due and "at" not in names and "due" in names:
            name = "due"
        if name not in names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        columns.append(_cast(path, first, field, batch.column(name)))
    return pa.RecordBatch.from_arrays(columns, schema=PUBLISHED)


def _cast(path: Path, first: int, field: Any, column: Any) -> Any:
    given, wanted = column.type, field.type
    if pa.types.is_dictionary(given):
        column = column.dictionary_decode()
        given = column.type
    if not _FITS[field.name](given):
        raise BadFile(str(path), None, f"column {field.name} is {given}; it takes {wanted}")
    try:
        return column.cast(wanted, safe=field.name != "at")
    except pa.ArrowException as error:
        raise BadFile(str(path), first, f"column {field.name}, from here on: {error}") from None


def _is_text(given: Any) -> bool:
    return bool(pa.types.is_string(given) or pa.types.is_large_string(given))


def _is_bytes(given: Any) -> bool:
    return _is_text(given) or bool(pa.types.is_binary(given) or pa.types.is_large_binary(given))


def _is_headers(given: Any) -> bool:
    return pa.types.is_map(given) and _is_text(given.key_type) and _is_text(given.item_type)


def _is_texts(given: Any) -> bool:
    is_list = pa.types.is_list(given) or pa.types.is_large_list(given)
    return is_list and _is_text(given.value_type)


_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "value": _is_bytes,
    "queue": _is_text,
    "key": _is_text,
    "priority": pa.types.is_integer,
    "at": pa.types.is_timestamp,
    "headers": _is_headers,
    "content_type": _is_text,
    "group": _is_text,
    "tags": _is_texts,
    "ttl_s": pa.types.is_integer,
    "visibility_s": pa.types.is_integer,
}


@dataclass(eq=False)
class BadField(MqError):
    """The column does not allow this value."""

    column: str
    expected: str

    def __str__(self) -> str:
        return f"column {self.column}: {self.expected}"


def body_of(fields: Mapping[str, Any], *, is_csv: bool = False) -> bytes:
    """The body in `value` or `value_base64` of a line. In CSV, where an empty field means none,
    both empty is the empty body. Raises BadField.
    """
    text, encoded = fields.get("value"), fields.get("value_base64")
    if is_csv:
        text, encoded = text or None, encoded or None
        if text is None and encoded is None:
            return b""
    if (text is None) is (encoded is None):
        told = "there is none, nor a value_base64" if text is None else "value_base64 is there too"
        raise BadField("value", f"{told}; a message has one body")
    if encoded is not None:
        try:
            return base64.b64decode(_string("value_base64", encoded), validate=True)
        except (binascii.Error, ValueError):
            raise BadField("value_base64", "is not base64") from None
    try:
        return _string("value", text).encode()
    except UnicodeEncodeError:
        raise BadField("value", "has half of a surrogate pair, which is not UTF-8") from None


def headers_in(said: object) -> list[tuple[str, str]] | None:
    """Headers from a JSON object, or from its text. Raises BadField."""
    said = _json_in("headers", said)
    if said is None:
        return None
    if not isinstance(said, dict) or not all(isinstance(each, str) for each in said.values()):
        raise BadField("headers", "take an object of texts: name and value")
    return list(said.items())


def texts_in(column: str, said: object) -> list[str] | None:
    """Texts from a JSON list, or from its text. Raises BadField."""
    said = _json_in(column, said)
    if said is None:
        return None
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise BadField(column, "take a list of texts")
    return said


def _json_in(column: str, said: object) -> object:
    """A JSON value, parsed if it is given as text; None if absent."""
    if said is None or said == "":
        return None
    if not isinstance(said, str):
        return said
    try:
        found: object = json.loads(said)
    except (ValueError, RecursionError):
        raise BadField(column, "are not JSON") from None
    return found


def whole_in(column: str, said: object) -> int | None:
    """A whole number, or its text; None if absent. Raises BadField."""
    if said is None or said == "":
        return None
    if isinstance(said, str) and re.fullmatch("-?[0-9]{1,9}", said):
        return int(said)
    if isinstance(said, bool) or not isinstance(said, int) or abs(said) >= 1 << 31:
        raise BadField(column, f"{said!r:.60} is not a whole number")
    return said


def text_in(column: str, said: object) -> str | None:
    """A text; None if absent. Raises BadField."""
    return None if said is None or said == "" else _string(column, said)


def moment_in(column: str, said: object) -> datetime | None:
    """A time in RFC 3339, in UTC if it has no zone; None if absent. Raises BadField."""
    text = text_in(column, said)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadField(
            column, f"{text!r:.60} is not a time such as 2026-01-31T12:00:00.000Z"
        ) from None


def _string(column: str, said: object) -> str:
    if not isinstance(said, str):
        raise BadField(column, f"{said!r:.60} is not a text")
    return said
