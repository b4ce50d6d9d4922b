"""Calls a handler: in the event loop or a thread, within its time limit, through middleware."""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from mq.client.worker.dispatching import TASK_HEADER, NoHandler
from mq.client.worker.handlers import Function, Handler
from mq.client.worker.leases import Delivery, Leases
from mq.client.worker.messages import AsyncWorkerMessage, WorkerMessage
from mq.model.clock import Clock, SystemClock

# How long a handler may clean up after its time is over.
CANCELLED_END_S: Final = 1.0

CallNext: TypeAlias = Callable[[AsyncWorkerMessage], Awaitable[object]]
"""The next middleware, or the handler."""
Middleware: TypeAlias = Callable[[AsyncWorkerMessage, CallNext], Awaitable[object]]
"""Wraps each handler: its result and its exceptions are those of the handler, or others."""
_Work: TypeAlias = tuple[Callable[[], object], "asyncio.Future[object]"]

_LOG: Final = logging.getLogger("mq.worker.messages")


class TimeLimitReached(TimeoutError):
    """A handler took longer than its `time_limit_s`."""

    def __init__(self, time_limit_s: float) -> None:
        super().__init__(f"the handler took longer than its time_limit_s of {time_limit_s:g} s")
        self.time_limit_s = time_limit_s


class Exited(RuntimeError):
    """A handler raised SystemExit, KeyboardInterrupt or CancelledError: only the handler fails."""


class Threads:
    """Threads for handlers that are no coroutines, as many as run at a time.

    They are daemon threads, unlike an executor's: a handler that hangs cannot be ended, and must
    not keep the process from ending.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._loop = asyncio.get_running_loop()

    def run(self, function: Callable[[], object]) -> "asyncio.Future[object]":
        """Runs a function in a thread, with the caller's context variables."""
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
        """Ends idle threads now, and the others after their functions. Nothing runs afterwards."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            function, future = work
            result: object = None
            error: BaseException | None = None
            try:
                result = function()
            except StopIteration as stopped:  # A future cannot hold it.
                error = RuntimeError("the handler raised StopIteration")
                error.__cause__ = stopped
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # The loop is closed, and no caller waits.
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


class Given(NamedTuple):
    """What a handler gets of a message: the message, and its body's value."""

    delivery: Delivery
    message: AsyncWorkerMessage
    body: object


class Calling:
    """Calls the handler of each message."""

    def __init__(self, middleware: Sequence[Middleware], leases: Leases) -> None:
        self._middleware = tuple(middleware)
        self._leases = leases
        self._threads = Threads()

    async def call(self, delivery: Delivery, batch: "Batch | None" = None) -> object:
        """Calls the handler of a message, alone or with its batch; returns its result. Raises its
        exceptions, NoHandler, BadBody, TimeLimitReached.
        """
        call: CallNext = functools.partial(self._innermost, delivery, batch)
        for each in reversed(self._middleware):
            call = functools.partial(_through, each, call)
        return await _not_exiting(call(AsyncWorkerMessage(delivery, self._leases)))

    async def run(self, handler: Handler, given: Sequence[Given]) -> object:
        """Calls a handler with these messages; returns its result."""
        limit_s = handler.options.time_limit_s
        bodies = [each.body for each in given]
        running: asyncio.Future[object]
        if not handler.is_async:
            loop = asyncio.get_running_loop()
            messages = [WorkerMessage(each.delivery, self._leases, loop) for each in given]
            arguments = handler.arguments(messages, bodies)
            running = self._threads.run(functools.partial(_called, handler.function, arguments))
        else:
            arguments = handler.arguments([each.message for each in given], bodies)
            if limit_s is None:
                return await _awaited(handler.function, arguments)
            running = asyncio.create_task(_not_exiting(_awaited(handler.function, arguments)))
        return await _within_limit([each.delivery for each in given], running, limit_s)

    def close(self) -> None:
        """Ends idle threads now, and the others after their handlers."""
        self._threads.close()

    async def _innermost(
        self, delivery: Delivery, batch: "Batch | None", message: AsyncWorkerMessage
    ) -> object:
        handler = delivery.handler
        if handler is None:
            task = message.headers.get(TASK_HEADER)
            raise NoHandler(
                f"no handler of the queue {message.queue} takes this message's type and key"
                + (f", and none is the task {task}" if task else "")
            )

        async def call() -> object:
            body = handler.reader and handler.reader(delivery.message.body)
            given = Given(delivery, message, body)
            return await (self.run(handler, [given]) if batch is None else batch.join(given))

        return await (call() if handler.around is None else handler.around(message, call))


