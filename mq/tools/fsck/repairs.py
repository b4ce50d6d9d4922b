"""Maps each breach to its repair: its description, and its operation.

A breach without a repair stays, and is reported with the reason.
"""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from mq.model.errors import StaysAsItIs
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import QueueName
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
    sideline_unreadable,
    take_empty_folder,
)
from mq.store.bulk.roll_forward import roll_forward
from mq.store.bulk.spools import sweep_spools
from mq.store.bulk.sweep import sweep_bulk
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps
from mq.store.format.archive import archive_folder
from mq.store.format.history import history_folder
from mq.store.format.layout import Place
from mq.store.format.packs import parts
from mq.store.format.pipeline import listings, parse_journal_file, parse_lease_file, staging
from mq.store.format.schedules import schedules_lock
from mq.store.keys.orphans import give_up_publishes
from mq.store.leases.lapses import adopt, lapses, sweep_leases
from mq.store.leases.releasing import Release, give_back
from mq.store.members.files import sweep_members
from mq.store.operations.queues import sweep_tombstones
from mq.store.operations.redeliver import Redelivery, Timer, forget, redeliver
from mq.store.operations.taking_over import sweep_turns
from mq.store.packs.rolling import roll_on, sweep_tries
from mq.store.shovel.files import sweep_shovels

Act = Callable[[Root, Flusher, Violation], str | None]
"""Repairs a breach, blocking. Returns what it did, None if nothing was left to do. Raises MqError,
OSError: then the breach stays.
"""
_Of = TypeVar("_Of")


@dataclass(frozen=True, slots=True)
class Repair:
    """`would`: what the repair does, for --dry-run."""

    would: str
    act: Act


def _path(violation: Violation) -> str:
    return violation.path


def _by(repair: Callable[[Root, _Of], Steps[str | None]], of: Callable[[Violation], _Of]) -> Act:
    """A repair by a store operation; `of`: the operation's argument, from the breach."""

    def act(root: Root, flusher: Flusher, violation: Violation) -> str | None:
        return run_alone(repair(root, of(violation)), flusher)

    return act


def _spot(violation: Violation) -> Place:
    if violation.spot is None:
        raise StaysAsItIs("its name does not say which message it is")
    return violation.spot


def _queue(violation: Violation) -> QueueName:
    if violation.queue is None:
        raise StaysAsItIs("its name does not say which queue it is of")
    return violation.queue


