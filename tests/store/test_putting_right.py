"""The steps of each repair, in their order: what is moved is flushed where it came to, then where
it came from; and each looks again before it changes anything.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from harness.damage.each_breach import Place, keyed, misplaced, orphan, with_mode
from harness.faults import FaultyFiles
from harness.messages import new_id, put_file

from mq.errors import Busy, StaysAsItIs
from mq.lifecycle import State
from mq.names import MessageId, QueueName
from mq.store.breaches import Breach, Spot, Violation
from mq.store.files import Files
from mq.store.flush import FsyncFlusher
from mq.store.group import run_alone
from mq.store.putting_aside import (
    remake_folder,
    set_aside,
    set_aside_locked,
    set_message_aside,
    take_empty_folder,
)
from mq.store.putting_right import (
    drop_orphan,
    give_key,
    leave_the_later,
    put_in_place,
    restamp,
    restore_queue,
    right_mode,
    right_owner,
    sideline_unreadable,
)
from mq.store.root import Root
from mq.store.schedule_layout import schedules_lock
from mq.store.steps import Steps

ORDERS = QueueName("orders")
CHANGES = {
    "create", "stamp", "sync", "link", "rename", "sync_folder", "unlink", "rmdir", "mkdir",
    "set_mode", "set_owner",
}  # fmt: skip


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def steps(place: Place, act: Callable[[Root], Steps[object]]) -> list[str]:
    """What it does to the disk, in order: the call, and the path below the root."""
    files = FaultyFiles()
    root = replace(place.root, files=files)
    flusher = FsyncFlusher(files, 1)
    assert run_alone(act(root), flusher)
    flusher.close()
    assert files.open_paths() == []
    return [
        f"{call} {os.path.relpath(path, place.top)}"
        for call, path in files.calls
        if call in CHANGES
    ]


def spot(path: Path, state: State = State.READY, bucket: str = "") -> Spot:
    return Spot(state, ORDERS, MessageId.parse(path.name.rpartition(":")[2]), bucket)


def yes(status: os.stat_result) -> bool:
    return True


def no(status: os.stat_result) -> bool:
    return False


def test_the_first_that_is_set_aside(place: Place) -> None:
    path = put_file(place.queue / "x")
    done = steps(place, lambda root: set_aside(root, str(path), "x", yes))
    assert done == [
        "mkdir lost", "sync_folder lost", "sync_folder .",
        "rename queues/orders/x", "sync_folder lost", "sync_folder queues/orders",
    ]  # fmt: skip


def test_the_next_flushes_what_another_made(place: Place) -> None:
    """Who may have died before its own flush."""
    place.folder("lost")
    path = put_file(place.queue / "x")
    done = steps(place, lambda root: set_aside(root, str(path), "x", yes))
    assert done[0] == "sync_folder ."
    assert done[1] == "rename queues/orders/x"


def test_what_is_changed_under_a_lock_is_set_aside_under_it(place: Place) -> None:
    place.folder("lost")
    path = put_file(place.top / "schedules/orders:nightly")
    done = steps(
        place,
        lambda root: set_aside_locked(root, schedules_lock(root.layout), str(path), yes),
    )
    assert done == [
        "sync_folder .",
        "rename schedules/orders:nightly", "sync_folder lost", "sync_folder schedules",
    ]  # fmt: skip


def test_an_empty_folder(place: Place) -> None:
    folder = place.folder("settings/orders.json")
    done = steps(place, lambda root: take_empty_folder(root, str(folder)))
    assert done == ["rmdir settings/orders.json", "sync_folder settings"]


def test_a_folder_of_the_root(place: Place) -> None:
    (place.top / "shovels").rmdir()
    place.top.chmod(0o2700)
    folder = str(place.top / "shovels")
    done = steps(place, lambda root: remake_folder(root, folder))
    assert done[0] == "mkdir shovels"
    assert done[-2:] == ["sync_folder shovels", "sync_folder ."]


def test_a_mode(place: Place) -> None:
    path = with_mode(place.ready(), 0o640)
    name = f"queues/orders/{path.name}"
    assert steps(place, lambda root: right_mode(root, str(path))) == [
        f"set_mode {name}", f"sync {name}",
    ]  # fmt: skip
    with_mode(place.queue, 0o755)
    assert steps(place, lambda root: right_mode(root, str(place.queue))) == [
        "set_mode queues/orders", "sync_folder queues/orders",
    ]  # fmt: skip


@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
def test_an_owner(place: Place) -> None:
    path = place.ready()
    os.chown(path, 12345, -1)
    name = f"queues/orders/{path.name}"
    assert steps(place, lambda root: right_owner(root, str(path))) == [
        f"set_owner {name}", f"sync {name}",
    ]  # fmt: skip


def test_an_mtime(place: Place) -> None:
    path = place.ready()
    os.utime(path, ns=(1_700_000_000_123_456_789,) * 2)
    name = f"queues/orders/{path.name}"
    done = steps(place, lambda root: restamp(root, str(path)))
    assert done == [f"stamp {name}", f"sync {name}"]
    assert path.stat().st_mtime_ns == 1_700_000_000_123_000_000


def test_a_queue(place: Place) -> None:
    place.queue.rmdir()
    done = steps(place, lambda root: restore_queue(root, ORDERS))
    assert done == ["mkdir queues/orders", "sync_folder queues"]


def test_a_place(place: Place) -> None:
    path = misplaced(place, place.ready(), "queues/orders")
    done = steps(place, lambda root: put_in_place(root, spot(path, bucket="00000000/")))
    bucket = f"queues/orders/{path.name.replace('-', '')[:8]}"
    moved = done.index(f"rename queues/orders/00000000/{path.name}")
    # The bucket that it goes to is on stable media before that.
    assert f"mkdir {bucket}" in done[:moved]
    assert "sync_folder queues/orders" in done[:moved]
    assert done[moved + 1 :][-2:] == [
        f"sync_folder {bucket}", "sync_folder queues/orders/00000000",
    ]  # fmt: skip


def test_a_place_that_is_taken(place: Place) -> None:
    path = place.ready(b"one")
    other = put_file(place.folder("queues/orders/00000000") / path.name, b"two")
    with pytest.raises(StaysAsItIs):
        run_alone(
            put_in_place(place.root, spot(other, bucket="00000000/")), FsyncFlusher(Files(), 1)
        )
    assert (path.read_bytes(), other.read_bytes()) == (b"one", b"two")


def twice(place: Place, path: Path, state: State = State.DELAYED) -> Violation:
    return Violation(
        Breach.TWO_STATES, str(path), "", ORDERS, spot(path, state), spot(path, State.READY)
    )


def test_two_names(place: Place) -> None:
    """The one that stays is on stable media before the other goes."""
    path = place.ready()
    delayed = place.top / "delay" / f"orders:{path.name}"
    os.link(path, delayed)
    assert steps(place, lambda root: leave_the_later(root, twice(place, delayed))) == [
        "sync_folder .",
        "sync_folder delay",
        f"unlink queues/orders/{path.name}",
        "sync_folder queues/orders",
    ]


def test_two_files_of_a_message_that_has_a_key(place: Place) -> None:
    earlier = place.ready(more=",k=night")
    link = keyed(place, earlier.name)
    delayed = put_file(place.top / "delay" / f"orders:{earlier.name}", b"y", place.clock.now_ms())
    assert steps(place, lambda root: leave_the_later(root, twice(place, delayed)))
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


def test_a_link(place: Place) -> None:
    link = orphan(place, "keys", new_id().text + ",k=night")
    name = os.path.relpath(link, place.top)
    done = steps(place, lambda root: drop_orphan(root, str(link)))
    assert done[-2:] == [f"unlink {name}", f"sync_folder {os.path.dirname(name)}"]


def test_a_link_that_means_something_again_stays(place: Place) -> None:
    path = place.ready(more=",k=night")
    link = keyed(place, path.name)
    place.clock.advance(10_000)
    assert run_alone(drop_orphan(place.root, str(link)), FsyncFlusher(Files(), 1)) is None
    assert link.is_symlink()


def test_a_key(place: Place) -> None:
    path = place.ready(more=",k=night")
    done = steps(place, lambda root: give_key(root, spot(path)))
    assert [each.partition(" ")[0] for each in done][:2] == ["link", "mkdir"]
    assert done[-1].startswith("sync_folder keys/orders/")


def test_what_is_unreadable(place: Place) -> None:
    place.folder("queues/orders_SIDELINE")
    path = place.ready(b"short", ",h=100")
    done = steps(place, lambda root: sideline_unreadable(root, spot(path)))
    moved = done.index(f"rename queues/orders/{path.name}")
    assert [each for each in done[moved + 1 :] if each != "sync_folder queues"] == [
        f"stamp queues/orders/{path.name}",
        f"sync queues/orders/{path.name}",
        "sync_folder queues/orders_SIDELINE",
        "sync_folder queues/orders",
    ]


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
