"""A probe's finding, its level, and the exit code of all findings. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

# The command's exit codes, as mqctl's are.
OK: Final = 0
COULD_NOT_PROBE: Final = 1
SOMETHING_WRONG: Final = 5


Fact: TypeAlias = str | int | float | bool | Sequence[str] | None


class Level(StrEnum):
    """A finding's severity. WRONG alone means that mq cannot run there, or breaks a promise."""

    OK = "ok"
    NOTE = "note"
    """Good, and worth knowing."""
    WARN = "warn"
    """mq works, but slower, later, or with a weaker promise."""
    UNKNOWN = "unknown"
    """The probe could not be made."""
    WRONG = "wrong"


_ORDER = tuple(Level)


@dataclass(frozen=True, slots=True)
class Finding:
    """A probe's finding: `says` describes it, `do` is the advice. `facts` are for programs; their
    names end in the unit.
    """

    probe: str
    level: Level
    says: str
    do: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


def worst(levels: Iterable[Level]) -> Level:
    """The worst level; OK without any."""
    return max(levels, key=_ORDER.index, default=Level.OK)


def exit_code(findings: Iterable[Finding]) -> int:
    """The command's exit status: 5 where mq lacks something it needs, 1 where something could not
    be tried, else 0.
    """
    match worst(finding.level for finding in findings):
        case Level.WRONG:
            return SOMETHING_WRONG
        case Level.UNKNOWN:
            return COULD_NOT_PROBE
        case _:
            return OK
