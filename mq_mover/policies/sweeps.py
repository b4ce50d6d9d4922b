"""Sweeps: policies that remove what other processes, deletions and crashes leave behind."""

import contextlib
import itertools
import stat
from collections.abc import Iterator
from typing import ClassVar, Final

from mq.model.errors import BadName, MqError
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.model.totals import TOTALS_EVERY_S
from mq.store.bulk.spools import sweep_spools
from mq.store.bulk.sweep import BulkSweep
from mq.store.core.failures import FailureSweep
from mq.store.core.unserved import PurgeMark
from mq.store.disk.group import run_alone
from mq.store.format.layout import parse_entry
from mq.store.format.walk import is_settled
from mq.store.history.sweep import kept_of, recorded_queues, sweep_history
from mq.store.keys.entries import EntrySweep
from mq.store.keys.orphans import OrphanSweep, give_up_publishes
from mq.store.leases.lapses import sweep_leases
from mq.store.members.files import sweep_members
from mq.store.operations.buckets import sweep_buckets
from mq.store.operations.purge import sweep_purged
from mq.store.operations.queues import sweep_tombstones
from mq.store.operations.redeliver import forget, is_forgotten
from mq.store.operations.taking_over import sweep_turns
from mq.store.packs.rolling import sweep_packs
from mq.store.shovel.crossing_files import sweep_crossings
from mq.store.shovel.files import sweep_shovels
from mq.store.totals.folding import fold_totals
from mq.store.totals.writing import write_totals
from mq_mover.policy import Policy, Turn, Work

_log = logger("mq-mover.policies")

_FOLDERS_PER_TURN_MAX: Final = 500


class Buckets(Policy):
    """Removes empty buckets of delay/ and of each queue whose folder has changed, up to 500 folders
    a turn.
    """

    name: ClassVar[str] = "buckets"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._waiting: list[str] = []
        """Folders that this pass has not swept yet."""
        self._without_buckets: dict[str, int] = {}
        """Queues' folders without buckets, and their mtimes then."""

    def act(self) -> Turn:
        """Sweeps the next folders. Raises OSError when the folder of queues cannot be listed."""
        self._waiting = self._waiting or self._all()
        for _ in range(min(_FOLDERS_PER_TURN_MAX, len(self._waiting))):
            self._look(self._waiting.pop())
        return Turn(more=bool(self._waiting))

    def _all(self) -> list[str]:
        layout = self.root.layout
        queues = [
            entry.path
            for entry in self.root.files.entries(layout.folder(State.READY))
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]
        known = self._without_buckets
        self._without_buckets = {path: known[path] for path in queues if path in known}
        return [*queues, layout.folder(State.DELAYED)]

    def _look(self, folder: str) -> None:
        status = self.root.files.status(folder)
        if status is None or self._without_buckets.get(folder) == status.st_mtime_ns:
            return
        try:
            none_left = sweep_buckets(self.root, folder)
        except (MqError, OSError) as error:
            fields = {"folder": folder, "error": repr(error)}
            _log.info("could not remove empty buckets yet", extra={"fields": fields})
            return
        if none_left and is_settled(status, self.root.now_ms()):
            self._without_buckets[folder] = status.st_mtime_ns


_PER_TURN_MAX: Final = 1000


class ForgottenPublishes(Policy):
    """Moves publishes that were never acknowledged from new/ to remove/: their files may be
    torn.
    """

    name: ClassVar[str] = "forgotten-publishes"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """Moves up to 1,000, each after its idempotency key is gone: a repeated publish must not
        find a key without a message.
        """
        staged = frozenset(itertools.islice(self._forgotten(), _PER_TURN_MAX))
        if not staged:
            return Turn()
        kept = run_alone(give_up_publishes(self.root, staged), self.work.flusher)
        swept = 0
        for queue, message_id in staged - kept:
            try:
                swept += forget(self.root, queue, message_id, FORGOTTEN_AFTER_S)
            except OSError as error:
                fields = {"id": message_id.text, "error": repr(error)}
                _log.warning("could not remove a forgotten publish yet", extra={"fields": fields})
        if swept:
            _log.info("removed forgotten publishes", extra={"fields": {"count": swept}})
        return Turn(swept, more=swept > 0 and len(staged) == _PER_TURN_MAX)

    def _forgotten(self) -> Iterator[tuple[QueueName, MessageId]]:
        for entry in self.root.files.entries(self.root.layout.folder(State.NEW)):
            with contextlib.suppress(BadName):  # A foreign file, or a probe.
                status = self.root.files.status(entry.path)
                if status is None or not stat.S_ISREG(status.st_mode):
                    continue
                if is_forgotten(self.root, status, FORGOTTEN_AFTER_S):
                    yield parse_entry(entry.name)


