"""The repairs of fsck: one durable operation for each finding that a program can decide. Findings
that daemons repair anyway use the daemons' operations. Useless files are set aside in lost/ by one
rename, so nothing is deleted that may be wanted.

Each repair checks again before it changes anything, under the lock that every other change of the
object takes. It returns its action as text, or None if nothing was left to do. It never deletes a
file that may be an acknowledged message. PROTOCOL.md, "fsck", has the steps and what a crash after
each leaves.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

from mq.model.errors import Busy, KeyTaken, StaysAsItIs
from mq.model.lifecycle import State, Transition
from mq.model.message import Reason
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.audit.findings import Violation
from mq.store.core.find import place_of
from mq.store.core.locks import in_turn, queues_locked
from mq.store.core.message_file import header_block, holds_pack, is_unreadable
from mq.store.core.moves import Claim, Move, claimed_path, message_status, move
from mq.store.core.root import Root
from mq.store.core.standing import bits_left, queue_exists
from mq.store.core.trust import owner_of
from mq.store.core.two_names import lateness
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.entries import groups_of
from mq.store.format.layout import Keys, Place
from mq.store.format.packs import tries_of
from mq.store.keys.entries import block_at, drop_stale, enter, entry_at, is_young
from mq.store.keys.keyed import show_linked
from mq.store.keys.links import free_key, linked_id
from mq.store.keys.orphans import key_place, sweep_link
from mq.store.operations.sideline import sideline_held

_BUSY: Final = "another process has it locked"
IsWrong = Callable[[os.stat_result], bool]
"""Called just before a file moves: whether the file is still wrong."""


def right_owner(root: Root, path: str) -> Steps[str | None]:
    """Gives the path to the root's owner. Raises OSError. Durable on return: yes."""
    owner, status = owner_of(root), root.files.status(path)
    if status is None or status.st_uid == owner:
        return None
    root.files.set_owner(path, owner)
    yield from _flushed(root, path, status)
    return f"given to user {owner}"


def right_mode(root: Root, path: str) -> Steps[str | None]:
    """Sets the permissions that mq uses; a folder keeps its setgid bit. Raises OSError. Durable on
    return: yes.
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
            return  # It moved, and the process that moved it flushes it.
        raise
    try:
        yield Flush(files=(descriptor,))
    finally:
        root.files.close(descriptor)


def restamp(root: Root, path: str) -> Steps[str | None]:
    """Replaces an mtime that mq did not set by the valid stamp that mq reads in it: the same due
    time, no receives. Raises StaysAsItIs, OSError. Durable on return: yes.
    """
    with claimed_path(root, path) as claim:
        if claim is None:
            return _lost_race(root, path)
        stamp = claim.stamp
        if stamp.mtime_ns() == claim.status.st_mtime_ns:
            return None
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        yield Flush(files=(claim.descriptor,))
    return f"stamped {stamp.due_ms} ms, received {stamp.receives} times"


def restore_queue(root: Root, queue: QueueName) -> Steps[str | None]:
    """Recreates the missing folder of a queue that was not deleted and still has messages or
    settings. Raises Busy, StaysAsItIs, OSError. Durable on return: yes.
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


def put_in_place(root: Root, spot: Place) -> Steps[str | None]:
    """Moves a message to the place that its id determines. Raises StaysAsItIs if that is taken;
    SettingsUnreadable, OSError. Durable on return: yes.
    """
    path = spot.path(root.layout)
    with claimed_path(root, path) as claim:
        if claim is None:
            return _lost_race(root, path)
        own = tuple(root.places.spots(spot.state, spot.queue, spot.id))
        if spot.bucket in own:
            return None
        others = [Place(spot.state, spot.queue, spot.id, bucket) for bucket in own]
        if any(root.files.status(each.path(root.layout)) is not None for each in others):
            raise StaysAsItIs("the message is at its place too")
        target = root.places.target(spot.state, spot.queue, spot.id)
        act = Transition("put in place", spot.state, spot.state, "mqctl")
        put = Move(act, spot.queue, spot.id, spot.bucket, target)
        yield move(root, put)
    moved = Place(spot.state, spot.queue, spot.id, target)
    return f"moved to {moved.path(root.layout)}"


def leave_the_later(root: Root, violation: Violation) -> Steps[str | None]:
    """Keeps the later place of a message in two places. Of two names of one file it unlinks the
    earlier one; of two files it sets the earlier one aside. Raises StaysAsItIs, Busy, OSError.
    Durable on return: yes.
    """
    if violation.spot is None or violation.other is None:
        return None
    earlier, later = sorted((violation.spot, violation.other), key=lateness)
    if lateness(earlier) == lateness(later):
        earlier, later = violation.spot, violation.other
    gone, kept = earlier.path(root.layout), later.path(root.layout)

    def is_twice(status: os.stat_result) -> bool:
        return message_status(root, kept) is not None

    with claimed_path(root, gone) as claim:
        if claim is None:
            return _lost_race(root, gone)
        there = message_status(root, kept)
        if there is None:
            return None
        if os.path.samestat(there, claim.status):
            return (yield from _unlink_earlier(root, gone, kept, claim))
    target = yield from set_message_aside(root, gone, earlier.queue, earlier.id, is_twice)
    return None if target is None else f"moved to {target}"


