"""The clock as a seam: wall time in milliseconds, how it is written, and a steady time for
intervals.

Floor 0. Nothing below the top floor calls the `time` module but this one.
"""

import functools
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, Self

# Linux's clocks that file times are taken from, by their numbers: the time of the last tick.
_REALTIME_COARSE: Final = 5
_MONOTONIC_COARSE: Final = 6
# More than a tick, and than what a clock is slewed by in a minute: a step is longer.
_STEP_NS: Final = 30_000_000
_NS_PER_S: Final = 1_000_000_000
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
