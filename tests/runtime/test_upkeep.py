"""A daemon that is asked to stop stops, whatever it is doing at that moment."""

import subprocess
import sys

from mq.model.errors import RootAway
from mq.runtime.upkeep import FAILED_WAIT_S, Stop, make_passes

FAILURES = (OSError(5, "Input/output error"), RootAway("/mnt/mq"))

# SIGTERM comes at the first line of Python inside of a wait, at the second one, and so on.
INTERRUPTED = """
import signal, sys
from mq.runtime.upkeep import Stop

def interrupted(at):
    stop, lines = Stop(), 0
    stop.on_signals()

    def trace(frame, event, arg):
        nonlocal lines
        if event == "line":
            lines += 1
            if lines == at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
        return trace

    sys.settrace(trace)
    stop.wait(0.001)
    sys.settrace(None)
    assert stop.is_set() is (lines == at)
    return stop.is_set()

at = 1
while interrupted(at):
    at += 1
print(at)
"""


def test_a_signal_ends_a_wait_at_any_line_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2


def test_a_pass_that_failed_is_repeated_after_a_second_whatever_is_due() -> None:
    """Or mq-mover, whose due messages it cannot reach, would fail hundreds of times a second."""
    waited: list[float] = []

    class Counting(Stop):
        def wait(self, seconds: float) -> bool:
            waited.append(seconds)
            if len(waited) == len(FAILURES):
                self.set()
            return self.is_set()

    failures = iter(FAILURES)

    def run_once() -> int:
        raise next(failures)

    make_passes(run_once, lambda: 0.0, Counting())
    assert waited == [FAILED_WAIT_S] * len(FAILURES)