def _unlink_earlier(root: Root, gone: str, kept: str, claim: Claim) -> Steps[str | None]:
    # Flush the name that stays first: it may be only in this machine's memory.
    yield Flush(folders=(os.path.dirname(os.path.dirname(kept)), os.path.dirname(kept)))
    there, here = root.files.status(kept), root.files.status(gone)
    if there is None or not os.path.samestat(there, claim.status):
        return None
    if here is None or not os.path.samestat(here, claim.status):
        return None
    root.files.unlink(gone)
    yield Flush(folders=(os.path.dirname(gone),))
    return f"left at {kept} alone"


def sideline_unreadable(root: Root, spot: Place) -> Steps[str | None]:
    """Moves a message whose file is not the published one to its queue's sideline, as a fetch
    would. Raises StaysAsItIs for a leased message; SidelinePurged, Busy, OSError. Durable on
    return: yes.
    """
    if spot.state not in (State.READY, State.DELAYED):
        raise StaysAsItIs("it is in a lease; mq sidelines it once it comes back")
    path = spot.path(root.layout)
    _refuse_without_queue(root, spot)
    with claimed_path(root, path) as claim:
        if claim is None:
            return _lost_race(root, path)
        if spot.id.items:
            is_wrong = not holds_pack(root, spot.id, claim.descriptor)
        else:
            is_wrong = is_unreadable(spot.id, claim, header_block(root, spot.id, claim, None))
        if not is_wrong:
            return None
        moved = yield from sideline_held(root, spot, claim, Reason.UNREADABLE)
    return f"moved to {moved.into.text}"


def set_item_aside(root: Root, spot: Place) -> Steps[str | None]:
    """Sets aside the file of a message whose pack has it too; not while the pack is damaged, or
    locked by another process. Raises as `set_aside`. Durable on return: yes.
    """
    pack = spot.id.pack()

    def has_pack(status: os.stat_result) -> bool:
        place = place_of(root, spot.queue, pack)
        if place is None or _is_parted(root, spot.queue, pack):
            return False
        with claimed_path(root, root.layout.path(place[0], spot.queue, pack, place[1])) as claim:
            return claim is not None and holds_pack(root, pack, claim.descriptor)

    path = spot.path(root.layout)
    target = yield from set_message_aside(root, path, spot.queue, spot.id, has_pack)
    return None if target is None else f"moved to {target}"


def _is_parted(root: Root, queue: QueueName, pack: MessageId) -> bool:
    layout, files = root.layout, root.files
    found = tries_of(layout, files, queue, pack)
    return any(files.is_there(each.pack_path(layout)) for each in found)


def give_key(root: Root, spot: Place) -> Steps[str | None]:
    """Points the link of a living message's key at the message. If another living message has the
    key, this one goes to the sideline, where keys do not count. Raises StaysAsItIs for a leased
    message whose key is taken; SidelinePurged, Busy, OSError. Durable on return: yes.
    """
    key, path = spot.id.key, spot.path(root.layout)
    if key is None or message_status(root, path) is None:
        return None
    place = root.layout.link(Keys.LOOKUP, spot.queue, key)
    try:
        yield from show_linked(root, spot.queue, spot.id, None, lambda: None)
    except KeyTaken as error:
        if spot.state not in (State.READY, State.DELAYED):
            raise StaysAsItIs(f"it is in a lease, and {error.id} has its key") from error
        _refuse_without_queue(root, spot)
        with claimed_path(root, path) as claim:
            if claim is None:
                return _lost_race(root, path)
            if root.files.linked(place.path) == spot.id.text:
                return None
            moved = yield from sideline_held(root, spot, claim, Reason.UNKNOWN)
        return f"moved to {moved.into.text}: {error.id} has the key"
    yield Flush(folders=(place.folder,))
    return "its key's link says it"


def give_entries(root: Root, spot: Place) -> Steps[str | None]:
    """Makes the index entries of a living message. Raises Busy, OSError. Durable on return: yes."""
    if message_status(root, spot.path(root.layout)) is None:
        return None
    block = block_at(root, spot.path(root.layout), spot.id)
    enter(root, spot.queue, ((spot.id, block),))
    groups = groups_of(root.layout, spot.queue, spot.id, block)
    yield Flush(folders=tuple(dict.fromkeys(each.path for each in groups)))
    return "its index names it"


def drop_orphan(root: Root, path: str) -> Steps[str | None]:
    """Removes a stale entry, or under its lock a stale link, that is old enough. Raises Busy,
    SettingsUnreadable, OSError. Durable on return: of a link yes, of an entry no.
    """
    if (entry := entry_at(root, path)) is not None:
        if is_young(root, path) or not drop_stale(root, [entry]):
            return None
        return "taken away"
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


