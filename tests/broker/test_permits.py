"""The limits of a queue: entries that end, lapse or are lost, and several processes' one memory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from harness.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from mq.broker.permits import (
    CHECK_EVERY_S,
    LIMITED_QUEUES_MAX,
    Permits,
    QueuePermits,
    SharedPermits,
    hashed,
    permits_bytes,
)
from mq.metrics.board import behind, make_shared
from mq.model.names import QueueName
from mq.model.settings import QueueSettings

QUEUE = QueueName.parse("q")
WRITES = """
import sys
from mq.broker.permits import Permits, SharedPermits
from mq.metrics.board import behind
from mq.model.clock import SystemClock
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
clock, descriptor = SystemClock(), int(sys.argv[1])
limits = Permits(clock.now_ms, clock.steady_s, SharedPermits(behind(descriptor, 0, 1), descriptor))
limit = limits.of(QueueName.parse("q"), QueueSettings(in_flight_max=1000))
limit.count(())
due_ms = clock.now_ms() + 3600 * 1000
for n in range(100):
    while not limit.begin(f"{sys.argv[2]}-{n}", due_ms):
        pass
for n in range(0, 100, 2):
    limits.ended(QueueName.parse("q"), f"{sys.argv[2]}-{n}")
"""


def counted(limits: Permits, queue: QueueName, settings: QueueSettings) -> QueuePermits:
    """The limits of a queue of which nothing is in flight from before."""
    found = limits.of(queue, settings)
    assert found is not None
    assert found.is_to_count == (not found.room())
    found.count(())
    return found


@pytest.fixture
def shared() -> Iterator[SharedPermits]:
    descriptor = make_shared(0, 1, permits_bytes())
    assert descriptor is not None
    yield SharedPermits(behind(descriptor, 0, 1), descriptor)
    os.close(descriptor)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["begin", "end", "lose", "move", "wait"])),
        max_size=60,
    ),
    most=st.integers(1, 4),
)
def test_as_many_are_in_flight_as_a_model_says(steps: list[tuple[int, str]], most: int) -> None:
    clock = FakeClock()
    limits = Permits(clock.now_ms, clock.steady_s)
    limit = counted(limits, QUEUE, QueueSettings(in_flight_max=most))
    held: dict[str, int] = {}
    permits: dict[str, int] = {}
    for number, step in steps:
        name, due_ms = f"m{number}", clock.now_ms() + 1000 * (1 + number)
        held = {each: due for each, due in held.items() if due > clock.now_ms()}
        if step == "begin" and name not in held:
            permit = limit.begin(name, due_ms)
            assert (permit > 0) == (len(held) < most)
            if permit:
                held[name], permits[name] = due_ms, permit
        elif step == "end":
            limits.ended(QUEUE, name)
            held.pop(name, None)
        elif step == "lose":
            limit.lost(name, permits.get(name, 0))
            if name in held and permits[name] == limits.permit_until(held[name]):
                del held[name]
        elif step == "move" and name in held:
            limits.moved(QUEUE, name, due_ms)
            held[name] = due_ms
        elif step == "wait":
            clock.advance(1)
        held = {each: due for each, due in held.items() if due > clock.now_ms()}
        assert (limit.room() == 0) == (len(held) >= most)


def test_a_delivery_that_came_after_a_release_is_not_ended_by_it() -> None:
    clock = FakeClock()
    limits = Permits(clock.now_ms, clock.steady_s)
    limit = counted(limits, QUEUE, QueueSettings(in_flight_max=2))
    first_ms = clock.now_ms() + 1000
    assert limit.begin("m", first_ms)
    known = limits.permit(QUEUE, "m")
    assert limit.begin("m", first_ms + 500)
    limits.ended(QUEUE, "m", known)
    assert limit.room() == 1
    limits.ended(QUEUE, "m", limits.permit_until(first_ms + 500))
    assert limit.room() == 2


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("is_first_to_hear", [True, False])
def test_of_those_who_race_for_a_message_the_winner_counts(
    shared: SharedPermits, winner: int, is_first_to_hear: bool
) -> None:
    clock = FakeClock()
    both = [
        counted(
            Permits(clock.now_ms, clock.steady_s, replace(shared, index=index)),
            QUEUE,
            QueueSettings(in_flight_max=2),
        )
        for index in range(2)
    ]
    due_ms = clock.now_ms() + 1000
    permits = [each.begin("m", due_ms) for each in both if each is not None]
    for index in (winner, 1 - winner) if is_first_to_hear else (1 - winner, winner):
        each = both[index]
        assert each is not None
        (each.won if index == winner else each.lost)("m", permits[index])
        assert [limit.room() for limit in both if limit is not None] == [1, 1]


def test_processes_that_count_at_a_time_lose_nothing(shared: SharedPermits) -> None:
    counting = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, str(shared.descriptor), str(number)],
            pass_fds=[shared.descriptor],
        )
        for number in range(3)
    ]
    assert [each.wait() for each in counting] == [0, 0, 0]
    clock = FakeClock()
    limits = Permits(clock.now_ms, clock.steady_s, shared)
    limit = limits.of(QUEUE, QueueSettings(in_flight_max=151))
    assert limit is not None
    assert limit.room() == 1


def test_queues_beyond_those_that_have_a_place_count_by_process(shared: SharedPermits) -> None:
    clock = FakeClock()
    both = [Permits(clock.now_ms, clock.steady_s, shared) for _ in range(2)]
    settings, due_ms = QueueSettings(in_flight_max=1), clock.now_ms() + 1000
    names = [QueueName.parse(f"q{number}") for number in range(LIMITED_QUEUES_MAX + 1)]
    for name in names:
        ours = counted(both[0], name, settings)
        assert ours.begin("m", due_ms)
        assert ours.room() == 0
    theirs = [both[1].of(name, settings) for name in names]
    for each in theirs:
        assert each is not None
        each.count(())
    assert [each.room() for each in theirs if each is not None] == [0] * LIMITED_QUEUES_MAX + [1]
    # One whose messages have ended gives its place to another.
    both[0].ended(names[0], "m")
    again = counted(both[1], QueueName.parse("another"), settings)
    assert again.begin("m", due_ms)
    ours = both[0].of(QueueName.parse("another"), settings)
    assert ours is not None
    assert ours.room() == 0


def test_what_consumers_have_from_before_is_counted_once(shared: SharedPermits) -> None:
    clock = FakeClock()
    both = [Permits(clock.now_ms, clock.steady_s, shared) for _ in range(2)]
    first, second = (each.of(QUEUE, QueueSettings(in_flight_max=3)) for each in both)
    assert first is not None
    assert second is not None
    due_ms = clock.now_ms() + 1000
    assert (first.room(), first.begin("m", due_ms)) == (0, 0)
    first.count([("a", due_ms), ("b", due_ms + 1000)])
    assert not second.is_to_count
    # It has listed them meanwhile, and one has ended since.
    both[0].ended(QUEUE, "a")
    second.count([("a", due_ms), ("b", due_ms + 1000)])
    assert (first.room(), second.room()) == (2, 2)
    clock.advance(2)
    assert [second.begin(name, clock.now_ms() + 1000) > 0 for name in "cdef"] == [
        True, True, True, False
    ]  # fmt: skip


def test_an_idle_queue_does_not_count_what_another_has(shared: SharedPermits) -> None:
    clock = FakeClock()
    limits = Permits(clock.now_ms, clock.steady_s, shared)
    idle = counted(limits, QUEUE, QueueSettings(in_flight_max=1))
    for number in range(LIMITED_QUEUES_MAX):
        busy = counted(limits, QueueName.parse(f"b{number}"), QueueSettings(in_flight_max=2))
        assert busy.begin("m", clock.now_ms() + 1000)
    assert idle.room() == 1


def checked(limit: QueuePermits, clock: FakeClock, *found: str) -> bool:
    entries = limit.begin_check()
    assert entries
    assert not limit.begin_check()
    ended = limit.end_check(entries, set(map(hashed, found)), clock.steady_s() + CHECK_EVERY_S)
    clock.advance(CHECK_EVERY_S)
    return ended


@pytest.fixture
def full() -> tuple[FakeClock, Permits, QueuePermits]:
    """A queue at its limit: of two messages, which are in flight."""
    clock = FakeClock()
    limits = Permits(clock.now_ms, clock.steady_s)
    limit = counted(limits, QUEUE, QueueSettings(in_flight_max=2))
    for name in ("a", "b"):
        limit.won(name, limit.begin(name, clock.now_ms() + 1_000_000))
    assert not limit.room()
    return clock, limits, limit


def test_what_two_checks_in_a_row_miss_is_not_in_flight(
    full: tuple[FakeClock, Permits, QueuePermits],
) -> None:
    clock, _, limit = full
    assert not checked(limit, clock, "a")
    assert not checked(limit, clock, "a", "b")
    assert not checked(limit, clock, "a")
    assert checked(limit, clock, "a")
    assert limit.room() == 1
    assert not limit.begin_check()


def test_a_message_ends_once() -> None:
    clock = FakeClock()
    limits = Permits(clock.now_ms, clock.steady_s)
    limit = counted(limits, QUEUE, QueueSettings(in_flight_max=2))
    permits = [limit.begin(name, clock.now_ms() + 1_000_000) for name in ("a", "b")]
    before = limits.entries(QUEUE)
    limits.ended(QUEUE, "a", permits[0])
    limits.end_all(QUEUE, before)
    assert (limit.room(), limits.entries(QUEUE)) == (2, {})
    again = limit.begin("a", clock.now_ms() + 2_000_000)
    limits.end_all(QUEUE, before)
    assert list(limits.entries(QUEUE).values()) == [again]
    assert limit.room() == 1


def test_what_was_extended_between_two_checks_is_in_flight(
    full: tuple[FakeClock, Permits, QueuePermits],
) -> None:
    clock, limits, limit = full
    assert not checked(limit, clock, "a")
    limits.moved(QUEUE, "b", clock.now_ms() + 2_000_000)
    assert not checked(limit, clock, "a")


def test_a_claim_that_ends_after_its_entry_counts(
    full: tuple[FakeClock, Permits, QueuePermits],
) -> None:
    clock, limits, limit = full
    limits.end_all(QUEUE, limits.entries(QUEUE))
    permit = limit.begin("c", clock.now_ms() + 1_000_000)
    assert limit.room() == 1
    limits.end_all(QUEUE, limits.entries(QUEUE))
    assert limit.room() == 2
    limit.won("c", permit)
    assert limit.room() == 1
