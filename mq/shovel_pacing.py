"""How fast a shovel's run may go on.

Floor 0, pure, but for the time that it is told.
"""

import math

from mq.shovel_limits import SHOVEL_RATE_BURST_S


class Pacing:
    """So many messages a second at most, `rate` None: any number. One thread at a time."""

    def __init__(self, rate: int | None, now_s: float) -> None:
        self._rate = rate
        self._next_s = now_s

    def wait_s(self, now_s: float) -> float:
        """How long until more may be taken on."""
        return max(0.0, self._next_s - now_s)

    def at_once(self, most: int) -> int:
        """How many may be taken on together: what the rate lets through in a short while, at least
        one.
        """
        if self._rate is None:
            return most
        return min(most, max(1, math.floor(self._rate * SHOVEL_RATE_BURST_S)))

    def took(self, count: int, now_s: float) -> None:
        """So many were taken on. What was not done earlier is not made up for."""
        if self._rate is not None:
            self._next_s = max(self._next_s, now_s) + count / self._rate

    def gave_back(self, count: int) -> None:
        """So many of them were not moved after all."""
        if self._rate is not None:
            self._next_s -= count / self._rate
