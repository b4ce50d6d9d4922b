"""The memory budget: its rules by name, and a machine against a plain account."""

import threading
from collections.abc import Callable

import pytest
from harness.clock import FakeClock
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mq.broker.memory import Hand, Memory
from mq.broker.shelf import LISTS, Holder, Shelf, cost_of
from mq.model.limits import (
    BODY_OVERHEAD_BYTES,
    KIB,
    MEMORY_IDLE_S,
    MEMORY_IN_HAND_BYTES_MIN,
    MEMORY_QUEUE_BYTES_MIN,
    MEMORY_SMALL_BYTES_MAX,
    MEMORY_SMALL_SHARE,
    MIB,
)
from mq.model.message import Held

BUDGET = 64 * MIB


def held(size: int, byte: int = 0) -> Held:
    return Held((), bytes([byte]) * size, 0)


def fresh(budget_bytes: int = BUDGET) -> tuple[Memory, FakeClock]:
    clock = FakeClock()
    return Memory(budget_bytes, clock.steady_s), clock


def fill(memory: Memory, shelf: Shelf, size: int, count: int, published: bool = False) -> int:
    """Keeps up to so many; how many there was room for."""
    kept = 0
    for number in range(count):
        hand = memory.receive(size) if published else None
        if published and hand is None:
            break
        kept += memory.keep(shelf, f"{shelf.name}-{number}", held(size), hand)
    return kept


def consume(memory: Memory, shelf: Shelf, size: int) -> None:
    """Fetches that find nothing kept."""
    memory.take(shelf, "none")
    memory.hold(size, shelf)


def test_what_is_in_hand_counts_until_nobody_refers_to_it() -> None:
    memory, _ = fresh()
    hand = memory.hold(1000, Shelf("q"))
    assert memory.figures().held_bytes == 1000 + BODY_OVERHEAD_BYTES
    del hand
    assert memory.figures().held_bytes == 0


def test_what_finds_no_room_in_hand_is_refused_and_small_ones_have_room_left() -> None:
    memory, _ = fresh()
    shelf, hands = Shelf("q"), []
    while (hand := memory.hold(MIB, shelf)) is not None:
        hands.append(hand)
    assert len(hands) == BUDGET * (1 - MEMORY_SMALL_SHARE) // (MIB + BODY_OVERHEAD_BYTES)
    small = memory.receive(MEMORY_SMALL_BYTES_MAX)
    assert small is not None
    assert not memory.grow(small, MIB)
    assert small.cost == MEMORY_SMALL_BYTES_MAX + BODY_OVERHEAD_BYTES


def test_without_a_budget_nothing_is_kept_and_a_little_may_be_in_hand() -> None:
    memory, _ = fresh(0)
    shelf = Shelf("q")
    hand = memory.receive(10)
    assert hand is not None
    assert not memory.keep(shelf, "a", held(10), hand)
    assert not memory.keep(shelf, "b", held(10))
    assert memory.hold(MIB, shelf) is not None


def test_heads_give_way_first_then_what_is_pending_then_direct_lists_from_their_ends() -> None:
    memory, _ = fresh()
    direct, pending, head = Shelf("direct"), Shelf("pending"), Shelf("head")
    for _ in range(20):
        consume(memory, direct, MIB)
    assert fill(memory, direct, MIB, 10) == 10
    assert fill(memory, pending, MIB, 10, published=True) == 10
    assert fill(memory, head, MIB, 10) == 10
    order, hands = [], []
    before = memory.figures()
    while (hand := memory.hold(MIB, direct)) is not None:
        hands.append(hand)
        after = memory.figures()
        order += [
            each for each in LISTS
            if after.holders[each].evicted > before.holders[each].evicted
        ]  # fmt: skip
        before = after
    assert order == sorted(order, key=LISTS.index)
    assert set(order) >= {Holder.HEAD, Holder.PENDING}
    assert memory.is_kept(direct, "direct-0")


@pytest.mark.parametrize("published", [False, True])
def test_a_list_gives_way_from_its_end(published: bool) -> None:
    memory, _ = fresh(16 * MIB)
    shelf = Shelf("q")
    assert fill(memory, shelf, MIB, 15, published) == 15
    hands = [memory.hold(MIB, shelf) for _ in range(5)]
    assert None not in hands
    kept = [number for number in range(15) if memory.is_kept(shelf, f"q-{number}")]
    assert kept == list(range(len(kept)))
    assert 0 < len(kept) < 15


