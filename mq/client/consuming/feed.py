"""What brings a consumer its messages: it begins, goes on by itself, fails or is closed."""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from mq.client.consuming.by_poll import ByPoll
from mq.client.consuming.by_socket import BySocket, InTheWay
from mq.client.consuming.inbox import Inbox
from mq.client.errors import NotUsable, one_line
from mq.client.message import AsyncMessage
from mq.client.sending import Sender
from mq.client.values import Subscription, Via

_log: Final = logging.getLogger("mq.client")


class OpenFeeds:
    """The feeds of a client that have begun and were not closed."""

    def __init__(self) -> None:
        self._feeds: set[Feed] = set()
        self._are_closed = False

    def check_open(self) -> None:
        """Raises NotUsable: none is to begin any more."""
        if self._are_closed:
            raise NotUsable("the client is closed")

    def add(self, feed: "Feed") -> None:
        """One begins. Raises NotUsable."""
        self.check_open()
        self._feeds.add(feed)

    def discard(self, feed: "Feed") -> None:
        """One was closed."""
        self._feeds.discard(feed)

    async def close(self) -> None:
        """Closes all; none begins from now on."""
        self._are_closed = True
        await asyncio.gather(*(each.close() for each in list(self._feeds)))


class Feed:
    """The messages of some queues. Of one event loop, that of the first message asked for."""

    def __init__(
        self,
        sender: Sender,
        wanted: Sequence[Subscription],
        prefetch: int,
        via: Via,
        open_feeds: "OpenFeeds",
    ) -> None:
        self._sender = sender
        self._wanted = wanted
        self._via = via
        self._open_feeds = open_feeds
        self._inbox = Inbox(
            {one.queue: prefetch if one.prefetch is None else one.prefetch for one in wanted}
        )
        self._by_poll = ByPoll(sender, wanted, self._inbox)
        self._running: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failure: BaseException | None = None
        self._trace: TracebackType | None = None

    def begin(self) -> None:
        """Has messages come, from the first call on. Raises NotUsable."""
        if self._running is None and not self._is_closed:
            self._sender.check_loop()
            self._open_feeds.add(self)
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._bring()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failure, self._trace = error, error.__traceback__
        finally:
            self._inbox.changed()

    async def _bring(self) -> None:
        if self._via != "poll":
            try:
                await BySocket(self._sender, self._wanted, self._inbox).run()
            except InTheWay as found:
                if self._via == "websocket":
                    raise found.why from None
                _log.info(
                    "consuming from %s at %s by long polls, since no WebSocket gets through: %s",
                    *(", ".join(each.queue for each in self._wanted), self._sender.shown_url),
                    one_line(found),
                )
        await self._by_poll.run()

    async def next(self, wait_s: float | None) -> AsyncMessage | None:
        """The next message; None when none came in time, or it was closed. Raises what is final."""
        self.begin()
        try:
            async with asyncio.timeout(wait_s):
                while (found := await self._taken()) is None:
                    if self._is_closed:
                        return None
                    if self._failure is not None:
                        # With each raise it would have more of a trace.
                        raise self._failure.with_traceback(self._trace)
                    await self._inbox.change()
        except TimeoutError:
            # What it failed with may be one too.
            if self._failure is not None:
                raise self._failure.with_traceback(self._trace) from None
            return None
        return found

    async def _taken(self) -> AsyncMessage | None:
        """The next message, after the report to mq that the program gets it."""
        while (found := self._inbox.take()) is not None:
            try:
                if await found.begin():
                    return found
            except BaseException:
                self._inbox.put_back(found)
                raise
        return None

    async def close(self) -> None:
        """Ends it within a bounded time, and gives back what nobody took. May be called again."""
        # Whoever is cancelled while it waits does not leave it half done.
        await asyncio.shield(self.close_soon())

    def close_soon(self) -> "asyncio.Task[None]":
        """The same, without waiting."""
        if self._closing is None:
            self._is_closed = True
            self._inbox.changed()
            self._closing = asyncio.create_task(self._close())
        return self._closing

    async def _close(self) -> None:
        try:
            if self._running is not None:
                self._running.cancel()
                await asyncio.wait([self._running])
            await self._by_poll.give_back()
        finally:
            self._open_feeds.discard(self)
