"""Callers, what they may do, and grants as text: `orders-*:publish,consume`. Pure.

    grant   = pattern ":" right *("," right)
    pattern = 1*( ALPHA / DIGIT / "_" / "." / "-" / "*" )
    right   = "publish" / "consume" / "admin"

A `*` stands for any characters, also none. Everything else in a pattern stands for itself.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Protocol, TypeAlias

from mq.access.errors import BadGrant, Forbidden

# A caller's name in the log, from a token or certificate that others issued.
CALLER_NAME_CHARS_MAX: Final = 256
GRANTS_MAX: Final = 64
PATTERN_CHARS_MAX: Final = 64


class Right(StrEnum):
    """A right to a queue. ADMIN includes the others."""

    PUBLISH = "publish"
    CONSUME = "consume"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights to the queues whose names match a pattern: `*`, `orders`, `orders-*`."""

    pattern: str
    rights: frozenset[Right]

    def covers(self, right: Right, queue: str | None) -> bool:
        """Whether it gives the right to a queue; None: to all queues and the daemon."""
        if right not in self.rights and Right.ADMIN not in self.rights:
            return False
        return self.pattern == "*" if queue is None else fnmatchcase(queue, self.pattern)


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller, by the name in the log."""

    name: str
    grants: tuple[Grant, ...]

    def may(self, right: Right, queue: str | None = None) -> bool:
        """Whether any of the grants gives the right to a queue, or to the daemon (None)."""
        return any(each.covers(right, queue) for each in self.grants)

    def may_any(self, rights: Iterable[Right], queue: str | None = None) -> bool:
        """Whether one of the rights is given."""
        return any(self.may(each, queue) for each in rights)


class Verifier(Protocol):
    """Finds callers by their tokens."""

    def caller(self, token: str) -> Caller | None:
        """The caller of a bearer token; None: unknown or expired. Does not block."""


ANONYMOUS: Final = Caller("anonymous", (Grant("*", frozenset({Right.ADMIN})),))
"""Every caller of a daemon without access control."""


class Needs(StrEnum):
    """A requirement that is not a single right."""

    NOTHING = "nothing"
    """Open to all callers."""
    CALLER = "caller"
    """A known caller; the handler checks each item."""
    ANY = "any"
    """Any right to the queue."""


Needed: TypeAlias = Right | Needs

RIGHTS: Final = tuple(Right)


def is_allowed(caller: Caller, needed: Needed, queue: str | None) -> bool:
    """Whether the caller has the rights for a queue, or for the daemon (None)."""
    match needed:
        case Needs.NOTHING | Needs.CALLER:
            return True
        case Needs.ANY:
            return caller.may_any(RIGHTS, queue)
    return caller.may(needed, queue)


def check(caller: Caller, needed: Needed, queue: str | None) -> None:
    """Raises Forbidden unless `is_allowed`."""
    if not is_allowed(caller, needed, queue):
        raise Forbidden(needed.value, caller.name)


_GRANT: Final = re.compile(rf"(?P<pattern>[A-Za-z0-9_.*-]{{1,{PATTERN_CHARS_MAX}}}):(?P<rights>.*)")
_SHOWN_CHARS: Final = 80


def parse_grant(text: str) -> Grant:
    """The grant of a text. Raises BadGrant."""
    match = _GRANT.fullmatch(text)
    if match is None:
        raise BadGrant(
            f"{_shown(text)} is not of the form PATTERN:RIGHTS, such as orders-*:publish,consume"
        )
    try:
        found = [Right(each) for each in match["rights"].split(",")]
    except ValueError:
        raise BadGrant(
            f"{_shown(text)}: rights must be {', '.join(Right)}, separated by commas"
        ) from None
    if len(set(found)) < len(found):
        raise BadGrant(f"{_shown(text)} names a right twice")
    return Grant(match["pattern"], frozenset(found))


def parse_grants(texts: Iterable[str]) -> tuple[Grant, ...]:
    """The grants of these texts. Raises BadGrant."""
    return tuple(map(parse_grant, texts))


def printed(grant: Grant) -> str:
    """The grant as text, for `parse_grant`."""
    return f"{grant.pattern}:{','.join(each for each in Right if each in grant.rights)}"


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARS])
