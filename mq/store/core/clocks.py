"""Clocks: whether this machine's clock agrees with the times in a root, and how a daemon's clock
follows the server of a mounted root.
"""

import contextlib
import itertools
from typing import Final

from mq.model.clock import Clock, SystemClock, rfc3339
from mq.model.lifecycle import State
from mq.model.log import logger
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import Files
from mq.store.disk.mounts import file_system_of
from mq.store.format.layout import Layout

# A clock this far behind the root's newest change is wrong now, or was wrong then.
CLOCK_BEHIND_S: Final = 60.0

CLOCK_OFFSET_EVERY_S: Final = 60
CLOCK_ROUND_TRIPS: Final = 3

_log = logger("mq.clock")
_mounts_log = logger("mq.mounts")

_QUEUES_LOOKED_AT: Final = 1000


def check_clock(layout: Layout, files: Files, clock: Clock) -> None:
    """Warns where a folder of the root was changed at a future time: the clock is behind now, or
    was ahead then. Blocking.

    On a network mount the times are the server's, which the clock follows. A clock that is ahead
    cannot be detected from a root.
    """
    if not file_system_of(layout.root).has_own_times:
        return
    newest_ms, now_ms = newest_change_ms(layout, files), clock.now_ms()
    if newest_ms - now_ms >= CLOCK_BEHIND_S * 1000:
        fields = {"now": rfc3339(now_ms), "root_changed": rfc3339(newest_ms)}
        _log.warning("the clock is behind the root, or was ahead", extra={"fields": fields})


def newest_change_ms(layout: Layout, files: Files) -> int:
    """The latest change of the root's folders and of its first queues' folders; 0: there is none.
    mq sets no folder's time, so these times are the clock's.
    """
    folders = list(layout.folders())
    with contextlib.suppress(OSError):
        queues = itertools.islice(files.entries(layout.queues), _QUEUES_LOOKED_AT)
        folders += [each.path for each in queues if each.is_dir(follow_symlinks=False)]
    newest_ms = 0
    for folder in folders:
        with contextlib.suppress(OSError):
            if (status := files.status(folder)) is not None:
                newest_ms = max(newest_ms, status.st_mtime_ns // 1_000_000)
    return newest_ms


class ClockFollower:
    """Keeps a clock at the time of the server that a root is mounted from; elsewhere idle.

    Due times are compared with mtimes, which that server sets. Half the round trip is the
    error's bound.
    """

    def __init__(self, root: Root, clock: SystemClock, every_s: float = CLOCK_OFFSET_EVERY_S):
        self._root = root
        self._clock = clock
        self._every_s = every_s
        self._again_s = float("-inf")
        self._is_measured = False
        self.needed = root.over_network

    def follow(self) -> None:
        """Measures once a minute, blocking; a failure is logged and measured again later. Each call
        looks whether the clock was set.
        """
        self._root.steps.look()
        now_s = self._clock.steady_s()
        if not self.needed or now_s < self._again_s:
            return
        self._again_s = now_s + self._every_s
        try:
            self._clock.offset_ms += measure_clock_offset_ms(self._root)
            if not self._is_measured:
                self._root.steps.restart()  # What the server is ahead is no step.
            self._is_measured = True
        except OSError as error:
            _mounts_log.warning(
                "the mount's clock was not measured", extra={"fields": {"error": error}}
            )


def measure_clock_offset_ms(root: Root) -> int:
    """How far the file system's time is ahead of the root's clock, milliseconds; by the shortest
    of some round trips, each of which touches a probe and reads its mtime back. Raises OSError.
    """
    return min(_round_trip(root) for _ in range(CLOCK_ROUND_TRIPS))[1]


def _round_trip(root: Root) -> tuple[int, int]:
    """How long it took and how far ahead the time was in its middle, milliseconds."""
    path = root.layout.probe(State.REMOVED)
    before_ms = root.now_ms()
    descriptor = root.files.open_kept(path)
    try:
        root.files.write(descriptor, b"clock")
        root.files.sync(descriptor)
        server_ms = root.files.descriptor_status(descriptor).st_mtime_ns // 1_000_000
        after_ms = root.now_ms()
    finally:
        root.files.close(descriptor)
        unlink_if_there(root.files, path)
    return after_ms - before_ms, server_ms - (before_ms + after_ms) // 2
