"""Sweeps overdue messages: messages of delay/ that redelivery has long failed to return go to the
sideline, those of a sideline back to that.

A pass goes through delay/ in the order of names, one batch a turn, and keeps a pointer in members/:
so it continues after a restart, and a member that takes over continues it.
"""

import os
from functools import partial
from typing import ClassVar, Final

from mq.model.errors import Busy, SidelineMissing, SidelinePurged
from mq.model.expiry import is_overdue, overdue_after_s
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.log import logger
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.group import Outcome, run_group
from mq.store.disk.steps import Steps
from mq.store.members.files import Pointer, forget_pointer, read_pointers, write_pointer
from mq.store.operations.redeliver import Swept, sweep_overdue
from mq.store.operations.sideline import Stuck
from mq.store.scan.delayed_names import Delayed, delayed_behind
from mq_mover.policy import Policy, Turn, Work

# The time of the first pass and the interval of passes; the names of delay/ and the moves of one
# turn.
OVERDUE_FIRST_S: Final = 600.0
OVERDUE_EVERY_S: Final = 900.0
OVERDUE_LOOKED_AT_MAX: Final = 2_000
OVERDUE_MOVED_MAX: Final = 1_000
# The interval of searches for an unfinished pass of another member, and the age up to which it is
# worth continuing.
OVERDUE_TAKEN_OVER_EVERY_S: Final = 60.0
OVERDUE_TAKEN_OVER_S: Final = 2 * OVERDUE_EVERY_S

_log = logger("mq-mover.policies")

_BEGIN: Final = ""
_NS_PER_MS: Final = 1_000_000


class Overdue(Policy):
    """Moves overdue messages of this member's queues."""

    name: ClassVar[str] = "overdue"
    first_s: ClassVar[float] = OVERDUE_FIRST_S
    every_s: ClassVar[float] = OVERDUE_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._stuck = Stuck(_log)
        self._behind: str | None = None
        """The name after which the pass continues; None: no pass is running."""
        self._next_s: float | None = None
        """The start of the next pass, by the steady clock; None: there was no pass yet."""
        self._taken_over: dict[str, int] = {}
        """Other members' passes that this one continued, and the times of their pointers."""

    def act(self) -> Turn:
        """Sweeps a batch, if a pass is due or running. Raises OSError."""
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

    # When: at intervals, and after another member's pass was interrupted.

    def _begin(self) -> str | None:
        """The name after which a pass begins now; None: no pass is due."""
        now_s = self.root.clock.steady_s()
        taken_over = self._take_over()
        if taken_over is not None and self._next_s is not None:
            return taken_over  # In addition to this member's own passes.
        if self._next_s is None or now_s >= self._next_s:
            self._next_s = now_s + self.every_s
            return taken_over or _BEGIN
        return None

    def _pause_s(self) -> float:
        next_s = self._next_s or 0.0
        return min(OVERDUE_TAKEN_OVER_EVERY_S, max(0.0, next_s - self.root.clock.steady_s()))

    def _take_over(self) -> str | None:
        """The earliest progress of unfinished passes of members that are gone; None: there is none.
        Drops a pass's progress if this member has all queues: no other member has a part to
        continue.
        """
        view = self.work.coordinator.view()
        others = [each for each in read_pointers(self.root) if self._is_left(each, view.members)]
        for each in others:
            self._taken_over[each.member] = each.told_ms
            if view.members == (self.work.coordinator.member,):
                forget_pointer(self.root, each.member)  # It has all queues.
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
            _log.info("could not write how far a sweep has come", extra={"fields": fields})

    # Which messages: decided by times, settings, and whether the queue is this member's.

    def _looks_overdue(self, message: Delayed) -> bool:
        """As of the last refresh: most messages are not overdue."""
        known = self.work.registry.queues.get(_settings_of(message.place.queue))
        settings = None if known is None else known.settings
        return self._decide(message.place.queue, settings, message.status)

    def _is_overdue(self, queue: QueueName, status: os.stat_result) -> bool:
        """As of now: checked just before the move."""
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

    # The moves, one group at a time.

    def _sweep(self, messages: list[Delayed]) -> int:
        swept = 0
        for first in range(0, len(messages), GROUP_OPERATIONS_MAX):
            group = messages[first : first + GROUP_OPERATIONS_MAX]
            outcomes = self._run(group)
            swept += sum(
                each.place.id.items or 1
                for each, outcome in zip(group, outcomes, strict=True)
                if outcome.value in (Swept.SIDELINED, Swept.RETURNED)
            )
        if swept:
            _log.warning("swept overdue messages", extra={"fields": {"count": swept}})
        return swept

    def _run(self, messages: list[Delayed]) -> list[Outcome]:
        outcomes = run_group(list(map(self._operation, messages)), self.work.flusher)
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome.error, SidelineMissing | SidelinePurged):
                self._stuck.failed(message.place.queue, outcome.error)
            elif outcome.error is not None and not isinstance(outcome.error, Busy):
                fields = {"name": message.name, "error": repr(outcome.error)}
                _log.warning("could not sweep an overdue message", extra={"fields": fields})
            elif outcome.value is Swept.SIDELINED:
                self._stuck.moved(message.place.queue)
        return outcomes

    def _operation(self, message: Delayed) -> Steps[Swept]:
        is_still = partial(self._is_overdue, message.place.queue)
        return sweep_overdue(self.root, message.place, is_still)


def _settings_of(queue: QueueName) -> QueueName:
    """The queue whose settings count: a sideline's messages wait by those of its queue."""
    return queue.counterpart() if queue.is_sideline else queue
