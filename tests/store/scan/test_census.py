"""What counting remembers: when a folder is listed again, and when not; its bounds."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.leases import LeasingRoot
from harness.ticking import TickingFiles

from mq.model.errors import QueueNotFound
from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import Layout
from mq.store.format.walk import LOOK_SHARE
from mq.store.opening import open_root
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.operations.remove import remove
from mq.store.operations.reschedule import reschedule
from mq.store.scan.census import TIMES_READ_S, TIMES_SHARE, Census, Counts, count

QUEUE, OTHER = QueueName.parse("q"), QueueName.parse("other")
SETTLED_S = 3.0
SLOW_S = 0.3
LONG_S = 3 * SLOW_S / LOOK_SHARE


class Place(LeasingRoot):
    """A root whose folders change by the clock, and a census of it."""

    files: TickingFiles

    def __init__(self, top: Path, folder_max: int = 2, entries_max: int = 1000) -> None:
        super().__init__(top, folder_max)
        self.files = TickingFiles(self.clock)
        self.root: Root = open_root(str(top), self.files, self.clock, folder_max=folder_max)
        self.census = Census(self.root, entries_max)

    def counted(self, queue: QueueName = QUEUE) -> Counts:
        """Counts anew; `listed` is what that lists."""
        self.files.listed.clear()
        return count(self.census, queue)

    def settle(self, *queues: QueueName) -> None:
        """Counts what has not changed for so long that mtimes are believed."""
        self.clock.advance(SETTLED_S)
        for queue in queues or (QUEUE,):
            self.counted(queue)
        self.clock.advance(SETTLED_S)

    def listed(self) -> list[str]:
        """The folders that were listed last, within the root."""
        return [os.path.relpath(path, self.top) for path in self.files.listed]

    def fetch(self, message_id: MessageId, visibility_s: float = 3600) -> Path:
        """Fetches it; where it lies."""
        delivery = self.run(fetch(self.root, QUEUE, message_id, visibility_s))
        assert delivery is not None
        return self.top / "delay" / delivery.bucket / f"q:{message_id.text}"

    def publish_in_windows(self, windows: int, each: int = 2) -> list[MessageId]:
        """Publishes so many of several buckets; the first ones lie flat."""
        ids = []
        for _ in range(windows):
            ids += self.publish(each)
            self.clock.advance(70)
        return ids


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "root")


# When a folder is listed


def test_what_has_not_changed_is_not_listed_again(place: Place) -> None:
    ids = place.publish_in_windows(4, each=4)
    for message_id in ids[:5]:
        place.fetch(message_id)
    first = place.counted()
    assert (first.ready, first.in_flight) == (11, 5)
    assert len(place.listed()) > 6
    place.settle()
    again = place.counted()
    # Those of delay/ for their times, as far as that costs little.
    assert not [path for path in place.listed() if not path.startswith("delay")]
    assert (again.ready, again.in_flight) == (11, 5)
    assert again.oldest_ready_ms == ids[5].published_ms
    now_ms = place.clock.now_ms()
    assert again.as_of.ready_ms == again.as_of.delayed_ms == again.as_of.removed_ms == now_ms


def test_a_folder_that_changed_just_before_its_listing_is_listed_again(place: Place) -> None:
    place.publish()
    for _ in range(2):
        assert place.counted().ready == 1
        assert "queues/q" in place.listed()
        place.clock.advance(0.5)
    place.settle()
    place.counted()
    assert "queues/q" not in place.listed()


def test_only_what_changed_is_listed(place: Place) -> None:
    ids = place.publish_in_windows(4)
    place.settle()
    place.run(remove(place.root, QUEUE, ids[4]))
    counts = place.counted()
    assert (counts.ready, counts.removed) == (7, 1)
    bucket = next(iter(place.root.places.spots(State.READY, QUEUE, ids[4])))
    assert place.listed() == [f"queues/q/{bucket[:-1]}", "remove"]


def test_buckets_that_come_and_go_are_seen(place: Place) -> None:
    ids = place.publish_in_windows(3)
    place.settle()
    place.publish_in_windows(1)
    assert place.counted().ready == 8
    for message_id in ids[2:4]:
        place.run(remove(place.root, QUEUE, message_id))
    place.settle()
    bucket = next(iter(place.root.places.spots(State.READY, QUEUE, ids[2])))
    place.files.rmdir(f"{place.root.layout.queue(QUEUE)}/{bucket[:-1]}")
    assert place.counted().ready == 6
    fresh = Census(place.root)
    count(fresh, QUEUE)
    assert place.census.entries == fresh.entries


def test_a_queue_that_was_made_again_is_another(place: Place) -> None:
    place.publish(3)
    place.settle()
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    with pytest.raises(QueueNotFound):
        place.counted()
    place.make_queue(QUEUE)
    assert place.counted().ready == 0
    place.publish(1)
    assert place.counted().ready == 1


def test_leased_messages_and_those_of_the_sideline(place: Place) -> None:
    place.make_queue(QUEUE.sideline())
    place.publish(5)
    place.publish(2, QUEUE.sideline())
    lease = place.claimed(3)
    place.settle()
    counts = place.counted()
    assert place.listed() == []
    assert (counts.ready, counts.leased, counts.sidelined) == (2, 3, 2)
    gone = MessageId.parse(os.listdir(place.top / "leases" / lease.name.text)[0].split(":")[1])
    place.run(remove(place.root, QUEUE, gone))
    assert (place.counted().leased, place.counted().removed) == (2, 1)
    place.publish(1, QUEUE.sideline())
    assert place.counted().sidelined == 3


# Purges


def test_a_purge_of_all_that_is_known_needs_no_listing(place: Place) -> None:
    ids = place.publish_in_windows(3)
    place.fetch(ids[0])
    place.settle()
    place.run(purge(place.root, QUEUE, place.uuids.end_moment()))
    counts = place.counted()
    assert (counts.ready, counts.in_flight, counts.oldest_ready_ms) == (0, 0, None)
    assert not [path for path in place.listed() if path.startswith("queues")]


def test_a_folder_that_a_mark_parts_is_listed(tmp_path: Path) -> None:
    place = Place(tmp_path / "root", folder_max=6)
    place.publish(3)
    moment_ms = place.uuids.end_moment()
    place.clock.advance(0.1)
    kept = place.publish(3)
    place.clock.advance(70)
    place.publish(2)
    place.settle()
    place.run(purge(place.root, QUEUE, moment_ms))
    for listed in (["queues/q"], []):
        counts = place.counted()
        assert (counts.ready, counts.oldest_ready_ms) == (5, kept[0].published_ms)
        assert place.listed() == listed
    os.unlink(place.root.layout.purge_mark(QUEUE))
    assert place.counted().ready == 8
    assert place.listed() == ["queues/q"]


def test_another_queues_mark_hides_nothing(place: Place) -> None:
    place.make_queue(OTHER)
    (first,), (second,) = place.publish(1), place.publish(1, OTHER)
    place.fetch(first)
    place.run(reschedule(place.root, OTHER, second, 3600))
    place.settle(QUEUE, OTHER)
    place.run(purge(place.root, OTHER, place.uuids.end_moment()))
    assert (place.counted().in_flight, place.counted(OTHER).delayed) == (1, 0)


# Times, which no folder's mtime tells of


def test_a_due_time_that_was_changed_in_place_is_seen(place: Place) -> None:
    (message_id,) = place.publish()
    path = place.fetch(message_id)
    place.settle()
    assert place.counted().overdue == 0
    due_ms = place.clock.now_ms() - 6000
    os.utime(path, ns=(Stamp(due_ms, receives=1).mtime_ns(),) * 2)
    place.clock.advance(1)
    counts = place.counted()
    assert (counts.overdue, counts.as_of.overdue_ms) == (1, place.clock.now_ms())


def test_what_becomes_overdue_by_time_alone_is_seen(place: Place) -> None:
    (message_id,) = place.publish()
    place.fetch(message_id, visibility_s=20)
    place.settle()
    assert place.counted().overdue == 0
    place.clock.advance(20)
    assert place.counted().overdue == 1


class SlowFiles(TickingFiles):
    """Listing a folder of delay/ takes long."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._slow = clock

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        if "/delay" in folder:
            self._slow.advance(SLOW_S)
        yield from super().entries(folder)


