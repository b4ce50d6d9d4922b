"""Scheduled shovels: move messages of sidelines back to their queues at intervals.

Runs have threads of their own, a few at a time: a turn begins due runs and collects ended ones. A
queue has one run at a time in all processes, by request or schedule.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mq.model.errors import ShovelRunning
from mq.model.log import logger
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
from mq.store.shovel.files import read_record, scheduled_since_ms
from mq.store.shovel.run import Asked, Heard, Run, Stopping, begin
from mq_mover.policy import Policy, Turn, Work

_log = logger("mq-mover.shovel")


@dataclass(frozen=True, slots=True)
class Due:
    """When a queue's shovel is due, in steady time; the time from which that counts, in
    milliseconds since the epoch; and its interval.
    """

    at_s: float
    since_ms: int
    every_s: float


@dataclass(slots=True)
class Going:
    """A run in progress, its interval, and the number of its messages that were counted."""

    run: Run
    every_s: float
    counted: int = 0


def decide(dues: Mapping[QueueName, Due], now_s: float, room: int) -> list[QueueName]:
    """The queues whose runs begin now: those that are due longest, up to `room`."""
    due = sorted((each.at_s, queue) for queue, each in dues.items() if each.at_s <= now_s)
    return [queue for _, queue in due[:room]]


class Shovel(Policy):
    """Begins scheduled runs when they are due."""

    name: ClassVar[str] = "shovel"
    every_s: ClassVar[float] = SHOVEL_SCHEDULES_LOOK_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._uuids = UuidSource(work.root.clock)
        self._dues: dict[QueueName, Due] = {}
        self.runs: dict[QueueName, Going] = {}
        """The runs in progress, as of the last turn."""

    def act(self) -> Turn:
        """Begins due runs. Returns the number of messages moved since the last turn. Raises
        OSError.
        """
        moved = self._gather()
        self._dues = self._followed()
        now_s = self.root.clock.steady_s()
        room = SHOVEL_SCHEDULED_RUNS_MAX - len(self.runs)
        for queue in decide(self._dues, now_s, room):
            self._begin_if_due(queue, now_s)
        return Turn(moved)

    def stop(self) -> None:
        """Stops the runs; the next member of their queues begins them anew."""
        for each in self.runs.values():
            each.run.stop(Stopping.LEFT)
        ends_s = self.root.clock.steady_s() + SHOVEL_END_S
        for each in self.runs.values():
            each.run.ended.wait(max(0.0, ends_s - self.root.clock.steady_s()))

    def _gather(self) -> int:
        """Collects ended runs. Returns the number of messages moved since the last turn."""
        moved = 0
        for queue, going in list(self.runs.items()):
            is_over = going.run.ended.is_set()
            now = going.run.progress
            moved += now.moved - going.counted
            going.counted = now.moved
            if is_over:
                del self.runs[queue]
                # Also if the record could not be written.
                if now.ended_ms is not None and going.run.scheduled_ms == now.ended_ms:
                    at_s = self.root.clock.steady_s() + going.every_s
                    self._dues[queue] = Due(at_s, now.ended_ms, going.every_s)
        return moved

    def _followed(self) -> dict[QueueName, Due]:
        """The due times of this member's queues by their current settings, without those with a run
        in progress.
        """
        dues: dict[QueueName, Due] = {}
        for queue, registered in list(self.work.registry.queues.items()):
            # Runs each second for all queues: check the schedule first, which is cheap and nearly
            # always missing.
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
        """Reads the settings and the last run again: another process may have run it since."""
        settings = self.work.registry.settings(queue)
        every_s = _every_s(queue, settings)
        if settings is None or every_s is None:
            del self._dues[queue]
            return
        due = self._look(queue, every_s)
        if due.at_s > now_s and due.since_ms != self._dues[queue].since_ms:
            self._dues[queue] = due
            return
        # Without a sideline the run counts as done.
        self._dues[queue] = Due(now_s + every_s, due.since_ms, every_s)
        if any(queue_exists(self.root, each) for each in self.root.facts.sidelines(queue)):
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
            _log.info(
                "skipped a shovel's run: the last one is still running", extra={"fields": fields}
            )
            return
        # The record of the ended run decides when the next one is due.
        del self._dues[queue]
        self.runs[queue] = Going(run, every_s)

    def _may_go_on(self, queue: QueueName) -> bool:
        """Whether the queue is still this member's and has a schedule. Called in the run's
        threads.
        """
        registered = self.work.registry.queues.get(queue)
        if registered is None or _every_s(queue, registered.settings) is None:
            return False
        return self.work.coordinator.has(queue)


def _every_s(queue: QueueName, settings: QueueSettings | None) -> float | None:
    """The interval; None: no schedule, or unknown settings."""
    return None if settings is None or queue.is_sideline else interval_s(settings)
