"""The time of the server that a root is mounted from, which a daemon's clock is kept at."""

import logging

from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.limits import CLOCK_OFFSET_EVERY_S, CLOCK_ROUND_TRIPS
from mq.store.core.root import Root, unlink_if_there

_log = logging.getLogger("mq.mounts")


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
            _log.warning("the mount's clock was not measured", extra={"fields": {"error": error}})


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
