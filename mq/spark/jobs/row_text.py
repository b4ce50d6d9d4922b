"""Messages as lines of text: JSON lines and CSV, there and back byte for byte. Pure.

A body that is text stands as text, any other one as base64: `value` or `value_base64`, never both.
In CSV only what fits in a line is text, since readers of CSV disagree about what ends a line.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from mq.model.errors import MqError
from mq.spark.rows import DEFAULT_HEADERS

CSV_COLUMNS: Final = (
    "queue", "id", "key", "value", "value_base64", "headers", "priority", "published", "due",
    "receives", "size",
)  # fmt: skip
"""Of a drained file, in this order; its first line names them."""

# What JSON has to write as \uXXXX: legal, and yet too much for many a reader of it.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# The same and all that some reader takes for the end of a line.
_CONTROL_OR_END: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_QUOTED: Final = re.compile('[",\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|^\\s|\\s$|^#')


@dataclass(eq=False)
class BadField(MqError):
    """What stands in a column and cannot be understood."""

    column: str
    expected: str

    def __str__(self) -> str:
        return f"column {self.column}: {self.expected}"


def json_line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON, with its end. A `key` that is null is left out, and `headers` that
    say no more than the default; times are texts already; `value` is bytes.
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
    """What there is to be said of headers: nothing of the default."""
    said = dict(pairs or ())
    return {} if said == dict(DEFAULT_HEADERS) else said


def csv_line(fields: Sequence[object]) -> str:
    """Fields as a line of CSV, with its end: quoted as RFC 4180 has it where that is needed; None
    is nothing.
    """
    return ",".join(["" if field is None else _quoted(str(field)) for field in fields]) + "\n"


def csv_fields(row: Mapping[str, Any]) -> list[object]:
    """A row's fields for CSV_COLUMNS. Times are texts already; `value` is bytes."""
    text = _text(row["value"], _CONTROL_OR_END)
    encoded = base64.b64encode(row["value"]).decode("ascii") if text is None else None
    headers = _headers(row["headers"])
    said = json.dumps(headers, ensure_ascii=False) if headers else None
    instead = {"value": text, "value_base64": encoded, "headers": said}
    return [instead[name] if name in instead else row[name] for name in CSV_COLUMNS]


def body_of(fields: Mapping[str, Any], *, is_csv: bool = False) -> bytes:
    """The body that `value` and `value_base64` of a line say. In CSV, where nothing is the empty
    text, neither is the empty body. Raises BadField.
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
            raise BadField("value_base64", "is no base64") from None
    try:
        return _string("value", text).encode()
    except UnicodeEncodeError:
        raise BadField("value", "has half of a surrogate pair, which is no UTF-8") from None


def headers_in(said: object) -> list[tuple[str, str]] | None:
    """Headers that an object of JSON says, or the text of one. Raises BadField."""
    if said is None or said == "":
        return None
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            raise BadField("headers", "are no JSON") from None
    if not isinstance(said, dict) or not all(isinstance(each, str) for each in said.values()):
        raise BadField("headers", "take an object of texts: name and value")
    return list(said.items())


def whole_in(column: str, said: object) -> int | None:
    """A whole number, or the text of one; None of nothing. Raises BadField."""
    if said is None or said == "":
        return None
    if isinstance(said, str) and re.fullmatch("-?[0-9]{1,9}", said):
        return int(said)
    if isinstance(said, bool) or not isinstance(said, int) or abs(said) >= 1 << 31:
        raise BadField(column, f"{said!r:.60} is no whole number")
    return said


def text_in(column: str, said: object) -> str | None:
    """A text; None of nothing. Raises BadField."""
    return None if said is None or said == "" else _string(column, said)


def moment_in(column: str, said: object) -> datetime | None:
    """A time as RFC 3339 writes it, in UTC where it says nothing else; None of nothing. Raises
    BadField.
    """
    text = text_in(column, said)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadField(column, f"{text!r:.60} is no time, as 2026-01-31T12:00:00.000Z") from None


def _text(value: bytes, control: "re.Pattern[str]") -> str | None:
    """A body that is text, and can stand as such; None of another."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if control.search(text) else text


def _quoted(field: str) -> str:
    return '"' + field.replace('"', '""') + '"' if _QUOTED.search(field) else field


def _string(column: str, said: object) -> str:
    if not isinstance(said, str):
        raise BadField(column, f"{said!r:.60} is no text")
    return said
