"""The fake's clock, which tests advance."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Protocol

from mq.model.clock import Clock, SystemClock

# The longest jump, and the most moments in it at which something is due.
_ADVANCE_S_MAX: Final = 20 * 366 * 24 * 3600
_MOMENTS_MAX: Final = 10_000


class Follower(Protocol):
    """A fake, in which things become due."""

    def catch_up(self) -> int | None:
        """Does all that is due now. Returns when something is due next, in milliseconds since the
        epoch; None: nothing is.
        """


class FakeClock:
    """The time of a fake, in any thread. It runs as the machine's clock does, and `advance` moves
    it; with `stands` only `advance` does. It begins at `start`, by default now.
    """

    def __init__(self, start: datetime | None = None, *, stands: bool = False) -> None:
        self._machine: Clock = SystemClock()
        # When it began, and since when it stands, by the machine's clock. One value, since other
        # threads read it.
        self._going: tuple[float, float | None] = (self._machine.steady_s(), None)
        self._ms = self._machine.now_ms() if start is None else round(start.timestamp() * 1000)
        self._jumped_ms = 0
        self.stands: Final = stands
        self._moving = threading.RLock()
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._ms + self._jumped_ms + (0 if self.stands else self._gone_ms())

    def steady_s(self) -> float:
        """Monotonic seconds: `advance` moves them too, and they run even where the time stands."""
        return self._machine.steady_s() + self._jumped_ms / 1000

    def passed_s(self) -> float:
        """The time in seconds: an advance does not count as a clock that was set."""
        return self.now_ms() / 1000

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def advance(self, seconds: float) -> None:
        """Moves the time ahead by `seconds`. On return, all that is due in that time is done, each
        at its moment, and consumers got the messages that became ready. Raises ValueError for a
        negative or very long time; and when too much is due in it, a part of which is done.
        """
        if not 0 <= seconds <= _ADVANCE_S_MAX:
            raise ValueError(
                f"a clock must be advanced by 0 to {_ADVANCE_S_MAX} seconds, not {seconds!r}"
            )
        left_ms = round(seconds * 1000)
        with self._moving, self._standing():
            for _ in range(_MOMENTS_MAX):
                next_ms = self._catch_up()
                if next_ms is None or next_ms - self.now_ms() > left_ms:
                    break
                step_ms = max(1, next_ms - self.now_ms())
                self._jumped_ms += step_ms
                left_ms = max(0, left_ms - step_ms)
            else:
                raise ValueError(f"more than {_MOMENTS_MAX} things are due: advance by less")
            if left_ms:
                self._jumped_ms += left_ms
                self._catch_up()

    def _catch_up(self) -> int | None:
        known = [each.catch_up() for each in list(self._followers)]
        return min((each for each in known if each is not None), default=None)

    def _gone_ms(self) -> int:
        began_s, stood_s = self._going
        return int(((self._machine.steady_s() if stood_s is None else stood_s) - began_s) * 1000)

    @contextmanager
    def _standing(self) -> Iterator[None]:
        """Stops the time inside: otherwise, what became due after a catch-up, and before it found
        the next moment, would be skipped.
        """
        began_s, stood_s = self._going
        if stood_s is not None:
            yield
            return
        stood_s = self._machine.steady_s()
        self._going = (began_s, stood_s)
        try:
            yield
        finally:
            self._going = (began_s + self._machine.steady_s() - stood_s, None)

    def lead(self, follower: Follower) -> None:
        """Does all that is due in the follower with each advance, while the follower lives."""
        self._followers.add(follower)
