"""The clock as a seam: wall time in milliseconds, and a steady time for intervals.

Floor 0. Nothing below the top floor calls the `time` module but this one.
"""

import time
from typing import Protocol


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
