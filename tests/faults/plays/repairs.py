"""What fsck puts right."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.playing import At, plays
from harness.damage.each_breach import Place, misplaced, orphan, with_mode
from harness.messages import new_id, put_file
from harness.needs import cannot_run

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.audit.findings import Breach, Violation
from mq.store.audit.repair import (
    drop_orphan,
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
    sideline_unreadable,
    take_empty_folder,
)
from mq.store.core.root import Root
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place as Spot
from mq.store.format.schedules import schedules_lock

ORDERS = QueueName("orders")
Repair = Callable[[Root], Steps[object]]


def put_right(at: At, place: Place, repair: Repair) -> None:
    at.watch()
    assert at.run(repair(place.root))


def begun(at: At) -> Place:
    return Place(at.top, at.files)


def spot(path: Path, state: State = State.READY, bucket: str = "") -> Spot:
    return Spot(state, ORDERS, MessageId.parse(path.name.rpartition(":")[2]), bucket)


def yes(status: os.stat_result) -> bool:
    return True


@plays("fsck: set the first file aside")
@plays("fsck: set another file aside", is_there=True)
async def put_aside(at: At, is_there: bool = False) -> None:
    place = begun(at)
    if is_there:
        place.folder("lost")
    path = put_file(place.queue / "x")
    put_right(at, place, lambda root: set_aside(root, str(path), "x", yes))


@plays("fsck: set a schedule aside")
async def schedule_put_aside(at: At) -> None:
    place = begun(at)
    place.folder("lost")
    path = put_file(place.top / "schedules/orders:nightly")
    lock = schedules_lock(place.root.layout)
    put_right(at, place, lambda root: set_aside_locked(root, lock, str(path), yes))


@plays("fsck: an empty folder")
async def folder_taken(at: At) -> None:
    place = begun(at)
    folder = place.folder("settings/orders.json")
    put_right(at, place, lambda root: take_empty_folder(root, str(folder)))


@plays("fsck: a folder of the root")
@plays("fsck: a folder of the root, whose mode the operator's umask cuts", umask=0o277)
async def folder_made(at: At, umask: int = 0o077) -> None:
    place = begun(at)
    folder = place.top / "leases"
    folder.rmdir()
    place.top.chmod(0o2700)
    before = os.umask(umask)
    try:
        put_right(at, place, lambda root: remake_folder(root, str(folder)))
    finally:
        os.umask(before)


@plays("fsck: a file's mode")
async def mode_of_a_file(at: At) -> None:
    place = begun(at)
    path = with_mode(place.ready(), 0o640)
    put_right(at, place, lambda root: right_mode(root, str(path)))


@plays("fsck: a folder's mode")
async def mode_of_a_folder(at: At) -> None:
    place = begun(at)
    with_mode(place.queue, 0o755)
    put_right(at, place, lambda root: right_mode(root, str(place.queue)))


@plays("fsck: a file's owner", marks=[pytest.mark.needs_root])
async def owner(at: At) -> None:
    if os.geteuid() != 0:
        cannot_run("needs root, to give a file away")
    place = begun(at)
    path = place.ready()
    os.chown(path, 12345, -1)
    put_right(at, place, lambda root: right_owner(root, str(path)))


@plays("fsck: a message's mtime")
async def mtime(at: At) -> None:
    place = begun(at)
    path = place.ready()
    os.utime(path, ns=(1_700_000_000_123_456_789,) * 2)
    put_right(at, place, lambda root: restamp(root, str(path)))
    assert path.stat().st_mtime_ns == 1_700_000_000_123_000_000


@plays("fsck: a queue that is not there")
async def queue(at: At) -> None:
    place = begun(at)
    place.queue.rmdir()
    put_right(at, place, lambda root: restore_queue(root, ORDERS))


@plays("fsck: a message in another's bucket")
async def bucket(at: At) -> None:
    place = begun(at)
    path = misplaced(place, place.ready(), "queues/orders")
    put_right(at, place, lambda root: put_in_place(root, spot(path, bucket="00000000/")))


@plays("fsck: a file of two names")
async def two_names(at: At) -> None:
    """The one that stays is on stable media before the other goes."""
    place = begun(at)
    path = place.ready()
    delayed = place.top / "delay" / f"orders:{path.name}"
    os.link(path, delayed)
    later, earlier = spot(delayed, State.DELAYED), spot(path)
    violation = Violation(Breach.TWO_STATES, str(delayed), "", ORDERS, later, earlier)
    put_right(at, place, lambda root: leave_the_later(root, violation))


@plays("fsck: a link of no message")
async def link_of_none(at: At) -> None:
    place = begun(at)
    link = orphan(place, "keys", new_id().text + ",k=night")
    put_right(at, place, lambda root: drop_orphan(root, str(link)))


@plays("fsck: a message without its link")
async def without_link(at: At) -> None:
    place = begun(at)
    path = place.ready(more=",k=night")
    put_right(at, place, lambda root: give_key(root, spot(path)))


@plays("fsck: an unreadable message")
async def unreadable(at: At) -> None:
    place = begun(at)
    place.folder("queues/orders_SIDELINE")
    path = place.ready(b"short", ",h=100")
    put_right(at, place, lambda root: sideline_unreadable(root, spot(path)))
