"""When a watchdog is told that a process lives: while it gets on, or while the root hangs."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from harness.clock import FakeClock
from harness.processes import eventually
from hypothesis import given
from hypothesis import strategies as st

from mq.daemon.supervisor import LOOKS, Silences
from mq.runtime.notify import Notifier
from mq.runtime.pulse import Pulse
from mq.runtime.upkeep import PassVitals, Stop, make_passes

WATCHDOG_S = 0.2
TURNS = 8


@dataclass
class Told:
    """All that a watchdog is told; and another's, of a process that always lives, as a clock."""

    messages: list[bytes] = field(default_factory=list)
    others: int = 0
    pulses: list[Pulse] = field(default_factory=list)

    def pulse(self) -> Pulse:
        self.pulses.append(Pulse(self.notifier()))
        return self.pulses[-1]

    @property
    def ticks(self) -> int:
        return self.messages.count(b"WATCHDOG=1")

    def notifier(self) -> Notifier:
        return Notifier(self.messages.append, WATCHDOG_S)

    def let_time_pass(self) -> None:
        """Until the other one has told many times over that it lives."""
        if not self.others:
            other = Pulse(Notifier(self._other, WATCHDOG_S))
            self.pulses.append(other)
            other.ending()
            other.start(lambda: None)
        wanted = self.others + TURNS
        eventually(lambda: self.others >= wanted)

    def _other(self, message: bytes) -> None:
        self.others += 1


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    yield made
    for pulse in made.pulses:
        pulse.stop()


@pytest.mark.certificate
def test_it_tells_while_there_are_beats_and_no_longer(told: Told) -> None:
    pulse = told.pulse()
    pulse.start(lambda: None)

    def beaten() -> bool:
        pulse.beat()
        return told.ticks >= TURNS

    eventually(beaten, "ticks")
    told.let_time_pass()
    silent = told.ticks
    told.let_time_pass()
    assert told.ticks == silent


@pytest.mark.certificate
def test_silence_counts_for_nothing_while_the_root_does_not_answer(told: Told) -> None:
    answers = threading.Event()
    looks: list[str] = []

    def look() -> None:
        looks.append(threading.current_thread().name)
        answers.wait()

    pulse = told.pulse()
    pulse.start(look)
    eventually(lambda: told.ticks >= TURNS, "ticks")
    assert b"STATUS=Waits: the root does not answer" in told.messages
    assert len(looks) == 1
    answers.set()
    told.let_time_pass()
    silent = told.ticks
    told.let_time_pass()
    assert told.ticks == silent


@pytest.mark.certificate
def test_an_error_is_an_answer_of_the_root_too(told: Told) -> None:

    def look() -> None:
        raise OSError(28, "full")

    told.pulse().start(look)
    told.let_time_pass()
    silent = told.ticks
    told.let_time_pass()
    assert told.ticks == silent <= 1


def test_an_end_needs_no_beats(told: Told) -> None:
    pulse = told.pulse()
    pulse.start(lambda: None)
    pulse.ending()
    eventually(lambda: told.ticks >= TURNS, "ticks")


def test_a_pass_that_failed_is_a_sign_of_life_as_any(told: Told) -> None:
    clock, stop = FakeClock(), Stop()
    failed: list[int] = []

    def run_once() -> int:
        failed.append(1)
        if told.ticks >= 3:
            stop.set()
        raise OSError(5, "it failed")

    vitals = PassVitals(told.notifier(), told.pulse(), clock, lambda: f"{len(failed)}")
    vitals.begin(lambda: None)
    make_passes(run_once, lambda: 0.0, stop, vitals.after_pass)
    vitals.ending()
    assert told.messages[0] == b"READY=1\nSTATUS=0"
    assert told.messages[-1].startswith(b"STOPPING=1")
    # How it is, once: the clock stood still.
    assert told.messages.count(b"STATUS=1") == 1
    assert b"STATUS=2" not in told.messages


@dataclass
class Process:
    """One that speaks, of several."""

    name: str = "mq-0"
    words: int = 0
    is_up: bool = True


def test_who_is_silent_for_longer_than_a_watchdogs_time_is_told_of_again_and_again() -> None:
    one, other = Process("mq-0"), Process("mq-1")
    silences = Silences()
    found = []
    for look in range(1, 3 * (LOOKS + 2)):
        other.words += look % LOOKS == 0
        found += [(each.name, look) for each in silences.too_long((one, other))]
    assert found == [("mq-0", LOOKS + 2), ("mq-0", 2 * LOOKS + 3), ("mq-0", 3 * LOOKS + 4)]


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_nobody_is_ended_who_spoke_in_the_last_looks_or_is_not_up(
    looks: list[tuple[bool, bool]],
) -> None:
    process, silences = Process(), Silences()
    signs = [True]
    for speaks, process.is_up in looks:
        process.words += speaks
        signs.append(speaks or not process.is_up)
        if silences.too_long([process]):
            assert not any(signs[-LOOKS - 1 :])
