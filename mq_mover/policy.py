"""Policies: periodic upkeep, each kind in a file of its own.

A policy says when it is due, whether this member does it, and what to do (pure), and does and
counts it. `Policies` runs them a batch at a time, so that none delays another one, or redelivery,
for long.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from mq.coordination.coordinator import Coordinator
from mq.model.errors import Busy, MqError
from mq.model.expiry import Passing
from mq.model.log import logger
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.operations.redeliver import Timer
from mq.store.settings.registry import Registry

_log = logger("mq-mover.policies")

_BY_MTIME: Final = Timer()


@dataclass(frozen=True, slots=True)
class Work:
    """The objects that policies work with."""

    root: Root
    flusher: Flusher
    coordinator: Coordinator
    registry: Registry
    timer: Timer = _BY_MTIME
    """When redelivery moves the messages of delay/."""
    passing: Callable[[], Passing | None] = lambda: None
    """The time span that redelivery has covered without a gap."""

    def queues(self) -> Iterator[tuple[QueueName, QueueSettings | None]]:
        """This member's queues with their settings; None: unreadable."""
        for queue, registered in list(self.registry.queues.items()):
            if self.coordinator.has(queue):
                yield queue, registered.settings


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn's result: how many objects the policy acted on, whether more wait, and the seconds
    until the next turn, if not the policy's interval. `aside`: how many of the objects it
    sidelined.
    """

    acted: int = 0
    more: bool = False
    again_in_s: float | None = None
    aside: int = 0


@dataclass(slots=True)
class Count:
    """The counts of a policy since the process began."""

    turns: int = 0
    acted: int = 0
    failed: int = 0
    aside: int = 0
    last_ms: int | None = None
    """When it last acted, milliseconds since the epoch."""
    next_ms: int | None = None
    """When its next turn is due; None: it has had no turn yet."""


class Policy(ABC):
    name: ClassVar[str]
    """Its name in logs and `/-/members`."""
    first_s: ClassVar[float] = 0.0
    """Seconds from the start to its first turn."""
    every_s: ClassVar[float]

    def __init__(self, work: Work) -> None:
        self.work = work
        self.root = work.root

    @abstractmethod
    def act(self) -> Turn:
        """Does one batch, small enough not to delay redelivery. Raises OSError, MqError; it is
        tried again after the interval.
        """

    def stop(self) -> None:  # noqa: B027 - most have nothing to end
        """Ends work that it began beside its turns, before the process ends."""


@dataclass(slots=True)
class _Standing:
    policy: Policy
    due_s: float
    count: Count = field(default_factory=Count)
    order: int = 0
    """The number of its last turn. Of two policies that are due at the same time, the one with the
    older turn comes first.
    """


class Policies:
    """Runs policies when they are due."""

    def __init__(self, root: Root, policies: Sequence[Policy]) -> None:
        self._root = root
        self._turns = 0
        began_s = root.clock.steady_s()
        self._standing = [_Standing(each, began_s + each.first_s) for each in policies]

    def run_next(self) -> int:
        """Gives a turn to the policy that has been due longest. Returns how many objects it acted
        on. Redelivery has its turn after each.
        """
        first = min(self._standing, key=lambda each: (each.due_s, each.order), default=None)
        return 0 if first is None or first.due_s > self._now_s() else self._turn(first)

    def run_once(self) -> int:
        """Gives a turn to each due policy. Returns how many objects they acted on."""
        return sum(self._turn(each) for each in self._standing if each.due_s <= self._now_s())

    def next_due_s(self) -> float | None:
        """Seconds until the next policy is due; None: there is none."""
        due_s = min((each.due_s for each in self._standing), default=None)
        return None if due_s is None else max(0.0, due_s - self._now_s())

    def stop(self) -> None:
        """Ends work that policies began beside their turns."""
        for each in self._standing:
            each.policy.stop()

    def counts(self) -> dict[str, Count]:
        """Each policy's counts, by its name."""
        return {each.policy.name: each.count for each in self._standing}

    def _turn(self, standing: _Standing) -> int:
        policy, count = standing.policy, standing.count
        self._turns += 1
        standing.order = self._turns
        count.turns += 1
        again_s = policy.every_s
        turn = Turn()
        try:
            turn = policy.act()
        except (MqError, OSError) as error:
            count.failed += 1
            fields = {"policy": policy.name, "error": repr(error)}
            level = logging.INFO if isinstance(error, Busy) else logging.WARNING
            _log.log(level, "a policy failed; trying again", extra={"fields": fields})
        if turn.acted:
            count.acted += turn.acted
            count.aside += turn.aside
            count.last_ms = self._root.now_ms()
        if turn.more:
            again_s = 0.0
        elif turn.again_in_s is not None:
            again_s = turn.again_in_s
        standing.due_s = self._now_s() + again_s
        count.next_ms = self._root.now_ms() + round(again_s * 1000)
        return turn.acted

    def _now_s(self) -> float:
        return self._root.clock.steady_s()
