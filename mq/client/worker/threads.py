"""Threads for handlers that are no coroutines: as many as are busy at a time, and no more.

They are daemon threads, which an executor's are not: a handler that does not come to an end cannot
be ended, and must not keep the process from ending.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

_Work: TypeAlias = tuple[Callable[[], object], "asyncio.Future[object]"]


class Threads:
    """Runs functions for one event loop."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._loop = asyncio.get_running_loop()

    def run(self, function: Callable[[], object]) -> "asyncio.Future[object]":
        """Has a thread run it, with the context variables of the caller."""
        future: asyncio.Future[object] = self._loop.create_future()
        context = contextvars.copy_context()
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            name = f"mq-worker-{self._threads}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._work.put((lambda: context.run(function), future))
        return future

    def close(self) -> None:
        """Ends threads that are idle now, others once they are. Nothing is run from here on."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            function, future = work
            result: object = None
            error: BaseException | None = None
            try:
                result = function()
            except StopIteration as stopped:  # Which a future cannot hold.
                error = RuntimeError("the handler raised StopIteration")
                error.__cause__ = stopped
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
                self._loop.call_soon_threadsafe(self._ended, future, result, error)
            del work, function, future, result, error

    def _ended(
        self, future: "asyncio.Future[object]", result: object, error: BaseException | None
    ) -> None:
        self._busy -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
