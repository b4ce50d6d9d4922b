"""Group commit: one thread runs all operations of a process, and makes one flush at a time for all.

A flush costs about the same for one operation as for hundreds. So operations that arrive during a
flush wait, act after it, and share the next flush with the operations that are at a later step. The
longer a flush takes, the more operations the next one serves: the group's size follows the disk's
speed, without a timer. There is one thread on purpose: a second one would split the groups, and
compete for the interpreter's lock. Hence no operation may block in this thread; one that waits for
a lock yields an empty flush and tries again (`core/locks.py`), and one that is about to list a
folder says so: a second thread takes it from there, for which others do not wait. From an event
loop an operation takes one hop into the thread, and its outcome one hop back.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeAlias, TypeVar

from mq.model.clock import Clock, SystemClock
from mq.model.errors import Unavailable, unavailable
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.store.disk.flush import Flusher
from mq.store.disk.group import Group, Outcome, run_alone
from mq.store.disk.steps import Steps, T

# The most operations in progress.
OPERATIONS_STANDING_MAX: Final = 2 * GROUP_OPERATIONS_MAX
# After a flush of GATHER_FROM_S or more that ended GATHER_MIN operations, and one for each
# GATHER_RATIO that remain, the next flush waits for the clients of those that ended: they are about
# to send more. It waits at most GATHER_SHARE of the last flush's time.
GATHER_MIN: Final = 8
GATHER_RATIO: Final = 2
GATHER_FROM_S: Final = 0.002
GATHER_SHARE: Final = 0.75

_log = logging.getLogger("mq.commit")

W = TypeVar("W")

OnCommit: TypeAlias = Callable[[int, float], None]
"""Hears of how many operations were flushed together, and in how many seconds; in a thread."""


def untold(operations: int, seconds: float) -> None: ...


class CommitLine(Generic[W]):
    """Runs operations, each with its waiter. Calls, in the commit thread, `ended` with waiters and
    their outcomes; `leaves` with an operation that is about to list folders, and its waiter; and
    `flushed` with the number of operations and the seconds of each flush.
    """

    def __init__(
        self,
        flusher: Flusher,
        ended: Callable[[list[tuple[W, Outcome]]], None],
        steady_s: Callable[[], float],
        flushed: OnCommit = untold,
        leaves: Callable[[Steps[Any], W], None] | None = None,
    ) -> None:
        self._group: Group[W] = Group(flusher, leaves)
        self._ended = ended
        self._steady_s = steady_s
        self._flushed = flushed
        self._arrived: deque[tuple[Steps[Any], W]] = deque()
        self._news: SimpleQueue[Sequence[tuple[Steps[Any], W]] | None] = SimpleQueue()
        """The operations that were put in, and None at the close: the thread waits here."""
        self._closing = False
        self._put, self._begun = 0, 0
        self._thread: threading.Thread | None = None

    @property
    def arrived(self) -> int:
        """How many operations have not begun."""
        return self._put - self._begun

    def put(self, arrivals: Sequence[tuple[Steps[Any], W]]) -> None:
        """Accepts operations. Raises RuntimeError, and accepts none, when no thread can be started.
        For one thread.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="mq-commit", daemon=True)
            thread.start()
            self._thread = thread
        self._put += len(arrivals)
        self._news.put(arrivals)

    def close(self) -> None:
        """Ends the thread once all accepted operations have ended; blocking."""
        if self._thread is not None:
            self._news.put(None)
            self._thread.join()

    def _work(self) -> None:
        group = self._group
        while self._hear():
            self._join()
            while group.standing:
                # Operations that arrive from here on share the next flush.
                operations, began_s = len(group.standing), self._steady_s()
                ended = group.flush()
                flush_s = self._steady_s() - began_s
                self._flushed(operations, flush_s)
                if ended:
                    self._tell(ended)
                    if flush_s >= GATHER_FROM_S:
                        self._gather(len(ended), flush_s)
                ended = []  # So that this thread keeps no delivered body while it waits.
                self._join()
            group.session.rest()

    def _hear(self) -> bool:
        """Waits for operations. False: the line was closed."""
        while not self._arrived and not self._closing:
            self._take(self._news.get())
        return bool(self._arrived)

    def _take(self, news: Sequence[tuple[Steps[Any], W]] | None) -> None:
        if news is None:
            self._closing = True
        else:
            self._arrived.extend(news)

    def _join(self) -> None:
        """Runs arrived operations up to their first flush, as far as there are descriptors for
        them.
        """
        while not self._news.empty():
            self._take(self._news.get())
        count = min(len(self._arrived), OPERATIONS_STANDING_MAX - len(self._group.standing))
        if count:
            newcomers = [self._arrived.popleft() for _ in range(count)]
            self._begun += count
            if ended := self._group.join(newcomers):
                self._tell(ended)

    def _gather(self, left: int, flush_s: float) -> None:
        """After a long flush, waits a fraction of its time for the clients of the operations that
        ended together: they will probably send their next requests together.
        """
        if left < max(GATHER_MIN, len(self._group.standing) / GATHER_RATIO):
            return
        until_s = self._steady_s() + flush_s * GATHER_SHARE
        while len(self._arrived) < left and not self._closing:
            try:
                self._take(self._news.get(timeout=max(0.0, until_s - self._steady_s())))
            except Empty:
                return

    def _tell(self, ended: list[tuple[W, Outcome]]) -> None:
        """Reports outcomes. An error here, such as a closed event loop, must not end the thread."""
        try:
            self._ended(ended)
        except Exception as error:
            _log.error("an outcome could not be reported", exc_info=error)


