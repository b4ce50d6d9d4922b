"""A consumer of queues, and the consumers of a client."""

import asyncio
import contextlib
import logging
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, get_args

from mq.client.consuming.by_poll import ByPoll
from mq.client.consuming.by_socket import BySocket, InTheWay
from mq.client.consuming.inbox import Inbox
from mq.client.errors import NotUsable, one_line
from mq.client.forks import check_inherited
from mq.client.message import AsyncMessage
from mq.client.sending import Sender
from mq.client.values import Subscription, Via
from mq.model.limits import BATCH_MESSAGES_MAX

# The messages of a queue that wait in a consumer until the program takes them.
PREFETCH_DEFAULT: Final = 10
PREFETCH_MAX: Final = BATCH_MESSAGES_MAX
# A consumer's queues, and its prefetch in all: half of what mq lets a WebSocket hold, so that there
# is room for the messages that the program has taken.
SUBSCRIPTIONS_MAX: Final = 1000
CREDIT_MAX: Final = 5000

_log: Final = logging.getLogger("mq.client")


class Feed:
    """Brings messages of queues, in the event loop of its first call."""

    def __init__(
        self,
        sender: Sender,
        wanted: Sequence[Subscription],
        prefetch: int,
        via: Via,
        consumers: "Consumers",
    ) -> None:
        self._sender = sender
        self._wanted = wanted
        self._via = via
        self._consumers = consumers
        self._inbox = Inbox(
            {one.queue: prefetch if one.prefetch is None else one.prefetch for one in wanted}
        )
        self._by_poll = ByPoll(sender, wanted, self._inbox)
        self._running: asyncio.Task[None] | None = None
        self._pid = os.getpid()
        """The process in which it runs, once it does."""
        self._closing: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failure: BaseException | None = None
        self._trace: TracebackType | None = None

    def begin(self) -> None:
        """Starts to bring messages, at the first call. Raises NotUsable."""
        if self._running is not None:
            check_inherited(self._pid, "consumer")
        elif not self._is_closed:
            self._sender.check_loop()
            self._pid = os.getpid()
            self._consumers.add(self)
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
        """The next message; None: none came in time, or it was closed. Raises final errors."""
        self.begin()
        try:
            async with asyncio.timeout(wait_s):
                while (found := await self._taken()) is None:
                    if self._is_closed:
                        return None
                    if self._failure is not None:
                        # Each raise would add to its traceback.
                        raise self._failure.with_traceback(self._trace)
                    await self._inbox.change()
        except TimeoutError:
            # Its failure may be a TimeoutError too.
            if self._failure is not None:
                raise self._failure.with_traceback(self._trace) from None
            return None
        return found

    async def _taken(self) -> AsyncMessage | None:
        """The next message, once mq has the report that the program gets it."""
        while (found := self._inbox.take()) is not None:
            try:
                if await found.begin():
                    return found
            except BaseException:
                self._inbox.put_back(found)
                raise
        return None

    async def close(self) -> None:
        """Ends it within a bounded time, and releases the messages that were not taken. May be
        called again.
        """
        if not self.is_inherited:
            # A cancelled caller must not leave it half closed.
            await asyncio.shield(self.close_soon())

    @property
    def is_inherited(self) -> bool:
        """Whether it runs in the process from which this one was forked."""
        return self._running is not None and self._pid != os.getpid()

    def close_soon(self) -> "asyncio.Task[None]":
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
            self._consumers.discard(self)


class AsyncConsumer:
    """Delivers messages: `async for message in consumer`, or `await consumer.next()`; several tasks
    may take messages of one. It begins with the first message that is taken, or at `async with`.
    The end of the block, and `close`, release the messages that were not taken.
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
        """Takes the next message; returns None when none came within `wait_s`, or the consumer was
        closed. Raises final errors, such as QueueNotFound; before the first success also those that
        prevent it, such as CouldNotConnect.
        """
        self._begin()
        return await self._feed.next(wait_s)

    def _begin(self) -> None:
        if self._end is None:
            self._feed.begin()
            # A consumer without a reference, as after a `break`, ends too.
            self._end = weakref.finalize(self, _drop, self._feed, asyncio.get_running_loop())

    async def close(self) -> None:
        """Ends the consumer, and releases the messages that were not taken; on return mq has done
        so, unless its storage takes longer than 2 s, or still stores a claim. Messages of a
        WebSocket that were taken and are not settled are released too: settle them before. May be
        called again.
        """
        if self._end is not None:
            self._end.detach()
        await self._feed.close()

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


def _drop(feed: Feed, loop: asyncio.AbstractEventLoop) -> None:
    """Closes the feed of a consumer that was garbage-collected, in any thread."""
    if feed.is_inherited:
        return
    # A feed has ended with a closed loop.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(feed.close_soon)


class Consumers:
    """Opens the consumers of a client, and closes those that are left."""

    __slots__ = ("_are_closed", "_feeds", "_sender")

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._feeds: set[Feed] = set()
        self._are_closed = False

    def open(self, subscriptions: Sequence[Subscription], prefetch: int, via: Via) -> AsyncConsumer:
        """A consumer, which has not begun. Raises NotUsable, and ValueError for options out of
        bounds.
        """
        self._sender.check_usable()
        self._check_open()
        _check(subscriptions, prefetch, via)
        return AsyncConsumer(Feed(self._sender, tuple(subscriptions), prefetch, via, self))

    def _check_open(self) -> None:
        if self._are_closed:
            raise NotUsable.closed()

    def add(self, feed: Feed) -> None:
        """Adds a feed that begins. Raises NotUsable."""
        self._check_open()
        self._feeds.add(feed)

    def discard(self, feed: Feed) -> None:
        self._feeds.discard(feed)

    async def close(self) -> None:
        """Closes all consumers; from now on none can be opened or begin."""
        self._are_closed = True
        await asyncio.gather(*(each.close() for each in list(self._feeds)))


def _check(subscriptions: Sequence[Subscription], prefetch: int, via: Via) -> None:
    if via not in get_args(Via):
        raise ValueError(f"via must be {' or '.join(get_args(Via))}, not {via!r}")
    if not 1 <= len(subscriptions) <= SUBSCRIPTIONS_MAX:
        raise ValueError(
            f"a consumer must have 1 to {SUBSCRIPTIONS_MAX} queues, not {len(subscriptions)}"
        )
    if len({one.queue for one in subscriptions}) < len(subscriptions):
        raise ValueError("a consumer must name each queue once")
    wanted = [prefetch if one.prefetch is None else one.prefetch for one in subscriptions]
    if not all(1 <= each <= PREFETCH_MAX for each in wanted):
        raise ValueError(f"prefetch must be a whole number from 1 to {PREFETCH_MAX}, not {wanted}")
    if sum(wanted) > CREDIT_MAX:
        raise ValueError(
            f"a consumer's prefetch must be at most {CREDIT_MAX} messages over all queues, not "
            f"{sum(wanted)}"
        )