# The number of a deleted queue's messages that one turn removes.
RETIRED_PER_TURN_MAX: Final = 5_000


class DeletedQueues(Policy):
    """Removes what deleted queues leave (messages in delay/ and in leases, settings, schedules,
    keys), and then their tombstones.
    """

    name: ClassVar[str] = "deleted-queues"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """Removes up to RETIRED_PER_TURN_MAX messages. Raises Busy while another process makes or
        deletes a queue.
        """
        retired = run_alone(sweep_tombstones(self.root, RETIRED_PER_TURN_MAX), self.work.flusher)
        return Turn(retired, more=retired >= RETIRED_PER_TURN_MAX)


class Purges(Policy):
    """Removes purged messages, which are not delivered any more, and then the purge marks."""

    name: ClassVar[str] = "purges"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._purged: dict[QueueName, PurgeMark] = {}
        """Purges without remaining messages."""

    def act(self) -> Turn:
        """Removes some purged messages. Raises Busy."""
        return Turn(sweep_purged(self.root, self._purged))


_QUEUES_PER_TURN_MAX: Final = 100


class Histories(Policy):
    """Removes the oldest files of histories that are too old or too large, also of deleted queues,
    for up to 100 queues a turn.
    """

    name: ClassVar[str] = "histories"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._waiting: list[str] = []
        """Queues that this pass has not swept yet."""

    def act(self) -> Turn:
        """Sweeps the next queues. Raises OSError."""
        root = self.root
        root.history.close_idle()
        self._waiting = self._waiting or recorded_queues(root.layout, root.files)
        swept = 0
        for _ in range(min(_QUEUES_PER_TURN_MAX, len(self._waiting))):
            name = self._waiting.pop()
            with contextlib.suppress(BadName):
                if (kept := kept_of(root.facts, QueueName.parse(name))) is not None:
                    now_ms = root.aged_ms(kept.seconds)
                    swept += sweep_history(root.layout, root.files, name, kept, now_ms)
        return Turn(swept, more=bool(self._waiting))


class Totals(Policy):
    """Writes this process's counts every 10 s, and folds the files of all processes into the totals
    of queues each minute.
    """

    name: ClassVar[str] = "totals"
    first_s: ClassVar[float] = TOTALS_EVERY_S
    every_s: ClassVar[float] = TOTALS_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._fold_again_s = float("-inf")

    def act(self) -> Turn:
        """Does both if due. Raises OSError, and Busy while another process folds."""
        write_totals(self.root)
        now_s = self.root.clock.steady_s()
        if now_s >= self._fold_again_s:
            self._fold_again_s = now_s + SWEEP_EVERY_S
            run_alone(fold_totals(self.root), self.work.flusher)
        return Turn()

    def stop(self) -> None:
        """Writes the last counts."""
        write_totals(self.root, at_end=True)


class Failures(Policy):
    """Removes the failures of messages that are gone, in a 256th of the folders each turn."""

    name: ClassVar[str] = "failures"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._sweep = FailureSweep(work.root)

    def act(self) -> Turn:
        """Sweeps the next folder. Raises OSError."""
        return Turn(self._sweep.sweep())


class Keys(Policy):
    """Removes keys without a message: of removed messages, of publishes that were never
    acknowledged, and of past firings of schedules. Each turn continues where the last one ended.
    """

    name: ClassVar[str] = "keys"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._orphans = OrphanSweep(work.root)
        self._entries = EntrySweep(work.root)

    def act(self) -> Turn:
        swept = run_alone(self._orphans.sweep(), self.work.flusher)
        if swept:
            _log.info("removed keys that have no message", extra={"fields": {"count": swept}})
        entries = self._entries.sweep()
        return Turn(swept + entries)


class BulkPublishes(Policy):
    """Completes committed bulk publishes and parted packs, and removes abandoned ones. Bulk
    publishes run beside the turns, since a large one takes a while.
    """

    name: ClassVar[str] = "bulk-publishes"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._sweep = BulkSweep(work.root)

    def act(self) -> Turn:
        """Starts a pass if one is needed and none is running. Raises OSError."""
        self._sweep.begin()
        return Turn(sweep_packs(self.root))


class Pipeline(Policy):
    """Removes manifests of leases that ended, and old listings."""

    name: ClassVar[str] = "pipeline"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """Removes all of them: they are few."""
        sweep_leases(self.root)
        return Turn(sweep_spools(self.root))


class Leftovers(Policy):
    """Removes reports of members that are gone, and records of shovels whose queues are gone."""

    name: ClassVar[str] = "leftovers"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """Removes all of them: they are few."""
        swept = sweep_members(self.root) + sweep_shovels(self.root)
        swept += sweep_turns(self.root)
        return Turn(swept + sweep_crossings(self.root, self.work.flusher))
