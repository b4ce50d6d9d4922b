"""Group commit for an event loop: operations that wait together are persisted together.

Each hops once into a thread of the commit line, and its end once back.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from mq.model.clock import Clock, SystemClock
from mq.model.errors import Unavailable, unavailable
from mq.store.disk.flush import Flusher
from mq.store.disk.group import Outcome, run_alone, run_group
from mq.store.disk.line import CommitLine, OnCommit, untold
from mq.store.disk.steps import Steps, T


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

    `on_loop`: they are run by the loop itself, in no thread; for a root in memory, where no call
    waits and a hop would cost more than the work. `flushed` hears of each group.
    """

    def __init__(
        self,
        flusher: Flusher,
        on_loop: bool = False,
        clock: Clock | None = None,
        flushed: OnCommit = untold,
    ) -> None:
        self._flusher = flusher
        self._flushed = flushed
        self._steady_s = (clock or SystemClock()).steady_s
        self._on_loop = on_loop
        self._loop = asyncio.get_running_loop()
        self._line: CommitLine[asyncio.Future[Any]] = CommitLine(
            flusher, self._ended, self._steady_s, flushed
        )
        self._waiting: list[tuple[Steps[Any], asyncio.Future[Any]]] = []
        self._unsettled = 0
        self._settled = asyncio.Event()

    @property
    def flusher(self) -> Flusher:
        """For whoever drives operations of its own in threads of its own."""
        return self._flusher

    @property
    def waiting(self) -> int:
        """How many operations have not begun."""
        return len(self._waiting) + self._line.arrived

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
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((operation, future))
        self._unsettled += 1
        if len(self._waiting) == 1:
            # At the end of this turn of the loop: what else arrives in it goes along.
            self._loop.call_soon(self._hand_over)
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
        while self._unsettled:
            self._settled.clear()
            await self._settled.wait()
        await self._loop.run_in_executor(None, self._line.close)
        self._flusher.close()

    def _hand_over(self) -> None:
        batch, self._waiting = self._waiting, []
        futures = [future for _, future in batch]
        if self._on_loop:
            began_s = self._steady_s()
            outcomes = run_group([operation for operation, _ in batch], self._flusher)
            self._flushed(len(batch), self._steady_s() - began_s)
            self._settle(list(zip(futures, outcomes, strict=True)))
            return
        try:
            self._line.put(batch)
        except RuntimeError as error:  # No thread can be started.
            for operation, _ in batch:
                operation.close()
            outcome = Outcome(error=Unavailable(repr(error)))
            self._settle([(future, outcome) for future in futures])

    def _ended(self, ended: list[tuple["asyncio.Future[Any]", Outcome]]) -> None:
        """In one of the line's threads."""
        self._loop.call_soon_threadsafe(self._settle, ended)

    def _settle(self, ended: list[tuple["asyncio.Future[Any]", Outcome]]) -> None:
        self._unsettled -= len(ended)
        if not self._unsettled:
            self._settled.set()
        for future, outcome in ended:
            if future.done():
                continue
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.value)
