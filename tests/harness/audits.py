"""The audit that ends every test of a fault: once storage works again, the root is in order."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from harness.faults import FaultyFiles
from mq.model.clock import Clock, SystemClock
from mq.model.errors import MqError
from mq.model.lifecycle import State
from mq.store.audit.auditor import Auditor
from mq.store.audit.findings import Amounts, Breach, Violation
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import Layout
from mq.store.opening import root_of
from mq.store.operations.queues import sweep_tombstones
from mq.store.scan.tally import OVERDUE_AFTER_S

# What a fault may leave until mq-mover's next pass: a tombstone beside its queue, of a delete
# that was answered 503, its keys, and its schedules. (A torn file in new/, also allowed, is no
# breach.)
LEFT_TO_THE_MOVER = frozenset({Breach.TOMBSTONE, Breach.SCHEDULE})


# Calls that change nothing (what is kept is a lock's file): after a pass that made no others, an
# audit would find the same again.
LOOKS = frozenset(
    {"status", "linked", "entries", "open_read", "open_folder", "open_kept", "lock", "read",
     "read_file", "read_opened", "free"}
)  # fmt: skip


@dataclass(slots=True)
class Audit:
    """What was found: every violation, and how much there is."""

    violations: list[Violation]
    amounts: Amounts

    @property
    def messages(self) -> dict[State, int]:
        """How many are in each state."""
        return self.amounts.messages

    @property
    def foreign(self) -> int:
        """How many names are none of mq's."""
        return self.amounts.foreign

    @property
    def foreign_name(self) -> str:
        """One of them."""
        return self.amounts.foreign_name

    @property
    def hidden(self) -> int:
        """How many dotfiles there are."""
        return self.amounts.hidden

    @property
    def is_clean(self) -> bool:
        """Whether nothing is broken; foreign names and dotfiles break nothing."""
        return not self.violations


def audit(root: Root, overdue_s: float = OVERDUE_AFTER_S) -> Audit:
    """Looks at every name in the root. A message in delay/ is overdue `overdue_s` seconds after its
    due time.
    """
    auditor = Auditor(root, overdue_s)
    return Audit([each for look in auditor.looks() for each in look()], auditor.amounts)


def looked_at(root: Path, clock: Clock | None = None, files: Files | None = None) -> Root:
    """The root for whoever looks: nothing is made or probed, as a start would."""
    return root_of(Layout.of(root), files or Files(), clock or SystemClock())


def assert_audits_clean(
    root: Path, clock: Clock | None = None, allowed: frozenset[Breach] = frozenset()
) -> Audit:
    """That nothing is broken but what a mover puts right, and, after its pass, nothing at all."""
    files = FaultyFiles()
    opened = looked_at(root, clock, files)
    found = audit(looked_at(root, clock))
    _assert_only(allowed | LEFT_TO_THE_MOVER, found)
    with contextlib.suppress(MqError):  # Another mover is at it; the audit tells.
        run_alone(sweep_tombstones(opened), NoFlusher())
    if found.violations or any(call not in LOOKS for call, _ in files.calls):
        found = audit(looked_at(root, clock))
    _assert_only(allowed, found)
    return found


def _assert_only(allowed: frozenset[Breach], found: Audit) -> None:
    others = [each for each in found.violations if each.breach not in allowed]
    assert not others, others
