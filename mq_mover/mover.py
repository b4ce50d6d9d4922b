"""Redelivery: moves due messages of delay/ back to their queues.

Timers are the files' mtimes. The mover keeps hints of them, which it makes at its start and checks
while it runs.
"""

import contextlib
import os
from typing import Final

from mq.model.errors import (
    BadName,
    NoDescriptors,
    NoSpace,
    QuotaExceeded,
    SidelineMissing,
    SidelinePurged,
)
from mq.model.expiry import Passing
from mq.model.lifecycle import State
from mq.model.limits import GROUP_OPERATIONS_MAX, LOOK_INTERVAL_S
from mq.model.log import logger
from mq.model.names import PACKED, QueueName
from mq.runtime.histogram import LATE_SECONDS, Histogram
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.disk.group import Outcome, run_group
from mq.store.disk.steps import Steps
from mq.store.format.bucket_names import leading
from mq.store.format.layout import parse_delayed, parse_entry
from mq.store.format.walk import is_settled, look_pause_s, walk
from mq.store.operations.redeliver import Redelivery, Timer, redeliver
from mq.store.operations.sideline import Stuck, is_of_a_moment
from mq_mover.full_passes import FIRST_SIGHT_S, FullPasses
from mq_mover.timers import Timers

_log = logger("mq-mover")

# The pauses before a message that could not be moved is tried again.
_FAILED_AGAIN_MS: Final = 1_000
_STUCK_AGAIN_MS: Final = 10_000
_NS_PER_MS: Final = 1_000_000
_MOVED: Final = (
    Redelivery.DELIVERED,
    Redelivery.RETIRED,
    Redelivery.SIDELINED,
    Redelivery.EXPIRED,
    Redelivery.EXPIRED_ASIDE,
)
# Errors of the whole storage, not of one message.
_OUTAGES: Final = (NoSpace, QuotaExceeded, NoDescriptors)


