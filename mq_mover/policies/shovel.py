"""Shovels by schedule: the sidelines' messages back to their queues, again and again.

Runs go on beside the turns, in threads of their own, a few at a time: a turn begins what is due and
gathers what has ended. One run a queue goes on in all processes, whoever began it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mq.model.errors import ShovelRunning
from mq.model.names import QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.model.shovel import (
    SHOVEL_END_S,
    SHOVEL_SCHEDULED_RUNS_MAX,
    SHOVEL_SCHEDULES_LOOK_S,
    Criteria,
    Trigger,
    due_in_s,
    interval_s,
)
from mq.store.core.standing import queue_exists
from mq.store.shovel.beginning import Asked, begin
from mq.store.shovel.files import read_record, scheduled_since_ms
from mq.store.shovel.hearing import Heard, Stopping
from mq.store.shovel.run import Run
from mq_mover.policy import Policy, Turn, Work

_log = logging.getLogger("mq-mover.shovel")


@dataclass(frozen=True, slots=True)
class Due:
    """When a queue's shovel is due, in steady time; since when that counts, milliseconds since the
    epoch, and how long.
    """

    at_s: float
    since_ms: int
    every_s: float


@dataclass(slots=True)
class Going:
    """A run that goes on, how often there is one, and how many messages were counted."""

    run: Run
    every_s: float
    counted: int = 0


def decide(dues: Mapping[QueueName, Due], now_s: float, room: int) -> list[QueueName]:
    """Which are to begin now: those that are due longest, as many as there is room for."""
    due = sorted((each.at_s, queue) for queue, each in dues.items() if each.at_s <= now_s)
    return [queue for _, queue in due[:room]]


class Shovel(Policy):
    """Has them run when they are due."""

    name: ClassVar[str] = "shovel"
    every_s: ClassVar[float] = SHOVEL_SCHEDULES_LOOK_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._uuids = UuidSource(work.root.clock)
        self._dues: dict[QueueName, Due] = {}
        self.runs: dict[QueueName, Going] = {}
        """Those that go on, as of the last turn."""

    def act(self) -> Turn:
        """Begins what is due; what was moved since the last turn. Raises OSError."""
        moved = self._gather()
        self._dues = self._followed()
        now_s = self.root.clock.steady_s()
        room = SHOVEL_SCHEDULED_RUNS_MAX - len(self.runs)
        for queue in decide(self._dues, now_s, room):
            self._begin_if_due(queue, now_s)
        return Turn(moved)

    def stop(self) -> None:
        """Ends the runs; whoever has their queues next begins them anew."""
        for each in self.runs.values():
            each.run.stop(Stopping.LEFT)
        ends_s = self.root.clock.steady_s() + SHOVEL_END_S
        for each in self.runs.values():
            each.run.ended.wait(max(0.0, ends_s - self.root.clock.steady_s()))

    def _gather(self) -> int:
        """How many messages were moved since."""
        moved = 0
        for queue, going in list(self.runs.items()):
            is_over = going.run.ended.is_set()
            now = going.run.progress
            moved += now.moved - going.counted
            going.counted = now.moved
            if is_over:
                del self.runs[queue]
                # Also where that could not be written.
                if now.ended_ms is not None and going.run.scheduled_ms == now.ended_ms:
                    at_s = self.root.clock.steady_s() + going.every_s
                    self._dues[queue] = Due(at_s, now.ended_ms, going.every_s)
        return moved

    def _followed(self) -> dict[QueueName, Due]:
        """When each of this member's is due, as its settings say by now; but for those that go
        on.
        """
        dues: dict[QueueName, Due] = {}
        for queue, registered in list(self.work.registry.queues.items()):
            # Each second, of all queues: whose one is costs more, and nearly none has a schedule.
            every_s = _every_s(queue, registered.settings)
            if every_s is None or queue in self.runs or not self.work.coordinator.has(queue):
                continue
            known = self._dues.get(queue)
            if known is None or known.every_s != every_s:
                known = self._look(queue, every_s)
            dues[queue] = known
        return dues

    def _look(self, queue: QueueName, every_s: float) -> Due:
        since_ms = scheduled_since_ms(self.root, queue, read_record(self.root, queue))
        after_s = due_in_s(every_s, since_ms, self.root.now_ms())
        return Due(self.root.clock.steady_s() + after_s, since_ms, every_s)

    def _begin_if_due(self, queue: QueueName, now_s: float) -> None:
        """Its settings are read again, and when it last ran: another may have done so since."""
        settings = self.work.registry.settings(queue)
        every_s = _every_s(queue, settings)
        if settings is None or every_s is None:
            del self._dues[queue]
            return
        due = self._look(queue, every_s)
        if due.at_s > now_s and due.since_ms != self._dues[queue].since_ms:
            self._dues[queue] = due
            return
        # Where nothing is, it is as if it had run.
        self._dues[queue] = Due(now_s + every_s, due.since_ms, every_s)
        if queue_exists(self.root, queue.sideline()):
            self._begin(queue, settings, every_s)

    def _begin(self, queue: QueueName, settings: QueueSettings, every_s: float) -> None:
        asked = Asked(
            queue,
            Trigger.SCHEDULED,
            Criteria.of(max_receives=settings.shovel_max_receives),
            concurrency=settings.shovel_concurrency,
        )
        heard = Heard(may_go_on=lambda: self._may_go_on(queue))
        try:
            run = begin(self.root, self.work.flusher, asked, self._uuids.next(), heard)
        except ShovelRunning as error:
            fields = {"queue": queue.text, "run": error.id}
            _log.info("a shovel's turn is skipped: one runs", extra={"fields": fields})
            return
        # Once it has ended, when it is due next is asked of what it has left.
        del self._dues[queue]
        self.runs[queue] = Going(run, every_s)

    def _may_go_on(self, queue: QueueName) -> bool:
        """Whether the queue is this member's still, and has a schedule. From the run's threads."""
        registered = self.work.registry.queues.get(queue)
        if registered is None or _every_s(queue, registered.settings) is None:
            return False
        return self.work.coordinator.has(queue)


def _every_s(queue: QueueName, settings: QueueSettings | None) -> float | None:
    """How often it runs; None: not by itself, or nobody can tell."""
    return None if settings is None or queue.is_sideline else interval_s(settings)
