"""Sweeping: files forgotten in new/, and what deleted queues left behind."""

import logging

from mq.errors import BadName, MqError
from mq.lifecycle import State
from mq.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.store.flush import Flusher
from mq.store.group import run_alone
from mq.store.layout import parse_entry
from mq.store.queues import sweep_tombstones
from mq.store.redeliver import forget
from mq.store.root import Root

_log = logging.getLogger("mq-mover.sweeper")


class Sweeper:
    """One pass a minute. Any number of sweepers may share a root: renames decide."""

    def __init__(self, root: Root, flusher: Flusher) -> None:
        self._root = root
        self._flusher = flusher
        self._again_s = float("-inf")

    def run_if_due(self) -> int:
        """Sweeps when that is due; how many files it moved. Raises OSError when a folder cannot
        be listed.
        """
        now_s = self._root.clock.steady_s()
        if now_s < self._again_s:
            return 0
        self._again_s = now_s + SWEEP_EVERY_S
        return self._sweep_new() + self._sweep_deleted()

    def _sweep_new(self) -> int:
        """Publishes that were never answered: their files may be torn, and are not delivered."""
        swept = 0
        for entry in self._root.files.entries(self._root.layout.folder(State.NEW)):
            try:
                if not entry.is_file(follow_symlinks=False):
                    continue  # Foreign.
                swept += forget(self._root, *parse_entry(entry.name), FORGOTTEN_AFTER_S)
            except BadName:
                continue  # Foreign, or a probe.
            except OSError as error:
                _log.warning(
                    "a forgotten publish stays for now", extra={"fields": {"error": repr(error)}}
                )
        if swept:
            _log.info("forgotten publishes removed", extra={"fields": {"count": swept}})
        return swept

    def _sweep_deleted(self) -> int:
        try:
            return run_alone(sweep_tombstones(self._root), self._flusher)
        except MqError as error:
            _log.info(
                "deleted queues are left for the next pass",
                extra={"fields": {"error": repr(error)}},
            )
            return 0
