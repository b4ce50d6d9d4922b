"""A background event loop in a thread, and the way into it for all other threads."""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from mq.client.errors import NotUsable
from mq.client.limits import CLOSE_S

T = TypeVar("T")

_JOIN_S: Final = 2 * CLOSE_S


class Portal:
    """Runs coroutines for threads. Its thread begins with the first and keeps no process from
    ending. It ends by `close`; when nobody has the portal any more, be it by the client, a queue or
    a message; and with the process. `end` is run then, in the loop.
    """

    def __init__(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._turning = _Turning()
        self.close = weakref.finalize(self, self._turning.close, end)
        """Runs `end`, cancels all that still goes on, and ends the thread, within a bounded time.
        May be called again, from any thread; does nothing in a forked process.
        """

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine gives. An interrupt of this thread (KeyboardInterrupt) cancels it.
        Raises NotUsable: closed, also while it ran; forked; or called from within.
        """
        return self._turning.run(begin)

    @property
    def is_over(self) -> bool:
        """Whether nothing can be run any more: closed, or forked."""
        return self._turning.is_over

    def iterate(self, found: AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iterator gives, one after the other."""
        while True:
            try:
                item = self.run(lambda: _next(found))
            except StopAsyncIteration:
                return
            yield item


class _Turning:
    """The loop and its thread, which know nothing of who has the portal."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check()
        with self._lock:
            if self._is_closed:
                raise NotUsable("the client is closed")
            # Under the lock, so that it is begun before a `close` that comes now.
            going_on = asyncio.run_coroutine_threadsafe(_begun(begin), self._started())
        try:
            return going_on.result()
        except concurrent.futures.CancelledError:
            raise NotUsable("the client was closed") from None
        except BaseException:
            # Nothing where it has ended by itself.
            going_on.cancel()
            raise

    @property
    def is_over(self) -> bool:
        return self._is_closed or os.getpid() != self._pid

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise NotUsable("the client is of the process that this one was forked from")
        if self._thread is threading.current_thread():
            raise NotUsable("the client is used from within its own event loop")

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_turn, args=(self._loop,), name="mq-client", daemon=True
            )
            self._thread.start()
        return self._loop

    def close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = None
            if loop is None:
                return
            ending = asyncio.run_coroutine_threadsafe(_end(end, loop), loop)
        if thread is threading.current_thread():
            return
        with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
            ending.result(_JOIN_S)
        if thread is not None:
            thread.join(_JOIN_S)


async def _begun(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await begin()


async def _next(found: AsyncIterator[T]) -> T:
    return await anext(found)


async def _end(
    end: Callable[[], Coroutine[Any, Any, None]], loop: asyncio.AbstractEventLoop
) -> None:
    try:
        await end()
    finally:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        if others:
            await asyncio.wait(others, timeout=CLOSE_S)
        # After this task's own end, so that who waits for it hears of it.
        loop.call_soon(loop.stop)


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