class Mover:
    """Moves due messages, a commit group at a time. Any number of movers may share a root."""

    def __init__(
        self,
        root: Root,
        flusher: Flusher,
        timer: Timer,
        timers: Timers | None = None,
        first_sight_s: float = FIRST_SIGHT_S,
    ) -> None:
        """`first_sight_s`: how long another process may take to stamp a message that it claimed."""
        self._root = root
        self._timer = timer
        self._first_sight_ms = round(first_sight_s * 1000)
        self._timers = Timers(messages=_messages) if timers is None else timers
        self._folder = root.layout.folder(State.DELAYED)
        self._mtimes_ns: dict[str, int | None] = {}
        """The mtimes of delay/ and its buckets at the last scan; None: too recent to trust."""
        self._look_again_s = float("-inf")
        self._recheck_again_s = float("-inf")
        self._foreign = 0
        self._strays: set[str] = set()
        self._passes = FullPasses()
        self._flusher = flusher
        self._stuck = Stuck(_log)
        self.results = dict.fromkeys(Redelivery, 0)
        """The number of messages by result."""
        self.failed = 0
        """The number of failed moves."""
        self.lateness = Histogram(LATE_SECONDS)
        """The seconds between due times and the messages' return."""

    def run_once(self) -> int:
        """Scans the folder if that is due, then moves one group. Returns the number of moved
        messages. Raises OSError if the folder cannot be listed.
        """
        self._passes.at_work(*self._moment())
        try:
            self._look_if_due()
            self._passes.still_at_work(*self._moment())
            return self._move_due()
        except OSError:
            self._passes.broken()
            raise

    def _move_due(self) -> int:
        names = self._timers.take_due(self._root.now_ms(), GROUP_OPERATIONS_MAX)
        outcomes = run_group(list(map(self._redelivery, names)), self._flusher)
        moved = sum(map(self._settle, names, outcomes))
        if names:
            self._passes.at_work(*self._moment())
        self._passes.tried(self._timers.none_before_ms(), self._root.now_ms())
        return moved

    @property
    def waiting(self) -> int:
        """The number of known messages of delay/ that wait for their time."""
        return self._timers.messages

    def next_due_s(self) -> float | None:
        """Seconds until the next known message is due; None: there is none."""
        next_ms = self._timers.next_ms()
        return None if next_ms is None else max(0, next_ms - self._root.now_ms()) / 1000

    def passing(self) -> Passing | None:
        """The time span that full passes have covered without a gap; None: none yet."""
        return self._passes.passing

    def _moment(self) -> tuple[float, int]:
        return self._root.clock.steady_s(), self._root.now_ms()

    def _redelivery(self, name: str) -> Steps[tuple[Redelivery, int]]:
        queue, message_id, bucket = parse_delayed(name)
        return redeliver(self._root, queue, message_id, self._timer, bucket)

    def _settle(self, name: str, outcome: Outcome) -> int:
        if isinstance(outcome.error, SidelineMissing | SidelinePurged):
            self.failed += 1
            self._stuck.failed(_queue_of(name), outcome.error)
            again_ms = _FAILED_AGAIN_MS if is_of_a_moment(outcome.error) else _STUCK_AGAIN_MS
            self._timers.put(name, self._root.now_ms() + again_ms)
            return 0
        if outcome.error is not None:
            self.failed += 1
            _log.warning(
                "could not redeliver a message; trying again",
                extra={"fields": {"name": name, "error": repr(outcome.error)}},
            )
            self._timers.put(name, self._root.now_ms() + _FAILED_AGAIN_MS)
            if isinstance(outcome.error, _OUTAGES):
                self._passes.broken()
            return 0
        result, due_ms = outcome.value
        if result is Redelivery.NOT_DUE:
            self._timers.put(name, due_ms)
        elif result is Redelivery.STRAY:
            self._timers.put(name, self._root.now_ms() + _STUCK_AGAIN_MS)
            self._report_stray(name)
        elif result in (Redelivery.SIDELINED, Redelivery.EXPIRED_ASIDE):
            self._stuck.moved(_queue_of(name))
        elif result is Redelivery.DELIVERED:
            self.lateness.observe(max(0, self._root.now_ms() - due_ms) / 1000)
        messages = _messages(name)
        self.results[result] += messages
        return messages if result in _MOVED else 0

    def _look_if_due(self) -> None:
        began_s = self._root.clock.steady_s()
        ran_out = self._timers.is_cut and not len(self._timers)
        if began_s < self._look_again_s and not ran_out:
            return
        began_ms = self._root.now_ms()
        recheck = began_s >= self._recheck_again_s
        if self._folder_changed() or recheck or ran_out:
            self._look(recheck)
            self._passes.looked(began_ms, self._root.now_ms(), self._timers.cut_ms, recheck)
        ended_s = self._root.clock.steady_s()
        pause_s = look_pause_s(ended_s - began_s)
        self._look_again_s = ended_s + pause_s
        if recheck:
            self._recheck_again_s = ended_s + max(LOOK_INTERVAL_S, pause_s)

    def _folder_changed(self) -> bool:
        """Whether delay/ or a bucket may have new names. A folder's mtime is trusted once it is old
        enough.
        """
        changed = False
        for folder in dict.fromkeys((self._folder, *self._mtimes_ns)):
            status = self._root.files.status(folder)
            if status is None:
                if folder == self._folder:
                    raise FileNotFoundError(2, "the source folder is gone", folder)
                del self._mtimes_ns[folder]
                continue
            changed = changed or status.st_mtime_ns != self._mtimes_ns.get(folder)
            settled = is_settled(status, self._root.now_ms())
            self._mtimes_ns[folder] = status.st_mtime_ns if settled else None
        return changed

    def _look(self, recheck: bool) -> None:
        """Reads new names, with `recheck` also the due times of known ones, which may be earlier
        now. Forgets names that are gone.
        """
        found = Timers(self._timers.capacity, _messages)
        foreign = 0
        foreign_name = ""
        mtimes_ns: dict[str, int | None] = {self._folder: self._mtimes_ns.get(self._folder)}
        for folder, entry in walk(self._root.files, self._folder):
            for path in leading(self._folder, folder.spot):
                mtimes_ns.setdefault(path, self._mtimes_ns.get(path))
            name = folder.spot + entry.name
            known_ms = self._timers.due_ms(name)
            if known_ms is not None and not recheck:
                found.put(name, known_ms)
                continue
            if known_ms is None and not _is_message(entry):
                if not entry.name.startswith("."):
                    foreign, foreign_name = foreign + 1, entry.name
                continue
            with contextlib.suppress(FileNotFoundError):
                found.put(name, self._due_ms(entry, known_ms))
        self._timers, self._mtimes_ns = found, mtimes_ns
        if recheck and foreign != self._foreign:
            self._foreign = foreign
            _log.warning(
                "foreign names are left alone",
                extra={
                    "fields": {
                        "folder": self._folder,
                        "count": foreign,
                        "for_example": foreign_name,
                    }
                },
            )

    def _due_ms(self, entry: "os.DirEntry[str]", known_ms: int | None) -> int:
        """When to move the file. A consumer that claimed it a moment ago may not have stamped it
        yet, so not before a pause after the first sight. A due time after the file's last change
        was stamped after its last rename.
        """
        status = entry.stat(follow_symlinks=False)
        due_ms = self._timer.due_ms(status.st_mtime_ns, status.st_ctime_ns)
        now_ms = self._root.now_ms()
        if due_ms > now_ms or (due_ms > status.st_ctime_ns // _NS_PER_MS and self._timer.by_mtime):
            return due_ms
        soonest_ms = now_ms + self._first_sight_ms
        return soonest_ms if known_ms is None else min(known_ms, soonest_ms)

    def _report_stray(self, name: str) -> None:
        queue = parse_delayed(name)[0].text
        if queue not in self._strays and len(self._strays) < GROUP_OPERATIONS_MAX:
            self._strays.add(queue)
            _log.warning(
                "a message's queue is missing and was not deleted; the message stays",
                extra={"fields": {"queue": queue, "name": name}},
            )


def _is_message(entry: "os.DirEntry[str]") -> bool:
    try:
        parse_entry(entry.name)
    except BadName:
        return False
    return entry.is_file(follow_symlinks=False)


def _messages(name: str) -> int:
    """1, or the items of a pack."""
    return parse_delayed(name)[1].items or 1 if PACKED in name else 1


def _queue_of(name: str) -> QueueName:
    return parse_delayed(name)[0]
