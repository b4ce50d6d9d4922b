"""The memory budget: its rules by name, and a machine against a plain account."""

import threading
from collections.abc import Callable

from harness.chance import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mq.broker.memory import (
    BODY_OVERHEAD_BYTES,
    MEMORY_IN_HAND_BYTES_MIN,
    MEMORY_SMALL_BYTES_MAX,
    MEMORY_SMALL_SHARE,
    Holder,
    Memory,
    QueueBodies,
    Reservation,
)
from mq.model.limits import KIB, MIB
from mq.model.message import Held

BUDGET = 64 * MIB


def publish(memory: Memory, queue: QueueBodies, name: str, size: int, byte: int = 0) -> bool:
    """Publishes a body, and keeps it where there is room; whether it is kept."""
    reservation = memory.receive(size)
    if reservation is None:
        return False
    held = Held((), bytes([byte]) * size, 0, reservation)
    memory.keep(queue, name, held, reservation)
    return name in queue.kept


def fill(memory: Memory, queue: QueueBodies, size: int, count: int) -> int:
    """Publishes up to `count`; how many are kept."""
    return sum(publish(memory, queue, f"{queue.name}-{each}", size) for each in range(count))


def test_what_is_on_its_way_counts_until_the_last_reference_is_gone() -> None:
    memory = Memory(BUDGET)
    reservation = memory.hold(1000)
    assert memory.figures().held_bytes == 1000 + BODY_OVERHEAD_BYTES
    del reservation
    assert memory.figures().held_bytes == 0


def test_what_finds_no_room_is_refused_and_small_bodies_have_room_left() -> None:
    memory, reservations = Memory(BUDGET), []
    while (reservation := memory.hold(MIB)) is not None:
        reservations.append(reservation)
    share = 1 - MEMORY_SMALL_SHARE
    assert len(reservations) == BUDGET * share // (MIB + BODY_OVERHEAD_BYTES)
    small = memory.receive(MEMORY_SMALL_BYTES_MAX)
    assert small is not None
    assert not memory.grow(small, MIB)
    assert small.cost == MEMORY_SMALL_BYTES_MAX + BODY_OVERHEAD_BYTES
    assert memory.figures().refused == 2


def test_without_a_budget_nothing_is_kept_and_a_little_may_be_on_its_way() -> None:
    memory = Memory(0)
    assert not publish(memory, QueueBodies("q"), "a", 10)
    assert memory.hold(MIB) is not None


def test_what_is_kept_gives_way_to_what_is_on_its_way_from_its_end() -> None:
    memory, queue = Memory(16 * MIB), QueueBodies("q")
    assert fill(memory, queue, MIB, 15) == 15
    reservations = [memory.hold(MIB) for _ in range(5)]
    assert None not in reservations
    kept = list(queue.kept)
    assert kept == [f"q-{number}" for number in range(len(kept))]
    assert 0 < len(kept) < 15
    assert memory.figures().evicted == 15 - len(kept)


def test_the_queue_whose_last_claim_is_longest_ago_gives_way_first() -> None:
    memory = Memory(16 * MIB)
    idle, used, new = (QueueBodies(name) for name in ("idle", "used", "new"))
    for queue in (used, idle):
        assert fill(memory, queue, MIB, 7) == 7
    assert memory.take(used, "used-0") is not None
    assert fill(memory, new, MIB, 4) == 4
    assert [len(queue.kept) for queue in (idle, used, new)] == [5, 6, 4]


def test_a_queue_takes_no_room_from_those_that_were_used_since() -> None:
    memory = Memory(4 * MIB)
    idle, used = QueueBodies("idle"), QueueBodies("used")
    assert fill(memory, idle, 100 * KIB, 10) == 10
    assert fill(memory, used, 100 * KIB, 20) == 20
    assert memory.take(used, "used-0") is not None
    fill(memory, idle, 100 * KIB, 100)
    assert len(used.kept) == 19
    assert len(idle.kept) < 25


def test_a_claim_takes_what_is_kept_once() -> None:
    memory, queue = Memory(BUDGET), QueueBodies("q")
    publish(memory, queue, "a", 10)
    found = memory.take(queue, "a")
    assert found is not None
    assert found.body == bytes(10)
    assert memory.figures().holders[Holder.DELIVERING].bodies == 1
    assert memory.take(queue, "a") is None
    del found
    figures = memory.figures()
    assert (figures.held_bytes, figures.hits, figures.misses) == (0, 1, 1)


