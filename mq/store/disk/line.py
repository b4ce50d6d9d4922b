"""The line of commits: two threads that drive operations, and one flush at a time for all.

Whoever arrives acts at once, also while a flush goes on; the next flush takes all that wait for
one by then, at whichever of their steps. So every flush serves as many operations as there are,
the disk is never without one, and a lone operation is driven by one thread from end to end.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from mq.model.errors import Unavailable
from mq.model.limits import (
    COMMIT_THREADS,
    GATHER_FROM_S,
    GATHER_MIN,
    GATHER_RATIO,
    GATHER_SHARE,
    GROUP_OPERATIONS_MAX,
    OPERATIONS_STANDING_MAX,
)
from mq.store.disk.flush import Failures, Flusher
from mq.store.disk.group import Outcome, advance
from mq.store.disk.steps import Flush, Steps

_log = logging.getLogger("mq.commit")

W = TypeVar("W")

OnCommit: TypeAlias = Callable[[int, float], None]
"""Hears of how many operations were flushed together, and in how many seconds; in a thread."""


def untold(operations: int, seconds: float) -> None:
    """Nobody wants to hear of it."""


class CommitLine(Generic[W]):
    """Drives operations, each with someone who waits for it; `ended` is called in one of the
    line's threads with some of those and what became of their operations, and `flushed` with how
    many a flush was for, and how many seconds it took.
    """

    def __init__(
        self,
        flusher: Flusher,
        ended: Callable[[list[tuple[W, Outcome]]], None],
        steady_s: Callable[[], float],
        flushed: OnCommit = untold,
    ) -> None:
        self._session = flusher.session()
        self._ended = ended
        self._steady_s = steady_s
        self._flushed = flushed
        self._flush_s = 0.0
        """What the last flush took."""
        self._left, self._left_s, self._back = 0, 0.0, 0
        """How many operations ended at once, and when: whoever waited for them is soon back; and
        how many have come since.
        """
        self._changed = threading.Condition()
        self._arrived: deque[tuple[Steps[Any], W]] = deque()
        self._standing: dict[int, tuple[Steps[Any], W]] = {}
        self._asked: dict[int, Flush] = {}
        self._begun = 0
        self._flushing = False
        self._closing = False
        self._next = 0
        self._threads: list[threading.Thread] = []

    @property
    def arrived(self) -> int:
        """How many operations have not acted yet."""
        return len(self._arrived)

    def put(self, arrivals: Sequence[tuple[Steps[Any], W]]) -> None:
        """Takes operations in. Raises RuntimeError, and takes none, when not even one thread can
        be started, which does all, but lets nobody act while it flushes.
        """
        while len(self._threads) < COMMIT_THREADS:
            thread = threading.Thread(target=self._work, name="mq-commit", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
                break
            self._threads.append(thread)
        with self._changed:
            self._arrived.extend(arrivals)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the threads, once all that was taken in has ended; blocking."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._take():
            self._act(batch, {}, newcomers=len(batch))
            if self._may_flush():
                while asked := self._next_flush():
                    self._flush(*asked)

    def _take(self) -> list[int]:
        """Waits for operations to begin; none: the line closes."""
        with self._changed:
            while not self._arrived or len(self._standing) >= OPERATIONS_STANDING_MAX:
                if self._closing and not self._arrived:
                    return []
                self._changed.wait()
            batch: list[int] = []
            while self._arrived and len(batch) < GROUP_OPERATIONS_MAX:
                self._standing[self._next] = self._arrived.popleft()
                batch.append(self._next)
                self._next += 1
            return batch

    def _may_flush(self) -> bool:
        """Whether this thread flushes from here on: one does, as long as anything asks for it."""
        with self._changed:
            mine = bool(self._asked) and not self._flushing
            self._flushing = self._flushing or mine
            self._rest_if_idle()
            return mine

    def _next_flush(self) -> tuple[dict[int, Flush], int] | None:
        with self._changed:
            self._gather()
            asked, self._asked = self._asked, {}
            if asked:
                return asked, self._begun
            self._flushing = False
            self._rest_if_idle()
            return None

    def _rest_if_idle(self) -> None:
        """For whoever has the lock: no other operation begins meanwhile."""
        if not self._standing:
            self._session.rest()

    def _gather(self) -> None:
        """Lets a flush wait for the many who have just left, where a flush takes long: for a part
        of that time. For whoever has the lock; the other thread lets newcomers act.
        """
        if self._asked and self._is_worth_waiting():
            until_s = self._left_s + self._flush_s * GATHER_SHARE
            while self._back < self._left and not self._closing:
                rest_s = until_s - self._steady_s()
                if rest_s <= 0 or not self._changed.wait(rest_s):
                    break
            self._left = 0

    def _is_worth_waiting(self) -> bool:
        many = self._left >= max(GATHER_MIN, len(self._asked) / GATHER_RATIO)
        return many and self._flush_s >= GATHER_FROM_S and len(self._threads) == COMMIT_THREADS

    def _flush(self, asked: dict[int, Flush], begun: int) -> None:
        began_s = self._steady_s()
        try:
            failures = self._session.flush(asked, begun)
        except Exception as error:
            self._fail(list(asked), error)
        else:
            self._flush_s = self._steady_s() - began_s
            self._flushed(len(asked), self._flush_s)
            self._act(list(asked), failures)

    def _act(self, numbers: list[int], failures: Failures, newcomers: int = 0) -> None:
        """Lets operations act; tells of those that ended, and what the others ask for is next."""
        begun = self._session.begin()
        outcomes: dict[int, Outcome] = {}
        asked = advance({n: self._standing[n][0] for n in numbers}, failures, outcomes)
        ended = [(self._standing[number][1], outcome) for number, outcome in outcomes.items()]
        with self._changed:
            for number in outcomes:
                del self._standing[number]
            self._begun = min(self._begun, begun) if self._asked else begun
            self._asked |= asked
            self._back += newcomers
            if outcomes:
                self._left, self._left_s, self._back = len(outcomes), self._steady_s(), 0
            self._changed.notify_all()
        if ended:
            self._tell(ended)

    def _fail(self, numbers: list[int], error: Exception) -> None:
        """A fault of the policy must answer, not hang."""
        _log.error("a flush failed", exc_info=error)
        with self._changed:
            failed = [self._standing.pop(number) for number in numbers]
            self._changed.notify_all()
        for operation, _ in failed:
            try:
                operation.close()
            except Exception as also:  # The others are to hear all the same.
                _log.error("an operation could not clean up", exc_info=also)
        self._tell([(waits, Outcome(error=Unavailable(repr(error)))) for _, waits in failed])

    def _tell(self, ended: list[tuple[W, Outcome]]) -> None:
        """Who cannot be told, as when its event loop is closed, must not end the thread: it may be
        the one that flushes, and no other would take its place.
        """
        try:
            self._ended(ended)
        except Exception as error:
            _log.error("nobody was told how operations ended", exc_info=error)
