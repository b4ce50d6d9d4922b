"""Who waits in the processes of one mq: by the board alone, and by brokers that share one."""

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.waiting import comes_true
from hypothesis import given
from hypothesis import strategies as st

from mq.broker.broker import Broker
from mq.broker.consumers import Terms
from mq.broker.siblings import (
    PATIENCE_S,
    PLACES_PER_ROW,
    ROWS_MAX,
    SILENT_S,
    QueueSiblings,
    Siblings,
    shared_bytes,
)
from mq.broker.watching import Listening
from mq.model.clock import SystemClock
from mq.model.errors import MqError
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.store.core.arrivals import open_arrivals
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root

QUEUE = QueueName.parse("q")
NAMES = [UuidSource(FakeClock()).next() for _ in range(400)]


class Processes:
    """The views of several processes on one board, of one queue, and how often each left one."""

    def __init__(self, count: int) -> None:
        self.clock = FakeClock()
        self.memory = memoryview(bytearray(shared_bytes(count)))
        self.left = [0] * count
        self.boards = [self.start(index) for index in range(count)]
        self.queues = [self.queue(index) for index in range(count)]

    def start(self, index: int) -> Siblings:
        return Siblings(self.memory, index, self.clock.steady_s)

    def queue(self, index: int, name: QueueName = QUEUE) -> QueueSiblings:
        def leaves() -> None:
            self.left[index] += 1

        return QueueSiblings(self.boards[index], name, leaves)

    def takers(self, name: str, priorities: list[int | None]) -> list[int]:
        """Those that would take the message now."""
        return [
            index
            for index, priority in enumerate(priorities)
            if priority is not None
            and not self.queues[index].go_first(priority)
            and not self.queues[index].are_chosen(name)
        ]


waiting = st.lists(
    st.none() | st.tuples(st.integers(0, 9), st.integers(1, 40)), min_size=2, max_size=4
)


@given(rows=waiting, gone=st.sets(st.integers(0, 3)), name=st.sampled_from(NAMES))
def test_one_process_takes_a_message_whichever_of_them_die(
    rows: list[tuple[int, int] | None], gone: set[int], name: str
) -> None:
    processes = Processes(len(rows))
    for queue, row in zip(processes.queues, rows, strict=True):
        if row is not None:
            queue.shows(*row)
    priorities = [None if row is None else row[0] for row in rows]
    takers = processes.takers(name, priorities)
    highest = max((each for each in priorities if each is not None), default=None)
    assert [priorities[index] for index in takers] == ([] if highest is None else [highest])
    # Those that are gone say nothing any more, and all others do.
    processes.clock.advance(SILENT_S)
    for index, board in enumerate(processes.boards):
        if index not in gone:
            board.lives()
    left = [None if index in gone else each for index, each in enumerate(priorities)]
    takers = [index for index in processes.takers(name, left) if index not in gone]
    highest = max((each for each in left if each is not None), default=None)
    assert [left[index] for index in takers] == ([] if highest is None else [highest])


def test_equals_have_their_share_of_the_messages() -> None:
    processes = Processes(3)
    for queue, count in zip(processes.queues, (1, 9, 10), strict=True):
        queue.shows(0, count)
    takers = Counter(index for name in NAMES for index in processes.takers(name, [0, 0, 0]))
    assert takers.total() == len(NAMES)
    assert 5 <= takers[0] <= 45
    assert takers[1] > 100
    assert takers[2] > 100