async def finish(running: "asyncio.Future[T]") -> T:
    """Waits until it is done, even when the caller is cancelled."""
    running.add_done_callback(_hear)
    return await asyncio.shield(running)


def _hear(ended: "asyncio.Future[Any]") -> None:
    """Marks an error as retrieved: if all callers have gone, asyncio would log it otherwise. The
    operation has cleaned up.
    """
    if not ended.cancelled():
        ended.exception()


class Committer:
    """Runs durable operations for an event loop. Create and use it on that loop's thread.

    `on_loop`: the loop itself runs the operations, without a thread; for a root in memory, where no
    call waits and a hop would cost more than the work. `flushed` is called for each group.
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
            flusher, self._ended, self._steady_s, flushed, self._leaves
        )
        self._listing: CommitLine[asyncio.Future[Any]] = CommitLine(
            flusher, self._ended, self._steady_s
        )
        """Operations that list folders, and may take long."""
        self._waiting: list[tuple[Steps[Any], asyncio.Future[Any]]] = []
        self._at_turn_end: list[Callable[[], None]] = []
        self._unsettled = 0
        self._settled = asyncio.Event()

    @property
    def flusher(self) -> Flusher:
        """For a caller that runs operations in threads of its own."""
        return self._flusher

    @property
    def waiting(self) -> int:
        """How many operations have not begun."""
        return len(self._waiting) + self._line.arrived + self._listing.arrived

    async def commit(self, operation: Steps[T]) -> T:
        """Runs the operation in the next group; its value, or what it raised.

        Durable on return: yes, what the operation says. A caller that is cancelled does not stop
        it: an operation that has begun is finished.
        """
        return await finish(self.submit(operation))

    def submit(self, operation: Steps[T]) -> "asyncio.Future[T]":
        """Like `commit`, for a caller that waits for many, and hears of each one's end: the future
        must not be cancelled.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((operation, future))
        self._unsettled += 1
        if len(self._waiting) == 1 and not self._at_turn_end:
            # At the end of this turn of the loop: what else arrives in it goes along.
            self._loop.call_soon(self._hand_over)
        return future

    def at_turn_end(self, submit: Callable[[], None]) -> None:
        """Calls `submit` just before what this turn of the loop has submitted is handed over: it
        submits what it has gathered meanwhile, which goes along.
        """
        self._at_turn_end.append(submit)
        if len(self._at_turn_end) == 1 and not self._waiting:
            self._loop.call_soon(self._hand_over)

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
        """Waits for the operations in progress, then gives the threads back."""
        while self._unsettled:
            self._settled.clear()
            await self._settled.wait()
        await self._loop.run_in_executor(None, self._line.close)
        await self._loop.run_in_executor(None, self._listing.close)
        self._flusher.close()

    def _hand_over(self) -> None:
        try:
            for submit in self._at_turn_end:
                submit()
        finally:
            self._at_turn_end.clear()
        batch, self._waiting = self._waiting, []
        if self._on_loop:
            began_s = self._steady_s()
            group: Group[asyncio.Future[Any]] = Group(self._flusher, self._leaves)
            ended = group.run(batch)
            self._flushed(len(batch), self._steady_s() - began_s)
            self._settle(ended)
            return
        self._put(self._line, batch)

    def _put(
        self,
        line: "CommitLine[asyncio.Future[Any]]",
        batch: list[tuple[Steps[Any], "asyncio.Future[Any]"]],
    ) -> None:
        try:
            line.put(batch)
        except RuntimeError as error:  # No thread can be started.
            for operation, _ in batch:
                operation.close()
            outcome = Outcome(error=Unavailable(repr(error)))
            self._settle([(future, outcome) for _, future in batch])

    def _ended(self, ended: list[tuple["asyncio.Future[Any]", Outcome]]) -> None:
        """In one of the lines' threads."""
        self._loop.call_soon_threadsafe(self._settle, ended)

    def _leaves(self, operation: Steps[Any], future: "asyncio.Future[Any]") -> None:
        """In the commit thread, or the loop's."""
        self._loop.call_soon_threadsafe(self._put, self._listing, [(operation, future)])

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
