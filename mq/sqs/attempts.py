"""Receives of FIFO queues that were lost on the way, by their ReceiveRequestAttemptId: asked again,
they have the same messages and receipt handles, while no message has changed.

A process keeps them in memory, ATTEMPTS_MAX at most, for KEPT_S. After a restart, or in another
process of the root, a repeat is a new receive: the first one's messages come back at the end of
their visibility timeout.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mq.broker.broker import Broker
from mq.broker.settling import IfReceives, Reschedule, settle
from mq.model.errors import MqError
from mq.model.lifecycle import State
from mq.model.message import Delivery, Part, Stamp
from mq.model.names import MessageId, QueueName

KEPT_S: Final = 300.0
ATTEMPTS_MAX: Final = 1000


class Attempt(NamedTuple):
    """A receive of a queue, by the id that its client gave it."""

    queue: QueueName
    id: str


@dataclass(frozen=True, slots=True)
class _Got:
    """A message that a receive had; unchanged while its receives and its due time are these."""

    queue: QueueName
    id: MessageId
    receives: int
    due_ms: int


class Attempts:
    """The latest receives of one broker, by their attempts."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = broker.root.clock
        self._known: dict[Attempt, tuple[float, tuple[_Got, ...]]] = {}
        """The oldest first."""

    def keep(self, attempt: Attempt, found: Sequence[Delivery]) -> None:
        """Remembers what a receive found, from its first answer on."""
        now_s = self._clock.steady_s()
        since_s, _ = self._known.pop(attempt, (now_s, ()))
        got = tuple(
            _Got(each.queue, each.id, each.stamp.receives, each.stamp.due_ms) for each in found
        )
        self._known[attempt] = since_s, got
        while len(self._known) > ATTEMPTS_MAX:
            del self._known[next(iter(self._known))]

    async def again(self, attempt: Attempt, visible_s: float) -> list[Delivery] | None:
        """The same messages, whose visibility timeout begins again, durably. None: there are none,
        or one has changed, and the attempt is forgotten.
        """
        broker = self._broker
        since_s, got = self._known.get(attempt, (0.0, ()))
        if not got or self._clock.steady_s() - since_s > KEPT_S:
            self._known.pop(attempt, None)
            return None
        found: list[Delivery] = []
        try:
            for one in got:
                found += [await _unchanged(broker, one)]
            stamps = await asyncio.gather(*(_extended(broker, each, visible_s) for each in got))
            return [each._replace(stamp=stamp) for each, stamp in zip(found, stamps, strict=True)]
        except BaseException as error:
            for delivery in found:
                if delivery.descriptor is not None:
                    broker.root.files.close(delivery.descriptor)
            self._known.pop(attempt, None)
            if isinstance(error, MqError | LookupError):
                return None
            raise


def _extended(broker: Broker, got: _Got, visible_s: float) -> Awaitable[Stamp]:
    how = Reschedule(visible_s, IfReceives(got.receives))
    return settle(broker, got.queue, got.id, how)


async def _unchanged(broker: Broker, got: _Got) -> Delivery:
    """Raises LookupError for a message that has changed, and MqError."""
    reading = await broker.read(got.queue, got.id, lambda size, _: Part(0, size), False)
    seen = (reading.state, reading.stamp.receives, reading.stamp.due_ms)
    if seen != (State.DELAYED, got.receives, got.due_ms) or got.due_ms <= broker.root.now_ms():
        if reading.descriptor is not None:
            broker.root.files.close(reading.descriptor)
        raise LookupError(got.id.text)
    return Delivery(
        *(got.queue, got.id, reading.stamp, reading.size, reading.offset),
        *(reading.body, reading.descriptor, "", reading.headers, reading.reservation),
    )
