"""The clock as a seam: wall time in milliseconds, how it is written, and a steady time for
intervals.

Outside the commands no other module calls `time`.
"""

import functools
import logging
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, Self

# Linux's clocks that file times are taken from, by their numbers: the time of the last tick.
_REALTIME_COARSE: Final = 5
_MONOTONIC_COARSE: Final = 6
# More than a tick, and than what a clock is slewed by in a minute: a step is longer.
_STEP_NS: Final = 30_000_000
_NS_PER_S: Final = 1_000_000_000
# What wall time gains or loses on the time that has passed, from where on the clock was set; and
# the steps that are remembered.
_SET_MS: Final = 1000
_STEPS_KEPT: Final = 64

_log = logging.getLogger("mq.clock")
_SECONDS_KEPT: Final = 1024
# RFC 3339, section 5.6; the T and the Z in either case.
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-]\d\d:\d\d))"
)


class Clock(Protocol):
    """What the code asks of time."""

    def now_ms(self) -> int:
        """Wall time, whole milliseconds since the Unix epoch, as the file system tells it."""
        ...

    def steady_s(self) -> float:
        """Seconds of a clock that never steps back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clock, shifted by what a network mount's server is ahead of it.

    Due times are compared with mtimes, which a remote server may set by a clock of its own;
    whoever measures that server's lead sets `offset_ms` (zero on a local file system).
    """

    __slots__ = ("offset_ms",)

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Wall time, whole milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000 + self.offset_ms

    def steady_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()


def _passed_s() -> float:
    """Seconds that have passed, those in which the machine slept too, where the system counts
    them: waking up is no step.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class ClockSteps:
    """Sees that wall time was set: it has gained or lost on the time that has passed since this was
    made. The log says so. For any thread.

    What ends for good once it is so old asks `aged_ms`, and does not end because of a step ahead,
    whether that put a wrong clock right or a right one wrong. What a process does not see: a step
    before its start.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._passed_s = _passed_s if isinstance(clock, SystemClock) else clock.steady_s
        self._lock = threading.Lock()
        self._ahead: deque[tuple[int, int]] = deque(maxlen=_STEPS_KEPT)
        """Of each step ahead the wall time after it, and how long it was; milliseconds."""
        self.count = 0
        """How many steps were seen."""
        self.set_ms = 0
        """How far wall time was set by all of them, back where it is below 0."""
        self.restart()

    def restart(self) -> None:
        """What was set until now is no step."""
        self._base_ms = self._clock.now_ms() - self._passed_s() * 1000

    def look(self) -> None:
        """Looks whether the clock was set, and says so in the log."""
        with self._lock:
            self._look()

    def aged_ms(self, seconds: float) -> int:
        """Wall time, for what ends at an age of so many seconds: a step ahead counts as time that
        has passed only once the age is reached without it.
        """
        with self._lock:
            self._look()
            now_ms = self._clock.now_ms()
            for after_ms, by_ms in reversed(self._ahead):
                if now_ms - seconds * 1000 < after_ms:
                    now_ms -= by_ms
            return now_ms

    def _look(self) -> None:
        # Wall time is read between two looks at the other: a pause of this thread is no step.
        least_ms = self._passed_s() * 1000 + self._base_ms
        wall_ms = self._clock.now_ms()
        most_ms = self._passed_s() * 1000 + self._base_ms
        if wall_ms >= most_ms + _SET_MS:
            by_ms = round(wall_ms - most_ms)
            self._ahead.append((wall_ms, by_ms))
        elif wall_ms <= least_ms - _SET_MS:
            by_ms = round(wall_ms - least_ms)
            self._goes_back(-by_ms)
        else:
            return
        self.restart()
        self.count += 1
        self.set_ms += by_ms
        _log.warning("the clock was set", extra={"fields": {"by_s": by_ms / 1000}})

    def _goes_back(self, by_ms: int) -> None:
        """A step back takes steps ahead back, the last one first."""
        while by_ms > 0 and self._ahead:
            after_ms, ahead_ms = self._ahead.pop()
            if ahead_ms > by_ms:
                self._ahead.append((after_ms - by_ms, ahead_ms - by_ms))
            by_ms -= ahead_ms


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment, as a file system of this machine tells it: what changes later has later times, but
    where the clock was set back since. Linux alone.
    """

    ns: int
    offset_ns: int

    @classmethod
    def now(cls) -> Self:
        """This one."""
        ns = time.clock_gettime_ns(_REALTIME_COARSE)
        return cls(ns, ns - time.clock_gettime_ns(_MONOTONIC_COARSE))

    def is_behind(self, changed_ns: int) -> bool:
        """Whether what was changed then, by its file's ctime, was surely changed before. A ctime of
        whole seconds says nothing: some file systems keep no more of it.
        """
        return changed_ns < self.ns - _STEP_NS and changed_ns % _NS_PER_S != 0

    def was_steady(self, later: "Moment") -> bool:
        """Whether the clock was not set between the two."""
        return abs(later.offset_ns - self.offset_ns) < _STEP_NS


def rfc3339(ms: int) -> str:
    """Milliseconds since the epoch in UTC, such as 2026-01-31T23:59:59.999Z."""
    seconds, millis = divmod(ms, 1000)
    return f"{_second(seconds)}.{millis:03d}Z"


@functools.lru_cache(maxsize=_SECONDS_KEPT)
def _second(seconds: int) -> str:
    """Kept for the next: what goes on at a time is published, fetched and due in few seconds."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_rfc3339(text: str) -> int:
    """A time as RFC 3339 writes it, in milliseconds since the epoch; finer parts are dropped.
    Raises ValueError.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("no time of RFC 3339")
    day, clock, fraction, offset = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}{offset or '+00:00'}").astimezone(UTC)
        return round(at.timestamp()) * 1000 + int((fraction or "0").ljust(3, "0")[:3])
    except OverflowError as error:
        raise ValueError(str(error)) from None
