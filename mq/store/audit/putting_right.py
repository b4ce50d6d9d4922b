"""What fsck puts right: one durable operation for each thing that an audit can find and a program
may decide. What mq's daemons put right anyway is left to the operations by which they do.

Each looks again, under the lock that whoever else changes the thing takes, before it changes
anything; each gives what it did in words, or None where nothing was to be done any more. Nothing is
deleted that could be a message that was acknowledged. FORMAT.md, "fsck", has the steps and what a
crash after each leaves.
"""

import os
import stat
from typing import Final

from mq.model.errors import Busy, KeyTaken, StaysAsItIs
from mq.model.lifecycle import State, Transition
from mq.model.message import Reason, Stamp
from mq.model.names import QueueName
from mq.store.audit.breaches import Spot, Violation
from mq.store.audit.putting_aside import set_message_aside
from mq.store.core.moves import Claim, claimed, message_status, move_alive
from mq.store.core.queues_lock import queues_locked
from mq.store.core.root import Root
from mq.store.core.standing import bits_left, queue_exists
from mq.store.core.unreadable import header_block, is_unreadable
from mq.store.core.whose import owner_of
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys
from mq.store.keys.keyed import take_key
from mq.store.keys.links import linked_id
from mq.store.keys.orphans import key_place, sweep_link
from mq.store.operations.queues import create_queue
from mq.store.operations.sideline import sideline_held

_BUSY: Final = "another process is at it"
# From the earliest to the latest. What a sideline has is later than what its queue has, and what is
# removed than either.
_RANKS: Final = (State.NEW, State.READY, State.DELAYED, State.LEASED, State.REMOVED)


def right_owner(root: Root, path: str) -> Steps[str | None]:
    """Gives it to the root's owner. Raises OSError. Durable on return: yes."""
    owner, status = owner_of(root), root.files.status(path)
    if status is None or status.st_uid == owner:
        return None
    root.files.set_owner(path, owner)
    yield from _flushed(root, path, status)
    return f"given to user {owner}"


def right_mode(root: Root, path: str) -> Steps[str | None]:
    """Gives it the permissions that mq makes such things with; a folder goes on handing its group
    on. Raises OSError. Durable on return: yes.
    """
    status = root.files.status(path)
    if status is None or stat.S_ISLNK(status.st_mode):
        return None
    mode = FILE_MODE
    if stat.S_ISDIR(status.st_mode):
        mode = FOLDER_MODE | (status.st_mode & bits_left(root))
    if stat.S_IMODE(status.st_mode) == mode:
        return None
    root.files.set_mode(path, mode)
    yield from _flushed(root, path, status)
    return f"made {mode:04o}"


def _flushed(root: Root, path: str, status: os.stat_result) -> Steps[None]:
    if stat.S_ISDIR(status.st_mode):
        yield Flush(folders=(path,))
        return
    try:
        descriptor = root.files.open_read(path)
    except OSError as error:
        if is_gone(error):
            return  # It moved on, and is flushed by whoever moved it.
        raise
    try:
        yield Flush(files=(descriptor,))
    finally:
        root.files.close(descriptor)


def restamp(root: Root, path: str) -> Steps[str | None]:
    """Sets an mtime that mq did not set to what mq reads in it: the same due time, no receives.
    Raises StaysAsItIs, OSError. Durable on return: yes.
    """
    with claimed(root, path) as claim:
        if claim is None:
            return _lost_race(root, path)
        stamp = claim.stamp
        if stamp.mtime_ns() == claim.status.st_mtime_ns:
            return None
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        yield Flush(files=(claim.descriptor,))
    return f"stamped {stamp.due_ms} ms, received {stamp.receives} times"


def restore_queue(root: Root, queue: QueueName) -> Steps[str | None]:
    """Makes the folder of a queue again that was not deleted, and has messages, settings or keys:
    all of these are its again. Raises Busy, StaysAsItIs, OSError. Durable on return: yes.
    """
    with queues_locked(root):
        if queue_exists(root, queue):
            return None
        if root.files.status(root.layout.tombstone(queue)) is not None:
            return None
        try:
            root.files.mkdir(root.layout.queue(queue))
        except FileExistsError:
            raise StaysAsItIs("something else has the queue's name") from None
        yield Flush(folders=(root.layout.queues,))
    return f"made the queue {queue.text} again"


def put_in_place(root: Root, spot: Spot) -> Steps[str | None]:
    """Moves a message to where its id says that it is to be found. Raises StaysAsItIs where
    something lies there; SettingsUnreadable, OSError. Durable on return: yes.
    """
    path = spot.path(root.layout)
    with claimed(root, path) as claim:
        if claim is None:
            return _lost_race(root, path)
        own = tuple(root.places.spots(spot.state, spot.queue, spot.id))
        if spot.bucket in own:
            return None
        others = [Spot(spot.state, spot.queue, spot.id, bucket) for bucket in own]
        if any(root.files.status(each.path(root.layout)) is not None for each in others):
            raise StaysAsItIs("the message is at its place too")
        links = claim.status.st_nlink
        target = root.places.target(spot.state, spot.queue, spot.id)
        act = Transition("put in place", spot.state, spot.state, "mqctl")
        flush = yield from move_alive(root, act, spot.queue, spot.id, links, spot.bucket, target)
        yield flush
    moved = Spot(spot.state, spot.queue, spot.id, target)
    return f"moved to {moved.path(root.layout)}"


