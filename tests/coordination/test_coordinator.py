"""What a coordinator promises, of each kind: its own words, and, at each turn of each of these
tests, that no queue is of two members.
"""

import pytest
from harness.members import Bench, many_queues, queues_named

from mq.coordination.coordinator import Alone
from mq.model.names import QueueName


def test_one_who_is_alone_leads_and_has_all(bench: Bench) -> None:
    bench.queues = many_queues(3)
    (only,) = bench.join("a")
    bench.settle()
    assert bench.leader() == "a"
    view = only.view()
    assert (view.members, view.is_connected) == (("a",), True)
    assert only.has(QueueName.parse("made-a-moment-ago"))
    assert only.kind in ("file", "zookeeper")
    assert only.next_due_s() <= 1.0


def test_one_that_has_not_turned_yet_has_nothing(bench: Bench) -> None:
    bench.queues = queues_named("orders")
    (only,) = bench.join("a")
    assert not only.has(bench.queues[0])
    bench.settle()


def test_queues_are_dealt_out_in_equal_parts(bench: Bench) -> None:
    bench.queues = many_queues(7)
    bench.join("a", "b", "c")
    bench.settle()
    counts = sorted(len(share) for share in bench.shares().values())
    assert counts == [4, 4, 6]
    for queue in bench.queues:
        assert bench.owners(queue) == bench.owners(queue.counterpart())


def test_the_leader_has_what_was_made_since(bench: Bench) -> None:
    bench.queues = many_queues(2)
    bench.join("a", "b")
    bench.settle()
    assert bench.owners(QueueName.parse("made-a-moment-ago")) == [bench.leader()]
    bench.queues = many_queues(4)
    bench.until(
        lambda: bench.all_are_owned() and len({*map(len, bench.shares().values())}) == 1,
        "those made since dealt out too",
    )


def test_views_agree(bench: Bench) -> None:
    bench.queues = many_queues(5)
    bench.join("a", "b", "c")
    bench.settle()
    for name, member in bench.members.items():
        view = member.view()
        assert (view.leader, view.members) == (bench.leader(), ("a", "b", "c"))
        for queue in bench.queues:
            if member.has(queue) and name != view.leader and not queue.is_sideline:
                assert view.assigned[queue.text] == name


def test_who_comes_gets_a_part(bench: Bench) -> None:
    bench.queues = many_queues(6)
    bench.join("a")
    bench.settle()
    bench.join("b")
    bench.settle()
    assert {name: len(share) for name, share in bench.shares().items()} == {"a": 6, "b": 6}


def test_who_leaves_gives_its_part_back(bench: Bench) -> None:
    bench.queues = many_queues(6)
    bench.join("a", "b", "c")
    bench.settle()
    stays = bench.leader()
    leaves = min(set(bench.members) - {stays})
    gone = bench.members[leaves]
    bench.leave(leaves)
    assert not any(gone.has(queue) for queue in bench.queues)
    bench.settle()
    assert bench.leader() == stays


@pytest.mark.parametrize("ends", ["leave", "kill"])
def test_a_leader_that_ends_is_followed(bench: Bench, ends: str) -> None:
    bench.queues = many_queues(6)
    bench.join("a", "b", "c")
    bench.settle()
    before = bench.leader()
    assert before is not None
    getattr(bench, ends)(before)
    bench.settle()
    assert bench.leader() != before


def test_a_member_that_dies_is_missed(bench: Bench) -> None:
    bench.queues = many_queues(6)
    bench.join("a", "b", "c")
    bench.settle()
    leader = bench.leader()
    bench.kill(min(set(bench.members) - {leader}))
    bench.settle()
    assert bench.leader() == leader


def test_all_die_and_one_comes_later(bench: Bench) -> None:
    bench.queues = many_queues(4)
    bench.join("a", "b")
    bench.settle()
    for name in ("a", "b"):
        bench.kill(name)
    bench.join("c")
    bench.settle()
    assert bench.leader() == "c"


def test_who_cannot_reach_the_others_gives_all_up_and_comes_back(bench: Bench) -> None:
    bench.queues = many_queues(6)
    bench.join("a", "b", "c")
    bench.settle()
    before = bench.leader()
    assert before is not None
    cut_off = bench.members[before]
    bench.cut_off(before)
    bench.until(lambda: not cut_off.view().is_connected, "its knowing nothing more")
    assert not any(cut_off.has(queue) for queue in bench.queues)
    bench.until(bench.all_are_owned, "its queues with the others")
    bench.mend(before)
    bench.settle()
    assert cut_off.view().is_connected


def test_all_are_cut_off_and_come_back(bench: Bench) -> None:
    bench.queues = many_queues(4)
    bench.join("a", "b")
    bench.settle()
    for name in bench.members:
        bench.cut_off(name)
    bench.until(lambda: not any(map(bench.owners, bench.queues)), "everybody's giving up")
    for name in bench.members:
        bench.mend(name)
    bench.settle()


def test_a_member_that_was_stopped_has_nothing_when_it_wakes_up(bench: Bench) -> None:
    bench.queues = many_queues(6)
    bench.join("a", "b", "c")
    bench.settle()
    before = bench.leader()
    assert before is not None
    bench.stop_still(before)
    bench.until(
        lambda: all(len(set(bench.owners(queue)) - {before}) == 1 for queue in bench.queues),
        "its queues with the others",
    )
    bench.wake_up(before)
    assert not any(bench.members[before].has(queue) for queue in bench.queues)
    bench.settle()
    assert bench.leader() != before


def test_one_that_begins_again_under_its_name(bench: Bench) -> None:
    bench.queues = many_queues(4)
    bench.join("a", "b")
    bench.settle()
    bench.kill("b")
    bench.join("b")
    bench.settle()
    assert set(bench.members) == {"a", "b"}


def test_stopping_twice_or_before_the_start_is_nothing(bench: Bench) -> None:
    (never,) = bench.join("a")
    never.stop()
    never.stop()
    assert not never.has(QueueName.parse("orders"))
    assert not never.view().is_connected


def test_one_who_shares_with_nobody_has_all_from_the_start() -> None:
    alone = Alone("a")
    alone.start()
    alone.run_once([])
    assert alone.has(QueueName.parse("orders"))
    assert (alone.view().leader, alone.view().members) == ("a", ("a",))
    assert alone.next_due_s() == float("inf")
    alone.stop()
