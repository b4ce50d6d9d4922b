"""What an operation needs, and whether a caller has that: pure."""

from enum import StrEnum
from typing import Final, TypeAlias

from mq.access.callers import Caller, Right
from mq.access.errors import Forbidden


class Needs(StrEnum):
    """What an operation needs that no single right stands for."""

    NOTHING = "nothing"
    """It is open to all, whoever they are."""
    CALLER = "caller"
    """That it is known who asks; what is told then is looked at one by one."""
    ANY = "any"
    """Some right to the queue."""


Needed: TypeAlias = Right | Needs

RIGHTS: Final = tuple(Right)


def is_allowed(caller: Caller, needed: Needed, queue: str | None) -> bool:
    """Whether the caller may do what needs that, with a queue, or with the daemon (None)."""
    match needed:
        case Needs.NOTHING | Needs.CALLER:
            return True
        case Needs.ANY:
            return caller.may_any(RIGHTS, queue)
    return caller.may(needed, queue)


def check(caller: Caller, needed: Needed, queue: str | None) -> None:
    """Raises Forbidden where `is_allowed` says no."""
    if not is_allowed(caller, needed, queue):
        raise Forbidden(needed.value, caller.name)
