"""Extends a worker's messages before they are due, while they wait or are handled.

A message is due by mq's clock. `ServerTime` knows how far that is ahead of this machine's.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from mq.client.errors import (
    AlreadySettled,
    ClientError,
    DeliveredAgain,
    MessageNotFound,
    NotUsable,
    QueueNotFound,
    one_line,
)
from mq.client.message import AsyncMessage
from mq.client.options import Seams
from mq.client.worker.handlers import Handler

# The share of a lease that is left when it is extended; how long one is made at least; how long the
# request may take, and how soon one that failed is repeated.
LEASE_LEFT_SHARE: Final = 1 / 3
LEASE_S_MIN: Final = 1.0
EXTENDING_S_MIN: Final = 0.5
EXTENDING_S_MAX: Final = 10.0
EXTEND_AGAIN_S_MIN: Final = 0.2
EXTEND_AGAIN_S_MAX: Final = 5.0

LOST: Final[tuple[type[ClientError], ...]] = (DeliveredAgain, MessageNotFound, QueueNotFound)
"""The errors that mean that a message is no longer its consumer's."""

_log: Final = logging.getLogger("mq.worker")
_OVER: Final[tuple[type[ClientError], ...]] = (AlreadySettled, NotUsable, *LOST)


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a message is its consumer's: until `ends_s`, of `span_s` in all. Each extension is
    for `whole_s`.
    """

    ends_s: float
    span_s: float
    whole_s: float

    @classmethod
    def of(cls, left_s: float, usual_s: float, now_s: float) -> "Lease":
        """The lease of a message that arrives with `left_s`. One that is over, or seems so, is
        extended for `usual_s`.
        """
        span_s = max(left_s, 0.0)
        return cls(now_s + span_s, span_s, max(span_s or usual_s, LEASE_S_MIN))

    @property
    def extend_at_s(self) -> float:
        return self.ends_s - self.span_s * LEASE_LEFT_SHARE

    def extended(self, seconds: float, now_s: float) -> "Lease":
        """The lease after an extension for `seconds` from `now_s`, the time of the request. Later
        extensions are no shorter.
        """
        whole_s = max(seconds, self.whole_s)
        return replace(self, ends_s=now_s + seconds, span_s=seconds, whole_s=whole_s)

    def left_s(self, now_s: float) -> float:
        """The rest of it, at least 0."""
        return max(self.ends_s - now_s, 0.0)

    def patience_s(self, now_s: float) -> float:
        """How long a request to extend it may take: half of the rest, within bounds."""
        return min(max(self.left_s(now_s) / 2, EXTENDING_S_MIN), EXTENDING_S_MAX)

    def again_at_s(self, now_s: float) -> float:
        """When to retry a failed extension: once it is over, after waits that double."""
        late_s = min(now_s - self.ends_s, EXTEND_AGAIN_S_MAX)
        return now_s + max(self.left_s(now_s) * LEASE_LEFT_SHARE, late_s, EXTEND_AGAIN_S_MIN)


@dataclass(frozen=True, slots=True)
class ServerTime:
    """How far mq's clock is ahead of this machine's, in milliseconds, by its last answer."""

    ahead_ms: float = 0.0
    is_known: bool = False

    def heard(self, server_ms: float, now_ms: float) -> "ServerTime":
        """mq's clock showed `server_ms` at `now_ms`."""
        return ServerTime(server_ms - now_ms, True)

    def left_s(self, due_ms: float, now_ms: float) -> float:
        """How long a message with this due time is its consumer's."""
        return (due_ms - now_ms - self.ahead_ms) / 1000


