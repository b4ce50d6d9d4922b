"""The main loop of mq-mover and mq-reaper: the end, and the pace of their passes."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import Unavailable
from mq.model.limits import CHILD_END_S
from mq.model.log import logger
from mq.runtime.histogram import SECONDS, Histogram
from mq.runtime.notify import Notifier
from mq.runtime.pulse import Pulse

IDLE_WAIT_S_MIN: Final = 0.05
IDLE_WAIT_S_MAX: Final = 1.0
# The wait after a pass that failed.
FAILED_WAIT_S: Final = 1.0

_log = logger("mq.upkeep")

_DUE_WAIT_S_MIN: Final = 0.001
_STATUS_EVERY_S: Final = 5.0


class Stop:
    """The request to stop, by SIGTERM, SIGINT, or the end of the supervising process. It ends
    waits.
    """

    def __init__(self) -> None:
        # A signal's handler runs inside of what it interrupts. `threading.Event` has a lock that
        # the wait it interrupts may hold, and would wait for itself; this queue is reentrant.
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._is_set = False

    def on_signals(self) -> None:
        """Stops at SIGTERM and SIGINT. For the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def with_standard_input(self) -> None:
        """Stops when standard input ends. The supervising process holds its other end, which closes
        however that process ends, kill -9 included.
        """
        threading.Thread(target=self._await_end_of_input, daemon=True).start()

    def set(self) -> None:
        self._is_set = True
        self._asked.put(None)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Waits `seconds`, or until stopped; returns whether it is. For one thread at a time."""
        if not self._is_set:
            with contextlib.suppress(Empty):
                self._asked.get(timeout=max(seconds, 0.0))
        return self._is_set

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.set()

    def _await_end_of_input(self) -> None:
        try:
            while os.read(sys.stdin.fileno(), 4096):
                pass
        except OSError as error:
            _log.warning(
                "could not read standard input; ending", extra={"fields": {"error": repr(error)}}
            )
        self.set()


class Pace:
    """The wait between two looks: short while there is work, longer and longer when idle."""

    def __init__(self) -> None:
        self._wait_s = IDLE_WAIT_S_MIN

    def next_wait_s(self, worked: bool) -> float:
        """The wait after a look that found work, or none."""
        self._wait_s = IDLE_WAIT_S_MIN if worked else min(self._wait_s * 2, IDLE_WAIT_S_MAX)
        return self._wait_s


class PassVitals:
    """Reports a daemon's passes to the service manager. A long pass that makes progress is not
    stuck: calls inside it beat `pulse` too.
    """

    def __init__(
        self, notifier: Notifier, pulse: Pulse, clock: Clock, status: Callable[[], str]
    ) -> None:
        """`status` makes the line for people."""
        self._notifier = notifier
        self._pulse = pulse
        self._clock = clock
        self._status = status
        self._told_s = float("-inf")

    def begin(self, look: Callable[[], object]) -> None:
        """Reports that the first pass may begin. `look`: see Pulse."""
        self._notifier.ready(self._status())
        self._pulse.start(look)

    def after_pass(self) -> None:
        """Reports a pass, done or failed."""
        self._pulse.beat()
        now_s = self._clock.steady_s()
        if self._notifier.is_told and now_s - self._told_s >= _STATUS_EVERY_S:
            self._told_s = now_s
            self._notifier.status(self._status())

    def ending(self) -> None:
        self._pulse.ending()
        self._notifier.stopping(CHILD_END_S)


def make_passes(
    run_once: Callable[[], int],
    next_due_s: Callable[[], float | None],
    stop: Stop,
    after_pass: Callable[[], None] = lambda: None,
) -> None:
    """Makes passes until stopped: without a pause while they find work, then at growing pauses, but
    never later than the next due work. A failed pass is logged and repeated.
    """
    pace = Pace()
    while not stop.is_set():
        try:
            wait_s = pace.next_wait_s(worked=run_once() > 0)
        except (OSError, Unavailable) as error:
            _log.warning("a pass failed; trying again", extra={"fields": {"error": repr(error)}})
            after_pass()
            stop.wait(FAILED_WAIT_S)
            continue
        after_pass()
        due_s = next_due_s()
        stop.wait(wait_s if due_s is None else min(wait_s, max(due_s, _DUE_WAIT_S_MIN)))


class Passes:
    """Counts passes. For the thread that makes them; others may read."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = Histogram(SECONDS)
        """The seconds of successful passes."""
        self.failed = 0
        self.last_ms = 0
        """The end of the last successful pass, milliseconds since the epoch; 0: there was none."""
        self._clock = clock

    def counted(self, run_once: Callable[[], int]) -> Callable[[], int]:
        """Wraps a pass and counts it. Raises what the pass raises."""

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
