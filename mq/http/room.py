"""Which connections a server has: no more than it may, idle ones going before new ones.

Pure, but for what it is given to ask.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

from mq.model.serving_limits import (
    DESCRIPTORS_KEPT,
    DESCRIPTORS_KEPT_SHARE,
    DESCRIPTORS_REFUSED_SHARE,
    IDLE_LOOK_EVERY_S,
    IDLE_S_MIN,
    REFUSED_LINGER_MAX,
    UNREAD_S_DEFAULT,
)
from mq.runtime.server_settings import ServerSettings


class Held(Protocol):
    """A connection, as far as this is about it."""

    @property
    def idle_since_s(self) -> float | None:
        """Since when nothing goes on there, by the loop's clock; None: something does."""

    @property
    def has_spoken(self) -> bool:
        """Whether anything came from the client."""

    def force_close(self) -> None:
        """Ends it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What connections may use up: how many there may be, how long the head of a request may take,
    and so a client that has said nothing yet before others go first.
    """

    connections_max: int
    head_s: float
    unread_s: float = UNREAD_S_DEFAULT
    """How long a client may take nothing of what waits for it."""
    lingering_max: int = REFUSED_LINGER_MAX
    """How many that were refused may still be there to read their answer."""

    @classmethod
    def of(cls, settings: ServerSettings, descriptors: float) -> Self:
        """The settings' bounds, within what a process may do that may have so many files open: a
        connection is one, and without any left over no other can be accepted or even refused.
        """
        kept = min(DESCRIPTORS_KEPT, descriptors * DESCRIPTORS_KEPT_SHARE)
        lingering = min(REFUSED_LINGER_MAX, descriptors * DESCRIPTORS_REFUSED_SHARE)
        room = max(1.0, descriptors - kept - lingering)
        return cls(
            int(min(settings.connections_max, room)),
            settings.head_s,
            settings.unread_s,
            int(lingering),
        )


class Room:
    """Says of each new connection whether it may be. `connections`: those that there are."""

    def __init__(
        self, bounds: Bounds, connections: Callable[[], Iterable[Held]], now_s: Callable[[], float]
    ) -> None:
        self._bounds: Final = bounds
        self._connections = connections
        self._now_s = now_s
        self._idle: deque[tuple[float, Held]] = deque()
        self._looked_s = float("-inf")

    def has_for_one_more(self, count: int) -> bool:
        """Whether there may be one more beside `count` others; of those that are idle the one that
        has been so for longest is closed for it.
        """
        return count < self._bounds.connections_max or self._close_one()

    def _close_one(self) -> bool:
        now_s = self._now_s()
        if not self._idle and now_s - self._looked_s >= IDLE_LOOK_EVERY_S:
            self._looked_s = now_s
            self._idle.extend(found_idle(self._connections(), now_s, self._bounds.head_s))
        while self._idle:
            since_s, held = self._idle.popleft()
            if held.idle_since_s == since_s:  # Not used since.
                held.force_close()
                return True
        return False


def found_idle(
    connections: Iterable[Held], now_s: float, head_s: float
) -> Sequence[tuple[float, Held]]:
    """Those that may be closed for others' sake, and since when they are idle; oldest first."""
    found: list[tuple[float, Held]] = []
    for each in connections:
        since_s = each.idle_since_s
        patience_s = IDLE_S_MIN if each.has_spoken else head_s
        if since_s is not None and now_s - since_s >= patience_s:
            found.append((since_s, each))
    return sorted(found, key=lambda one: one[0])
