"""The ends of those who wait: each at its time, and nothing kept of who is gone."""

import asyncio
import gc
import weakref

import pytest
from harness.clock import FakeClock
from harness.waiting import comes_true

from mq.broker.deadlines import Deadline, Deadlines


class Waiting:
    """One who waits."""

    def __init__(self, ended: list["Waiting"]) -> None:
        self._ended = ended

    def time_is_up(self) -> None:
        self._ended.append(self)


@pytest.fixture
async def deadlines() -> tuple[Deadlines, FakeClock]:
    clock = FakeClock()
    return Deadlines(clock.steady_s), clock


@pytest.mark.certificate
async def test_each_ends_at_its_time(deadlines: tuple[Deadlines, FakeClock]) -> None:
    several, clock = deadlines
    ended: list[Waiting] = []
    waiting = [Waiting(ended) for _ in range(4)]
    for each, end_s in zip(waiting, (3, 1, 2, 3), strict=True):
        several.add(end_s, each.time_is_up)
    clock.advance(1)
    await comes_true(lambda: ended == [waiting[1]])
    clock.advance(2)
    await comes_true(lambda: ended == [waiting[1], waiting[2], waiting[0], waiting[3]])


@pytest.mark.certificate
async def test_who_took_it_back_hears_nothing_and_is_not_kept(
    deadlines: tuple[Deadlines, FakeClock],
) -> None:
    several, clock = deadlines
    ended: list[Waiting] = []
    gone, stays = Waiting(ended), Waiting(ended)
    deadline = several.add(1, gone.time_is_up)
    several.add(1, stays.time_is_up)
    several.take_back(deadline)
    several.take_back(deadline)
    reference = weakref.ref(gone)
    del gone
    gc.collect()
    assert reference() is None
    clock.advance(1)
    await comes_true(lambda: ended == [stays])


async def test_those_who_are_gone_are_bounded(deadlines: tuple[Deadlines, FakeClock]) -> None:
    several, _ = deadlines
    for _ in range(20_000):
        several.take_back(several.add(60, lambda: None))
    assert sum(isinstance(each, Deadline) for each in gc.get_objects()) < 2_000


async def test_all_end_at_once(deadlines: tuple[Deadlines, FakeClock]) -> None:
    several, clock = deadlines
    ended: list[Waiting] = []
    for _ in range(3):
        several.add(60, Waiting(ended).time_is_up)
    several.end_all()
    assert len(ended) == 3
    clock.advance(100)
    await asyncio.sleep(0)
    assert len(ended) == 3
