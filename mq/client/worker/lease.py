"""When a message's lease is extended, and by how much: pure arithmetic over a steady clock.

A lease ends at the server's `due`. How long that is from now is told by the server's own clock, as
far as it is known: see `ServerTime`.
"""

from dataclasses import dataclass, replace

from mq.model.worker_limits import (
    EXTEND_AGAIN_S_MIN,
    EXTENDING_S_MAX,
    EXTENDING_S_MIN,
    LEASE_LEFT_SHARE,
    LEASE_S_MIN,
)


@dataclass(frozen=True, slots=True)
class Lease:
    """It ends at `ends_s`, and was `span_s` long; it is extended to `whole_s` from then on."""

    ends_s: float
    span_s: float
    whole_s: float

    @classmethod
    def of(cls, left_s: float, usual_s: float, now_s: float) -> "Lease":
        """Of a message that has just come, with so much left. What has lapsed by then, or seems to,
        is made as long as is usual.
        """
        span_s = max(left_s, 0.0)
        return cls(now_s + span_s, span_s, max(span_s or usual_s, LEASE_S_MIN))

    @property
    def extend_at_s(self) -> float:
        """When it is to be extended."""
        return self.ends_s - self.span_s * LEASE_LEFT_SHARE

    def extended(self, seconds: float, now_s: float) -> "Lease":
        """Once it was made to end so many seconds from `now_s`, when that was asked for. It is not
        made shorter from then on.
        """
        whole_s = max(seconds, self.whole_s)
        return replace(self, ends_s=now_s + seconds, span_s=seconds, whole_s=whole_s)

    def left_s(self, now_s: float) -> float:
        """What is left of it, not under 0."""
        return max(self.ends_s - now_s, 0.0)

    def patience_s(self, now_s: float) -> float:
        """How long the request that extends it may take: half of what is left, within bounds."""
        return min(max(self.left_s(now_s) / 2, EXTENDING_S_MIN), EXTENDING_S_MAX)

    def again_at_s(self, now_s: float) -> float:
        """When it is tried again after that failed."""
        return now_s + max(self.left_s(now_s) * LEASE_LEFT_SHARE, EXTEND_AGAIN_S_MIN)


@dataclass(frozen=True, slots=True)
class ServerTime:
    """By how much the server's clock is ahead of this one's, in milliseconds, as last heard."""

    ahead_ms: float = 0.0
    is_known: bool = False

    def heard(self, server_ms: float, now_ms: float) -> "ServerTime":
        """It was so late there when it was so late here."""
        return ServerTime(server_ms - now_ms, True)

    def left_s(self, due_ms: float, now_ms: float) -> float:
        """How long from now a message of that due time is its consumer's."""
        return (due_ms - now_ms - self.ahead_ms) / 1000