def test_a_list_leaves_each_other_queue_its_minimum() -> None:
    memory, _ = fresh(4 * MIB)
    others = [Shelf(f"other{number}") for number in range(4)]
    for other in others:
        fill(memory, other, 8 * KIB, 200)
    busy = Shelf("busy")
    fill(memory, busy, 8 * KIB, 1000, published=True)
    minimum = MEMORY_QUEUE_BYTES_MIN
    for other in others:
        assert minimum - 9 * KIB < other.bytes <= minimum
    assert busy.bytes > 3 * MIB


def test_a_queue_below_its_minimum_gets_it_from_others_of_its_kind() -> None:
    memory, _ = fresh(4 * MIB)
    first, second = Shelf("first"), Shelf("second")
    fill(memory, first, 8 * KIB, 1000, published=True)
    assert memory.figures().held_bytes > 3 * MIB
    assert fill(memory, second, 8 * KIB, 4, published=True) == 4


def test_the_watermark_rises_as_the_queue_is_consumed_and_falls_when_it_is_not() -> None:
    memory, clock = fresh()
    shelf = Shelf("q")
    consume(memory, shelf, 10)
    low = memory.ahead(shelf)
    for _ in range(100):
        consume(memory, shelf, 100 * KIB)
    assert memory.ahead(shelf) >= 100 * 100 * KIB > low
    assert fill(memory, shelf, 100 * KIB, 10) == 10
    assert memory.figures().holders[Holder.DIRECT].bodies == 10
    clock.advance(MEMORY_IDLE_S)
    assert memory.ahead(shelf) <= MEMORY_QUEUE_BYTES_MIN
    assert memory.figures().holders[Holder.DIRECT].bodies == 0
    assert memory.figures().holders[Holder.HEAD].bodies == 10


def test_what_is_published_beyond_the_watermark_is_pending_and_comes_up_as_the_list_empties() -> (
    None
):
    memory, _ = fresh()
    shelf = Shelf("q")
    memory.take(shelf, "none")
    fill(memory, shelf, 10 * KIB, 10, published=True)
    figures = memory.figures()
    direct = figures.holders[Holder.DIRECT].bodies
    assert 0 < direct < 10
    assert figures.holders[Holder.PENDING].bodies == 10 - direct
    for number in range(10):
        found = memory.take(shelf, f"q-{number}")
        assert found is not None
        if number == 0:
            assert memory.figures().holders[Holder.PENDING].bodies < 10 - direct


