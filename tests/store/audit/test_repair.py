"""What a repair meets: each looks again before it changes anything."""

import os
from pathlib import Path

import pytest
from harness.damage.each_breach import (
    Place,
    beside_its_pack,
    keyed,
    misplaced,
    parting,
    stale_entry,
)
from harness.messages import put_file

from mq.model.errors import Busy, StaysAsItIs
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.audit.findings import Breach, Violation
from mq.store.audit.repair import (
    drop_orphan,
    give_entries,
    give_key,
    leave_the_later,
    put_in_place,
    remake_folder,
    restamp,
    restore_queue,
    right_mode,
    right_owner,
    set_aside,
    set_aside_locked,
    set_item_aside,
    set_message_aside,
    sideline_unreadable,
    take_empty_folder,
)
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import Place as Spot

ORDERS = QueueName("orders")


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def spot(path: Path, state: State = State.READY, bucket: str = "") -> Spot:
    return Spot(state, ORDERS, MessageId.parse(path.name.rpartition(":")[2]), bucket)


def yes(status: os.stat_result) -> bool:
    return True


def no(status: os.stat_result) -> bool:
    return False


def test_a_place_that_is_taken(place: Place) -> None:
    path = place.ready(b"one")
    other = put_file(place.folder("queues/orders/00000000") / path.name, b"two")
    with pytest.raises(StaysAsItIs):
        run_alone(
            put_in_place(place.root, spot(other, bucket="00000000/")), FsyncFlusher(Files(), 1)
        )
    assert (path.read_bytes(), other.read_bytes()) == (b"one", b"two")


@pytest.mark.parametrize("pack_is", ["damaged", "gone", "parted"])
def test_a_message_stays_that_no_pack_has(place: Place, pack_is: str) -> None:
    if pack_is == "parted":  # A power cut has left its name in the queue.
        there = parting(place)
        pack = MessageId.parse(there.name.rpartition(":")[2])
        item = place.queue / pack.item(1).text
        os.link(there, place.queue / pack.text)
    else:
        item = beside_its_pack(place)
        (there,) = (each for each in place.queue.iterdir() if each != item)
        there.unlink() if pack_is == "gone" else os.truncate(there, 5)
    assert run_alone(set_item_aside(place.root, spot(item)), FsyncFlusher(Files(), 1)) is None
    assert item.exists()


def twice(place: Place, path: Path, state: State = State.DELAYED) -> Violation:
    return Violation(
        Breach.TWO_STATES, str(path), "", ORDERS, spot(path, state), spot(path, State.READY)
    )


def test_two_files_of_a_message_that_has_a_key(place: Place) -> None:
    earlier = place.ready(more=",k=night")
    link = keyed(place, earlier.name)
    delayed = put_file(place.top / "delay" / f"orders:{earlier.name}", b"y", place.clock.now_ms())
    operation = leave_the_later(place.root, twice(place, delayed))
    assert run_alone(operation, FsyncFlusher(Files(), 1))
    assert not earlier.exists()
    assert os.readlink(link) == earlier.name


def test_two_names_of_which_one_goes_meanwhile(place: Place) -> None:
    """While the one that was to stay is flushed it was renamed, and the other is all there is."""
    path = place.ready()
    delayed = place.top / "delay" / f"orders:{path.name}"
    os.link(path, delayed)
    operation = leave_the_later(place.root, twice(place, delayed))
    next(operation)
    delayed.unlink()
    with pytest.raises(StopIteration) as ended:
        next(operation)
    assert ended.value.value is None
    assert path.exists()


def test_two_names_of_which_the_earlier_is_another_file_by_then(place: Place) -> None:
    path = place.ready()
    delayed = place.top / "delay" / f"orders:{path.name}"
    os.link(path, delayed)
    operation = leave_the_later(place.root, twice(place, delayed))
    next(operation)
    path.unlink()
    put_file(path, b"another")
    with pytest.raises(StopIteration) as ended:
        next(operation)
    assert ended.value.value is None
    assert path.read_bytes() == b"another"


def test_a_link_that_means_something_again_stays(place: Place) -> None:
    path = place.ready(more=",k=night")
    link = keyed(place, path.name)
    place.clock.advance(10_000)
    assert run_alone(drop_orphan(place.root, str(link)), FsyncFlusher(Files(), 1)) is None
    assert link.is_symlink()


def test_an_entry_whose_publish_may_be_in_hand_stays(place: Place) -> None:
    entry = stale_entry(place, "tags/orders/ca/a", ",t=1,h=18")
    os.utime(entry, follow_symlinks=False)
    assert run_alone(drop_orphan(place.root, str(entry)), FsyncFlusher(Files(), 1)) is None
    assert entry.is_symlink()


def test_of_what_has_gone_by_then_no_entries_are_made(place: Place) -> None:
    path = place.ready(more=",e=60")
    path.unlink()
    assert run_alone(give_entries(place.root, spot(path)), FsyncFlusher(Files(), 1)) is None
    assert not (place.top / "expiring").exists()


def test_what_is_right_by_then_is_let_be(place: Place) -> None:
    path, flusher = place.ready(), FsyncFlusher(Files(), 1)
    root, here = place.root, spot(path)
    for act in (
        set_message_aside(root, str(path), ORDERS, here.id, no),
        set_aside_locked(root, str(place.top / "schedules/.lock"), str(path), no),
        right_mode(root, str(path)),
        right_owner(root, str(path)),
        restamp(root, str(path)),
        restore_queue(root, ORDERS),
        put_in_place(root, here),
        sideline_unreadable(root, here),
        give_key(root, here),
        drop_orphan(root, str(path)),
        leave_the_later(root, twice(place, place.top / "delay" / f"orders:{path.name}")),
    ):
        assert run_alone(act, flusher) is None
    assert not run_alone(remake_folder(root, str(place.queue)), flusher)
    assert path.exists()


def test_what_another_holds_is_let_be(place: Place) -> None:
    path, flusher = misplaced(place, place.ready(), "queues/orders"), FsyncFlusher(Files(), 1)
    descriptor = os.open(path, os.O_RDWR)
    assert Files().lock(descriptor)
    with pytest.raises(Busy):
        run_alone(put_in_place(place.root, spot(path, bucket="00000000/")), flusher)
    with pytest.raises(Busy):
        run_alone(restamp(place.root, str(path)), flusher)
    with pytest.raises(StaysAsItIs):
        run_alone(set_aside(place.root, str(path), "x", yes), flusher)
    os.close(descriptor)


def test_a_folder_is_never_moved(place: Place) -> None:
    with pytest.raises(StaysAsItIs):
        run_alone(set_aside(place.root, str(place.queue), "x", yes), FsyncFlusher(Files(), 1))
    place.ready()
    with pytest.raises(StaysAsItIs):
        run_alone(take_empty_folder(place.root, str(place.queue)), FsyncFlusher(Files(), 1))


def test_a_deleted_queue_does_not_come_back(place: Place) -> None:
    place.queue.rmdir()
    place.tombstone("orders")
    assert run_alone(restore_queue(place.root, ORDERS), FsyncFlusher(Files(), 1)) is None
    assert not place.queue.exists()
