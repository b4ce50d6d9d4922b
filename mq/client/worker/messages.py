"""A handler's message: the fetched message, and whether it is still the worker's."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from mq.client.errors import NotUsable
from mq.client.message import Fetched
from mq.client.values import Reason
from mq.client.worker.leases import LOST, Delivery, Leases
from mq.model.failure import Failure

T = TypeVar("T")


class _Given(Fetched):
    """A message and its delivery."""

    __slots__ = ("_delivery", "_leases")

    def __init__(self, delivery: Delivery, leases: Leases) -> None:
        super().__init__(delivery.message.queue, delivery.message.row)
        self._delivery = delivery
        self._leases = leases

    @property
    def due(self) -> datetime:
        """Until then no other consumer gets it, by mq's clock; the worker extends it."""
        return self._delivery.message.due

    @property
    def settled(self) -> str | None:
        """How it was settled: deleted, released, sidelined; None: it is not."""
        return self._delivery.message.settled

    @property
    def is_lost(self) -> bool:
        """Whether it is another consumer's by now, or gone: the handler's result does not count
        then. A long handler checks it now and then, and returns.
        """
        return self._delivery.is_lost

    async def _settled(self, settle: Callable[[], Awaitable[T]]) -> T:
        try:
            return await settle()
        except LOST:
            self._leases.lose(self._delivery)
            raise


class AsyncWorkerMessage(_Given):
    """The message of an `async def` handler, and of middleware. Once the handler has settled it,
    the handler's result does not count. Each method raises DeliveredAgain and MessageNotFound for a
    lost message, AlreadySettled for one that was settled in another way.
    """

    __slots__ = ()

    async def delete(self) -> None:
        """Deletes the message, which is handled. Durable on return."""
        await self._settled(self._delivery.message.delete)

    async def release(self, delay_s: float = 0.0, *, reason: str | Failure | None = None) -> None:
        """Makes the message ready again after `delay_s`; `reason` is kept with it. Durable on
        return.
        """
        await self._settled(partial(self._delivery.message.release, delay_s, reason=reason))

    async def sideline(self, reason: Reason | str | Failure = "rejected") -> None:
        """Moves the message to its queue's sideline; as of AsyncMessage. Durable on return."""
        await self._settled(partial(self._delivery.message.sideline, reason))

    async def extend(self, seconds: float) -> datetime:
        """Keeps the message for at least `seconds` from now; returns until when. Durable on return.
        The worker extends messages by itself: call this for a later redelivery after a crash.
        """
        return await self._leases.extend(self._delivery, seconds)


class WorkerMessage(_Given):
    """The message of any other handler, in a thread. Else as AsyncWorkerMessage."""

    __slots__ = ("_loop",)

    def __init__(self, delivery: Delivery, leases: Leases, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(delivery, leases)
        self._loop = loop

    def delete(self) -> None:
        """Deletes the message, which is handled. Durable on return."""
        self._wait(self._settled(self._delivery.message.delete))

    def release(self, delay_s: float = 0.0, *, reason: str | Failure | None = None) -> None:
        """Makes the message ready again after `delay_s`; `reason` is kept with it. Durable on
        return.
        """
        self._wait(self._settled(partial(self._delivery.message.release, delay_s, reason=reason)))

    def sideline(self, reason: Reason | str | Failure = "rejected") -> None:
        """Moves the message to its queue's sideline; as of AsyncMessage. Durable on return."""
        self._wait(self._settled(partial(self._delivery.message.sideline, reason)))

    def extend(self, seconds: float) -> datetime:
        """Keeps the message for `seconds` from now, or longer; returns until when. Durable."""
        return self._wait(self._leases.extend(self._delivery, seconds))

    def _wait(self, settling: Coroutine[Any, Any, T]) -> T:
        try:
            future = asyncio.run_coroutine_threadsafe(settling, self._loop)
        except RuntimeError as error:  # The loop is closed: the worker ended before its thread.
            settling.close()
            raise NotUsable(
                "the worker has ended: its message cannot be settled, and is delivered again when "
                "it is due"
            ) from error
        return future.result()
