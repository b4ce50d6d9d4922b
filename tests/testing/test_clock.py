"""The clock of a fake: what is due while it is advanced happens at its time."""

import time
from dataclasses import dataclass, field

from mq.testing import FakeClock


@dataclass
class Slow:
    """Takes some time of the machine's for what is due."""

    clock: FakeClock
    seen: list[tuple[int, int]] = field(default_factory=list)

    def __hash__(self) -> int:
        return id(self)

    def catch_up(self) -> int | None:
        before_ms = self.clock.now_ms()
        until_s = time.monotonic() + 0.003
        while time.monotonic() < until_s:
            pass
        self.seen.append((before_ms, self.clock.now_ms()))
        return None


def test_it_stands_while_something_happens() -> None:
    clock = FakeClock()
    slow = Slow(clock)
    clock.lead(slow)
    clock.advance(3600)
    assert slow.seen
    assert all(before_ms == after_ms for before_ms, after_ms in slow.seen)
    ended_ms = clock.now_ms()
    assert ended_ms >= slow.seen[-1][1]
    until_s = time.monotonic() + 0.003
    while time.monotonic() < until_s:
        pass
    assert clock.now_ms() > ended_ms
