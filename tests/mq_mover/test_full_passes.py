"""Since when redelivery has passed without a gap: the mover over real files, by a test's clock."""

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from mq.model.expiry import Passing
from mq.store.disk.files import Files
from mq_mover.full_passes import REDELIVERY_GAP_S
from mq_mover.mover import Mover
from mq_mover.timers import Timers

if TYPE_CHECKING:
    from .conftest import Bench


def passed(bench: "Bench", mover: Mover, rounds: int = 30, seconds: float = 1.0) -> Passing | None:
    for _ in range(rounds):
        mover.run_once()
        bench.clock.advance(seconds)
    return mover.passing()


def test_it_begins_with_the_end_of_the_first_full_pass(bench: "Bench") -> None:
    mover = bench.mover()
    assert mover.passing() is None
    began_ms = bench.clock.now_ms()
    mover.run_once()
    assert mover.passing() == Passing(began_ms, began_ms)


def test_a_pass_is_full_when_all_that_was_due_was_tried(bench: "Bench") -> None:
    mover = bench.mover()
    first = passed(bench, mover, 3)
    for _ in range(300):
        bench.delayed(-5000)
    came_ms = bench.clock.now_ms()
    while list(bench.folder("delay").iterdir()):
        before = mover.passing()
        assert before is not None
        assert before.latest_ms < came_ms
        mover.run_once()
        bench.clock.advance(0.2)
    last = passed(bench, mover, 3)
    assert first is not None
    assert last is not None
    assert last.latest_ms >= came_ms
    assert last.since_ms == first.since_ms


def test_what_fits_in_no_memory_is_not_passed_over(bench: "Bench") -> None:
    """Of more than it can remember, a pass ends when all of it was tried."""
    for _ in range(40):
        bench.delayed(-5000)
    mover = bench.mover(timers=Timers(capacity=4))
    rounds = 0
    while list(bench.folder("delay").iterdir()):
        assert mover.passing() is None
        mover.run_once()
        bench.clock.advance(0.3)
        rounds += 1
    assert rounds > 5
    assert passed(bench, mover, 3) is not None


def test_what_is_not_due_for_long_need_not_be_remembered(bench: "Bench") -> None:
    for _ in range(40):
        bench.delayed(10**7)
    mover = bench.mover(timers=Timers(capacity=4))
    assert passed(bench, mover, 3) is not None


def test_rounds_without_a_gap_are_one(bench: "Bench") -> None:
    mover = bench.mover()
    first = passed(bench, mover, 1)
    later = passed(bench, mover, 20, REDELIVERY_GAP_S - 1)
    assert first is not None
    assert later is not None
    assert later.since_ms == first.since_ms
    assert later.latest_ms > first.latest_ms + 10 * REDELIVERY_GAP_S * 1000


def stopped(bench: "Bench") -> None:
    bench.clock.advance(REDELIVERY_GAP_S + 1)


def clock_set(bench: "Bench") -> None:
    bench.clock.set_ms(bench.clock.now_ms() + 3_600_000)


def set_back(bench: "Bench") -> None:
    bench.clock.set_ms(bench.clock.now_ms() - 3_600_000)


@pytest.mark.parametrize("gap", [stopped, clock_set, set_back])
def test_a_gap_begins_it_anew(bench: "Bench", gap: Callable[["Bench"], None]) -> None:
    mover = bench.mover()
    passed(bench, mover)
    gap(bench)
    after_ms = bench.clock.now_ms()
    again = passed(bench, mover)
    assert again is not None
    assert after_ms <= again.since_ms <= again.latest_ms


def test_a_folder_that_was_away_is_a_gap(bench: "Bench") -> None:
    mover = bench.mover()
    passed(bench, mover)
    aside = bench.folder("delay").rename(bench.folder("aside"))
    bench.clock.advance(20)
    with pytest.raises(FileNotFoundError):
        mover.run_once()
    assert mover.passing() is None
    aside.rename(bench.folder("delay"))
    back_ms = bench.clock.now_ms()
    again = passed(bench, mover)
    assert again is not None
    assert again.since_ms >= back_ms


@pytest.mark.parametrize(
    ("code", "is_gap"),
    [(errno.ENOSPC, True), (errno.EMFILE, True), (errno.EIO, False), (errno.EACCES, False)],
    ids=["full", "descriptors", "io", "forbidden"],
)
def test_a_full_disk_is_a_gap_and_a_message_that_fails_is_none(
    make_bench: Callable[[Files], "Bench"], code: int, is_gap: bool
) -> None:
    class Failing(Files):
        fails = False

        def rename(self, source: str, target: str) -> None:
            if self.fails:
                raise OSError(code, os.strerror(code), source)
            super().rename(source, target)

    files = Failing()
    bench = make_bench(files)
    mover = bench.mover()
    before = passed(bench, mover)
    bench.delayed(-1000)
    files.fails = True
    passed(bench, mover, 3)
    files.fails = False
    after = passed(bench, mover)
    assert before is not None
    assert after is not None
    assert (after.since_ms > before.since_ms) is is_gap
