"""Kinds of queue settings: a number, a switch, a word, a time, or a sideline's name. Pure."""

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mq.model.clock import parse_rfc3339, rfc3339
from mq.model.errors import BadName
from mq.model.limits import PUBLISHED_MS_MAX
from mq.model.names import QueueName

LABELS_MAX: Final = 64
LABELS_BYTES_MAX: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """A number within a range, whole if `is_whole`."""

    least: float
    most: float
    is_whole: bool = True

    @property
    def expected(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        return f"{kind} from {self.least:.12g} to {self.most:.15g}"

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is valid."""
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            return False
        return bool(self.least <= value <= self.most)

    def taken(self, value: Any) -> Any:
        """An accepted value as settings hold it."""
        return value if self.is_whole else float(value)


@dataclass(frozen=True, slots=True)
class Switch:
    expected: str = "true or false"

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is a boolean."""
        return isinstance(value, bool)

    def taken(self, value: Any) -> Any:
        """An accepted value as settings hold it."""
        return value


@dataclass(frozen=True, slots=True)
class Word:
    """One of these words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}"

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is one of the words."""
        return isinstance(value, str) and value in self.words

    def taken(self, value: Any) -> Any:
        """An accepted value as settings hold it."""
        return value


@dataclass(frozen=True, slots=True)
class Time:
    """A time in RFC 3339."""

    expected: str = "a time such as 2026-01-31T23:59:59Z, before the year 10000"

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is a valid time."""
        if not isinstance(value, str):
            return False
        try:
            return 0 <= parse_rfc3339(value) <= PUBLISHED_MS_MAX
        except ValueError:
            return False

    def taken(self, value: Any) -> Any:
        """An accepted value as settings hold it: in UTC, with milliseconds."""
        return rfc3339(parse_rfc3339(value))


@dataclass(frozen=True, slots=True)
class SidelineName:
    """The name of a sideline."""

    expected: str = "a sideline's name, such as failed_SIDELINE"

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is a sideline's name; the sideline need not exist."""
        try:
            return isinstance(value, str) and QueueName.parse(value).is_sideline
        except BadName:
            return False

    def taken(self, value: Any) -> Any:
        """An accepted value as settings hold it."""
        return value


@dataclass(frozen=True, slots=True)
class Labels:
    """Texts by name, kept for other programs."""

    expected: str = (
        f"an object of at most {LABELS_MAX} texts, whose JSON has at most {LABELS_BYTES_MAX} bytes"
    )

    def accepts(self, value: object) -> bool:
        """Whether a JSON value is an object of texts within the bounds."""
        return (
            isinstance(value, dict)
            and len(value) <= LABELS_MAX
            and all(isinstance(each, str) for each in value.values())
            and len(json.dumps(value)) <= LABELS_BYTES_MAX
        )

    def taken(self, value: Any) -> Any:
        """An accepted value as settings hold it."""
        return value


Kind: TypeAlias = Setting | Switch | Word | Time | SidelineName | Labels
"""Settings that have a default cannot be unset; a time and a name can."""
