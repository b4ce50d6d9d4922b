"""A consumer: messages of one queue or of several, as they become ready."""

import asyncio
import contextlib
import weakref
from types import TracebackType
from typing import Self

from mq.client.consuming.feed import Feed
from mq.client.message import AsyncMessage


class AsyncConsumer:
    """`async for message in consumer`, or `await consumer.next()`; several tasks may take messages
    of one. It begins with the first message that is asked for, or at `async with`; at the end of
    the block, and by `close`, what was prefetched and not taken is given back.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._end: weakref.finalize[[Feed, asyncio.AbstractEventLoop], AsyncConsumer] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        found = await self.next()
        if found is None:
            raise StopAsyncIteration
        return found

    async def next(self, wait_s: float | None = None) -> AsyncMessage | None:
        """The next message; None when none came within `wait_s`, or the consumer was closed. Raises
        what is final, such as QueueNotFound; before the first success, also what stands in the way
        of it, such as CouldNotConnect.
        """
        self._begin()
        return await self._feed.next(wait_s)

    def _begin(self) -> None:
        if self._end is None:
            self._feed.begin()
            # A consumer that is dropped, as by a `break`, ends too.
            self._end = weakref.finalize(self, _drop, self._feed, asyncio.get_running_loop())

    async def close(self) -> None:
        """Gives back what was prefetched and not taken, within a bounded time. What came over a
        WebSocket and is not settled yet is given back with it: settle before. May be called again.
        """
        if self._end is not None:
            self._end.detach()
        await self._feed.close()

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _drop(feed: Feed, loop: asyncio.AbstractEventLoop) -> None:
    """Closes the feed of a consumer that is no more, from whatever thread."""

    # Where the loop is closed, the feed has ended with it.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(feed.close_soon)
