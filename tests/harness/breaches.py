"""What a rule of histories is, and what it yields."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.history import History


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that does not hold, for which message, and what shows it."""

    rule: str
    id: str | None
    text: str


Rule = Callable[[History], Iterator[Breach]]
