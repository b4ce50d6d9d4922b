"""How often members look, speak and deal, all by one figure."""

from dataclasses import dataclass
from typing import Self

from mq.model.upkeep_limits import (
    ASSIGN_EVERY_S,
    MEMBER_BELIEVES_S,
    MEMBER_GONE_S,
    MEMBER_LOOKS_EVERY_S,
    MEMBER_RENEWED_EVERY_S,
)


@dataclass(frozen=True, slots=True)
class Pacing:
    """Seconds each. Members of one root have the same, or a slow one is gone for a quick one."""

    assign_s: float = ASSIGN_EVERY_S
    """Between two deals of the leader."""
    look_s: float = MEMBER_LOOKS_EVERY_S
    """Between two looks at who is there and what was dealt."""
    renew_s: float = MEMBER_RENEWED_EVERY_S
    """Between two times that a member says that it is there."""
    believe_s: float = MEMBER_BELIEVES_S
    """For how long after that a member has its queues."""
    gone_s: float = MEMBER_GONE_S
    """After how long a member that said nothing more is gone for the others."""

    @classmethod
    def of(cls, assign_s: float) -> Self:
        """The pacing with so many seconds between two deals, and all else in proportion."""
        scale = assign_s / ASSIGN_EVERY_S
        return cls(
            assign_s,
            MEMBER_LOOKS_EVERY_S * scale,
            MEMBER_RENEWED_EVERY_S * scale,
            MEMBER_BELIEVES_S * scale,
            MEMBER_GONE_S * scale,
        )
