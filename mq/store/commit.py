"""Group commit: operations that wait together are persisted together, one thread hop a group.

A group is all that waits when a thread is free; at most GROUPS_IN_FLIGHT_MAX run at once, so
that groups grow with the load instead of splitting it into many small flushes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from mq.errors import Unavailable, unavailable
from mq.limits import GROUP_OPERATIONS_MAX, GROUPS_IN_FLIGHT_MAX
from mq.store.flush import Flusher
from mq.store.group import Outcome, run_alone, run_group
from mq.store.steps import Steps, T

_log = logging.getLogger("mq.commit")


async def finish(running: "asyncio.Future[T]") -> T:
    """Waits for what goes on to its end even when the caller is cancelled."""
    running.add_done_callback(_hear)
    return await asyncio.shield(running)


def _hear(ended: "asyncio.Future[Any]") -> None:
    """Nobody else may be left to hear of an error, which asyncio would then log as one of ours;
    what went on has cleaned up.
    """
    if not ended.cancelled():
        ended.exception()


class Committer:
    """Runs durable operations for an event loop. Made and used on that loop's thread.

    `on_loop`: groups are run by the loop itself, in no thread; for a root in memory, where no
    call waits and a hop would cost more than the work.
    """

    def __init__(self, flusher: Flusher, on_loop: bool = False) -> None:
        self._flusher = flusher
        self._on_loop = on_loop
        self._pool = ThreadPoolExecutor(GROUPS_IN_FLIGHT_MAX, thread_name_prefix="mq-commit")
        self._waiting: deque[tuple[Steps[Any], asyncio.Future[Any]]] = deque()
        self._in_flight: set[asyncio.Future[list[Outcome]]] = set()

    async def commit(self, operation: Steps[T]) -> T:
        """Runs the operation in the next group; its value, or what it raised.

        Durable on return: yes, what the operation says. A caller that is cancelled does not
        stop it: what was begun is finished.
        """
        return await finish(self.submit(operation))

    def submit(self, operation: Steps[T]) -> "asyncio.Future[T]":
        """Like `commit`, for a caller that waits for many, and hears of each one's end: nobody may
        cancel the future.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append((operation, future))
        if len(self._waiting) == 1:
            # At the end of this turn of the loop: what else arrives in it joins the group.
            loop.call_soon(self._start_groups)
        return future

    async def commit_alone(self, operation: Steps[T]) -> T:
        """Runs an operation that may take long outside the groups; else like `commit`."""
        return await self.call(run_alone, operation, self._flusher)

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a blocking function in a thread, to its end even when the caller is cancelled.

        Raises Unavailable for an OSError that the function does not decide about.
        """
        loop = asyncio.get_running_loop()
        try:
            return await finish(loop.run_in_executor(None, function, *arguments))
        except OSError as error:
            raise unavailable(error) from error
        except RuntimeError as error:  # No thread can be started.
            raise Unavailable(repr(error)) from error

    async def drain(self) -> None:
        """Waits for what was begun, then gives the threads back."""
        self._start_groups()
        while self._in_flight:
            await asyncio.wait(self._in_flight)
        self._pool.shutdown()
        self._flusher.close()

    def _start_groups(self) -> None:
        while self._waiting and len(self._in_flight) < GROUPS_IN_FLIGHT_MAX:
            size = min(len(self._waiting), GROUP_OPERATIONS_MAX)
            self._start(_Group([self._waiting.popleft() for _ in range(size)]))

    def _start(self, group: "_Group") -> None:
        if self._on_loop:
            group.settle(run_group(group.operations(), self._flusher))
            return
        try:
            running = asyncio.get_running_loop().run_in_executor(
                self._pool, run_group, group.operations(), self._flusher
            )
        except RuntimeError as error:  # No thread can be started.
            group.fail(error)
            return
        self._in_flight.add(running)
        running.add_done_callback(partial(self._ended, group))

    def _ended(self, group: "_Group", running: "asyncio.Future[list[Outcome]]") -> None:
        self._in_flight.discard(running)
        self._start_groups()
        error = running.exception()
        if error is None:
            group.settle(running.result())
        else:
            group.fail(error)


class _Group:
    """Operations that run together, and who waits for each."""

    def __init__(self, members: "list[tuple[Steps[Any], asyncio.Future[Any]]]") -> None:
        self._members = members

    def operations(self) -> list[Steps[Any]]:
        return [operation for operation, _ in self._members]

    def settle(self, outcomes: list[Outcome]) -> None:
        for (_, future), outcome in zip(self._members, outcomes, strict=True):
            if future.done():
                continue
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.value)

    def fail(self, error: BaseException) -> None:
        """A fault of the driver must answer, not hang."""
        _log.error("a commit group failed", exc_info=error)
        for operation in self.operations():
            operation.close()
        self.settle([Outcome(error=Unavailable(repr(error)))] * len(self._members))
