"""Checks a root: a breach counts once it is seen twice, some time apart; then it is reported, or
repaired.

Blocking, for one thread. Memory does not grow with the root, nor with its breaches.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from mq.model.clock import SystemClock
from mq.model.errors import Busy, MqError
from mq.model.names import QueueName
from mq.store.audit.auditor import Auditor
from mq.store.audit.findings import (
    AGAIN_AFTER_S,
    OVERDUE_S_DEFAULT,
    SUSPECTS_MAX,
    Breach,
    Look,
    Violation,
)
from mq.store.audit.taking import Taking
from mq.store.core.clocks import ClockFollower
from mq.store.core.root import Root
from mq.store.core.trust import Risk, owner_of, refuse, risks
from mq.store.disk.files import Files, OwnersFiles
from mq.store.disk.flush import Flusher
from mq.store.disk.mounts import choose_flusher
from mq.store.format.layout import Layout
from mq.store.opening import check_is_root, root_of
from mq.tools.fsck.repairs import repair_of, why_it_stays
from mq.tools.fsck.report import Finding, Findings, Report

_FLUSH_THREADS: Final = 4
_KIND: Final = "mqctl"

# The most passes over a root that is being repaired.
PASSES_MAX: Final = 5
# The most attempts at a repair while another process holds the lock that it needs.
PUT_RIGHT_TRIES_MAX: Final = 10
PUT_RIGHT_AGAIN_S: Final = 0.2
# With fewer living messages nothing is said of a root's mtimes as a whole.
STAMPS_MIN: Final = 5
# Looks between two updates of the progress bar.
LOOKS_PER_TELLING: Final = 1000


class Doing(Enum):
    """What to do with findings."""

    LOOK = "look"
    DRY_RUN = "dry run"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a check. `queues`: only these, by name; none: everything. `again_after_s`: the
    time between the two looks at a breach.
    """

    queues: tuple[QueueName, ...] = ()
    doing: Doing = Doing.LOOK
    again_after_s: float = AGAIN_AFTER_S
    overdue_s: float = OVERDUE_S_DEFAULT


class Interrupted(Exception):
    """The check was asked to end; what it had begun is finished."""


class Watcher(Protocol):
    """Follows a check, and may end it."""

    def began(self, folder: str, number: int, of: int) -> None:
        """A pass has reached a folder, number `number` of `of`."""
        ...

    def looked(self, names: int) -> None:
        """Reports how many names this pass has checked."""
        ...

    def put_right(self, finding: Finding) -> None: ...

    def wants_to_end(self) -> bool:
        """Whether the check should end. Called between two steps."""
        ...

    def pause(self, seconds: float) -> None:
        """Returns after `seconds`, or when the check should end."""
        ...


class _Suspect(NamedTuple):
    seen_s: float
    look: Look
    violation: Violation


class Check:
    """One check of a root, with repairs if they are asked for."""

    def __init__(self, root: Root, flusher: Flusher, asked: Asked, watcher: Watcher) -> None:
        self._root = root
        self._flusher = flusher
        self._asked = asked
        self._watcher = watcher
        self._suspects: deque[_Suspect] = deque()
        self._taking = Taking(root, asked.queues)
        self.report = Report(root.layout.root)

    def run(self) -> Report:
        """Runs the check and returns its report. With repairs, makes further passes until one
        repairs nothing. Raises Interrupted, and OSError if the root itself cannot be read: `report`
        has the findings until then.
        """
        for number in range(PASSES_MAX if self._asked.doing is Doing.REPAIR else 1):
            before = self.report.put_right.total
            self.report.passes = number + 1
            self._pass()
            if self.report.put_right.total == before:
                break
        self._judge_mtimes()
        self.report.is_whole = True
        return self.report

    def _judge_mtimes(self) -> None:
        """Whether the root is a copy that has lost its mtimes: all are whole seconds, as tar keeps
        them, or most are those of the copying, as cp leaves them. A few may be so by chance.
        """
        amounts = self.report.amounts
        found = self.report.remaining.counts, self.report.put_right.counts
        unset = sum(counts[Breach.MTIME] for counts in found)
        # Broken messages were looked at twice.
        living = amounts.stamps - unset
        if living < STAMPS_MIN:
            return
        if amounts.whole_seconds == amounts.stamps:
            detail = "whole seconds: no receives, no reasons"
        elif 2 * unset > living:
            detail = f"{unset:,} of them: no due times, no receives, no reasons"
        else:
            return
        violation = Violation(Breach.MTIMES, self._root.layout.root, detail)
        self.report.remaining.add(Finding(violation, why_it_stays(Breach.MTIMES)))

    def _pass(self) -> None:
        auditor = Auditor(self._root, self._asked.overdue_s, self._asked.queues or None)
        self.report.remaining, self.report.names = Findings(), 0
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
        """The looks of a folder; a storage error ends them, and becomes a finding."""
        try:
            yield from looks
        except (OSError, MqError) as error:
            violation = Violation(Breach.STORAGE, folder or self._root.layout.root, str(error))
            self.report.remaining.add(Finding(violation, why_it_stays(Breach.STORAGE)))

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
        """Looks again at the oldest suspect, once enough time has passed since the first look."""
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
            self.report.remaining.add(Finding(violation))
            return
        repair = repair_of(violation)
        if repair is None:
            self.report.remaining.add(Finding(violation, why_it_stays(violation.breach)))
        elif self._asked.doing is Doing.DRY_RUN:
            self.report.remaining.add(Finding(violation, f"would {repair.would}"))
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
                    finding = Finding(violation, done)
                    self.report.put_right.add(finding)
                    self._watcher.put_right(finding)
                return
            break
        self.report.remaining.add(Finding(violation, why))

    def _tries(self) -> Iterator[int]:
        """Attempts while another process holds a lock that is needed."""
        for number in range(PUT_RIGHT_TRIES_MAX):
            if number:
                self._end_if_wanted()
                self._watcher.pause(PUT_RIGHT_AGAIN_S)
            yield number


def open_for_fsck(
    path: Path, check: Callable[[Root], object] = check_is_root
) -> tuple[Root, Flusher, list[Risk]]:
    """Opens a root whose folders may be missing; returns it, a flusher for changes, and what other
    users could do to it. On a mount it uses the server's clock. Raises what `check` raises, which
    is to refuse what is no root, cannot be read or has another format; and StartupError if it is
    certainly under other users' control.
    """
    clock = SystemClock()
    root = root_of(Layout.of(os.path.realpath(path)), Files(), clock, kind=_KIND)
    check(root)
    owner, user = owner_of(root), os.geteuid()
    # The superuser works on any user's root, as that user.
    found = risks(root.layout.root, root.files, owner if user == 0 else user, root.layout.folders())
    refuse(found)
    if owner != user:
        root = root_of(Layout.of(root.layout.root), OwnersFiles(owner), clock, kind=_KIND)
    ClockFollower(root, clock).follow()
    return root, choose_flusher(root.layout.root, root.files, _FLUSH_THREADS), found
