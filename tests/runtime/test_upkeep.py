"""A daemon that is asked to stop stops, whatever it is doing at that moment."""

import subprocess
import sys

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
