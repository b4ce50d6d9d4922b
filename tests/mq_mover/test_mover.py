"""Redelivery over a real folder, pass by pass, under a clock that the test moves."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.logged import event
from harness.messages import ctime_ms, put_entry, put_file, set_due
from harness.packs import new_pack, put_pack

from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.store.disk.files import Files
from mq.store.operations.redeliver import Redelivery, Timer
from mq_mover.full_passes import FIRST_SIGHT_S
from mq_mover.mover import Mover
from mq_mover.timers import Timers

if TYPE_CHECKING:
    from .conftest import Bench

HOUR_MS = 3_600_000


def due_in_a_second(bench: "Bench", **more: Any) -> tuple[Mover, int]:
    """A mover that has seen all, a second ago; and how many it moves now."""
    mover = bench.mover(**more)
    mover.run_once()
    return mover, moved_in(bench, mover, 1)


def moved_in(bench: "Bench", mover: Mover, passes: int, every_s: float = 1) -> int:
    """How many it moves in so many passes, each so long after the one before."""
    moved = 0
    for _ in range(passes):
        bench.clock.advance(every_s)
        moved += mover.run_once()
    return moved


@pytest.mark.parametrize("lain_s", [None, 7.0], ids=["by-its-mtime", "by-its-stay"])
def test_a_message_leaves_when_its_time_has_come(bench: "Bench", lain_s: float | None) -> None:
    entry = bench.delayed(5000 if lain_s is None else HOUR_MS)
    leaves_ms = bench.clock.now_ms() + 5000 if lain_s is None else ctime_ms(entry) + 7000
    mover = bench.mover(Timer(lain_s=lain_s))
    assert mover.run_once() == 0
    bench.clock.set_ms(leaves_ms - 1)
    assert mover.run_once() == 0
    assert entry.exists()
    assert mover.next_due_s() == pytest.approx(0.001)
    bench.clock.set_ms(leaves_ms)
    assert mover.run_once() == 1
    assert not entry.exists()
    assert bench.redelivered(entry).read_bytes() == b"body"
    assert mover.next_due_s() is None


def test_an_mtime_in_the_past_does_not_hasten_one_that_must_lie(bench: "Bench") -> None:
    entry = bench.delayed(-HOUR_MS)
    mover = bench.mover(Timer(lain_s=7))
    bench.clock.set_ms(ctime_ms(entry) + 6999)
    assert mover.run_once() == 0
    assert entry.exists()


def test_the_name_content_mtime_and_receives_stay_as_they_are(bench: "Bench") -> None:
    entry = bench.delayed(1000, receives=7)
    before = entry.stat()
    assert due_in_a_second(bench)[1] == 1
    after = bench.redelivered(entry).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert after.st_mtime_ns // 1000 % 1000 == 7
    assert bench.redelivered(entry).read_bytes() == b"body"


def test_a_pack_comes_back_whole_and_counts_its_messages(bench: "Bench") -> None:
    pack = new_pack(100)
    entry = bench.folder("delay") / f"orders:{pack.text}"
    put_pack(entry, pack, due_ms=bench.clock.now_ms() + 1000, receives=1)
    bench.delayed(1000)
    mover = bench.mover()
    mover.run_once()
    assert mover.waiting == 101
    assert moved_in(bench, mover, 1) == 101
    assert (mover.waiting, mover.results[Redelivery.DELIVERED]) == (0, 101)
    assert bench.redelivered(entry).exists()


def test_a_message_extended_just_before_its_move_stays(bench: "Bench") -> None:
    entry = bench.delayed(5000)
    mover = bench.mover()
    mover.run_once()
    begin_ms = bench.clock.now_ms()
    set_due(entry, begin_ms + 60_000, receives=1)
    # Wall time alone: no look comes between that would see the new mtime.
    bench.clock.set_ms(begin_ms + 5000)
    assert mover.run_once() == 0
    assert entry.exists()
    bench.clock.set_ms(begin_ms + 60_000)
    assert mover.run_once() == 1
    assert bench.redelivered(entry).exists()


@pytest.mark.parametrize("due_in_ms", [5000, 100, -100], ids=["later", "soon", "passed"])
def test_a_due_time_brought_forward_is_noticed(bench: "Bench", due_in_ms: int) -> None:
    entry = bench.delayed(HOUR_MS)
    mover = bench.mover()
    mover.run_once()
    set_due(entry, bench.clock.now_ms() + due_in_ms, receives=1)
    assert moved_in(bench, mover, 8) == 1
    assert bench.redelivered(entry).exists()


def test_what_is_overdue_at_first_sight_is_looked_at_again_a_second_later(bench: "Bench") -> None:
    entry = bench.delayed(-HOUR_MS)
    mover = bench.mover()
    assert mover.run_once() == 0
    bench.clock.advance(FIRST_SIGHT_S - 0.001)
    assert mover.run_once() == 0
    assert entry.exists()
    bench.clock.advance(0.001)
    assert mover.run_once() == 1
    assert bench.redelivered(entry).exists()


def test_what_was_due_after_its_last_change_is_not_left_alone_at_first_sight(
    bench: "Bench",
) -> None:
    """It was stamped after its last rename: published for later, or fetched long ago."""
    entry = bench.delayed(HOUR_MS, receives=0)
    mover = bench.mover()
    bench.clock.advance(HOUR_MS / 1000)
    assert mover.run_once() == 1
    assert bench.redelivered(entry).exists()


def test_by_its_stay_it_is_left_alone_at_first_sight_whatever_its_time(bench: "Bench") -> None:
    entry = bench.delayed(HOUR_MS)
    bench.clock.advance(HOUR_MS / 1000)
    assert bench.mover(Timer(lain_s=1)).run_once() == 0
    assert entry.exists()


def test_a_message_stamped_after_first_sight_stays(bench: "Bench") -> None:
    # Claimed by a rename a moment ago: its mtime is still that of an earlier life.
    entry = bench.delayed(-HOUR_MS)
    mover = bench.mover()
    mover.run_once()
    set_due(entry, bench.clock.now_ms() + 30_000, receives=2)
    bench.clock.advance(FIRST_SIGHT_S)
    assert mover.run_once() == 0
    assert entry.exists()


def _plain(path: Path) -> None:
    put_file(path, b"foreign")


def _symlink(path: Path) -> None:
    path.symlink_to("/dev/null")


MESSAGE_NAME = "orders:0192f3a2-7c4e-7d2a-9b1e-0123456789ab"


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("notes.txt", _plain),
        ("orders:notes", _plain),
        ("../orders", _plain),
        (".hidden:0192f3a2-7c4e-7d2a-9b1e-0123456789ab", _plain),
        (".nfs0000000000000001", _plain),
        ("orders:0192f3a2-7c4e-7d2a-9b1e-0123456789AB", _plain),
        (MESSAGE_NAME, Path.mkdir),
        (MESSAGE_NAME, _symlink),
        (MESSAGE_NAME, os.mkfifo),
    ],
)
def test_foreign_names_are_left_alone(
    bench: "Bench", name: str, make: Callable[[Path], object]
) -> None:
    foreign = bench.folder("delay") / name
    make(foreign)
    beside = bench.delayed(1000)
    mover = bench.mover()
    assert mover.run_once() == 0
    assert moved_in(bench, mover, 3, every_s=HOUR_MS / 1000) == 1
    assert not beside.exists()
    assert os.path.lexists(foreign)


def test_foreign_names_are_reported(bench: "Bench", caplog: pytest.LogCaptureFixture) -> None:
    for name in ("notes.txt", "orders:notes", ".hidden"):
        put_file(bench.folder("delay") / name)
    bench.mover().run_once()
    [record] = caplog.records
    assert event(record) == "foreign names are left alone"
    fields = record.fields  # type: ignore[attr-defined]
    assert fields["count"] == 2
    assert fields["for_example"] in ("notes.txt", "orders:notes")


def test_a_file_that_vanishes_between_look_and_move_is_nobodys(bench: "Bench") -> None:
    entry = bench.delayed(1000)
    mover = bench.mover()
    mover.run_once()
    entry.unlink()
    assert moved_in(bench, mover, 1) == 0
    assert list(bench.ready.iterdir()) == []


def test_a_file_that_vanishes_during_the_look_does_not_end_it(
    make_bench: "Callable[[Files], Bench]",
) -> None:
    class VanishingFiles(Files):
        def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
            for entry in super().entries(folder):
                if entry.name.startswith("vanishing:"):
                    os.unlink(entry.path)
                yield entry

    bench = make_bench(VanishingFiles())
    bench.delayed(1000, queue="vanishing")
    entry = bench.delayed(1000)
    assert due_in_a_second(bench)[1] == 1
    assert bench.redelivered(entry).exists()


def test_a_message_whose_queue_is_not_there_stays_and_is_reported_once(
    bench: "Bench", caplog: pytest.LogCaptureFixture
) -> None:
    entries = [bench.delayed(1000, queue="mistyped") for _ in range(3)]
    mover = bench.mover()
    assert moved_in(bench, mover, 30) == 0
    assert all(entry.exists() for entry in entries)
    reports = [record.fields["queue"] for record in caplog.records]  # type: ignore[attr-defined]
    assert reports == ["mistyped"]


def test_a_message_whose_queue_comes_later_is_delivered_then(bench: "Bench") -> None:
    entry = bench.delayed(1000, queue="late")
    mover, moved = due_in_a_second(bench)
    assert moved == 0
    (bench.path / "queues" / "late").mkdir()
    assert moved_in(bench, mover, 15) == 1
    assert bench.redelivered(entry).exists()


@pytest.mark.parametrize(
    ("queue", "is_there"), [("gone", False), ("orders", True)], ids=["deleted", "made-again"]
)
def test_a_message_goes_to_remove_where_a_tombstone_stands_without_its_queue(
    bench: "Bench", queue: str, is_there: bool
) -> None:
    entry = bench.delayed(1000, queue)
    put_file(bench.folder("deleted") / queue, due_ms=bench.clock.now_ms())
    assert due_in_a_second(bench)[1] == 1
    assert not entry.exists()
    goes_to = bench.redelivered(entry) if is_there else bench.removed(entry)
    assert goes_to.read_bytes() == b"body"


def test_a_message_whose_inode_is_locked_is_left_alone(bench: "Bench") -> None:
    entry = bench.delayed(1000)
    mover = bench.mover()
    mover.run_once()
    with entry.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert moved_in(bench, mover, 5) == 0
        assert entry.exists()
    assert moved_in(bench, mover, 3) == 1
    assert bench.redelivered(entry).exists()


def test_more_than_a_group_due_at_once_goes_group_by_group(bench: "Bench") -> None:
    entries = [bench.delayed(1000) for _ in range(2 * GROUP_OPERATIONS_MAX + 1)]
    mover = bench.mover()
    mover.run_once()
    bench.clock.advance(1)
    moved = [mover.run_once() for _ in range(4)]
    assert moved == [GROUP_OPERATIONS_MAX, GROUP_OPERATIONS_MAX, 1, 0]
    assert all(bench.redelivered(entry).exists() for entry in entries)


def test_what_the_timers_cannot_hold_is_delivered_all_the_same(bench: "Bench") -> None:
    entries = [bench.delayed(1000 + number) for number in range(10)]
    mover = bench.mover(timers=Timers(capacity=3))
    moved: list[int] = []
    for _ in range(20):
        moved.append(mover.run_once())
        bench.clock.advance(1)
    assert sum(moved) == 10
    assert max(moved) <= 2 * 3
    assert all(bench.redelivered(entry).exists() for entry in entries)


def test_two_movers_move_a_message_once(bench: "Bench") -> None:
    entries = [bench.delayed(1000) for _ in range(20)]
    movers = [bench.mover(), bench.mover()]
    for mover in movers:
        mover.run_once()
    bench.clock.advance(1)
    assert [mover.run_once() for mover in movers] == [20, 0]
    assert all(bench.redelivered(entry).exists() for entry in entries)


def test_a_move_that_failed_is_tried_again(make_bench: "Callable[[Files], Bench]") -> None:
    class FailingFiles(Files):
        failures = 1

        def rename(self, source: str, target: str) -> None:
            if "/queues/orders/" in target and self.failures:
                self.failures -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().rename(source, target)

    bench = make_bench(FailingFiles())
    entries = [bench.delayed(1000), bench.delayed(1000)]
    mover, moved = due_in_a_second(bench)
    assert moved == 1  # The failure is one message's alone.
    assert moved_in(bench, mover, 1) == 1
    assert all(bench.redelivered(entry).exists() for entry in entries)


def test_a_source_folder_that_is_gone_is_an_error_and_may_come_back(bench: "Bench") -> None:
    entry = bench.delayed(1000)
    mover = bench.mover()
    mover.run_once()
    aside = bench.path / "aside"
    bench.folder("delay").rename(aside)
    bench.clock.advance(1)
    with pytest.raises(FileNotFoundError):
        mover.run_once()
    aside.rename(bench.folder("delay"))
    assert moved_in(bench, mover, 4) == 1
    assert bench.redelivered(entry).exists()


def test_due_messages_beyond_the_timers_wait_for_no_pause(
    make_bench: Callable[[Files], "Bench"],
) -> None:
    """Looking costs much here, so the next look would be far: it comes when the timers run out."""

    class SlowFiles(Files):
        def entries(self, folder: str) -> Iterator["os.DirEntry[str]"]:
            bench.clock.advance(1)
            return super().entries(folder)

    bench = make_bench(SlowFiles())
    for _ in range(20):
        bench.delayed(-1000)
    mover = bench.mover(timers=Timers(capacity=3))
    mover.run_once()
    bench.clock.advance(2)
    moved: list[int] = []
    while sum(moved) < 20 and len(moved) < 30:
        moved.append(mover.run_once())
        bench.clock.advance(1)
    assert sum(moved) == 20


def test_what_lies_in_buckets_of_delay_is_redelivered(bench: "Bench") -> None:
    entries = []
    for bucket in ("0192f3a2", "0192f3a2/7c", "0192f3a3/00"):
        folder = bench.folder("delay") / bucket
        folder.mkdir(parents=True)
        due_ms = bench.clock.now_ms() + 1000
        entries.append(put_entry(folder, "orders", b"body", due_ms, receives=1))
    flat = bench.delayed(1000)
    mover = bench.mover()
    assert mover.run_once() == 0
    assert mover.next_due_s() == pytest.approx(1.0)
    bench.clock.advance(1)
    assert mover.run_once() == 4
    assert all(bench.redelivered(entry).exists() for entry in (*entries, flat))


def test_what_comes_to_a_bucket_that_was_there_is_found(bench: "Bench") -> None:
    folder = bench.folder("delay") / "0192f3a2"
    folder.mkdir()
    mover = bench.mover()
    mover.run_once()
    bench.clock.advance(60)
    mover.run_once()
    entry = put_entry(folder, "orders", b"body", bench.clock.now_ms() - 1, receives=1)
    assert moved_in(bench, mover, 4) == 1
    assert bench.redelivered(entry).exists()
