"""How a command says what it found: a table on a terminal, tab-separated lines when piped, JSON
with --json.

What came from elsewhere (a body, a header, a name) is shown with its control characters written
out, so that no message can command a terminal; bytes that are asked for as they are go through
`body`. Nothing here is durable.
"""

import base64
import contextlib
import dataclasses
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

# All but what a line is made of; C1 too, and what turns the direction of writing.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_CONTROL_BUT_LINES: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
# The columns that have what commands take: it is copied, and so it is neither broken nor cut.
_WHOLE: Final = frozenset(("id", "queue", "schedule", "member", "name"))
# The least width of a column that may wrap: half a timestamp.
_FOLDED_CELLS: Final = 12
_BETWEEN_CELLS: Final = 3
_WRITTEN: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Printer:
    """Where a command's output goes: `out` is stdout, notes go to stderr."""

    def __init__(self, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self.is_writing = False
        """Whether it stands in a write, which takes as long as a reader lets it."""
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at the output itself."""
        return not self.as_json and self._out.isatty()

    @property
    def err_is_terminal(self) -> bool:
        """Whether somebody looks at the notes."""
        return self._err.isatty()

    def document(self, value: Any) -> None:
        """One JSON document, indented where it is read by a person."""
        indent = 2 if self._out.isatty() else None
        self._write(json.dumps(plain(value), indent=indent, ensure_ascii=False) + "\n")

    def row(self, value: Any) -> None:
        """A line of JSON, flushed: of a stream somebody may wait for each."""
        self._write(json.dumps(plain(value), ensure_ascii=False) + "\n")
        self.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Rows for people: under their columns' names on a terminal, or, where that is too narrow,
        each as facts; when piped one line each, tab-separated, without a header.
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

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Prints a name and a value a line; the terminal wraps long values."""
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
        """A line of text."""
        self._write(shown(text) + "\n")

    def body(self, body: bytes, end: bytes = b"") -> None:
        """A message's bytes as they are, then `end`, flushed; to a terminal with control
        characters written out, and a line's end.
        """
        if self.is_terminal:
            text = body.decode("utf-8", "backslashreplace")
            text = _CONTROL_BUT_LINES.sub(_written_out, text)
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
        """A line for people beside the output, behind what was printed: to stderr, also with
        --json.
        """
        self.flush()
        self._err.write(_CONTROL_BUT_LINES.sub(_written_out, text) + "\n")
        self._err.flush()

    def flush(self) -> None:
        """Hands over all that was printed. Raises OSError where that cannot be."""
        with self._writing():
            self._out.flush()

    def console(self, of_err: bool = False) -> Console:
        """rich's view of the output, or of the notes, for what moves."""
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
    """A value as a person reads it, on one line, without control characters."""
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
    return _CONTROL.sub(_written_out, str(value))


def plain(value: Any) -> Any:
    """A value as JSON has it: values of the client by their fields' names, times as RFC 3339; a
    `body` that is no UTF-8 is `body_base64`, and what mq said word for word (`said`) is left out.
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


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
    """The least width that the table fits."""
    width = 0
    for at, column in enumerate(columns):
        longest = max((row[at].cell_len for row in rows), default=0)
        longest = longest if column in _WHOLE else min(longest, _FOLDED_CELLS)
        width += max(longest, cell_len(column)) + _BETWEEN_CELLS
    return width - 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written_out(match: "re.Match[str]") -> str:
    character = match[0]
    if character in _WRITTEN:
        return _WRITTEN[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
