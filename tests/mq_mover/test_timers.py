"""Timers against a plain dict: whatever is asked in whatever order."""

from harness.chance import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mq_mover.timers import Timers

CAPACITY = 4

names = st.sampled_from([f"orders:{letter}" for letter in "abcdefghijkl"])
times = st.integers(0, 20)


class TimersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers(CAPACITY)
        self.model: dict[str, int] = {}

    @rule(name=names, due_ms=times)
    def put(self, name: str, due_ms: int) -> None:
        self.timers.put(name, due_ms)
        known = self.model | {name: due_ms}
        self.model = {name: self.timers.due_ms(name) or 0 for name in known if self.knows(name)}
        # Which of several that are due together stay is open; that the soonest stay is not.
        assert sorted(self.model.values()) == sorted(known.values())[: len(self.model)]
        if len(self.model) < len(known):
            assert len(self.model) == CAPACITY
            assert self.timers.is_cut

    def knows(self, name: str) -> bool:
        return self.timers.due_ms(name) is not None

    @rule(now_ms=times, limit=st.integers(0, 5))
    def take_due(self, now_ms: int, limit: int) -> None:
        taken = self.timers.take_due(now_ms, limit)
        due = sorted((due_ms, name) for name, due_ms in self.model.items() if due_ms <= now_ms)
        assert taken == [name for _, name in due][:limit]
        for name in taken:
            del self.model[name]

    @rule()
    def next_ms(self) -> None:
        assert self.timers.next_ms() == min(self.model.values(), default=None)

    @invariant()
    def knows_what_the_model_knows(self) -> None:
        assert len(self.timers) == len(self.model) <= 2 * CAPACITY
        assert {name: self.timers.due_ms(name) for name in self.model} == self.model


TestTimers = TimersMachine.TestCase
TestTimers.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)


def test_a_later_due_time_replaces_an_earlier_one() -> None:
    timers = Timers()
    timers.put("orders:a", 1)
    timers.put("orders:a", 5)
    assert timers.take_due(4, 10) == []
    assert timers.next_ms() == 5
    assert timers.take_due(5, 10) == ["orders:a"]
    assert timers.take_due(5, 10) == []


def test_a_due_time_set_back_and_forth_is_taken_once() -> None:
    timers = Timers()
    for due_ms in (5, 7, 5):
        timers.put("orders:a", due_ms)
    assert timers.take_due(10, 10) == ["orders:a"]
    assert len(timers) == 0
    assert timers.next_ms() is None
