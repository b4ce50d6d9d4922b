"""What is known of the passes that a daemon beside mq makes: how many, how long, and the last
one.
"""

from collections.abc import Callable

from mq.model.clock import Clock
from mq.runtime.histogram import SECONDS, Histogram


class Passes:
    """Counts passes. For the thread that makes them; others may read."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = Histogram(SECONDS)
        """How long those took that ended well."""
        self.failed = 0
        self.last_ms = 0
        """When the last one ended well, milliseconds since the epoch; 0: there was none."""
        self._clock = clock

    def counted(self, run_once: Callable[[], int]) -> Callable[[], int]:
        """The same pass, counted. Raises what it does."""

        def run() -> int:
            began_s = self._clock.steady_s()
            try:
                found = run_once()
            except BaseException:
                self.failed += 1
                raise
            self.seconds.observe(self._clock.steady_s() - began_s)
            self.last_ms = self._clock.now_ms()
            return found

        return run
