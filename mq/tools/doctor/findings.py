"""What a probe says, and what all of them say together. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from mq.tools.doctor.limits import COULD_NOT_PROBE, OK, SOMETHING_WRONG

Fact: TypeAlias = str | int | float | bool | Sequence[str] | None


class Level(StrEnum):
    """How good it is. Only WRONG is what mq does not hold, or does not run, with."""

    OK = "ok"
    NOTE = "note"
    """As good, and worth knowing."""
    WARN = "warn"
    """mq works, with less: slower, later, or with a smaller promise."""
    UNKNOWN = "unknown"
    """It could not be tried."""
    WRONG = "wrong"


_ORDER = tuple(Level)


@dataclass(frozen=True, slots=True)
class Finding:
    """One probe's word: `says` what was found, `do` what helps. `facts` are for programs; units
    stand last in their names.
    """

    probe: str
    level: Level
    says: str
    do: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


def worst(levels: Iterable[Level]) -> Level:
    """The worst of them; OK where there are none."""
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