def test_one_that_has_ended_is_passed_over_at_once() -> None:
    processes = Processes(2)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    processes.queues[0].shows(0, 1)
    processes.queues[1].shows(9, 1)
    processes.memory.cast("Q")[len(processes.memory) // 16] = ended.pid
    assert processes.queues[0].go_first(0)
    processes.queues[0].check()
    assert not processes.queues[0].go_first(0)
    # The one in its place counts.
    processes.boards[1] = processes.start(1)
    assert not processes.queues[0].go_first(0)
    processes.queue(1).shows(9, 1)
    assert processes.queues[0].go_first(0)


def test_those_who_take_nothing_are_waited_for_a_moment_and_again_once_they_take() -> None:
    processes = Processes(2)
    low, high = processes.queues
    low.shows(0, 1)
    high.shows(9, 1)

    def pass_by(seconds: float) -> None:
        processes.clock.advance(seconds)
        for each in processes.boards:
            each.lives()
        low.check()

    pass_by(0)
    pass_by(PATIENCE_S - 0.1)
    assert low.go_first(0)
    high.took()
    pass_by(0.1)
    assert low.go_first(0)
    pass_by(PATIENCE_S)
    assert not low.go_first(0)
    high.took()
    assert low.go_first(0)
    # Nothing was there to take since: the time begins anew.
    pass_by(0)
    low.rests()
    pass_by(PATIENCE_S)
    assert low.go_first(0)


def test_rows_are_made_until_there_is_no_place_and_given_to_others() -> None:
    processes = Processes(2)
    names = [QueueName.parse(f"q{number}") for number in range(ROWS_MAX + PLACES_PER_ROW)]
    mine = [processes.queue(0, each) for each in names]
    for each in mine:
        each.shows(9, 1)
    others = [processes.queue(1, each) for each in names]
    seen = [each.go_first(0) for each in others]
    assert ROWS_MAX // 2 < sum(seen) < len(names)
    for each in mine:
        each.shows(0, 0)
    assert not any(each.go_first(0) for each in others)
    for each, was_seen in zip(mine, seen, strict=True):
        if not was_seen:
            each.shows(9, 1)
    assert sum(each.go_first(0) for each in others) > 0


# Brokers


class Consuming:
    """A consumer of one broker, and what it took."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.taken: list[Delivery] = []

    async def begin(self, credit: int, priority: int) -> None:
        self.consumer = await self.broker.consuming.subscribe(QUEUE, Terms(credit, priority), self)

    def room(self) -> int:
        return 32

    def begins(self) -> None: ...

    def got(self, delivery: Delivery) -> None:
        self.taken.append(delivery)

    def missed(self) -> None: ...

    def failed(self, error: MqError) -> None: ...


async def consuming(broker: Broker, credit: int = 1000, priority: int = 0) -> Consuming:
    found = Consuming(broker)
    await found.begin(credit, priority)
    claimer = found.consumer.queue.claimer()
    await comes_true(lambda: not found.consumer.in_flight and not claimer.pending())
    return found


Start = Callable[[int], Broker]


@pytest.fixture
def board() -> "memoryview[int]":
    """What three processes share."""
    return memoryview(bytearray(shared_bytes(3)))


@pytest.fixture
async def start(board: "memoryview[int]", tmp_path: Path) -> AsyncIterator[Start]:
    """The brokers of one mq's three processes, by their numbers, one after the other."""
    started, clock = [], SystemClock()

    def begin(index: int) -> Broker:
        root = open_root(str(tmp_path / "root"), Files(), clock)
        listening = Listening(open_arrivals(root.layout, has_departures=True), hears_all=True)
        siblings = Siblings(board, index, clock.steady_s)
        broker = Broker(
            root, Committer(NoFlusher()), QueueSettings(), listening=listening, siblings=siblings
        )
        started.append(broker)
        return broker

    yield begin
    for each in started:
        each.stop_waiting()
        await each.drain()


async def publish(brokers: list[Broker], count: int) -> set[MessageId]:
    return {await brokers[n % len(brokers)].publish(QUEUE, b"x") for n in range(count)}


def lost(brokers: list[Broker]) -> int:
    return sum(each.totals.lost_races for one in brokers for each in one.in_use())


async def test_the_highest_priority_of_all_processes_is_served_and_one_wakes(start: Start) -> None:
    brokers = [start(0), start(1)]
    await brokers[0].create_queue(QUEUE)
    low, high = await consuming(brokers[0]), await consuming(brokers[1], credit=30, priority=9)
    sent = await publish(brokers, 30)
    await comes_true(lambda: len(high.taken) + len(low.taken) == 30, "all for the higher one")
    # But for those that came while all of its credit was in claims of which some were lost.
    assert len(low.taken) <= lost(brokers)
    assert await brokers[0].consuming.fetch(QUEUE) is None
    # Without credit it is not waited for.
    sent |= await publish(brokers, 10)
    await comes_true(lambda: len(high.taken) + len(low.taken) == 40, "the others for the lower one")
    assert len(high.taken) == 30
    assert {each.id for each in (*low.taken, *high.taken)} == sent
    assert lost(brokers) <= 10


async def test_equals_in_several_processes_take_turns_and_one_wakes(start: Start) -> None:
    brokers = [start(0), start(1)]
    await brokers[0].create_queue(QUEUE)
    those = [await consuming(brokers[n > 0]) for n in range(4)]
    sent = await publish(brokers, 120)
    await comes_true(lambda: sum(len(each.taken) for each in those) == 120, "all")
    assert {each.id for one in those for each in one.taken} == sent
    assert 10 <= len(those[0].taken) <= 55
    assert lost(brokers) <= 12


async def test_what_a_dead_process_was_to_take_is_taken(
    start: Start, board: "memoryview[int]"
) -> None:
    """It has gone without a word: its row stands, and it does not ask."""
    brokers = [start(0), start(1)]
    await brokers[0].create_queue(QUEUE)
    first = await consuming(brokers[0])
    second = await consuming(brokers[1])
    dead = Siblings(board, 2, SystemClock().steady_s)
    QueueSiblings(dead, QUEUE, lambda: None).shows(0, 1)
    sent = await publish(brokers[:2], 60)
    await comes_true(lambda: len(first.taken) + len(second.taken) == 60, "all")
    assert {each.id for one in (first, second) for each in one.taken} == sent
