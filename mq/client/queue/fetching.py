"""Fetching from a queue, and consuming it."""

from collections.abc import Iterable

from mq.client.calls import fetching
from mq.client.consuming.consumer import AsyncConsumer
from mq.client.limits import PREFETCH_DEFAULT
from mq.client.message import AsyncMessage
from mq.client.queue.base import OfQueue
from mq.client.settling import HttpSettler
from mq.client.values import Subscription, Via
from mq.client.wire import writing


class Fetching(OfQueue):
    """How messages come out of a queue."""

    __slots__ = ()

    async def fetch(
        self,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
    ) -> AsyncMessage | None:
        """The next message; None where there is none, nor within `wait_s` (at most 60). It is the
        caller's until its `due`; durable on return. `visibility_s`: for how long, else as the
        message or its queue says. `select`: terms such as `priority:5..`, `key:eu-*`.

        Raises QueueNotFound, QueueExpired, Refused, Unavailable, Unanswered. It is not tried again
        when the answer was lost: what it fetched comes back when it is due.
        """
        row = await self._sender.send(fetching.fetch(self.name, wait_s, visibility_s, select))
        return None if row is None else AsyncMessage(self.name, row, HttpSettler(self._sender))

    async def fetch_many(
        self,
        count: int,
        *,
        wait_s: float = 0.0,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
    ) -> list[AsyncMessage]:
        """At most `count` (1 to 1000) messages, in order; it waits only while there is none. Else
        as `fetch`.
        """
        call = fetching.fetch_many(self.name, count, wait_s, visibility_s, select)
        settler = HttpSettler(self._sender)
        return [AsyncMessage(self.name, row, settler) for row in await self._sender.send(call)]

    def consume(
        self,
        *,
        prefetch: int = PREFETCH_DEFAULT,
        visibility_s: float | None = None,
        select: str | Iterable[str] | None = None,
        priority: int = 0,
        via: Via = "auto",
    ) -> AsyncConsumer:
        """Messages as they become ready: `async for message in queue.consume()`. See
        AsyncClient.consume, which takes several queues.
        """
        wanted = Subscription(self.name, priority, prefetch, visibility_s, writing.terms(select))
        return self._consumers.open((wanted,), prefetch, via)