def leave_the_later(root: Root, violation: Violation) -> Steps[str | None]:
    """Of a message in two places the later one stays. Of two names of one file the earlier one is
    taken away; of two files the earlier one is set aside. Raises StaysAsItIs, Busy, OSError.
    Durable on return: yes.
    """
    if violation.spot is None or violation.other is None:
        return None
    earlier, later = sorted((violation.spot, violation.other), key=_rank)
    if _rank(earlier) == _rank(later):
        earlier, later = violation.spot, violation.other
    gone, kept = earlier.path(root.layout), later.path(root.layout)

    def is_twice(status: os.stat_result) -> bool:
        return message_status(root, kept) is not None

    with claimed(root, gone) as claim:
        if claim is None:
            return _lost_race(root, gone)
        there = message_status(root, kept)
        if there is None:
            return None
        if os.path.samestat(there, claim.status):
            return (yield from _unlink_earlier(root, gone, kept, claim))
    target = yield from set_message_aside(root, gone, earlier.queue, earlier.id, is_twice)
    return None if target is None else f"moved to {target}"


def _rank(spot: Spot) -> tuple[bool, bool, int]:
    is_sidelined = spot.queue.is_sideline and spot.state is not State.NEW
    return spot.state is State.REMOVED, is_sidelined, _RANKS.index(spot.state)


def _unlink_earlier(root: Root, gone: str, kept: str, claim: Claim) -> Steps[str | None]:
    # The name that stays first: it may be there for nobody but this machine's memory.
    yield Flush(folders=(os.path.dirname(os.path.dirname(kept)), os.path.dirname(kept)))
    there, here = root.files.status(kept), root.files.status(gone)
    if there is None or not os.path.samestat(there, claim.status):
        return None
    if here is None or not os.path.samestat(here, claim.status):
        return None
    root.files.unlink(gone)
    yield Flush(folders=(os.path.dirname(gone),))
    return f"left at {kept} alone"


def sideline_unreadable(root: Root, spot: Spot) -> Steps[str | None]:
    """Moves a message whose file cannot be what was published to its queue's sideline, as a fetch
    would. Raises StaysAsItIs for one in a lease; SidelinePurged, Busy, OSError. Durable on return:
    yes.
    """
    if spot.state not in (State.READY, State.DELAYED):
        raise StaysAsItIs("it is in a lease; mq sidelines it once it comes back")
    path = spot.path(root.layout)
    yield from _make_sideline(root, spot)
    with claimed(root, path) as claim:
        if claim is None:
            return _lost_race(root, path)
        block = header_block(root, spot.id, claim, None)
        if not is_unreadable(spot.id, claim, block):
            return None
        yield from _sidelined(root, spot, claim, Reason.UNREADABLE)
    return f"moved to {spot.queue.sideline().text}"


def _sidelined(root: Root, spot: Spot, claim: Claim, reason: Reason) -> Steps[Stamp]:
    where = (spot.queue, spot.id, spot.state, spot.bucket)
    return (yield from sideline_held(root, *where, claim, reason))


def give_key(root: Root, spot: Spot) -> Steps[str | None]:
    """Has the link of a living message's key say it; where another living message has the key, this
    one goes to the sideline, where it has none. Raises StaysAsItIs for one in a lease whose key
    another has; SidelinePurged, Busy, OSError. Durable on return: yes.
    """
    key, path = spot.id.key, spot.path(root.layout)
    if key is None or message_status(root, path) is None:
        return None
    place = root.layout.link(Keys.LOOKUP, spot.queue, key)
    try:
        yield from take_key(root, spot.queue, spot.id, key)
    except KeyTaken as error:
        if spot.state not in (State.READY, State.DELAYED):
            raise StaysAsItIs(f"it is in a lease, and {error.id} has its key") from error
        yield from _make_sideline(root, spot)
        with claimed(root, path) as claim:
            if claim is None:
                return _lost_race(root, path)
            if root.files.linked(place.path) == spot.id.text:
                return None
            yield from _sidelined(root, spot, claim, Reason.UNKNOWN)
        return f"moved to {spot.queue.sideline().text}: {error.id} has the key"
    return "its key's link says it"


def drop_orphan(root: Root, path: str) -> Steps[str | None]:
    """Takes a link away that is old enough and means nothing, under its lock. Raises Busy,
    SettingsUnreadable, OSError. Durable on return: yes.
    """
    found = key_place(root, path)
    target = root.files.linked(path)
    if found is None or target is None:
        return None
    folder, place = found
    if not (yield from sweep_link(root, folder, place, target)):
        return None
    yield Flush(folders=(place.folder,))
    holder = linked_id(target)
    return "taken away" if holder is None else f"taken away: it said {holder.text}"


def _make_sideline(root: Root, spot: Spot) -> Steps[None]:
    """Raises StaysAsItIs where there is no queue whose it would be."""
    if not queue_exists(root, spot.queue):
        raise StaysAsItIs("its queue is not there")
    yield from create_queue(root, spot.queue.sideline())


def _lost_race(root: Root, path: str) -> str | None:
    """Nothing is to be done where the name is gone. Raises Busy where another has the lock."""
    if root.files.status(path) is not None:
        raise Busy(_BUSY)
    return None
