"""A clock that tests move."""

import time


class FakeClock:
    """Starts at the machine's time; goes on only when told."""

    def __init__(self) -> None:
        self._ms = time.time_ns() // 1_000_000
        self._steady_s = 1000.0

    def now_ms(self) -> int:
        return self._ms

    def steady_s(self) -> float:
        return self._steady_s

    def advance(self, seconds: float) -> None:
        self._ms += round(seconds * 1000)
        self._steady_s += seconds