class Batch:
    """The messages of one call. Each comes through its middleware alone; the handler is
    called once each has come, or has ended before, and its result is that of each.
    """

    def __init__(self, calling: Calling, handler: Handler, deliveries: Sequence[Delivery]) -> None:
        loop = asyncio.get_running_loop()
        self._calling = calling
        self._handler = handler
        self._order = {delivery: at for at, delivery in enumerate(deliveries)}
        self._expected = set(deliveries)
        self._joined: dict[Delivery, Given] = {}
        self._begun: asyncio.Future[asyncio.Task[object]] = loop.create_future()
        # Not that of the last message, nor the span of its middleware.
        self._context = contextvars.copy_context()

    async def join(self, given: Given) -> object:
        """Waits for the handler's result. Once all messages are cancelled, so is the handler."""
        self._joined[given.delivery] = given
        try:
            self.left(given.delivery)
            task = await asyncio.shield(self._begun)
            await asyncio.wait({task})
        except asyncio.CancelledError:
            del self._joined[given.delivery]
            if self._begun.done() and not self._joined:
                task = self._begun.result()
                task.cancel()
                await asyncio.wait({task})
                _ = task.cancelled() or task.exception()
            raise
        if task.cancelled():
            raise Exited("the handler raised CancelledError")
        return task.result()

    def left(self, delivery: Delivery) -> None:
        """The message is not waited for any more: it has come, or has ended before."""
        self._expected.discard(delivery)
        self._begin_when_all_came()

    def _begin_when_all_came(self) -> None:
        if self._expected or not self._joined or self._begun.done():
            return
        given = sorted(self._joined.values(), key=lambda each: self._order[each.delivery])
        running = _not_exiting(self._calling.run(self._handler, given))
        self._begun.set_result(asyncio.create_task(running, context=self._context))


async def _within_limit(
    deliveries: Sequence[Delivery], running: "asyncio.Future[object]", limit_s: float | None
) -> object:
    try:
        done, _ = await asyncio.wait({running}, timeout=limit_s)
    except asyncio.CancelledError:
        await _end(deliveries, running)
        raise
    if not done and limit_s is not None:
        await _end(deliveries, running)
        raise TimeLimitReached(limit_s)
    if running.cancelled():
        raise Exited("the handler raised CancelledError")
    return running.result()


async def _end(deliveries: Sequence[Delivery], running: "asyncio.Future[object]") -> None:
    """Cancels a handler. One that continues, as every handler in a thread does, becomes its
    deliveries' straggler.
    """
    if isinstance(running, asyncio.Task):
        running.cancel()
        await asyncio.wait({running}, timeout=CANCELLED_END_S)
    if running.done():
        # asyncio logs an exception that is never read; the caller raises another one.
        _ = running.cancelled() or running.exception()
    else:
        for delivery in deliveries:
            delivery.straggler = running


async def _not_exiting(called: Awaitable[object]) -> object:
    try:
        return await called
    except SystemExit as error:  # It would end the event loop.
        raise Exited(f"the handler raised SystemExit({error.code!r})") from error


async def _through(each: Middleware, call: CallNext, message: AsyncWorkerMessage) -> object:
    return await each(message, call)


async def _awaited(function: Function, arguments: Sequence[Any]) -> object:
    found = function(*arguments)
    return await found if inspect.isawaitable(found) else found


def _called(function: Function, arguments: Sequence[Any]) -> object:
    try:
        found = function(*arguments)
    except KeyboardInterrupt as error:  # A real one comes to the main thread alone.
        raise Exited("the handler raised KeyboardInterrupt") from error
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError(
            "the handler returned an awaitable, which never runs: define it as async def"
        )
    return found


def logged(
    logger: logging.Logger = _LOG, level: int = logging.INFO, clock: Clock | None = None
) -> Middleware:
    """Middleware that logs a line for each message: `handled`, or `failed` with the exception's
    name (the worker logs its traceback), and how long that took. The record's `fields` are `queue`,
    `id`, `receives`, `took_s`, and `result` or `error`.
    """
    steady = clock or SystemClock()

    async def log(message: AsyncWorkerMessage, call_next: CallNext) -> object:
        began_s = steady.steady_s()
        what, ends = "handled", ""
        more: dict[str, object] = {}
        try:
            result = await call_next(message)
            more["result"] = result is not False
            return result
        except BaseException as error:
            what, ends = "failed on", f": {type(error).__name__}"
            more["error"] = type(error).__name__
            raise
        finally:
            took_s = steady.steady_s() - began_s
            known = {"queue": message.queue, "id": message.id, "receives": message.receives}
            logger.log(
                *(level, "%s message %s of %s in %.3f s%s", what),
                *(message.id, message.queue, took_s, ends),
                extra={"fields": {**known, "took_s": round(took_s, 6), **more}},
            )

    return log
