"""The reason of a failed attempt, as its consumer reports it: some kilobytes that are kept with the
message.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Self

# Limits: the UTF-8 bytes of all texts of a failure, the failures kept per message (the newest), and
# the characters of a failure's line.
FAILURE_BYTES_MAX: Final = 8 * 1024
FAILURES_MAX: Final = 5
FAILURE_LINE_CHARS_MAX: Final = 200

EXPECTED: Final = (
    'text, or an object with some of "type", "text", "trace" and "handler", each text, '
    f"{FAILURE_BYTES_MAX} bytes in all"
)
_CUT: Final = "\n[...]\n"


@dataclass(frozen=True, slots=True)
class Failure:
    """A consumer's report of a failure: the exception's type, text and trace, and the handler; ""
    if not given. Raises ValueError for an empty or too long report.
    """

    text: str = ""
    type: str = ""
    trace: str = ""
    handler: str = ""

    def __post_init__(self) -> None:
        said = self.said()
        # UnicodeEncodeError, of a lone surrogate, is a ValueError.
        if not said or sum(len(each.encode()) for each in said.values()) > FAILURE_BYTES_MAX:
            raise ValueError(f"a failure must be {EXPECTED}")

    @classmethod
    def of(cls, said: object) -> Self:
        """Parses a request's failure: a text, or an object. Raises ValueError."""
        if isinstance(said, str):
            return cls(said)
        if not isinstance(said, Mapping) or not said.keys() <= NAMES:
            raise ValueError(f"a failure must be {EXPECTED}")
        if not all(isinstance(each, str) for each in said.values()):
            raise ValueError(f"a failure must be {EXPECTED}")
        return cls(**said)

    @classmethod
    def cut(cls, text: str, type_: str, trace: str, handler: str) -> Self:
        """Makes a failure of texts of any length. Cuts the trace in the middle, since its first and
        last lines are the most useful.
        """
        quarter = FAILURE_BYTES_MAX // 4
        text, type_, handler = _end_cut(text, quarter), _end_cut(type_, 256), _end_cut(handler, 256)
        return cls(text, type_, _middle_cut(trace, 2 * quarter), handler)

    def said(self) -> dict[str, str]:
        return {name: text for name, text in asdict(self).items() if text}


NAMES: Final = frozenset(each.name for each in fields(Failure))


def line_of(said: Mapping[str, object]) -> str:
    """A failure's type and text in one printable line of at most FAILURE_LINE_CHARS_MAX
    characters.
    """
    parts = (said.get(name) for name in ("type", "text"))
    line = ": ".join(part for part in parts if isinstance(part, str) and part)
    line = " ".join("".join(each if each.isprintable() else " " for each in line).split())
    if not line:
        return "a failure"
    if len(line) > FAILURE_LINE_CHARS_MAX:
        line = line[: FAILURE_LINE_CHARS_MAX - 3] + "..."
    return line


def _clean(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _end_cut(text: str, size: int) -> str:
    return _clean(text)[:size].decode("utf-8", "ignore")


def _middle_cut(text: str, size: int) -> str:
    whole = _clean(text)
    if len(whole) <= size:
        return whole.decode()
    half = (size - len(_CUT)) // 2
    begins, ends = whole[:half].decode("utf-8", "ignore"), whole[-half:].decode("utf-8", "ignore")
    return begins + _CUT + ends
