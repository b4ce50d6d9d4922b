"""A clock that a test moves by hand."""

from mq.model.clock import SystemClock


class FakeClock:
    """Implements `mq.model.clock.Clock`. Begins at the machine's time, since ctimes come from
    there.
    """

    def __init__(self) -> None:
        self._ms = SystemClock().now_ms()
        self._s = 0.0

    def now_ms(self) -> int:
        return self._ms

    def steady_s(self) -> float:
        return self._s

    def set_ms(self, ms: int) -> None:
        """Sets wall time alone: nothing that looks again after an interval does."""
        self._ms = ms

    def reach(self, ms: int) -> None:
        """Moves wall time and steady time on, until wall time is this."""
        self.advance((ms - self._ms) / 1000)

    def advance(self, seconds: float) -> None:
        """Moves wall time and steady time on."""
        self._ms += round(seconds * 1000)
        self._s += seconds
