"""Moving what was chosen from one queue to another, and going on where a run was cut off."""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import SettingsUnreadable
from mq.model.message import Stamp
from mq.model.names import MessageId
from mq.model.shovel import ALL, SHOVEL_BATCH_MAX, Pacing, Why
from mq.spark.jobs.watching import Watcher
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.format.crossings import Crossing
from mq.store.keys.holders import whereabouts
from mq.store.scan.order import Candidate
from mq.store.shovel.crossing_files import Chosen, candidate_of, chosen_of, leave_one_name
from mq.store.shovel.shovel import Aim, Shovelled, shovel_many

_AT_ONCE: Final = 2
_TRIES: Final = 3
_TRY_AGAIN_S: Final = 0.2
# A place is left before the next is looked at, so one look may pass a message by.
_LOOKS: Final = 2


@dataclass(slots=True)
class Moved:
    """What became of what a run chose, so far."""

    moved: int = 0
    moved_before: int = 0
    """By an earlier process of the run: they are in the queue that they were to go to, or were
    removed there, and are not forgotten yet."""
    stayed: Counter[Why] = field(default_factory=Counter)


class Mover:
    """Moves what a run chose, in order, some at a time; one thread's."""

    def __init__(
        self, root: Root, flusher: Flusher, crossing: Crossing, rate: int | None, watcher: Watcher
    ) -> None:
        self.done = Moved()
        self._root = root
        self._flusher = flusher
        self._crossing = crossing
        self._watcher = watcher
        self._pacing = Pacing(rate, root.clock.steady_s())
        self._never = threading.Event()
        self._ahead: deque[tuple[list[Chosen], Future[tuple[Shovelled, list[Chosen]]]]] = deque()
        self._again: list[Chosen] = []
        self._tries = _TRIES

    def run(self) -> None:
        """All of it. What is in hand is ended and counted also where this is interrupted. Raises
        what kept a message from being moved, and the run from being ended: MqError, OSError.
        """
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="shovel")
        try:
            self._pass(pool, chosen_of(self._root, self._crossing))
            while self._again:
                again, self._again = self._again, []
                self._tries -= 1
                self._never.wait(_TRY_AGAIN_S)
                self._pass(pool, iter(again))
            if self.done.stayed:
                # One that another process is at may have two names: the run is not over then.
                leave_one_name(self._root, self._flusher, self._crossing)
        finally:
            pool.shutdown(wait=True)
            while self._ahead:
                self._settle(is_ending=True)

    def _pass(self, pool: ThreadPoolExecutor, chosen: Iterator[Chosen]) -> None:
        size = self._pacing.at_once(SHOVEL_BATCH_MAX)
        while batch := [each for _, each in zip(range(size), chosen, strict=False)]:
            self._pace(len(batch))
            self._ahead.append((batch, pool.submit(self._move, batch)))
            if len(self._ahead) >= _AT_ONCE:
                self._settle()
        while self._ahead:
            self._settle()

    def _pace(self, count: int) -> None:
        clock = self._root.clock
        while wait_s := self._pacing.wait_s(clock.steady_s()):
            self._never.wait(wait_s)
        self._pacing.took(count, clock.steady_s())

    def _move(self, batch: list[Chosen]) -> tuple[Shovelled, list[Chosen]]:
        """What became of those that are there, and which are not; in another thread."""
        there: list[Candidate] = []
        gone: list[Chosen] = []
        stamps: dict[str, Stamp] = {}
        for each in batch:
            found = candidate_of(self._root, self._crossing, each.id)
            if found is None:
                gone.append(each)
            else:
                there.append(found)
                stamps[each.id.text] = each.stamp
        aim = Aim(self._crossing.target, ALL, self._root.now_ms(), self._crossing.source, stamps)
        return shovel_many(self._root, self._flusher, aim, there), gone

    def _settle(self, *, is_ending: bool = False) -> None:
        batch, future = self._ahead.popleft()
        if is_ending and (future.cancelled() or future.exception() is not None):
            return
        became, gone = future.result()
        before = sum(self._went(each.id) for each in gone)
        self.done.moved += len(became.moved)
        self.done.moved_before += before
        self._pacing.gave_back(len(batch) - len(became.moved))
        left: list[Chosen] = []
        stayed = Counter(became.stayed)
        if Why.BUSY in stayed and self._tries:
            # Which of them, nobody tells: all are decided about again, and told of then.
            moved = {each.text for each in became.moved}
            left = [each for each in batch if each.id.text not in moved and self._is_there(each)]
            stayed = Counter({Why.GONE: stayed[Why.GONE]})
            self._again += left
        stayed[Why.GONE] += len(gone) - before
        self.done.stayed += stayed
        self._watcher.advanced(len(batch) - len(left))
        if became.error is not None and not is_ending:
            raise became.error

    def _is_there(self, chosen: Chosen) -> bool:
        return candidate_of(self._root, self._crossing, chosen.id) is not None

    def _went(self, message_id: MessageId) -> bool:
        """Whether it came to where the run takes messages, and is known there still."""
        try:
            target = self._crossing.target
            looks = (whereabouts(self._root, target, message_id) for _ in range(_LOOKS))
            return any(state is not None for state in looks)
        except SettingsUnreadable:
            return False
