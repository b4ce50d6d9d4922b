"""Firing: due schedules publish their messages, some at a time.

Due times are the files' mtimes. The scheduler keeps hints of them, which each scan renews: so it
sees a `touch` within a second, and a restart loses nothing.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from mq.model.errors import (
    BadName,
    MqError,
    PublishPurged,
    QueueExpired,
    QueueFull,
    QueueNotFound,
    QueuePaused,
)
from mq.model.limits import BATCH_BYTES_MAX, GROUP_OPERATIONS_MAX, LOOK_INTERVAL_S
from mq.model.log import logger
from mq.model.names import UuidSource
from mq.model.schedule import Armed
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone, run_group
from mq.store.format.schedules import parse_schedule, schedule_path
from mq.store.format.walk import look_pause_s
from mq.store.operations.purge import PURGE_MARK_AHEAD_S
from mq.store.schedules.file import version_of
from mq.store.schedules.firing import Firing, MovedOn, fire, rearm
from mq_mover.timers import Timers

# The pauses before a firing is tried again: a full disk may soon have room.
FIRING_AGAIN_S: Final = 1.0
FIRING_STUCK_AGAIN_S: Final = 10.0

_log = logger("mq-mover.schedules")

_KINDS_TOLD_MAX: Final = 1000


class Scheduler:
    """Fires due schedules. Any number of movers may share a root: a firing's link decides between
    them.
    """

    def __init__(self, root: Root, flusher: Flusher) -> None:
        self._root = root
        self._flusher = flusher
        self._uuids = UuidSource(root.clock)
        self._timers = Timers()
        self._not_before_ms: dict[str, int] = {}
        """Schedules that could not be fired, and the times of their retries."""
        self._told: dict[str, str] = {}
        """The reasons, so that each one is logged once."""
        self._look_again_s = float("-inf")

    def run_once(self) -> int:
        """Scans schedules/ if that is due, then fires due schedules, a group at a time. Returns the
        number of published messages. Raises OSError if the folder cannot be listed.
        """
        self._look_if_due()
        names = self._timers.take_due(self._root.now_ms(), GROUP_OPERATIONS_MAX)
        return sum(self._fire(group) for group in self._groups(names))

    def next_due_s(self) -> float | None:
        """Seconds until the next known schedule is due; None: there is none."""
        next_ms = self._timers.next_ms()
        return None if next_ms is None else max(0, next_ms - self._root.now_ms()) / 1000

    def _look_if_due(self) -> None:
        """Reads the mtime of each file: a `touch` does not change the folder's."""
        began_s = self._root.clock.steady_s()
        if began_s < self._look_again_s:
            return
        found = Timers(self._timers.capacity)
        for entry in self._root.files.entries(self._root.layout.schedules):
            with contextlib.suppress(BadName, FileNotFoundError):
                parse_schedule(entry.name)
                due_ms = version_of(entry.stat(follow_symlinks=False)).due_ms
                if due_ms is not None:
                    found.put(entry.name, max(due_ms, self._not_before_ms.get(entry.name, 0)))
        self._timers = found
        self._forget_those_that_are_well()
        ended_s = self._root.clock.steady_s()
        self._look_again_s = ended_s + max(LOOK_INTERVAL_S, look_pause_s(ended_s - began_s))

    def _forget_those_that_are_well(self) -> None:
        """Forgets failed schedules that are gone or have another due time."""
        for name in [each for each in self._not_before_ms if self._timers.due_ms(each) is None]:
            del self._not_before_ms[name]
            self._told.pop(name, None)

    def _groups(self, names: list[str]) -> Iterator[list[str]]:
        """Splits names into groups whose messages fit into memory together."""
        group: list[str] = []
        held_bytes = 0
        for name in names:
            status = self._root.files.status(self._path(name))
            size = 0 if status is None else status.st_size
            if group and held_bytes + size > BATCH_BYTES_MAX:
                yield group
                group, held_bytes = [], 0
            group.append(name)
            held_bytes += size
        if group:
            yield group

    def _path(self, name: str) -> str:
        return schedule_path(self._root.layout, *parse_schedule(name))

    def _fire(self, names: list[str]) -> int:
        operations = [fire(self._root, self._uuids, *parse_schedule(name)) for name in names]
        fired: dict[str, Firing] = {}
        for name, outcome in zip(names, run_group(operations, self._flusher), strict=True):
            if outcome.error is None:
                fired[name] = outcome.value
            else:
                self._not_fired(name, outcome.error)
        self._rearm(fired)
        return sum(firing.is_ours for firing in fired.values())

    def _rearm(self, fired: dict[str, Firing]) -> None:
        """Writes the next states. Until then each schedule is due, and the next pass meets its
        link.
        """
        if not fired:
            return
        try:
            written = run_alone(rearm(self._root, list(fired.values())), self._flusher)
        except (MqError, OSError) as error:
            for name in fired:
                self._again(name, error, FIRING_AGAIN_S)
            return
        for (name, firing), armed in zip(fired.items(), written, strict=True):
            if armed is None:
                # Another process wrote it, as the next scan will show; or there was no space.
                self._not_before(name, FIRING_AGAIN_S)
            else:
                self._gone_on(name, firing, armed)

    def _gone_on(self, name: str, firing: Firing, armed: Armed) -> None:
        self._not_before_ms.pop(name, None)
        self._told.pop(name, None)
        if armed.next_ms is not None:
            self._timers.put(name, armed.next_ms)
        fields = {
            "queue": firing.queue.text,
            "schedule": firing.name.text,
            "message": None if firing.message is None else firing.message.text,
        }
        _log.debug("a schedule moved on to its next firing", extra={"fields": fields})

    def _not_fired(self, name: str, error: Exception) -> None:
        if isinstance(error, MovedOn):
            return  # The next scan shows when it is due.
        if isinstance(error, PublishPurged):
            ahead_s = (error.before_ms - self._root.now_ms()) / 1000
            if ahead_s <= PURGE_MARK_AHEAD_S:
                self._uuids.go_past(error.before_ms)
        is_stuck = isinstance(error, QueueNotFound | QueueExpired | QueuePaused | QueueFull)
        self._again(name, error, FIRING_STUCK_AGAIN_S if is_stuck else FIRING_AGAIN_S)

    def _again(self, name: str, error: Exception, after_s: float) -> None:
        self._not_before(name, after_s)
        kind = type(error).__name__
        if self._told.get(name) == kind or len(self._told) >= _KINDS_TOLD_MAX:
            return
        self._told[name] = kind
        fields = {"schedule": name, "error": repr(error)}
        _log.warning(
            "could not fire a schedule that is due; trying again", extra={"fields": fields}
        )

    def _not_before(self, name: str, after_s: float) -> None:
        again_ms = self._root.now_ms() + round(after_s * 1000)
        self._not_before_ms[name] = again_ms
        self._timers.put(name, again_ms)
