"""What a queue's setting may be: a number, a switch, one of some words, or a time. Pure."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from mq.model.clock import parse_rfc3339, rfc3339
from mq.model.limits import PUBLISHED_MS_MAX


@dataclass(frozen=True, slots=True)
class Setting:
    """What a setting may be: a number between these, whole where `is_whole`."""

    least: float
    most: float
    is_whole: bool = True

    @property
    def expected(self) -> str:
        """In words."""
        kind = "a whole number" if self.is_whole else "a number"
        return f"{kind} from {self.least:.12g} to {self.most:.15g}"

    def accepts(self, value: object) -> bool:
        """Whether a value, as JSON gives it, is one that the setting may have."""
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            return False
        return bool(self.least <= value <= self.most)

    def taken(self, value: Any) -> Any:
        """An accepted value, as settings hold it."""
        return value if self.is_whole else float(value)


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting that is on or off."""

    expected: str = "true or false"

    def accepts(self, value: object) -> bool:
        """Whether a value, as JSON gives it, is one of the two."""
        return isinstance(value, bool)

    def taken(self, value: Any) -> Any:
        """An accepted value, as settings hold it."""
        return value


@dataclass(frozen=True, slots=True)
class Word:
    """A setting that is one of these words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        """In words."""
        return f"one of {', '.join(self.words)}"

    def accepts(self, value: object) -> bool:
        """Whether a value, as JSON gives it, is one of them."""
        return isinstance(value, str) and value in self.words

    def taken(self, value: Any) -> Any:
        """An accepted value, as settings hold it."""
        return value


@dataclass(frozen=True, slots=True)
class Time:
    """A setting that is a time, as RFC 3339 writes it."""

    expected: str = "a time such as 2026-01-31T23:59:59Z, before the year 10000"

    def accepts(self, value: object) -> bool:
        """Whether a value, as JSON gives it, is a time that can be told."""
        if not isinstance(value, str):
            return False
        try:
            return 0 <= parse_rfc3339(value) <= PUBLISHED_MS_MAX
        except ValueError:
            return False

    def taken(self, value: Any) -> Any:
        """An accepted value, as settings hold it: in UTC, with milliseconds."""
        return rfc3339(parse_rfc3339(value))


Kind: TypeAlias = Setting | Switch | Word | Time
