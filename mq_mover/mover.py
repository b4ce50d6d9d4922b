"""Redelivery: what is due in delay/ goes back to its queue.

Timers are in the files' mtimes; what is remembered here is a hint of them, made again at every
start and looked over while the mover runs.
"""

import logging
from typing import Final

from mq.errors import BadName
from mq.lifecycle import State
from mq.limits import (
    FIRST_SIGHT_S,
    FOLDER_MTIME_TRUST_S,
    GROUP_OPERATIONS_MAX,
    LOOK_INTERVAL_S,
    LOOK_SHARE,
)
from mq.store.flush import Flusher
from mq.store.group import Outcome, run_group
from mq.store.layout import parse_entry
from mq.store.redeliver import Redelivery, Timer, redeliver
from mq.store.root import Root
from mq_mover.timers import Timers

_log = logging.getLogger("mq-mover")

# After these a message that could not be moved is tried again.
_FAILED_AGAIN_MS: Final = 1_000
_STRAY_AGAIN_MS: Final = 10_000


class Mover:
    """Moves what is due, a commit group at a time. Any number of movers may share a root."""

    def __init__(
        self, root: Root, flusher: Flusher, timer: Timer, timers: Timers | None = None
    ) -> None:
        self._root = root
        self._flusher = flusher
        self._timer = timer
        self._timers = Timers() if timers is None else timers
        self._folder = root.layout.folder(State.DELAYED)
        self._folder_mtime_ns: int | None = None
        self._look_again_s = float("-inf")
        self._recheck_again_s = float("-inf")
        self._foreign = 0
        self._strays: set[str] = set()

    def run_once(self) -> int:
        """Looks at the folder when that is due, then moves one group; how many were moved.

        Raises OSError when the folder cannot be listed.
        """
        self._look_if_due()
        names = self._timers.take_due(self._root.now_ms(), GROUP_OPERATIONS_MAX)
        if not names:
            return 0
        outcomes = run_group(
            [redeliver(self._root, *parse_entry(name), self._timer) for name in names],
            self._flusher,
        )
        moved = 0
        for name, outcome in zip(names, outcomes, strict=True):
            moved += self._settle(name, outcome)
        return moved

    def next_due_s(self) -> float | None:
        """Seconds until the next message is due; None when none is known."""
        next_ms = self._timers.next_ms()
        return None if next_ms is None else max(0, next_ms - self._root.now_ms()) / 1000

    def _settle(self, name: str, outcome: Outcome) -> int:
        if outcome.error is not None:
            _log.warning(
                "a message was not moved",
                extra={"fields": {"name": name, "error": repr(outcome.error)}},
            )
            self._timers.put(name, self._root.now_ms() + _FAILED_AGAIN_MS)
            return 0
        result, due_ms = outcome.value
        if result is Redelivery.NOT_DUE:
            self._timers.put(name, due_ms)
        elif result is Redelivery.STRAY:
            self._timers.put(name, self._root.now_ms() + _STRAY_AGAIN_MS)
            self._report_stray(name)
        return result in (Redelivery.DELIVERED, Redelivery.RETIRED)

    def _look_if_due(self) -> None:
        began_s = self._root.clock.steady_s()
        if began_s < self._look_again_s:
            return
        recheck = began_s >= self._recheck_again_s
        changed = self._folder_changed()
        if changed or recheck:
            self._look(recheck)
        ended_s = self._root.clock.steady_s()
        pause_s = (ended_s - began_s) / LOOK_SHARE
        self._look_again_s = ended_s + pause_s
        if recheck:
            self._recheck_again_s = ended_s + max(LOOK_INTERVAL_S, pause_s)

    def _folder_changed(self) -> bool:
        """Whether names may have come: an mtime is believed once it is old enough."""
        status = self._root.files.status(self._folder)
        if status is None:
            raise FileNotFoundError(2, "the source folder is gone", self._folder)
        mtime_ns = status.st_mtime_ns
        changed = mtime_ns != self._folder_mtime_ns
        age_ms = self._root.now_ms() - mtime_ns // 1_000_000
        self._folder_mtime_ns = mtime_ns if age_ms >= FOLDER_MTIME_TRUST_S * 1000 else None
        return changed

    def _look(self, recheck: bool) -> None:
        """Takes in new names, and the due times of known ones again when `recheck`: they may
        have been brought forward.
        """
        now_ms = self._root.now_ms()
        names: set[str] = set()
        foreign = 0
        for entry in self._root.files.entries(self._folder):
            name = entry.name
            known = name in self._timers
            if known and not recheck:
                names.add(name)
                continue
            try:
                if not known:
                    parse_entry(name)
                if not entry.is_file(follow_symlinks=False):
                    raise BadName("entry", "a file")
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except BadName:
                foreign += not name.startswith(".")
                continue
            names.add(name)
            due_ms = self._timer.due_ms(status.st_mtime_ns, status.st_ctime_ns)
            if due_ms <= now_ms:
                # Perhaps claimed a moment ago and not yet stamped by who won it.
                due_ms = now_ms + round(FIRST_SIGHT_S * 1000)
                if (self._timers.due_ms(name) or due_ms) < due_ms:
                    continue  # Its turn is set, and comes before.
            self._timers.put(name, due_ms)
        self._timers.keep_only(names)
        if recheck and foreign != self._foreign:
            self._foreign = foreign
            _log.warning("foreign names are left alone", extra={"fields": {"count": foreign}})

    def _report_stray(self, name: str) -> None:
        queue = parse_entry(name)[0].text
        if queue not in self._strays and len(self._strays) < GROUP_OPERATIONS_MAX:
            self._strays.add(queue)
            _log.warning(
                "a message's queue is not there and was not deleted; the message stays",
                extra={"fields": {"queue": queue, "name": name}},
            )
