"""The sweep of what is overdue: messages of delay/ that redelivery has long not been able to bring
back go to the sideline, those of a sideline back into that.

A pass goes through delay/ in the order of names, a batch a turn, behind a pointer that it leaves in
members/: so it goes on after a restart, and whoever takes over goes on with it.
"""

import logging
import os
from functools import partial
from typing import ClassVar, Final

from mq.model.errors import Busy, SidelineMissing, SidelinePurged
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.model.sweeping import is_overdue, overdue_after_s
from mq.model.upkeep_limits import (
    OVERDUE_EVERY_S,
    OVERDUE_FIRST_S,
    OVERDUE_LOOKED_AT_MAX,
    OVERDUE_MOVED_MAX,
    OVERDUE_TAKEN_OVER_EVERY_S,
    OVERDUE_TAKEN_OVER_S,
)
from mq.store.disk.group import Outcome
from mq.store.disk.steps import Steps
from mq.store.members.sweep_pointer import Pointer, forget_pointer, read_pointers, write_pointer
from mq.store.operations.overdue import Swept, sweep_overdue
from mq.store.scan.delayed_names import Delayed, delayed_behind
from mq_mover.policy import Policy, Turn, Work
from mq_mover.sidelines import Sidelines

_log = logging.getLogger("mq-mover.policies")

_BEGIN: Final = ""
# Another is at the message; or its sideline cannot be made, and that tells of itself.
_OF_ALL_DAYS: Final = (Busy, SidelineMissing)
_NS_PER_MS: Final = 1_000_000


class Overdue(Policy):
    """Moves what is overdue of the queues that are this member's."""

    name: ClassVar[str] = "overdue"
    first_s: ClassVar[float] = OVERDUE_FIRST_S
    every_s: ClassVar[float] = OVERDUE_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._sidelines = Sidelines(work.root, work.flusher)
        self._behind: str | None = None
        """The name behind which the pass goes on; None: there is none at this time."""
        self._next_s: float | None = None
        """When the next one begins, by the steady clock; None: there was none."""
        self._taken_over: dict[str, int] = {}
        """Others' passes that it went on with, and when they had said how far they were."""

    def act(self) -> Turn:
        """A batch, where a pass is due or on its way. Raises OSError."""
        behind = self._begin() if self._behind is None else self._behind
        if behind is None:
            return Turn(again_in_s=self._pause_s())
        batch = delayed_behind(self.root, behind, OVERDUE_LOOKED_AT_MAX)
        overdue = [each for each in batch.found if self._looks_overdue(each)]
        now, later = overdue[:OVERDUE_MOVED_MAX], overdue[OVERDUE_MOVED_MAX:]
        swept = self._sweep(now)
        behind = now[-1].name if later else batch.behind
        self._goes_on_behind(behind)
        return Turn(swept, more=behind is not None, again_in_s=self._pause_s())

    # When: every so often, and where another's pass was broken off.

    def _begin(self) -> str | None:
        """Behind which name a pass begins now; None: none does."""
        now_s = self.root.clock.steady_s()
        taken_over = self._take_over()
        if taken_over is not None and self._next_s is not None:
            return taken_over  # Beside this member's own, which come as they would.
        if self._next_s is None or now_s >= self._next_s:
            self._next_s = now_s + self.every_s
            return taken_over or _BEGIN
        return None

    def _pause_s(self) -> float:
        next_s = self._next_s or 0.0
        return min(OVERDUE_TAKEN_OVER_EVERY_S, max(0.0, next_s - self.root.clock.steady_s()))

    def _take_over(self) -> str | None:
        """How far the passes had come of members that are gone: as far as the least of them."""
        view = self.work.coordinator.view()
        others = [each for each in read_pointers(self.root) if self._is_left(each, view.members)]
        for each in others:
            self._taken_over[each.member] = each.told_ms
            if view.members == (self.work.coordinator.member,):
                forget_pointer(self.root, each.member)  # Nobody else has a part of its queues.
        return min((each.behind for each in others), default=None)

    def _is_left(self, pointer: Pointer, members: tuple[str, ...]) -> bool:
        own = pointer.member == self.work.coordinator.member
        if (pointer.member in members and not own) or not members:
            return False
        is_young = self.root.now_ms() - pointer.told_ms < OVERDUE_TAKEN_OVER_S * 1000
        return is_young and self._taken_over.get(pointer.member) != pointer.told_ms

    def _goes_on_behind(self, behind: str | None) -> None:
        self._behind = behind
        member = self.work.coordinator.member
        try:
            if behind is None:
                forget_pointer(self.root, member)
            else:
                write_pointer(self.root, member, behind)
        except OSError as error:
            fields = {"error": repr(error)}
            _log.info("how far a sweep has come cannot be told", extra={"fields": fields})

    # What: decided from times and settings, and whether the queue is this member's.

    def _looks_overdue(self, message: Delayed) -> bool:
        """By what was known at the last refresh: most are not."""
        known = self.work.registry.queues.get(_settings_of(message.queue))
        settings = None if known is None else known.settings
        return self._decide(message.queue, settings, message.status)

    def _is_overdue(self, queue: QueueName, status: os.stat_result) -> bool:
        """By what is so now: for the moment before the move."""
        settings = self.work.registry.settings(_settings_of(queue))
        return self._decide(queue, settings, status)

    def _decide(
        self, queue: QueueName, settings: QueueSettings | None, status: os.stat_result
    ) -> bool:
        if not self.work.coordinator.has(queue):
            return False
        after_s = overdue_after_s(settings, queue.is_sideline)
        due_ms = self.work.timer.due_ms(status.st_mtime_ns, status.st_ctime_ns)
        came_ms = status.st_ctime_ns // _NS_PER_MS
        return is_overdue(due_ms, came_ms, after_s, self.work.passing())

    # Doing it, a group at a time; and counting.

    def _sweep(self, messages: list[Delayed]) -> int:
        swept = 0
        for first in range(0, len(messages), GROUP_OPERATIONS_MAX):
            group = messages[first : first + GROUP_OPERATIONS_MAX]
            outcomes = self._run(group)
            swept += sum(outcome.value in (Swept.SIDELINED, Swept.RETURNED) for outcome in outcomes)
        if swept:
            _log.warning("overdue messages swept", extra={"fields": {"count": swept}})
        return swept

    def _run(self, messages: list[Delayed]) -> list[Outcome]:
        outcomes = self._sidelines.run(messages, self._operation, lambda each: each.queue)
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome.error, SidelinePurged):
                self._sidelines.failed(message.queue, outcome.error)
            elif outcome.error is not None and not isinstance(outcome.error, _OF_ALL_DAYS):
                fields = {"name": message.name, "error": repr(outcome.error)}
                _log.warning("an overdue message stays", extra={"fields": fields})
        return outcomes

    def _operation(self, message: Delayed) -> Steps[Swept]:
        is_still = partial(self._is_overdue, message.queue)
        return sweep_overdue(self.root, message.queue, message.id, message.bucket, is_still)


def _settings_of(queue: QueueName) -> QueueName:
    """Whose settings count: a sideline's messages wait by those of its queue."""
    return queue.counterpart() if queue.is_sideline else queue
