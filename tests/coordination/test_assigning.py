"""Round robin: each queue has one member, in equal parts."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mq.coordination.assigning import NO_DEAL, Deal, assign, pair_of
from mq.model.names import QueueName

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}(_SIDELINE)?", fullmatch=True).map(QueueName.parse)
QUEUES = st.lists(NAMES, max_size=30)
MEMBERS = st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True), min_size=1, max_size=9)


@given(QUEUES, MEMBERS)
def test_each_queue_has_one_member_in_equal_parts(
    queues: list[QueueName], members: list[str]
) -> None:
    assigned = assign(queues, members)
    assert set(assigned) == {pair_of(queue) for queue in queues}
    assert set(assigned.values()) <= set(members)
    parts = Counter(dict.fromkeys(members, 0)) + Counter(assigned.values())
    counts = [parts[member] for member in set(members)]
    assert max(counts) - min(counts) <= 1


@given(QUEUES, MEMBERS, st.randoms())
def test_whoever_deals_the_same_says_the_same(
    queues: list[QueueName], members: list[str], chance: random.Random
) -> None:
    shuffled, others = [*queues, *queues], [*members, *members]
    chance.shuffle(shuffled)
    chance.shuffle(others)
    assert assign(shuffled, others) == assign(queues, members)


@given(QUEUES, MEMBERS, QUEUES, MEMBERS)
def test_who_had_a_queue_keeps_it_while_parts_are_equal(
    queues: list[QueueName], members: list[str], queues_before: list[QueueName], before: list[str]
) -> None:
    dealt = Deal(min(before), assign(queues_before, before))
    assigned = assign(queues, members, dealt)
    parts = Counter(dict.fromkeys(members, 0)) + Counter(assigned.values())
    counts = [parts[member] for member in set(members)]
    assert max(counts) - min(counts) <= 1
    assert set(assigned) == {pair_of(queue) for queue in queues}
    # None has lost one and got another.
    for member in set(members):
        lost = [q for q, m in assigned.items() if dealt.owner_of(q) == member != m]
        got = [q for q, m in assigned.items() if m == member != dealt.owner_of(q)]
        assert not lost or not got
    assert assign(queues, members, Deal(None, assigned, of_all=False)) == assigned


def test_of_one_that_goes_its_own_alone_change_hands() -> None:
    queues = [QueueName.parse(f"q{at}") for at in range(9)]
    before = Deal("a", assign(queues, "abc"))
    after = assign(queues, "bc", before)
    moved = {queue for queue, member in after.items() if before.assigned[queue] != member}
    assert moved == {queue for queue, member in before.assigned.items() if member == "a"}


@given(QUEUES, MEMBERS)
def test_a_queue_and_its_sideline_are_of_one(queues: list[QueueName], members: list[str]) -> None:
    assigned = assign(queues, members)
    for queue in queues:
        deal = Deal("leader", assigned)
        assert deal.owner(queue) == deal.owner(queue.counterpart()) in members


@given(QUEUES, st.sets(st.sampled_from(["a", "b", "c", "d"]), min_size=1))
def test_what_the_leader_does_not_say_of_itself_is_its_own(
    queues: list[QueueName], members: set[str]
) -> None:
    leader = min(members)
    assigned = {q: m for q, m in assign(queues, members).items() if m != leader}
    for queue in (*queues, QueueName.parse("not-dealt-yet")):
        assert Deal(leader, assigned).owner(queue) in members
        assert Deal(leader, assigned, of_all=False).owner(queue) != leader


def test_nobody_there_is_nobody_assigned() -> None:
    assert assign([QueueName.parse("orders")], []) == {}
    assert NO_DEAL.owner(QueueName.parse("orders")) is None


def test_of_two_that_have_one_more_than_their_part_one_may_keep_it() -> None:
    queues = [QueueName.parse(f"q{at}") for at in range(7)]
    had = {"q0": "a", "q1": "a", "q2": "a", "q3": "b", "q4": "b", "q5": "b"}
    parts = Counter(assign(queues, "abc", Deal(None, had, of_all=False)).values())
    assert sorted(parts.values()) == [2, 2, 3]
