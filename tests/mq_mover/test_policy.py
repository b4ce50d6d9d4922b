"""The policies' round: turns that are due, one after the other, none in another's way."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from harness.messages import put_entry, put_file
from harness.upkeep import work_of

from mq.model.errors import Busy
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.store.members.files import MEMBER_TOLD_KEPT_S, UNFINISHED_KEPT_S
from mq_mover.policies import ALL, Histories, Leftovers
from mq_mover.policy import Policies, Policy, Turn

if TYPE_CHECKING:
    from .conftest import Bench

Act = Callable[[], Turn]


def nothing() -> Turn:
    return Turn()


class Scripted(Policy):
    """Does what a test says."""

    name: ClassVar[str] = "scripted"
    every_s: ClassVar[float] = 60.0

    def __init__(self, bench: "Bench", act: Act = nothing, name: str = "scripted") -> None:
        super().__init__(work_of(bench.root, bench.flusher))
        self.name = name  # type: ignore[misc]
        self.does = act
        self.turns_s: list[float] = []
        self.is_stopped = False

    def act(self) -> Turn:
        self.turns_s.append(self.root.clock.steady_s())
        return self.does()

    def stop(self) -> None:
        self.is_stopped = True


def fails(error: Exception) -> Act:
    def act() -> Turn:
        raise error

    return act


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
def test_each_says_what_it_is(policy: type[Policy]) -> None:
    assert policy.name == policy.name.lower()
    assert policy.every_s > 0


def test_names_are_the_policies_own() -> None:
    assert len({policy.name for policy in ALL}) == len(ALL)


def test_a_turn_comes_when_it_is_due(bench: "Bench") -> None:
    policy = Scripted(bench)
    policies = Policies(bench.root, [policy])
    for _ in range(13):
        policies.run_next()
        bench.clock.advance(10)
    assert policy.turns_s == [0, 60, 120]
    assert policies.next_due_s() == 50


def test_where_more_waits_the_others_have_their_turns_between(bench: "Bench") -> None:
    order: list[str] = []

    def act(name: str) -> Act:
        def turn() -> Turn:
            order.append(name)
            return Turn(1, more=name == "large")

        return turn

    each = [Scripted(bench, act(name), name) for name in ("large", "a", "b")]
    policies = Policies(bench.root, each)
    for _ in range(8):
        assert policies.run_next() == 1
    assert order == ["large", "a", "b", "large", "large", "large", "large", "large"]
    bench.clock.advance(SWEEP_EVERY_S)
    order.clear()
    for _ in range(4):
        policies.run_next()
    assert sorted(order) == ["a", "b", "large", "large"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "x"), Busy("x")], ids=["os", "busy"])
def test_a_turn_that_fails_is_counted_and_made_again(bench: "Bench", error: Exception) -> None:
    policy, other = Scripted(bench, fails(error)), Scripted(bench, name="other")
    policies = Policies(bench.root, [policy, other])
    policies.run_once()
    bench.clock.advance(60)
    policies.run_once()
    count = policies.counts()["scripted"]
    assert (count.turns, count.acted, count.failed, count.last_ms) == (2, 0, 2, None)
    assert other.turns_s == [0, 60]


def test_what_was_done_is_counted(bench: "Bench") -> None:
    policy = Scripted(bench, lambda: Turn(3, again_in_s=5))
    policies = Policies(bench.root, [policy])
    assert policies.run_once() == 3
    assert policies.run_once() == 0
    acted_ms = bench.clock.now_ms()
    assert policies.next_due_s() == 5
    count = policies.counts()["scripted"]
    assert (count.turns, count.acted, count.failed, count.last_ms) == (1, 3, 0, acted_ms)
    policies.stop()
    assert policy.is_stopped


def test_many_queues_are_looked_at_over_several_turns(bench: "Bench") -> None:
    for number in range(250):
        (bench.path / "history" / f"q{number}").mkdir(parents=True)
    policies = Policies(bench.root, [Histories(work_of(bench.root, bench.flusher))])
    turns = 0
    while not policies.next_due_s():
        policies.run_next()
        turns += 1
    assert turns == 3


def aged(bench: "Bench", path: Path, seconds: float) -> Path:
    return put_file(path, due_ms=bench.clock.now_ms() - round(seconds * 1000))


def test_what_gone_members_left_is_taken_away(bench: "Bench") -> None:
    members, shovels = bench.folder("members"), bench.folder("shovels")
    process = "0123456789abcdef"
    old = [
        aged(bench, members / "gone.json", MEMBER_TOLD_KEPT_S + 1),
        aged(bench, members / "gone.sweep", MEMBER_TOLD_KEPT_S + 1),
        aged(bench, members / f".gone.json.{process}", UNFINISHED_KEPT_S + 1),
        aged(bench, shovels / f".orders.json.{process}", UNFINISHED_KEPT_S + 1),
    ]
    kept = [
        aged(bench, members / "there.json", MEMBER_TOLD_KEPT_S - 1),
        aged(bench, members / "there.sweep", MEMBER_TOLD_KEPT_S - 1),
        aged(bench, members / f".there.json.{process}", UNFINISHED_KEPT_S - 1),
        aged(bench, members / "leader", 10**8),
        aged(bench, members / "root-id", 10**8),
        aged(bench, members / "README", 10**8),
        aged(bench, shovels / "orders.json", 10**8),
    ]
    policies = Policies(bench.root, [Leftovers(work_of(bench.root, bench.flusher))])
    assert policies.run_once() == len(old)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)


@pytest.mark.certificate
def test_forgotten_publishes_are_many_turns(bench: "Bench") -> None:
    entries = [put_entry(bench.folder("new")) for _ in range(1500)]
    bench.clock.advance(FORGOTTEN_AFTER_S + 600)
    policies = bench.sweeper()
    turns = [policies.counts()["forgotten-publishes"].acted]
    while any(entry.exists() for entry in entries):
        policies.run_next()
        turns.append(policies.counts()["forgotten-publishes"].acted)
    assert {1000, 1500} <= set(turns)
