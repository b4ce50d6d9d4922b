"""The machine's clock: a step is seen, whatever a thread did meanwhile, and a start says that the
clock is behind what the root has seen of it.
"""

import os
import time
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.processes import Processes

from mq.model.clock import ClockSteps

DAY_S = 86_400


class Paused(FakeClock):
    """Between two looks at its times a thread is stopped for a while."""

    pause_s = 0.0

    def now_ms(self) -> int:
        self.advance(self.pause_s)
        now_ms = super().now_ms()
        self.advance(self.pause_s)
        return now_ms


def test_a_clock_that_is_slewed_and_a_thread_that_was_stopped_are_no_steps() -> None:
    clock = Paused()
    steps = ClockSteps(clock)
    clock.pause_s = 300
    for _ in range(100):
        steps.look()
    clock.pause_s = 0
    clock.set_ms(clock.now_ms() + 999)
    steps.look()
    assert (steps.count, steps.set_ms) == (0, 0)


def test_each_step_is_counted_once() -> None:
    clock = FakeClock()
    steps = ClockSteps(clock)
    for by_ms, sum_ms in ((5000, 5000), (-2000, 3000), (-4000, -1000)):
        clock.set_ms(clock.now_ms() + by_ms)
        for _ in range(3):
            clock.advance(10)
            steps.look()
        assert steps.set_ms == sum_ms
    assert steps.count == 3


def test_what_was_set_ahead_and_half_of_it_back_counts_by_half() -> None:
    clock = FakeClock()
    steps = ClockSteps(clock)
    began_ms = clock.now_ms()
    for by_ms in (4_000_000, -2_000_000):
        clock.set_ms(clock.now_ms() + by_ms)
        steps.look()
    assert clock.now_ms() == began_ms + 2_000_000
    assert steps.aged_ms(600) == began_ms
    clock.advance(599)
    assert steps.aged_ms(600) == began_ms + 599_000
    clock.advance(1)
    assert steps.aged_ms(600) == clock.now_ms()


@pytest.mark.certificate
@pytest.mark.parametrize("name", ["mq", "mq-mover", "mq-reaper"])
def test_a_start_says_that_the_clock_is_behind_the_root(
    daemons: Processes, root: Path, name: str
) -> None:
    start = {
        "mq": lambda: daemons.mq(root),
        "mq-mover": lambda: daemons.mover("--root", str(root)),
        "mq-reaper": lambda: daemons.reaper("--root", str(root)),
    }[name]
    first = start()
    assert first.logged("the clock is behind the root") is None
    assert first.terminate() == 0
    (root / "queues" / "orders").mkdir()
    at_s = time.time() + DAY_S
    os.utime(root / "queues" / "orders", (at_s, at_s))
    start().wait_for_log("the clock is behind the root, or was ahead")
