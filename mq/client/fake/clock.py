"""The fake's clock, which tests move."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from mq.client.fake.limits import ADVANCE_S_MAX
from mq.model.clock import Clock, SystemClock


class FakeClock:
    """The time of a fake. It goes on as the machine's does, and jumps ahead when told; with
    `stands` it only jumps. It begins at `start`, else now. From any thread.
    """

    def __init__(self, start: datetime | None = None, *, stands: bool = False) -> None:
        self._machine: Clock = SystemClock()
        self._lock = threading.Lock()
        self._began_s = self._machine.steady_s()
        self._ms = self._machine.now_ms() if start is None else round(start.timestamp() * 1000)
        self._stands = stands
        self._told: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        with self._lock:
            return self._ms + self._gone_ms()

    def steady_s(self) -> float:
        """The same in seconds: it never steps back."""
        return self.now_ms() / 1000

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def advance(self, seconds: float) -> None:
        """Jumps so many seconds ahead. What was due meanwhile has happened on return, each at its
        time, and whoever waits for a message that became ready is woken. Raises ValueError for a
        jump back or a very long one, and where too much happens in it, of which a part has then.
        """
        if not 0 <= seconds <= ADVANCE_S_MAX:
            raise ValueError(f"a clock is advanced by 0 to {ADVANCE_S_MAX} seconds")
        with self._lock:
            self._ms += round(seconds * 1000)
            told = list(self._told)
        for each in told:
            each()

    def tell(self, jumped: Callable[[], None]) -> None:
        """Has somebody be told after each jump: the fakes that have this clock."""
        with self._lock:
            self._told.append(jumped)

    def seconds_to(self, ms: int) -> float | None:
        """For how long to wait until then; None: it does not come by itself."""
        with self._lock:
            if self._stands:
                return None
            return max(0, ms - self._ms - self._gone_ms()) / 1000

    def _gone_ms(self) -> int:
        return 0 if self._stands else int((self._machine.steady_s() - self._began_s) * 1000)
