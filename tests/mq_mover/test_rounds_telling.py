"""What an mq-mover tells of itself while it makes its rounds."""

from typing import TYPE_CHECKING

import pytest
from harness.messages import ctime_ms, put_entry

from mq.coordination.coordinator import Alone
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.members import TOLD_EVERY_S, Member
from mq.model.names import QueueName
from mq.store.members.files import read_member, read_members
from mq.store.operations.redeliver import Timer
from mq_mover.rounds import Rounds

if TYPE_CHECKING:
    from .conftest import Bench


@pytest.fixture
def rounds(bench: "Bench") -> Rounds:
    made = Rounds(bench.root, bench.flusher, Alone("alpha"), Timer())
    made.start()
    return made


def told(bench: "Bench") -> Member:
    found = read_member(bench.root, "alpha")
    assert found is not None
    return found


def test_a_member_tells_from_its_first_round_on_until_it_ends(
    bench: "Bench", rounds: Rounds
) -> None:
    assert read_members(bench.root) == []
    rounds.run_once()
    found = told(bench)
    assert (found.doing.coordinator, found.leads) == ("alone", True)
    assert found.doing.queues == (QueueName.parse("orders"),)
    for _ in range(5):
        bench.clock.advance(TOLD_EVERY_S)
        rounds.run_once()
        assert not told(bench).is_gone(bench.clock.now_ms())
    rounds.stop()
    assert read_members(bench.root) == []


def test_what_is_redelivered_is_told(bench: "Bench", rounds: Rounds) -> None:
    for due_in_ms in (-1000, -1000, 3_600_000):
        bench.delayed(due_in_ms)
    for _ in range(5):
        bench.clock.advance(TOLD_EVERY_S)
        rounds.run_once()
    assert told(bench).doing.redelivery == {
        "moved": 2, "from_leases": 0, "fired": 0, "waiting": 1,
    }  # fmt: skip


def test_each_policy_tells_its_turns_and_when_the_next_is(bench: "Bench", rounds: Rounds) -> None:
    torn = put_entry(bench.folder("new"))
    bench.clock.reach(ctime_ms(torn) + FORGOTTEN_AFTER_S * 1000)
    names = set(rounds.policies.counts())
    for _ in names:
        rounds.run_once()
    at_ms = bench.clock.now_ms()
    bench.clock.advance(TOLD_EVERY_S)
    rounds.run_once()
    policies = told(bench).doing.policies
    assert set(policies) == names
    forgotten = policies["forgotten-publishes"]
    assert (forgotten.turns, forgotten.acted, forgotten.last_ms) == (1, 1, at_ms)
    assert forgotten.next_ms is not None
    assert forgotten.next_ms > at_ms


def test_queues_that_come_are_told_once_they_are_known(bench: "Bench", rounds: Rounds) -> None:
    rounds.run_once()
    (bench.folder("queues") / "payments").mkdir()
    rounds.registry.refresh()
    bench.clock.advance(TOLD_EVERY_S)
    rounds.run_once()
    assert [queue.text for queue in told(bench).doing.queues] == ["orders", "payments"]
