"""The clock as a seam: wall time in milliseconds, its text form, and a steady time for intervals.

Outside the commands no other module calls `time`.
"""

import functools
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, Self

from mq.model.log import logger

# The numbers of the Linux clocks that file times come from: the time of the last tick.
_REALTIME_COARSE: Final = 5
_MONOTONIC_COARSE: Final = 6
# More than a tick, and more than a clock is slewed in a minute: only a step is longer.
_STEP_NS: Final = 30_000_000
_NS_PER_S: Final = 1_000_000_000
# The clock was set if wall time gains or loses this much on the elapsed time; and the number of
# steps that are remembered.
_SET_MS: Final = 1000
_STEPS_KEPT: Final = 64

_log = logger("mq.clock")
_SECONDS_KEPT: Final = 1024
# RFC 3339, section 5.6; the T and the Z in either case.
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-]\d\d:\d\d))"
)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time by the file system's clock, in whole milliseconds since the Unix epoch."""
        ...

    def steady_s(self) -> float:
        """Seconds of a clock that never steps back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clock, shifted by the lead of a network mount's server.

    Due times are compared with mtimes, which a remote server may set by its own clock. The code
    that measures the server's lead sets `offset_ms` (zero on a local file system).
    """

    __slots__ = ("offset_ms",)

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Wall time, whole milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000 + self.offset_ms

    steady_s = staticmethod(time.monotonic)
    """Seconds of the monotonic clock."""

    @staticmethod
    def passed_s() -> float:
        """Elapsed seconds. Where the system can count them, they include the machine's sleep, so
        that waking up is not taken for a step of the clock.
        """
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot is None else time.clock_gettime(boot)


class ClockSteps:
    """Detects that wall time was set: it gained or lost on the elapsed time since this object was
    made. Logs each step. For any thread.

    Irreversible upkeep (expiry, deletion by age) uses `aged_ms`, so a step ahead of the clock never
    triggers it early, whether the step corrected the clock or falsified it. A step before the
    process's start is not detected.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A clock may know the elapsed time better than its steady time does.
        self._passed_s: Callable[[], float] = getattr(clock, "passed_s", clock.steady_s)
        self._lock = threading.Lock()
        self._ahead: deque[tuple[int, int]] = deque(maxlen=_STEPS_KEPT)
        """For each step ahead: the wall time after it, and its length; milliseconds."""
        self.count = 0
        """The number of steps."""
        self.set_ms = 0
        """The sum of all steps in milliseconds; negative: back."""
        self.restart()

    def restart(self) -> None:
        """Measures from now on; earlier changes do not count as steps."""
        self._base_ms = self._clock.now_ms() - self._passed_s() * 1000

    def look(self) -> None:
        """Checks whether the clock was set, and logs it."""
        with self._lock:
            self._look()

    def aged_ms(self, seconds: float) -> int:
        """Wall time in milliseconds since the epoch, for objects that end at an age of `seconds`. A
        step ahead counts as elapsed time only once the age is reached without it.
        """
        with self._lock:
            self._look()
            now_ms = self._clock.now_ms()
            for after_ms, by_ms in reversed(self._ahead):
                if now_ms - seconds * 1000 < after_ms:
                    now_ms -= by_ms
            return now_ms

    def _look(self) -> None:
        # Wall time is read between two readings of the elapsed time: a pause of this thread is no
        # step.
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
        """Cancels earlier steps ahead by a step back, the last one first."""
        while by_ms > 0 and self._ahead:
            after_ms, ahead_ms = self._ahead.pop()
            if ahead_ms > by_ms:
                self._ahead.append((after_ms - by_ms, ahead_ms - by_ms))
            by_ms -= ahead_ms


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of this machine's file times: a later change has a later time, unless the clock was
    set back. Linux only.
    """

    ns: int
    offset_ns: int

    @classmethod
    def now(cls) -> Self:
        ns = time.clock_gettime_ns(_REALTIME_COARSE)
        return cls(ns, ns - time.clock_gettime_ns(_MONOTONIC_COARSE))

    def is_behind(self, changed_ns: int) -> bool:
        """Whether a file with this ctime certainly changed before. Never true for a ctime of whole
        seconds, since some file systems store nothing finer.
        """
        return changed_ns < self.ns - _STEP_NS and changed_ns % _NS_PER_S != 0

    def was_steady(self, later: "Moment") -> bool:
        """Whether the clock was not set between the two moments."""
        return abs(later.offset_ns - self.offset_ns) < _STEP_NS


def rfc3339(ms: int) -> str:
    """Milliseconds since the epoch in UTC, such as 2026-01-31T23:59:59.999Z."""
    seconds, millis = divmod(ms, 1000)
    return f"{_second(seconds)}.{millis:03d}Z"


@functools.lru_cache(maxsize=_SECONDS_KEPT)
def _second(seconds: int) -> str:
    """Cached: requests of one time publish, fetch and are due within few seconds."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_rfc3339(text: str) -> int:
    """Parses an RFC 3339 time to milliseconds since the epoch; finer parts are dropped. Raises
    ValueError.
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
