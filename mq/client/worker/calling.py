"""Calling a handler: in the event loop or a thread, within its time limit, through middleware."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mq.client.worker.delivery import Delivery
from mq.client.worker.dispatching import Table
from mq.client.worker.leases import Leases
from mq.client.worker.messages import AsyncWorkerMessage, WorkerMessage
from mq.client.worker.threads import Threads
from mq.model.worker_limits import CANCELLED_END_S

CallNext: TypeAlias = Callable[[AsyncWorkerMessage], Awaitable[object]]
"""What a middleware calls: the next one, the handler at last."""
Middleware: TypeAlias = Callable[[AsyncWorkerMessage, CallNext], Awaitable[object]]
"""Stands around each handler: gives what that gives, or something else; raises what it raises."""
Function: TypeAlias = Callable[[Any], object]


class TimeLimitReached(TimeoutError):
    """A handler took longer than a message may take."""

    def __init__(self, time_limit_s: float) -> None:
        super().__init__(f"the handler took longer than {time_limit_s:g} s")
        self.time_limit_s = time_limit_s


class Exited(RuntimeError):
    """A handler asked the whole process to exit, or its own task to end: it failed, and no more."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that handles messages; `is_async`: in the event loop."""

    function: Function
    is_async: bool

    @classmethod
    def of(cls, function: Function) -> "Handler":
        """Raises TypeError for what handles nothing when it is called."""
        if not callable(function):
            raise TypeError("a handler is called with a message")
        forms = (function, type(function).__call__)  # An object may be called by a method.
        yielding = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(yields(form) for form in forms for yields in yielding):
            raise TypeError("a handler is no generator: nothing of it would run")
        return cls(function, any(inspect.iscoroutinefunction(each) for each in forms))


class Calling:
    """Calls the handler of each message."""

    def __init__(
        self,
        table: Table[Handler],
        middleware: Sequence[Middleware],
        time_limit_s: float | None,
        leases: Leases,
    ) -> None:
        self._table = table
        self._middleware = tuple(middleware)
        self._time_limit_s = time_limit_s
        self._leases = leases
        self._threads = Threads()

    async def call(self, delivery: Delivery) -> object:
        """What the handler gives. Raises what it raises; NoHandler, TimeLimitReached."""
        call: CallNext = functools.partial(self._innermost, delivery)
        for each in reversed(self._middleware):
            call = functools.partial(_through, each, call)
        return await _not_exiting(call(AsyncWorkerMessage(delivery, self._leases)))

    def close(self) -> None:
        """Ends the threads that are idle, others once they are."""
        self._threads.close()

    async def _innermost(self, delivery: Delivery, message: AsyncWorkerMessage) -> object:
        handler = self._table.handler(delivery.message.queue, delivery.message)
        running: asyncio.Future[object]
        if not handler.is_async:
            given = WorkerMessage(delivery, self._leases, asyncio.get_running_loop())
            running = self._threads.run(functools.partial(_called, handler.function, given))
        elif self._time_limit_s is None:
            return await _awaited(handler.function, message)
        else:
            running = asyncio.create_task(_not_exiting(_awaited(handler.function, message)))
        return await self._within_limit(delivery, running)

    async def _within_limit(self, delivery: Delivery, running: "asyncio.Future[object]") -> object:
        try:
            done, _ = await asyncio.wait({running}, timeout=self._time_limit_s)
        except asyncio.CancelledError:
            await _end(delivery, running)
            raise
        if not done and self._time_limit_s is not None:
            await _end(delivery, running)
            raise TimeLimitReached(self._time_limit_s)
        if running.cancelled():
            raise Exited("the handler raised CancelledError")
        return running.result()


async def _end(delivery: Delivery, running: "asyncio.Future[object]") -> None:
    """Tells a handler that its time is over. One that goes on all the same, as in a thread, is left
    to its delivery.
    """
    if isinstance(running, asyncio.Task):
        running.cancel()
        await asyncio.wait({running}, timeout=CANCELLED_END_S)
    if running.done():
        # It is told of in another way; here it is merely looked at.
        _ = running.cancelled() or running.exception()
    else:
        delivery.straggler = running


async def _not_exiting(called: Awaitable[object]) -> object:
    try:
        return await called
    except SystemExit as error:  # It would end the event loop.
        raise Exited(f"the handler raised SystemExit({error.code!r})") from error


async def _through(each: Middleware, call: CallNext, message: AsyncWorkerMessage) -> object:
    return await each(message, call)


async def _awaited(function: Function, message: AsyncWorkerMessage) -> object:
    found = function(message)
    return await found if inspect.isawaitable(found) else found


def _called(function: Function, message: WorkerMessage) -> object:
    try:
        found = function(message)
    except KeyboardInterrupt as error:  # A real one comes to the main thread alone.
        raise Exited("the handler raised KeyboardInterrupt") from error
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError("the handler gave an awaitable, and is no coroutine function: nobody waits")
    return found
