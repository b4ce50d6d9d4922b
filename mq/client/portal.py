"""An event loop in a background thread, which runs coroutines for other threads."""

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from mq.client.errors import NotUsable
from mq.client.forks import renewed_by_forks
from mq.client.options import CLOSE_S

T = TypeVar("T")

_JOIN_S: Final = 2 * CLOSE_S


class Portal:
    """Runs coroutines for threads. Its daemon thread starts with the first, and ends by `close`,
    when the portal is garbage-collected, and with the process; it runs `end` last. `new_loop` makes
    its loop.
    """

    def __init__(
        self,
        end: Callable[[], Coroutine[Any, Any, None]],
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        name: str = "mq-client",
    ) -> None:
        self._background = _Background(new_loop, name)
        self.close = weakref.finalize(self, self._background.close, end)
        """Runs `end`, cancels what still runs, and ends the thread, within a bounded time. May be
        called again, in any thread.
        """

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine; returns its result. An interrupt of this thread (KeyboardInterrupt)
        cancels it. Raises NotUsable: closed, also while it ran; or called within the loop.
        """
        return self._background.run(begin)

    def run_last(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine that cleans up; does nothing once the portal is closed."""
        try:
            self._background.run(begin)
        except NotUsable:
            if not self._background.is_over:
                raise

    def submit(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> "concurrent.futures.Future[T]":
        """Starts a coroutine without waiting for it. Raises NotUsable."""
        return self._background.submit(begin)

    @property
    def is_over(self) -> bool:
        """Whether it is closed."""
        return self._background.is_over

    def iterate(self, found: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator."""
        while True:
            try:
                item = self.run(lambda: _next(found))
            except StopAsyncIteration:
                return
            yield item


class _Background:
    """The loop and its thread, without a reference to the portal."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop], name: str) -> None:
        self._new_loop = new_loop
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        renewed_by_forks(self)

    def forked(self) -> None:
        """The loop's thread is the parent's."""
        self._lock, self._loop, self._thread = threading.Lock(), None, None

    def submit(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> "concurrent.futures.Future[T]":
        self._check()
        with self._lock:
            if self._is_closed:
                raise NotUsable.closed()
            # Under the lock, so that it starts before a concurrent `close`.
            return asyncio.run_coroutine_threadsafe(_begun(begin), self._started())

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        future = self.submit(begin)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise NotUsable.closed() from None
        except BaseException:
            # No effect if it has ended.
            future.cancel()
            raise

    @property
    def is_over(self) -> bool:
        """Whether it is closed."""
        return self._is_closed

    def _check(self) -> None:
        if self._thread is threading.current_thread():
            raise NotUsable(
                "the Client is used within its own event loop, which would wait for itself: use it "
                "in another thread"
            )

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = self._new_loop()
            self._thread = threading.Thread(
                target=_turn, args=(self._loop,), name=self._name, daemon=True
            )
            self._thread.start()
        return self._loop

    def close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
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
        # After this task has ended, so that its future resolves.
        loop.call_soon(loop.stop)


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