def _folder(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    if violation.path == root.layout.queues:
        # With an empty folder of queues, mq-mover would take all data for that of deleted queues,
        # and remove it.
        raise StaysAsItIs("put it back, or make it where there shall be no queues")
    status = root.files.status(violation.path)
    moved = ""
    if status is not None and not stat.S_ISDIR(status.st_mode):
        moved = _aside(root, flusher, violation) or ""
    made = run_alone(remake_folder(root, violation.path), flusher)
    return f"made again{f'; {moved}' if moved else ''}" if made else None


def _aside(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    led_to = (*root.layout.folders(), history_folder(root.layout), archive_folder(root.layout))
    if violation.breach is Breach.SYMLINK and violation.path in led_to:
        raise StaysAsItIs("what it leads to may be the folder; put that in its place")
    if violation.path == root.layout.lost:
        raise StaysAsItIs("fsck sets aside there what it finds; move it somewhere yourself")
    name = os.path.basename(violation.path)

    def is_no_folder(status: os.stat_result) -> bool:
        return not stat.S_ISDIR(status.st_mode)

    target = run_alone(set_aside(root, violation.path, name, is_no_folder), flusher)
    return None if target is None else f"moved to {target}"


def _in_the_way(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    status = root.files.status(violation.path)
    if status is None:
        return None
    if stat.S_ISDIR(status.st_mode):
        taken = run_alone(take_empty_folder(root, violation.path), flusher)
        return "taken away: it was empty" if taken else None
    return _aside(root, flusher, violation)


def _settings(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    queue = _queue(violation)
    if queue_exists(root, queue):
        raise StaysAsItIs("fsck does not guess a queue's settings; write them anew")
    return _of_no_queue(root, flusher, violation)


def _schedule(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    queue, path = _queue(violation), violation.path
    is_deleted = root.files.status(root.layout.tombstone(queue)) is not None
    if is_deleted and not queue_exists(root, queue):
        return _of_no_queue(root, flusher, violation)
    seen = root.files.status(path)

    def is_the_same(status: os.stat_result) -> bool:
        return (
            seen is not None
            and os.path.samestat(seen, status)
            and seen.st_mtime_ns == status.st_mtime_ns
        )

    aside = set_aside_locked(root, schedules_lock(root.layout), path, is_the_same)
    target = run_alone(aside, flusher)
    return None if target is None else f"moved to {target}"


def _of_no_queue(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    """Does what mq-mover does with the leftovers of deleted queues after crashes."""
    run_alone(sweep_tombstones(root), flusher)
    return "taken away, with all that deleted queues have left"


def _redeliver(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    spot = _spot(violation)
    moved = redeliver(root, spot.queue, spot.id, Timer(), spot.bucket)
    became, _due_ms = run_alone(moved, flusher)
    if became is Redelivery.STRAY:
        raise StaysAsItIs("its queue is not there, and was not deleted")
    return None if became in (Redelivery.LOST, Redelivery.NOT_DUE) else became.value


def _release(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    lease, _ = parse_lease_file(os.path.basename(violation.path))
    for lapse in lapses(root):
        if lapse.lease == lease and lapse.is_orphan:
            run_alone(adopt(root, lease, lapse.due_ms), flusher)
    while True:
        released = run_alone(give_back(root, lease, only_due=True), flusher)
        if isinstance(released, Release):
            return None
        if not released.more:
            break
    if released.stuck:
        raise StaysAsItIs(f"{released.stuck} of its messages cannot go back yet")
    return "given back"


def _forget(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    spot = _spot(violation)
    kept = run_alone(give_up_publishes(root, {(spot.queue, spot.id)}), flusher)
    if kept:
        raise StaysAsItIs("what says that it was published cannot be taken away")
    forgotten = forget(root, spot.queue, spot.id, FORGOTTEN_AFTER_S)
    return "moved to remove/: its publish was never answered" if forgotten else None


def _journal(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    name, _ = parse_journal_file(os.path.basename(violation.path))
    rolled = roll_forward(root, name)
    if rolled is None:
        return None
    if rolled.left:
        raise StaysAsItIs("a queue of it is not there, and was not deleted")
    return f"rolled forward: {rolled.moved} messages"


def _parted(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    spot = _spot(violation)
    rolled = roll_on(root, spot.queue, spot.id)
    return "rolled forward" if rolled else None


def _leftover(root: Root, flusher: Flusher, violation: Violation) -> str | None:
    layout, folder = root.layout, os.path.dirname(violation.path)
    if folder == layout.leases:
        sweep_leases(root)
    elif folder == listings(layout):
        sweep_spools(root)
    elif folder == parts(layout):
        sweep_tries(root)
    elif folder in (layout.journal, staging(layout)):
        sweep_bulk(root)
    elif folder in (layout.members, layout.shovels, layout.active):
        sweep_members(root)
        sweep_shovels(root)
        sweep_turns(root)
        _forget_member(root, violation.path)
    else:
        run_alone(sweep_tombstones(root), flusher)
    return "taken away" if root.files.status(violation.path) is None else None


def _forget_member(root: Root, path: str) -> None:
    """Removes the lease of a member that no longer renews it; a living member has it locked."""
    status = root.files.status(path)
    if status is None or os.path.dirname(path) != root.layout.members:
        return
    descriptor = root.files.open_claimed(path)
    try:
        if root.files.lock(descriptor):
            root.files.unlink(path)
    finally:
        root.files.close(descriptor)


_REPAIRS: Final[Mapping[Breach, Repair]] = {
    Breach.FOLDER: Repair("make it again", _folder),
    Breach.SYMLINK: Repair("move it to lost/", _aside),
    Breach.IN_THE_WAY: Repair(
        "move it to lost/; of a folder, take it away where it is empty", _in_the_way
    ),
    Breach.OWNER: Repair("give it to the root's owner", _by(right_owner, _path)),
    Breach.MODE: Repair("give it the permissions that mq gives", _by(right_mode, _path)),
    Breach.TWO_STATES: Repair(
        "leave the later one; where they are two files, move the earlier one to lost/",
        _by(leave_the_later, lambda of: of),
    ),
    Breach.MTIME: Repair(
        "set it to the due time that it says, with no receives", _by(restamp, _path)
    ),
    Breach.SHORT: Repair("move it to the queue's sideline", _by(sideline_unreadable, _spot)),
    Breach.UNREADABLE: Repair("move it to the queue's sideline", _by(sideline_unreadable, _spot)),
    Breach.PACK: Repair("move it to the queue's sideline", _by(sideline_unreadable, _spot)),
    Breach.ITEM: Repair("move it to lost/", _by(set_item_aside, _spot)),
    Breach.OVERDUE: Repair("bring it back, as mq-mover does", _redeliver),
    Breach.LAPSED: Repair("give it back, as mq-mover does", _release),
    Breach.FORGOTTEN: Repair("take it away, as mq-mover does", _forget),
    Breach.STRAY: Repair("make its queue again", _by(restore_queue, _queue)),
    Breach.TOMBSTONE: Repair("take it away, as mq-mover does", _of_no_queue),
    Breach.MISPLACED: Repair("move it to its place", _by(put_in_place, _spot)),
    Breach.SETTINGS: Repair("take away those of no queue, as mq-mover does", _settings),
    Breach.KEY: Repair(
        "have the link say it; where another message has the key, move it to the sideline",
        _by(give_key, _spot),
    ),
    Breach.ENTRY: Repair("make its entries", _by(give_entries, _spot)),
    Breach.ORPHAN: Repair("take it away, under its lock", _by(drop_orphan, _path)),
    Breach.PURGED: Repair("take it away, as mq-mover does", _of_no_queue),
    Breach.SCHEDULE: Repair("move it to lost/", _schedule),
    Breach.PARTED: Repair("bring them to their places, as mq-mover does", _parted),
    Breach.JOURNAL: Repair("bring it to its places, as mq-mover does", _journal),
    Breach.LEFTOVER: Repair("take it away, as mq-mover does", _leftover),
}
_STAYS: Final = {
    Breach.STORAGE: "look at the disk, and at who may read",
    Breach.FORMAT: "a root of another format is not touched",
    Breach.ARCHIVE: "fsck does not guess its content: put a copy there, or end the archive",
    Breach.MTIMES: "copy it again with its mtimes in full, as OPERATE.md says of backups; else due "
    "messages are delivered as if for the first time",
    Breach.LINKED: "the maker of the other name knows whether it is needed",
}


def repair_of(violation: Violation) -> Repair | None:
    """The repair of a breach; None: it has none."""
    return _REPAIRS.get(violation.breach)


def why_it_stays(breach: Breach) -> str:
    """Why a breach without a repair stays."""
    return _STAYS[breach]
