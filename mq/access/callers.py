"""Callers and what they may do: pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Protocol


class Right(StrEnum):
    """What a caller may be allowed to do with a queue. ADMIN includes the others."""

    PUBLISH = "publish"
    CONSUME = "consume"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights to the queues whose names match a pattern: `*`, `orders`, `orders-*`."""

    pattern: str
    rights: frozenset[Right]

    def covers(self, right: Right, queue: str | None) -> bool:
        """Whether it gives the right to a queue; None: to all there are, and the daemon itself."""
        if right not in self.rights and Right.ADMIN not in self.rights:
            return False
        return self.pattern == "*" if queue is None else fnmatchcase(queue, self.pattern)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, by the name that the log has."""

    name: str
    grants: tuple[Grant, ...]

    def may(self, right: Right, queue: str | None = None) -> bool:
        """Whether any of the grants gives the right to a queue, or to the daemon (None)."""
        return any(each.covers(right, queue) for each in self.grants)

    def may_any(self, rights: Iterable[Right], queue: str | None = None) -> bool:
        """Whether one of the rights is given."""
        return any(self.may(each, queue) for each in rights)


class Verifier(Protocol):
    """Knows callers by the tokens that they show."""

    def caller(self, token: str) -> Caller | None:
        """Who shows this bearer token; None: none that it knows, or whose time is over. Does not
        block.
        """


ANYBODY: Final = Caller("anonymous", (Grant("*", frozenset({Right.ADMIN})),))
"""Every caller of a daemon without access control."""