def slow_place(top: Path, due_soon: int | None = None) -> Place:
    """With eight messages in flight for ten hours, but for one of them."""
    place = Place(top)
    for number, message_id in enumerate(place.publish_in_windows(4)):
        place.fetch(message_id, visibility_s=600 if number == due_soon else 36_000)
    place.files = SlowFiles(place.clock)
    place.root = open_root(str(top), place.files, place.clock, folder_max=2)
    place.census = Census(place.root)
    place.clock.advance(LONG_S)
    place.settle()
    return place


def test_times_are_read_for_a_share_of_the_time_and_the_counts_say_when(tmp_path: Path) -> None:
    place = slow_place(tmp_path / "root")
    for _ in range(2):
        place.clock.advance(1)
        counts = place.counted()
        assert len(place.listed()) <= 1
        assert counts.in_flight == 8
        assert counts.as_of.delayed_ms > counts.as_of.overdue_ms
    before_ms, began_ms = counts.as_of.overdue_ms, place.clock.now_ms()
    looks = 0
    while place.counted().as_of.overdue_ms == before_ms:
        place.clock.advance(1)
        looks += len(place.listed())
    assert looks * SLOW_S / TIMES_SHARE <= place.clock.now_ms() - began_ms + TIMES_READ_S * 1e6