def test_threads_at_once_leave_the_account_right() -> None:
    memory, _ = fresh(MIB)
    shelves = [Shelf(str(number)) for number in range(4)]

    def work(shelf: Shelf) -> None:
        for number in range(2000):
            name = f"{shelf.name}-{number}"
            memory.keep(shelf, name, held(1000), memory.receive(1000))
            memory.hold(5000, shelf)
            memory.take(shelf, name if number % 3 else "none")

    threads = [threading.Thread(target=work, args=(shelf,)) for shelf in shelves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = memory.figures()
    assert figures.holders[Holder.PUBLISHING].bytes == 0
    assert sum(each.in_hand_bytes for each in figures.holders.values()) == 0
    assert figures.held_bytes == sum(each.bytes for each in figures.holders.values())
    assert figures.held_bytes == sum(each.bytes for each in shelves) <= MIB
    for shelf in shelves:
        memory.close(shelf)
    assert memory.figures().held_bytes == 0


sizes = st.sampled_from([0, 1, 100, 4 * KIB, 16 * KIB, 100 * KIB, MIB])
names = st.integers(0, 30).map(str)
shelves = st.integers(0, 4)


class MemoryAgainstAnAccount(RuleBasedStateMachine):
    """Everything that it is asked for, against who really has which body."""

    @initialize(budget=st.sampled_from([0, 100 * KIB, MIB, 4 * MIB, 24 * MIB]))
    def begin(self, budget: int) -> None:
        self.clock = FakeClock()
        self.memory = Memory(budget, self.clock.steady_s)
        self.budget = budget
        self.shelves = [Shelf(str(number)) for number in range(5)]
        self.in_hand: list[tuple[Holder, Hand]] = []
        self.given: dict[tuple[int, str], Held] = {}
        self.serial = 0

    def forced(self, act: Callable[[], object]) -> object:
        """What has bodies in hand: lists give way in their order, and for nothing when refused."""
        before = self.memory.figures()
        result = act()
        after = self.memory.figures()
        gone = [after.holders[each].evicted > before.holders[each].evicted for each in LISTS]
        if result in (None, False):
            assert not any(gone)
            assert after.held_bytes == before.held_bytes
        for number, each in enumerate(LISTS):
            if any(gone[number + 1 :]):
                for shelf in self.shelves:
                    assert not shelf.lists[each] or shelf.bytes <= MEMORY_QUEUE_BYTES_MIN
        return result

    @rule(number=shelves, size=sizes)
    def hold(self, number: int, size: int) -> None:
        hand = self.forced(lambda: self.memory.hold(size, self.shelves[number]))
        if isinstance(hand, Hand):
            self.in_hand.append((Holder.DIRECT, hand))

    @rule(size=sizes)
    def receive(self, size: int) -> None:
        hand = self.forced(lambda: self.memory.receive(size))
        if isinstance(hand, Hand):
            self.in_hand.append((Holder.PUBLISHING, hand))

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), size=sizes)
    def grow(self, data: st.DataObject, size: int) -> None:
        # By its number: the strategy would be remembered, and what it draws from.
        holder, hand = self.in_hand[data.draw(st.integers(0, len(self.in_hand) - 1))]
        if holder is Holder.PUBLISHING:
            self.forced(lambda: self.memory.grow(hand, size))

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        del self.in_hand[data.draw(st.integers(0, len(self.in_hand) - 1))]

    @rule(number=shelves, name=names, size=sizes, published=st.booleans())
    def keep(self, number: int, name: str, size: int, published: bool) -> None:
        self.serial += 1
        hand = self.memory.receive(size) if published else None
        if published and hand is None:
            return
        was_kept = self.memory.is_kept(self.shelves[number], name)
        body = held(size, self.serial % 256)
        if self.memory.keep(self.shelves[number], name, body, hand) and not was_kept:
            self.given[number, name] = body

    @rule(number=shelves, name=names)
    def take(self, number: int, name: str) -> None:
        was_kept = self.memory.is_kept(self.shelves[number], name)
        found = self.memory.take(self.shelves[number], name)
        assert not self.memory.is_kept(self.shelves[number], name)
        assert was_kept or found is None
        if found is not None:
            assert found.body is self.given[number, name].body
            assert isinstance(found.hand, Hand)
            self.in_hand.append((Holder.DIRECT, found.hand))

    @rule(number=shelves, name=names)
    def drop(self, number: int, name: str) -> None:
        self.memory.drop(self.shelves[number], name)
        assert not self.memory.is_kept(self.shelves[number], name)

    @rule(number=shelves, some=st.sets(names))
    def retain(self, number: int, some: set[str]) -> None:
        shelf = self.shelves[number]
        kept = {each for each in map(str, range(31)) if self.memory.is_kept(shelf, each)}
        self.memory.retain(shelf, some.__contains__)
        for each in kept:
            assert self.memory.is_kept(shelf, each) == (each in some)

    @rule(number=shelves)
    def close(self, number: int) -> None:
        self.memory.close(self.shelves[number])
        assert self.shelves[number].bytes == 0

    @rule(seconds=st.sampled_from([0.1, 3.0, MEMORY_IDLE_S]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def every_byte_has_one_holder_and_all_are_within_the_budget(self) -> None:
        if not hasattr(self, "memory"):
            return
        figures = self.memory.figures()
        in_hand = {Holder.DIRECT: 0, Holder.PUBLISHING: 0}
        for holder, hand in self.in_hand:
            in_hand[holder] += hand.cost
        for holder, size in in_hand.items():
            assert figures.holders[holder].in_hand_bytes == size
        kept = sum(
            cost_of(self.given[number, name])
            for number, shelf in enumerate(self.shelves)
            for name in map(str, range(31))
            if self.memory.is_kept(shelf, name)
        )
        assert figures.held_bytes == kept + sum(in_hand.values())
        assert figures.held_bytes == sum(each.bytes for each in figures.holders.values())
        assert figures.held_bytes <= max(self.budget, MEMORY_IN_HAND_BYTES_MIN)
        assert kept <= max(0, self.budget - sum(in_hand.values()))
        for shelf in self.shelves:
            assert shelf.bytes == sum(shelf.list_bytes.values())
            for holder in LISTS:
                assert shelf.list_bytes[holder] == sum(map(cost_of, shelf.lists[holder].values()))

    def teardown(self) -> None:
        if not hasattr(self, "memory"):
            return
        self.in_hand.clear()
        for shelf in self.shelves:
            self.memory.close(shelf)
        assert self.memory.figures().held_bytes == 0


TestMemoryAgainstAnAccount = MemoryAgainstAnAccount.TestCase
TestMemoryAgainstAnAccount.settings = settings(max_examples=60, stateful_step_count=50)