def test_threads_at_once_leave_the_account_right() -> None:
    memory = Memory(MIB)
    queues = [QueueBodies(str(number)) for number in range(4)]

    def work(queue: QueueBodies) -> None:
        for number in range(2000):
            name = f"{queue.name}-{number}"
            publish(memory, queue, name, 1000)
            memory.hold(5000)
            memory.take(queue, name if number % 3 else "none")

    threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = memory.figures()
    assert figures.holders[Holder.PUBLISHING].bytes == 0
    assert figures.holders[Holder.DELIVERING].bytes == 0
    assert figures.held_bytes == sum(queue.bytes for queue in queues) <= MIB
    for queue in queues:
        memory.retain(queue)
    assert memory.figures().held_bytes == 0


sizes = st.sampled_from([0, 1, 100, 4 * KIB, 16 * KIB, 100 * KIB, MIB])
names = st.integers(0, 30).map(str)
numbers = st.integers(0, 4)


class MemoryAgainstAnAccount(RuleBasedStateMachine):
    """All that memory is asked for, against which bodies there really are."""

    @initialize(budget=st.sampled_from([0, 100 * KIB, MIB, 4 * MIB, 24 * MIB]))
    def begin(self, budget: int) -> None:
        self.memory = Memory(budget)
        self.budget = budget
        self.queues = [QueueBodies(str(number)) for number in range(5)]
        self.on_their_way: list[Reservation] = []
        self.given: dict[tuple[int, str], bytes] = {}
        self.serial = 0

    def reserves(self, act: Callable[[], object]) -> object:
        """Reserves bytes: nothing gives way when that is refused."""
        before = self.memory.figures()
        result = act()
        after = self.memory.figures()
        if result in (None, False):
            assert after.evicted == before.evicted
            assert after.held_bytes == before.held_bytes
            assert after.refused == before.refused + 1
        return result

    @rule(size=sizes)
    def hold(self, size: int) -> None:
        reservation = self.reserves(lambda: self.memory.hold(size))
        if isinstance(reservation, Reservation):
            self.on_their_way.append(reservation)

    @rule(size=sizes)
    def receive(self, size: int) -> None:
        reservation = self.reserves(lambda: self.memory.receive(size))
        if isinstance(reservation, Reservation):
            self.on_their_way.append(reservation)

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data(), size=sizes)
    def grow(self, data: st.DataObject, size: int) -> None:
        # By its number: the strategy would be remembered, and what it draws from.
        reservation = self.on_their_way[data.draw(st.integers(0, len(self.on_their_way) - 1))]
        self.reserves(lambda: self.memory.grow(reservation, size))

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        del self.on_their_way[data.draw(st.integers(0, len(self.on_their_way) - 1))]

    @rule(number=numbers, name=names, size=sizes)
    def keep(self, number: int, name: str, size: int) -> None:
        if name in self.queues[number].kept:
            return  # No id is published twice.
        self.serial += 1
        byte = self.serial % 256
        if publish(self.memory, self.queues[number], name, size, byte):
            self.given[number, name] = bytes([byte]) * size

    @rule(number=numbers, name=names)
    def take(self, number: int, name: str) -> None:
        was_kept = name in self.queues[number].kept
        found = self.memory.take(self.queues[number], name)
        assert (found is not None) == was_kept
        assert name not in self.queues[number].kept
        if found is not None:
            assert found.body == self.given[number, name]
            assert isinstance(found.reservation, Reservation)
            self.on_their_way.append(found.reservation)

    @rule(number=numbers, some=st.sets(names))
    def retain(self, number: int, some: set[str]) -> None:
        queue = self.queues[number]
        expected = [each for each in queue.kept if each in some]
        self.memory.retain(queue, some)
        assert list(queue.kept) == expected

    @invariant()
    def every_byte_has_one_holder_and_all_are_within_the_budget(self) -> None:
        if not hasattr(self, "memory"):
            return
        figures = self.memory.figures()
        expected = dict.fromkeys(Holder, 0)
        for reservation in self.on_their_way:
            expected[reservation.tally.holder] += reservation.cost
        for queue in self.queues:
            assert queue.bytes == sum(each.cost for _, each in queue.kept.values())
            expected[Holder.KEPT] += queue.bytes
        assert {each: figures.holders[each].bytes for each in Holder} == expected
        assert figures.held_bytes == sum(expected.values())
        on_their_way = figures.held_bytes - expected[Holder.KEPT]
        assert on_their_way <= max(self.budget, MEMORY_IN_HAND_BYTES_MIN)
        assert expected[Holder.KEPT] <= max(0, self.budget - on_their_way)
        assert figures.queues == sum(bool(queue.kept) for queue in self.queues)

    def teardown(self) -> None:
        if not hasattr(self, "memory"):
            return
        self.on_their_way.clear()
        for queue in self.queues:
            self.memory.retain(queue)
        assert self.memory.figures().held_bytes == 0


TestMemoryAgainstAnAccount = MemoryAgainstAnAccount.TestCase
TestMemoryAgainstAnAccount.settings = settings(max_examples=examples(60), stateful_step_count=50)