class Delivery:
    """One delivery of a message: its lease, and whether it was lost. `url`: mq's, for logs.
    `handler`: the queue's handler for it, if any.
    """

    __slots__ = ("_url", "came_s", "handler", "is_lost", "lease", "message", "straggler", "timer")

    def __init__(
        self, message: AsyncMessage, url: str, handler: Handler | None, came_s: float
    ) -> None:
        self.message = message
        self.handler = handler
        self.came_s = came_s
        """When it came, by the event loop's clock."""
        self._url = url
        self.is_lost = False
        """It was delivered again, or is gone: it cannot be settled any more."""
        self.lease: Lease | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Calls the next extension."""
        self.straggler: asyncio.Future[object] | None = None
        """Its handler, if that continues beyond its time limit."""

    @property
    def is_over(self) -> bool:
        """Whether it is settled or lost."""
        return self.is_lost or self.message.settled is not None

    @property
    def named(self) -> str:
        return f"message {self.message.id} of {self.message.queue} at {self._url}"

    @property
    def facts(self) -> dict[str, object]:
        message = self.message
        return {"queue": message.queue, "id": message.id, "receives": message.receives}


class Leases:
    """Extends the lease of each message that it holds, when a third of it is left, in one event
    loop.
    """

    def __init__(self, seams: Seams) -> None:
        self._clock = seams.clock
        self._server = ServerTime()
        self._extending: set[asyncio.Task[None]] = set()

    @property
    def knows_time(self) -> bool:
        return self._server.is_known

    def heard(self, server_time: datetime) -> None:
        """mq's clock shows `server_time` now."""
        self._server = self._server.heard(_ms(server_time), self._clock.now_ms())

    def hold(self, delivery: Delivery, usual_s: float) -> None:
        """Extends it from now on, for `usual_s` where it was due before it arrived."""
        left_s = self._server.left_s(_ms(delivery.message.due), self._clock.now_ms())
        delivery.lease = lease = Lease.of(left_s, usual_s, self._clock.steady_s())
        self._ring_at(delivery, lease.extend_at_s)

    def let_go(self, delivery: Delivery) -> None:
        """Extends it no more; a request in flight continues."""
        delivery.lease = None
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None

    async def extend(self, delivery: Delivery, seconds: float) -> datetime:
        """Makes it due in `seconds`; returns when that is. Raises as AsyncMessage.extend; for a
        message that is no longer the worker's, the delivery is lost.
        """
        began_s = self._clock.steady_s()
        try:
            due = await delivery.message.extend(seconds)
        except LOST:
            self.lose(delivery)
            raise
        self._server = self._server.heard(_ms(due) - 1000 * seconds, self._clock.now_ms())
        if delivery.lease is not None:
            delivery.lease = delivery.lease.extended(seconds, began_s)
            self._ring_at(delivery, delivery.lease.extend_at_s)
        return due

    def lose(self, delivery: Delivery) -> None:
        """Marks it as another's or gone. Its handler continues, and may see `is_lost`."""
        if not delivery.is_lost:
            _log.warning(
                "%s is no longer the worker's: it was due, or deleted; its handler's result has no "
                "effect",
                delivery.named,
                extra={"fields": delivery.facts},
            )
        delivery.is_lost = True
        self.let_go(delivery)

    async def close(self) -> None:
        for task in self._extending:
            task.cancel()
        if self._extending:
            await asyncio.wait(self._extending)

    def _ring_at(self, delivery: Delivery, at_s: float) -> None:
        if delivery.timer is not None:
            delivery.timer.cancel()
        delay_s = max(at_s - self._clock.steady_s(), 0.0)
        delivery.timer = asyncio.get_running_loop().call_later(delay_s, self._begin, delivery)

    def _begin(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._keep(delivery))
        self._extending.add(task)
        task.add_done_callback(self._extending.discard)

    async def _keep(self, delivery: Delivery) -> None:
        lease = delivery.lease
        if lease is None or delivery.is_over:
            return
        try:
            # Early enough for a retry, with any time-outs of the client.
            async with asyncio.timeout(lease.patience_s(self._clock.steady_s())):
                await self.extend(delivery, lease.whole_s)
        except _OVER:
            return
        except (ClientError, TimeoutError) as error:
            now_s = self._clock.steady_s()
            left_s = lease.left_s(now_s)
            _log.warning(
                "could not extend %s: %s; retries, %.1f s before it is due",
                *(delivery.named, one_line(error), left_s),
                extra={"fields": {**delivery.facts, "error": one_line(error), "left_s": left_s}},
            )
            if delivery.lease is not None:
                self._ring_at(delivery, lease.again_at_s(now_s))


def _ms(when: datetime) -> float:
    return when.timestamp() * 1000