@pytest.mark.parametrize("number", range(8))
def test_what_is_overdue_is_read_before_others(tmp_path: Path, number: int) -> None:
    place = slow_place(tmp_path / "root", due_soon=number)
    place.clock.advance(700)
    assert place.counted().overdue == 1
    assert len(place.listed()) == 1


def test_a_claim_whose_stamp_is_late_is_seen(tmp_path: Path) -> None:
    """The claim's process was stopped between its rename and its stamp."""
    place = slow_place(tmp_path / "root")
    (message_id,) = place.publish()
    path = place.top / "delay" / f"q:{message_id.text}"
    (ready,) = (place.top / "queues" / "q").rglob(message_id.text)
    os.utime(ready, (1, 1))
    place.files.rename(str(ready), str(path))
    place.clock.advance(LONG_S)
    for _ in range(2):
        counts = place.counted()
        assert (counts.delayed, counts.in_flight) == (1, 8)
        place.clock.advance(LONG_S)
    os.utime(path, ns=(Stamp(place.clock.now_ms() + 30_000, receives=1).mtime_ns(),) * 2)
    counts = place.counted()
    assert (counts.delayed, counts.in_flight) == (0, 9)


def test_a_folder_whose_listing_takes_long_is_left_alone_for_a_while(tmp_path: Path) -> None:
    place = slow_place(tmp_path / "root")
    (message_id,) = place.publish()
    place.clock.advance(100)
    path = place.fetch(message_id)
    before = place.counted()
    assert before.in_flight == 9
    path.unlink()
    place.files.changed(str(path))
    place.clock.advance(1)
    counts = place.counted()
    assert (counts.in_flight, counts.as_of.delayed_ms) == (9, before.as_of.delayed_ms)
    place.clock.advance(SLOW_S / LOOK_SHARE)
    assert place.counted().in_flight == 8


# Bounds


def test_no_more_is_remembered_than_may_be(tmp_path: Path) -> None:
    place = Place(tmp_path / "root", entries_max=12)
    names = [QueueName.parse(f"q{number}") for number in range(8)]
    for name in names:
        place.make_queue(name)
        place.publish(3, name)
    place.settle(*names)
    for name in names:
        assert place.counted(name).ready == 3
        assert place.census.entries <= 12
    place.counted(names[-1])
    assert not [path for path in place.listed() if path.startswith("queues")]
    place.counted(names[0])
    assert f"queues/{names[0]}" in place.listed()


def test_one_queue_of_more_folders_than_are_remembered_is_listed(tmp_path: Path) -> None:
    place = Place(tmp_path / "root", entries_max=10)
    place.publish_in_windows(12)
    place.settle()
    assert place.counted().ready == 24
    assert 0 < place.census.entries <= 10
    assert place.listed()


def test_queues_that_are_gone_leave_nothing(place: Place) -> None:
    place.counted()
    before = place.census.entries
    for number in range(20):
        name = QueueName.parse(f"q{number}")
        place.make_queue(name)
        place.publish(3, name)
        place.counted(name)
        place.run(delete_queue(place.root, name, place.uuids.next()))
        with pytest.raises(QueueNotFound):
            place.counted(name)
    place.counted()
    assert place.census.entries == before


# Faults


@pytest.mark.parametrize("folder", ["queues/q", "delay", "remove", "queues/q/"])
def test_a_folder_that_cannot_be_listed_is_an_error_and_is_counted_later(
    tmp_path: Path, folder: str
) -> None:
    clock, files = FakeClock(), FaultyFiles()
    root = open_root(str(tmp_path), files, clock, folder_max=1)
    run_alone(create_queue(root, QUEUE), NoFlusher())
    census = Census(root)
    ids = [MessageId(f"0192f3a2-7c4e-7{n:03x}-9b1e-0123456789ab") for n in range(4)]
    for message_id in ids:
        run_alone(publish(root, Draft(QUEUE, message_id, clock.now_ms()), b"x"), NoFlusher())
    assert count(census, QUEUE).ready == 4
    for path, _, _ in os.walk(tmp_path):
        os.utime(path)
    files.fail("entries", errno.EIO, Layout.of(tmp_path).root + "/" + folder, times=1)
    with pytest.raises(OSError, match="Input/output"):
        count(census, QUEUE)
    assert count(census, QUEUE).ready == 4
