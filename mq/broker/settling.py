"""Settling messages: deleting them, giving them another due time, and moving them to the sideline.

Items of a pack are settled as the pack where the same is to be done to all, else each alone, once
the pack is parted (`packs.py`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mq.broker.broker import Broker
from mq.model.errors import MqError, QueueNotFound, Unavailable
from mq.model.failure import Failure
from mq.model.log import logger
from mq.model.message import GivenBack, Reason, Stamp
from mq.model.names import MessageId, QueueName, pack_of
from mq.store.core.find import Precondition
from mq.store.operations.sideline import Sidelined

_log = logger("mq.broker")

T = TypeVar("T")


class Disposition(ABC, Generic[T]):
    """What is done to a message. Items of a pack with equal deeds may be settled as the pack.

    `extends_s`: for an extension, the seconds until the message is due then. `is_each`: each item
    has something of its own, so that its pack must be parted.
    """

    __slots__ = ()

    @property
    def extends_s(self) -> float | None:
        return None

    @property
    def is_each(self) -> bool:
        return False

    @abstractmethod
    def begin(
        self, broker: Broker, queue: QueueName, unit: MessageId
    ) -> "Coroutine[Any, Any, T] | asyncio.Future[T]":
        """Does it to a message with a file of its own, or to a whole pack."""


@dataclass(frozen=True, slots=True)
class IfReceives:
    """The precondition that a message has these receives."""

    receives: int

    def __call__(self, receives: int) -> bool:
        return receives == self.receives


@dataclass(frozen=True, slots=True)
class Remove(Disposition[bool]):
    """The result is False when the message was removed before."""

    if_receives: Precondition | None = None

    def begin(self, broker: Broker, queue: QueueName, unit: MessageId) -> "asyncio.Future[bool]":
        return broker.remove(queue, unit, self.if_receives)


@dataclass(frozen=True, slots=True)
class Reschedule(Disposition[Stamp]):
    """The result is the message's new stamp. See `mq.store.operations.reschedule`."""

    due_in_s: float
    if_receives: Precondition | None = None
    given: GivenBack = GivenBack.NO
    failure: Failure | None = None

    @property
    def extends_s(self) -> float | None:
        return self.due_in_s if self.given is GivenBack.NO else None

    @property
    def is_each(self) -> bool:
        return self.failure is not None

    def begin(
        self, broker: Broker, queue: QueueName, unit: MessageId
    ) -> Coroutine[Any, Any, Stamp]:
        how = (self.due_in_s, self.if_receives, self.given, self.failure)
        return broker.reschedule(queue, unit, *how)


@dataclass(frozen=True, slots=True)
class Sideline(Disposition[Sidelined]):
    """To the queue's sideline, or the one that it shares; `failure` is kept with the message."""

    reason: Reason = Reason.REJECTED
    if_receives: Precondition | None = None
    failure: Failure | None = None

    @property
    def is_each(self) -> bool:
        return self.failure is not None

    def begin(
        self, broker: Broker, queue: QueueName, unit: MessageId
    ) -> Coroutine[Any, Any, Sidelined]:
        how = (self.reason, self.if_receives, self.failure)
        return broker.sidelines.sideline(queue, unit, *how)


def begin(
    broker: Broker, queue: QueueName, message_id: MessageId, how: Disposition[T]
) -> "asyncio.Future[T]":
    """Settles a message, durably once the future is done. Do not cancel the future: it does not
    stop the operation. Raises, in the future, QueueNotFound, MessageNotFound, DeliveredAgain,
    Unavailable; a Reschedule also DueTooFar, a Sideline also AlreadySideline, MessageLeased.
    """
    if message_id.pack_size:
        return broker.begin(_of_a_pack(broker, queue, message_id, how))
    work = how.begin(broker, queue, message_id)
    # A task of the broker's: its error is heard though its caller is gone.
    return work if isinstance(work, asyncio.Future) else broker.begin(work)


async def settle(broker: Broker, queue: QueueName, message_id: MessageId, how: Disposition[T]) -> T:
    """Like `begin`; goes on when the caller is cancelled. Durable on return: yes."""
    return await asyncio.shield(begin(broker, queue, message_id, how))


async def _of_a_pack(broker: Broker, queue: QueueName, item: MessageId, how: Disposition[T]) -> T:
    end = (await _items(broker, queue, (item,), how))[item]
    if isinstance(end, BaseException):
        raise end
    return end


async def _items(
    broker: Broker, queue: QueueName, ids: Sequence[MessageId], how: Disposition[T]
) -> dict[MessageId, T | BaseException]:
    """Settles items of one pack."""

    def act(unit: MessageId) -> Awaitable[T]:
        return how.begin(broker, queue, unit)

    return await broker.packs.settle(queue, ids, act, how.extends_s, how.is_each)


async def settle_many(
    broker: Broker, queue: QueueName, wanted: Mapping[MessageId, Disposition[Any]]
) -> dict[MessageId, Any | BaseException]:
    """Settles the messages together, each once. Returns the result or the error of each. Raises
    QueueNotFound when the queue is gone. Durable on return: each message without an error.
    """
    await broker.queue(queue)
    plain = [each for each in wanted if not each.pack_size]
    packed: dict[tuple[str, Disposition[Any]], list[MessageId]] = {}
    if len(plain) < len(wanted):
        for each in wanted:
            if each.pack_size:
                packed.setdefault((pack_of(each.text), wanted[each]), []).append(each)
    acts = (begin(broker, queue, each, wanted[each]) for each in plain)
    items = (broker.begin(_items(broker, queue, ids, how)) for (_, how), ids in packed.items())
    # One shield for all: no act is cancelled with the caller.
    alone, of_packs = await asyncio.shield(
        asyncio.gather(asyncio.gather(*acts, return_exceptions=True), asyncio.gather(*items))
    )
    ends: dict[MessageId, Any | BaseException] = dict(zip(plain, alone, strict=True))
    for each in of_packs:
        ends |= each
    if ends and all(isinstance(end, QueueNotFound) for end in ends.values()):
        raise QueueNotFound(queue.text)
    return ends


def begin_return(
    broker: Broker, fetched: Sequence[tuple[QueueName, MessageId, int]]
) -> "asyncio.Task[None]":
    """Returns deliveries that no program handled, in the background, each by its queue, id and
    receives. Messages that have moved on, or cannot be returned, stay. Durable once the task is
    done: yes.
    """
    return broker.begin(_return(broker, fetched))


async def _return(broker: Broker, fetched: Sequence[tuple[QueueName, MessageId, int]]) -> None:
    of_queues: dict[QueueName, dict[MessageId, Disposition[Stamp]]] = {}
    for queue, message_id, receives in fetched:
        how = Reschedule(0, IfReceives(receives), GivenBack.UNHANDLED)
        of_queues.setdefault(queue, {})[message_id] = how
    returns = (settle_many(broker, queue, wanted) for queue, wanted in of_queues.items())
    for ends in await asyncio.gather(*returns, return_exceptions=True):
        for end in [ends] if isinstance(ends, BaseException) else ends.values():
            if isinstance(end, Unavailable):
                _log.warning(
                    "could not return a message; it is ready when it is due",
                    extra={"fields": {"error": repr(end)}},
                )
            elif isinstance(end, BaseException) and not isinstance(end, MqError):
                raise end
