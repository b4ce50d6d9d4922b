"""Sweeping: bulk publishes to roll forward, files forgotten in new/, buckets that emptied, what
deleted queues and purges left, keys of nothing, manifests of leases that ended, and histories.
"""

import contextlib
import logging
import stat
from collections.abc import Callable, Iterator
from functools import partial

from mq.errors import BadName, MqError
from mq.lifecycle import State
from mq.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.names import MessageId, QueueName
from mq.store.buckets import sweep_buckets
from mq.store.flush import Flusher
from mq.store.group import run_alone
from mq.store.history_sweep import recorded_queues, sweep_history
from mq.store.lapses import sweep_leases
from mq.store.layout import parse_entry
from mq.store.listing import is_settled
from mq.store.orphans import OrphanSweep, give_up_publishes
from mq.store.purge import sweep_purged
from mq.store.purged import PurgeMark
from mq.store.queues import sweep_tombstones
from mq.store.redeliver import forget, is_forgotten
from mq.store.root import Root
from mq.store.spools import sweep_spools
from mq.store.sweep_bulk import sweep_bulk

_log = logging.getLogger("mq-mover.sweeper")


class Sweeper:
    """One pass a minute. Any number of sweepers may share a root: renames decide. `bulk` is what
    does the same for bulk publishes; None: at once, however long that takes.
    """

    def __init__(
        self, root: Root, flusher: Flusher, bulk: Callable[[], object] | None = None
    ) -> None:
        self._root = root
        self._flusher = flusher
        self._orphans = OrphanSweep(root)
        self._bulk = partial(sweep_bulk, root, flusher) if bulk is None else bulk
        self._again_s = float("-inf")
        self._without_buckets: dict[str, int] = {}
        """Queues' folders that had no bucket, and their mtimes then."""
        self._purged: dict[QueueName, PurgeMark] = {}
        """Purges of which nothing was left."""

    def run_if_due(self) -> int:
        """Sweeps when that is due; how many files it moved. Raises OSError when a folder cannot
        be listed.
        """
        now_s = self._root.clock.steady_s()
        if now_s < self._again_s:
            return 0
        self._again_s = now_s + SWEEP_EVERY_S
        self._sweep_buckets()
        self._bulk()
        swept = self._sweep_new() + self._sweep_deleted() + self._sweep_purged()
        self._sweep_keys()
        self._sweep_pipeline()
        self._sweep_histories()
        return swept

    def _sweep_pipeline(self) -> None:
        """Manifests of leases that ended, and listings of bulk reads that are long over."""
        try:
            sweep_leases(self._root)
            sweep_spools(self._root)
        except OSError as error:
            _log.info("what the pipeline has left stays for now", extra=_fields(error))

    def _sweep_histories(self) -> None:
        """What is too old or too much, also of queues that are gone."""
        root = self._root
        root.history.close_idle()
        try:
            for name in recorded_queues(root.layout, root.files):
                with contextlib.suppress(BadName):
                    queue = QueueName.parse(name)
                    if (kept := root.history.kept(queue)) is not None:
                        sweep_history(root.layout, root.files, name, kept, root.now_ms())
        except OSError as error:
            _log.info("histories stay as they are for now", extra=_fields(error))

    def _sweep_new(self) -> int:
        """Publishes that were never answered: their files may be torn, and are not delivered."""
        staged = frozenset(self._forgotten())
        if not staged:
            return 0
        try:
            kept = run_alone(give_up_publishes(self._root, staged), self._flusher)
        except MqError as error:
            _log.warning("forgotten publishes stay for now", extra=_fields(error))
            return 0
        swept = 0
        for queue, message_id in staged - kept:
            try:
                swept += forget(self._root, queue, message_id, FORGOTTEN_AFTER_S)
            except OSError as error:
                _log.warning("a forgotten publish stays for now", extra=_fields(error))
        if swept:
            _log.info("forgotten publishes removed", extra={"fields": {"count": swept}})
        return swept

    def _forgotten(self) -> Iterator[tuple[QueueName, MessageId]]:
        for entry in self._root.files.entries(self._root.layout.folder(State.NEW)):
            with contextlib.suppress(BadName):  # Foreign, or a probe.
                status = self._root.files.status(entry.path)
                if status is None or not stat.S_ISREG(status.st_mode):
                    continue
                if is_forgotten(self._root, status, FORGOTTEN_AFTER_S):
                    yield parse_entry(entry.name)

    def _sweep_keys(self) -> None:
        """Some of those that mean nothing any more."""
        try:
            if swept := run_alone(self._orphans.sweep(), self._flusher):
                _log.info("keys of nothing removed", extra={"fields": {"count": swept}})
        except MqError as error:
            _log.info("keys of nothing stay for now", extra=_fields(error))

    def _sweep_buckets(self) -> None:
        """Those that emptied: of delay/ and of every queue whose folder has changed."""
        layout = self._root.layout
        self._sweep_folder(layout.folder(State.DELAYED))
        seen = {}
        for entry in self._root.files.entries(layout.folder(State.READY)):
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            status = self._root.files.status(entry.path)
            if status is None:
                continue
            known = self._without_buckets.get(entry.path)
            if known == status.st_mtime_ns or self._sweep_folder(entry.path):
                seen[entry.path] = status.st_mtime_ns
        self._without_buckets = seen

    def _sweep_folder(self, folder: str) -> bool:
        """Whether the folder has no bucket any more, for sure."""
        try:
            status = self._root.files.status(folder)
            none_left = run_alone(sweep_buckets(self._root, folder), self._flusher)
        except (MqError, OSError) as error:
            _log.info("empty buckets stay for now", extra=_fields(error))
            return False
        return none_left and status is not None and is_settled(status, self._root.now_ms())

    def _sweep_deleted(self) -> int:
        try:
            return run_alone(sweep_tombstones(self._root), self._flusher)
        except MqError as error:
            _log.info("deleted queues are left for the next pass", extra=_fields(error))
            return 0

    def _sweep_purged(self) -> int:
        try:
            return run_alone(sweep_purged(self._root, self._purged), self._flusher)
        except MqError as error:
            _log.info(
                "purged messages are left for the next pass",
                extra=_fields(error),
            )
            return 0


def _fields(error: Exception) -> dict[str, object]:
    return {"fields": {"error": repr(error)}}
