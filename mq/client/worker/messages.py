"""What a handler is given: the message that was fetched, and whether it is still the worker's."""

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import Any, TypeVar

from mq.client.errors import NotUsable
from mq.client.values import Reason
from mq.client.worker.delivery import LOST, Delivery
from mq.client.worker.leases import Leases

T = TypeVar("T")


class _Given:
    """What a message says, as `AsyncMessage` does."""

    __slots__ = ("_delivery", "_leases")

    def __init__(self, delivery: Delivery, leases: Leases) -> None:
        self._delivery = delivery
        self._leases = leases

    @property
    def queue(self) -> str:
        """Its queue's name."""
        return self._delivery.message.queue

    @property
    def id(self) -> str:
        """Opaque; the same at each delivery."""
        return self._delivery.message.id

    @property
    def body(self) -> bytes:
        """As it was published."""
        return self._delivery.message.body

    @property
    def headers(self) -> Mapping[str, str]:
        """The Content-Type and what else the message keeps, by names in lower case."""
        return self._delivery.message.headers

    @property
    def content_type(self) -> str:
        """Its Content-Type."""
        return self._delivery.message.content_type

    @property
    def receives(self) -> int:
        """How often it was delivered, this time included."""
        return self._delivery.message.receives

    @property
    def published(self) -> datetime:
        """When."""
        return self._delivery.message.published

    @property
    def due(self) -> datetime:
        """Until then it is the worker's, by mq's clock; the worker extends it."""
        return self._delivery.message.due

    @property
    def key(self) -> str | None:
        """Its lookup key."""
        return self._delivery.message.key

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self._delivery.message.priority

    @property
    def sidelined(self) -> str | None:
        """In a sideline, why it came there, where that is known."""
        return self._delivery.message.sidelined

    @property
    def settled(self) -> str | None:
        """What became of it: deleted, released, sidelined; None so far."""
        return self._delivery.message.settled

    @property
    def is_lost(self) -> bool:
        """Whether it is another's by now, or gone: whatever the handler ends with is not done then.
        A handler that takes long looks at it now and then, and gives up.
        """
        return self._delivery.is_lost

    def text(self) -> str:
        """The body as text in UTF-8. Raises UnicodeDecodeError."""
        return self._delivery.message.text()

    def json(self) -> Any:
        """What the body says as JSON. Raises ValueError."""
        return self._delivery.message.json()

    def __repr__(self) -> str:
        return repr(self._delivery.message)

    async def _said(self, saying: Coroutine[Any, Any, T]) -> T:
        try:
            return await saying
        except LOST:
            self._leases.lose(self._delivery)
            raise

    def _extension(self, seconds: float) -> Coroutine[Any, Any, datetime]:
        return self._leases.extend(self._delivery, seconds)


class AsyncWorkerMessage(_Given):
    """A message, as handlers that are `async def` have it, and middleware. What the handler settles
    by itself stays so, whatever it ends with.
    """

    __slots__ = ()

    async def delete(self) -> None:
        """Deletes the message: it was dealt with. Durable on return."""
        await self._said(self._delivery.message.delete())

    async def release(self, delay_s: float = 0.0) -> None:
        """Gives the message back, ready after so many seconds. Durable on return."""
        await self._said(self._delivery.message.release(delay_s))

    async def sideline(self, reason: Reason = "rejected") -> None:
        """Moves the message to its queue's sideline. Durable on return."""
        await self._said(self._delivery.message.sideline(reason))

    async def extend(self, seconds: float) -> datetime:
        """Keeps the message for so many seconds from now at least; until when. Durable on return.
        The worker extends it by itself: this is for who wants it to come back later after a crash.
        """
        return await self._extension(seconds)


class WorkerMessage(_Given):
    """A message, as other handlers have it, each in a thread. Else as AsyncWorkerMessage."""

    __slots__ = ("_loop",)

    def __init__(self, delivery: Delivery, leases: Leases, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(delivery, leases)
        self._loop = loop

    def delete(self) -> None:
        """Deletes the message: it was dealt with. Durable on return."""
        self._wait(self._said(self._delivery.message.delete()))

    def release(self, delay_s: float = 0.0) -> None:
        """Gives the message back, ready after so many seconds. Durable on return."""
        self._wait(self._said(self._delivery.message.release(delay_s)))

    def sideline(self, reason: Reason = "rejected") -> None:
        """Moves the message to its queue's sideline. Durable on return."""
        self._wait(self._said(self._delivery.message.sideline(reason)))

    def extend(self, seconds: float) -> datetime:
        """Keeps the message for so many seconds from now at least; until when. Durable."""
        return self._wait(self._extension(seconds))

    def _wait(self, saying: Coroutine[Any, Any, T]) -> T:
        try:
            said = asyncio.run_coroutine_threadsafe(saying, self._loop)
        except RuntimeError as error:  # The loop is closed: the worker has ended before its thread.
            saying.close()
            raise NotUsable("the worker has ended") from error
        return said.result()
