"""What the daemons beside mq share: when to stop, and the pace of their passes."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from mq.model.clock import Clock
from mq.model.limits import CHILD_END_S, IDLE_WAIT_S_MAX, IDLE_WAIT_S_MIN
from mq.runtime.notify import Notifier
from mq.runtime.pulse import Pulse

_log = logging.getLogger("mq.upkeep")

_DUE_WAIT_S_MIN: Final = 0.001
_STATUS_EVERY_S: Final = 5.0


class Stop:
    """Set by SIGTERM or SIGINT, or when whoever started the daemon is gone; waits end then."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def on_signals(self) -> None:
        """Stops at SIGTERM and SIGINT. For the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def with_standard_input(self) -> None:
        """Stops when standard input ends: its other end is held by the supervising process,
        and closes however that ends, kill -9 included.
        """
        threading.Thread(target=self._await_end_of_input, daemon=True).start()

    def set(self) -> None:
        """Stops. From any thread."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Waits so long, or until stopped; whether it was."""
        return self._event.wait(seconds)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.set()

    def _await_end_of_input(self) -> None:
        try:
            while os.read(sys.stdin.fileno(), 4096):
                pass
        except OSError as error:
            _log.warning("standard input failed", extra={"fields": {"error": repr(error)}})
        self.set()


class Pace:
    """How long to wait after a look: short while there is work, longer and longer when idle."""

    def __init__(self, min_s: float = IDLE_WAIT_S_MIN, max_s: float = IDLE_WAIT_S_MAX) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._wait_s = min_s

    def next_wait_s(self, worked: bool) -> float:
        """The wait after a look that found work, or none."""
        self._wait_s = self._min_s if worked else min(self._wait_s * 2, self._max_s)
        return self._wait_s


class PassVitals:
    """What a service manager is told of a daemon that makes passes. One that takes long and gets
    on is not stuck: `pulse` is to hear of what comes back inside of it too.
    """

    def __init__(
        self, notifier: Notifier, pulse: Pulse, clock: Clock, status: Callable[[], str]
    ) -> None:
        """`status`: a line for people, of how it is now."""
        self._notifier = notifier
        self._pulse = pulse
        self._clock = clock
        self._status = status
        self._told_s = float("-inf")

    def begin(self, look: Callable[[], object]) -> None:
        """That the first pass may begin. `look`: see Pulse."""
        self._notifier.ready(self._status())
        self._pulse.start(look)

    def after_pass(self) -> None:
        """One more pass was made, or failed."""
        self._pulse.beat()
        now_s = self._clock.steady_s()
        if self._notifier.is_told and now_s - self._told_s >= _STATUS_EVERY_S:
            self._told_s = now_s
            self._notifier.status(self._status())

    def ending(self) -> None:
        """That no pass is made any more."""
        self._pulse.ending()
        self._notifier.stopping(CHILD_END_S)


def make_passes(
    run_once: Callable[[], int],
    next_due_s: Callable[[], float | None],
    stop: Stop,
    after_pass: Callable[[], None] = lambda: None,
) -> None:
    """Makes passes until stopped: at once again while they find work, then more and more seldom,
    but never later than when the next thing is due. A pass that fails is logged and made again.
    """
    pace = Pace()
    while not stop.is_set():
        try:
            wait_s = pace.next_wait_s(worked=run_once() > 0)
        except OSError as error:
            _log.warning("a pass failed", extra={"fields": {"error": repr(error)}})
            wait_s = IDLE_WAIT_S_MAX
        after_pass()
        due_s = next_due_s()
        stop.wait(wait_s if due_s is None else min(wait_s, max(due_s, _DUE_WAIT_S_MIN)))
