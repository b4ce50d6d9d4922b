"""The output of commands: a table on a terminal, tab-separated lines in a pipe, JSON with --json.

Bodies, headers and names are printed with their control characters escaped, so that a message
cannot control the terminal. `body` writes raw bytes to a pipe.
"""

import base64
import contextlib
import dataclasses
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Control characters, C1 too, and those that change the direction of text.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_CONTROL_BUT_LINES: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
# Columns that people copy into commands: never wrapped or cut.
_WHOLE: Final = frozenset(("id", "queue", "schedule", "member", "name"))
# The least width of a column that may wrap: half a timestamp.
_FOLDED_CELLS: Final = 12
_BETWEEN_CELLS: Final = 3
_GAP_CELLS: Final = 2
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Printer:
    """Writes a command's output to stdout, and notes to stderr."""

    def __init__(self, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self.is_writing = False
        """Whether a write is in progress, which may block on the reader."""
        self._out = sys.stdout if out is None else out
        if isinstance(self._out, io.TextIOWrapper):
            # A locale of ASCII lacks most letters.
            self._out.reconfigure(errors="backslashreplace")
        self._is_utf = (self._out.encoding or "utf-8").lower().startswith("utf")
        self._err = sys.stderr if err is None else err

    @property
    def is_terminal(self) -> bool:
        """Whether the output is for a person at a terminal."""
        return not self.as_json and self._out.isatty()

    @property
    def err_is_terminal(self) -> bool:
        """Whether stderr is a terminal."""
        return self._err.isatty()

    def document(self, value: Any) -> None:
        """One JSON document, indented on a terminal."""
        indent = 2 if self._out.isatty() else None
        self._write(self._json(value, indent) + "\n")

    def row(self, value: Any) -> None:
        """A line of JSON, flushed."""
        self._write(self._json(value) + "\n")
        self.flush()

    def _json(self, value: Any, indent: int | None = None) -> str:
        return json.dumps(plain(value), indent=indent, ensure_ascii=not self._is_utf)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows: a table on a terminal, or facts if that is too narrow; tab-separated lines without
        a header in a pipe.
        """
        if not self.is_terminal:
            for row in rows:
                self._write("\t".join(shown(cell) for cell in row) + "\n")
            return
        table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
        numbers = [True] * len(columns)
        cells = []
        for row in rows:
            cells.append([Text(shown(cell)) for cell in row])
            numbers = [each and _is_number(cell) for each, cell in zip(numbers, row, strict=True)]
        for column, is_number in zip(table.columns, numbers, strict=True):
            column.justify = "right" if is_number and cells else "left"
            column.overflow = "fold"
            column.no_wrap = column.header in _WHOLE
        for texts in cells:
            table.add_row(*texts)
        console = self.console()
        if cells and _least_width(columns, cells) > console.width:
            for texts in cells:
                self.facts(zip(columns, texts, strict=True))
                self._write("\n")
            return
        with self._writing():
            console.print(table)

    def fitted(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], less: Sequence[str]
    ) -> None:
        """A table whose last column takes the room that is left, a line a row; a narrow terminal
        leaves out the columns of `less`, in this order. If that is too little, facts.
        """
        width = self.console().width
        texts = [[shown(cell) for cell in row] for row in rows]
        columns, at = list(columns), list(range(len(columns)))
        widths = [max(map(cell_len, each)) for each in zip(columns, *texts, strict=True)]
        wanted, left_out = min(widths[-1], _FOLDED_CELLS), iter(less)
        while (room := width - sum(widths[each] + _GAP_CELLS for each in at[:-1])) < wanted:
            name = next(left_out, None)
            if name is None:
                for row in texts:
                    self.facts(zip(columns, row, strict=True))
                    self._write("\n")
                return
            at.remove(columns.index(name))
        widths[-1] = room
        numbers = {each for each in at if all(_is_number(row[each]) for row in rows)}
        for row in (columns, *texts):
            cells = [_cut(row[each], widths[each], is_number=each in numbers) for each in at]
            self._write((" " * _GAP_CELLS).join(cells).rstrip() + "\n")

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Prints a name and a value per line."""
        if not self.is_terminal:
            self.table(("", ""), pairs)
            return
        found = list(pairs)
        width = max((cell_len(name) for name, _ in found), default=0)
        with self._writing():
            console = self.console()
            for name, value in found:
                line = Text.assemble((set_cell_size(name, width), "bold"), "  ", shown(value))
                console.print(line, soft_wrap=True)

    def line(self, text: object) -> None:
        self._write(shown(text) + "\n")

    def body(self, body: bytes, end: bytes = b"") -> None:
        """The bytes of a message and `end`, flushed. On a terminal: control characters escaped, and
        a line end.
        """
        if self.is_terminal:
            text = body.decode("utf-8", "backslashreplace")
            text = _CONTROL_BUT_LINES.sub(_escaped, text)
            self._write(text if text.endswith("\n") else text + "\n")
            self.flush()
            return
        with self._writing():
            self._out.flush()
            raw = getattr(self._out, "buffer", None)
            if raw is None:
                self._out.write((body + end).decode("utf-8", "surrogateescape"))
            else:
                raw.write(body + end)
            self._out.flush()

    def note(self, text: str) -> None:
        """A line to stderr, also with --json. Flushes the output first."""
        self.flush()
        self._err.write(_CONTROL_BUT_LINES.sub(_escaped, text) + "\n")
        self._err.flush()

    def flush(self) -> None:
        """Flushes the output. Raises OSError."""
        with self._writing():
            self._out.flush()

    def console(self, of_err: bool = False) -> Console:
        """A rich console on the output, or on stderr."""
        return Console(
            file=self._err if of_err else self._out, highlight=False, markup=False, emoji=False
        )

    def _write(self, text: str) -> None:
        with self._writing():
            self._out.write(text)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self.is_writing = True
        try:
            yield
        finally:
            self.is_writing = False


def shown(value: object) -> str:
    """A value for people, on one line, with control characters escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(plain(value), ensure_ascii=False)
    return _CONTROL.sub(_escaped, str(value))


def plain(value: Any) -> Any:
    """A value for JSON: dataclasses by field, without `said`; times as RFC 3339; bytes as text, or
    under `{name}_base64` if they are not UTF-8.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        fields.pop("said", None)
        return plain(fields)
    if isinstance(value, Mapping):
        return dict(pair for name, each in value.items() for pair in _pairs(str(name), each))
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return time_text(value)
    return str(value) if isinstance(value, BaseException) else value


def _pairs(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, bytes):
        return [(name, plain(value))]
    try:
        return [(name, value.decode())]
    except UnicodeDecodeError:
        return [(f"{name}_base64", base64.b64encode(value).decode())]


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def duration(value_s: float) -> str:
    """A duration in its two largest units."""
    whole = int(value_s)
    if value_s < 10:
        return f"{value_s:.1f}s"
    if whole < 60:
        return f"{whole}s"
    for unit, size, below, size_below in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // size_below:02d}{below}"
    return f"{whole}s"


def relative(moment: datetime, now: datetime) -> str:
    """A time as its distance from `now`, in its largest unit: 12m ago, in 3h, now."""
    away_s = (now - moment).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if abs(away_s) >= size:
            text = f"{int(abs(away_s) // size)}{unit}"
            return f"{text} ago" if away_s > 0 else f"in {text}"
    return "now"


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
    """The least width of the table."""
    width = 0
    for at, column in enumerate(columns):
        longest = max((row[at].cell_len for row in rows), default=0)
        longest = longest if column in _WHOLE else min(longest, _FOLDED_CELLS)
        width += max(longest, cell_len(column)) + _BETWEEN_CELLS
    return width - 1


def _cut(text: str, width: int, *, is_number: bool) -> str:
    missing = width - cell_len(text)
    if missing < 0:
        return set_cell_size(text, width - 1) + "…"
    return " " * missing + text if is_number else text + " " * missing


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _escaped(match: "re.Match[str]") -> str:
    character = match[0]
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