def _refuse_without_queue(root: Root, spot: Place) -> None:
    """Raises StaysAsItIs if the queue does not exist."""
    if not queue_exists(root, spot.queue):
        raise StaysAsItIs("its queue is not there")


def _lost_race(root: Root, path: str) -> str | None:
    """None if the name is gone. Raises Busy if another process holds the lock."""
    if root.files.status(path) is not None:
        raise Busy(_BUSY)
    return None


def set_aside(root: Root, path: str, name: str, is_wrong: IsWrong) -> Steps[str | None]:
    """Moves a file, or anything but a folder, to lost/, under a name that begins with a new uuid.
    Locks a file first. Returns the new path; None: it is gone, or not wrong any more.

    Raises StaysAsItIs for a folder, and if another process has the file locked; OSError. Durable on
    return: yes.
    """
    target = root.layout.lost_file(name, UuidSource(root.clock).next())
    yield from _make_lost(root)
    with _held(root, path) as status:
        if status is None or not is_wrong(status):
            return None
        if stat.S_ISDIR(status.st_mode):
            raise StaysAsItIs("a folder is not moved with what lies in it")
        try:
            root.files.rename(path, target)
        except OSError as error:
            # NFS may have done it and lost the answer.
            if not is_gone(error) or root.files.status(target) is None:
                if is_gone(error):
                    return None
                raise
        yield Flush(folders=(root.layout.lost, os.path.dirname(path)))
    return target


def set_message_aside(
    root: Root, path: str, queue: QueueName, message_id: MessageId, is_wrong: IsWrong
) -> Steps[str | None]:
    """Like `set_aside`, for a message's file. Frees the message's key if the message lives nowhere
    else. Durable on return: yes.
    """
    entry = os.path.basename(root.layout.path(State.NEW, queue, message_id))
    target = yield from set_aside(root, path, entry, is_wrong)
    # Of two files of one message the other one still has the key.
    if target is not None and place_of(root, queue, message_id) is None:
        free_key(root, queue, message_id)
    return target


def set_aside_locked(root: Root, lock: str, path: str, is_wrong: IsWrong) -> Steps[str | None]:
    """Like `set_aside`, for a file that is changed under another file's lock, such as a schedule.
    Raises Busy. Durable on return: yes.
    """
    target = root.layout.lost_file(os.path.basename(path), UuidSource(root.clock).next())
    yield from _make_lost(root)

    def move() -> bool:
        status = root.files.status(path)
        if status is None or not is_wrong(status):
            return False
        root.files.rename(path, target)
        return True

    if not (yield from in_turn(root, lock, move)):
        return None
    yield Flush(folders=(root.layout.lost, os.path.dirname(path)))
    return target


def take_empty_folder(root: Root, path: str) -> Steps[bool]:
    """Removes an empty folder with the name of another kind of object; False: it is gone. Uses
    rmdir alone, so it never removes contents. Raises StaysAsItIs if it is not empty; OSError.
    Durable on return: yes.
    """
    try:
        root.files.rmdir(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise StaysAsItIs("something lies in it") from error
        if error.errno == errno.EBUSY:
            raise StaysAsItIs("another file system is mounted there") from error
        if is_gone(error):
            return False
        raise
    yield Flush(folders=(os.path.dirname(path),))
    return True


def remake_folder(root: Root, path: str) -> Steps[bool]:
    """Recreates a missing folder of the root, with the root's owner and setgid bit; False: it
    exists by now. Raises StaysAsItIs if something else has its name; OSError. Durable on return:
    yes.
    """
    top = root.files.status(root.layout.root)
    if top is None:
        raise StaysAsItIs("the root itself is away")
    try:
        root.files.mkdir(path)
    except FileExistsError:
        status = root.files.status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise StaysAsItIs("something else has its name") from None
        return False
    made, owner = root.files.status(path), owner_of(root)
    if made is not None and made.st_uid != owner:
        root.files.set_owner(path, owner)
    wanted = FOLDER_MODE | (top.st_mode & stat.S_ISGID)
    if made is not None and stat.S_IMODE(made.st_mode) != wanted:
        root.files.set_mode(path, wanted)
    # The folder itself too: its owner must survive a power cut as its entry does.
    yield Flush(folders=(path, root.layout.root))
    return True


def _make_lost(root: Root) -> Steps[None]:
    if root.files.status(root.layout.lost) is None:
        yield from remake_folder(root, root.layout.lost)
    else:
        # The process that made it may have died before its flush.
        yield Flush(folders=(root.layout.root,))


@contextlib.contextmanager
def _held(root: Root, path: str) -> Iterator[os.stat_result | None]:
    """The status of the path, with a file's inode locked in the block. None: it is gone."""
    status = root.files.status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        yield status
        return
    with claimed_path(root, path) as claim:
        if claim is None and root.files.status(path) is not None:
            raise StaysAsItIs("another process has it locked")
        yield None if claim is None else claim.status
