"""A check of a root: every breach is seen twice, some time apart, before it is believed; then it is
told of, or put right.

Blocking, for one thread. Memory does not grow with the root, nor with what is broken in it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from mq.model.errors import Busy, MqError
from mq.model.fsck_limits import (
    AGAIN_AFTER_S,
    LOOKS_PER_TELLING,
    OVERDUE_S_DEFAULT,
    PASSES_MAX,
    PUT_RIGHT_AGAIN_S,
    PUT_RIGHT_TRIES_MAX,
    SUSPECTS_MAX,
)
from mq.model.names import QueueName
from mq.store.audit.auditor import Auditor
from mq.store.audit.breaches import Breach, Look, Violation
from mq.store.audit.taking import Taking
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.tools.fsck.repairs import repair_of, why_it_stays
from mq.tools.fsck.report import Found, Report, Told


class Doing(Enum):
    """What is done about what is found."""

    LOOK = "look"
    DRY_RUN = "dry run"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a check is to be. `queues`: these alone, by their names; none: all, and what is of no
    queue. `again_after_s`: between the two looks at a breach.
    """

    queues: tuple[QueueName, ...] = ()
    doing: Doing = Doing.LOOK
    again_after_s: float = AGAIN_AFTER_S
    overdue_s: float = OVERDUE_S_DEFAULT


class Interrupted(Exception):
    """Somebody asked the check to end; what it was doing is done, as far as it had begun."""


class Watcher(Protocol):
    """Who is told how far a check is, and may end it."""

    def began(self, folder: str, number: int, of: int) -> None:
        """A pass has come to a folder, the `number`th `of` so many."""
        ...

    def looked(self, names: int) -> None:
        """So many names were looked at in this pass."""
        ...

    def put_right(self, told: Told) -> None:
        """A breach was put right."""
        ...

    def wants_to_end(self) -> bool:
        """Whether the check is to end. Asked between two steps."""
        ...

    def pause(self, seconds: float) -> None:
        """Returns after so long, or when the check is to end."""
        ...


class _Suspect(NamedTuple):
    seen_s: float
    look: Look
    violation: Violation


class Check:
    """One check of a root."""

    def __init__(self, root: Root, flusher: Flusher, asked: Asked, watcher: Watcher) -> None:
        self._root = root
        self._flusher = flusher
        self._asked = asked
        self._watcher = watcher
        self._suspects: deque[_Suspect] = deque()
        self._taking = Taking(root, asked.queues)
        self.report = Report(root.layout.root)

    def run(self) -> Report:
        """The report; where breaches are put right, passes go on until one finds nothing that can
        be. Raises Interrupted, and OSError where the root itself cannot be looked at: `report` has
        what was done until then.
        """
        for number in range(PASSES_MAX if self._asked.doing is Doing.REPAIR else 1):
            before = self.report.put_right.total
            self.report.passes = number + 1
            self._pass()
            if self.report.put_right.total == before:
                break
        self.report.is_whole = True
        return self.report

    def _pass(self) -> None:
        auditor = Auditor(self._root, self._asked.overdue_s, self._asked.queues or None)
        self.report.remaining, self.report.names = Found(), 0
        self.report.amounts = auditor.amounts
        parts = auditor.parts()
        for number, (folder, looks) in enumerate(parts):
            self._watcher.began(folder, number, len(parts))
            for look in self._listed(folder, looks):
                self._count()
                self._suspect(look)
        while self._suspects:
            self._look_again()
        self._watcher.looked(self.report.names)

    def _listed(self, folder: str, looks: Iterator[Look]) -> Iterator[Look]:
        """The looks of a folder; where the storage ends them, that is told, and the next comes."""
        try:
            yield from looks
        except (OSError, MqError) as error:
            violation = Violation(Breach.STORAGE, folder or self._root.layout.root, str(error))
            self.report.remaining.add(Told(violation, why_it_stays(Breach.STORAGE)))

    def _count(self) -> None:
        self.report.names += 1
        if self.report.names % LOOKS_PER_TELLING == 0:
            self._watcher.looked(self.report.names)
            self._end_if_wanted()

    def _end_if_wanted(self) -> None:
        if self._watcher.wants_to_end():
            raise Interrupted

    def _suspect(self, look: Look) -> None:
        if not (found := self._taking.taken(look)):
            return
        seen_s = self._root.clock.steady_s()
        self._suspects.extend(_Suspect(seen_s, look, each) for each in found)
        while len(self._suspects) > SUSPECTS_MAX:
            self._look_again()

    def _look_again(self) -> None:
        """At the one that was seen first, once it was seen long enough ago."""
        suspect = self._suspects.popleft()
        self._end_if_wanted()
        waited_s = self._root.clock.steady_s() - suspect.seen_s
        if waited_s < self._asked.again_after_s:
            self._watcher.pause(self._asked.again_after_s - waited_s)
            self._end_if_wanted()
        if (violation := self._taking.still(suspect.look, suspect.violation)) is not None:
            self._believe(suspect.look, violation)

    def _believe(self, look: Look, violation: Violation) -> None:
        if self._asked.doing is Doing.LOOK:
            self.report.remaining.add(Told(violation))
            return
        repair = repair_of(violation)
        if repair is None:
            self.report.remaining.add(Told(violation, why_it_stays(violation.breach)))
        elif self._asked.doing is Doing.DRY_RUN:
            self.report.remaining.add(Told(violation, f"would {repair.would}"))
        else:
            self._put_right(look, violation)

    def _put_right(self, look: Look, violation: Violation) -> None:
        repair = repair_of(violation)
        if repair is None:
            return
        why = "it was done, and it is there again"
        for _ in self._tries():
            try:
                done = repair.act(self._root, self._flusher, violation)
            except Busy as error:
                why = str(error)
                continue
            except (MqError, OSError) as error:
                why = str(error) or type(error).__name__
                break
            if self._taking.still(look, violation) is None:
                if done is not None:
                    told = Told(violation, done)
                    self.report.put_right.add(told)
                    self._watcher.put_right(told)
                return
            break
        self.report.remaining.add(Told(violation, why))

    def _tries(self) -> Iterator[int]:
        """While another process has a lock that is needed."""
        for number in range(PUT_RIGHT_TRIES_MAX):
            if number:
                self._end_if_wanted()
                self._watcher.pause(PUT_RIGHT_AGAIN_S)
            yield number
