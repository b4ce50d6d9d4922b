"""Reads a message without consuming it: finds it by its id, in any state but new, and opens it.
Changes nothing on disk, and takes no lock.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mq.model.errors import (
    Busy,
    MessageNotFound,
    MessageUnreadable,
    QueueNotFound,
    StorageFailed,
    Unavailable,
)
from mq.model.headers import Headers, parse_block
from mq.model.lifecycle import State
from mq.model.limits import BODY_HELD_BYTES_MAX, PACK_BYTES_MAX
from mq.model.message import Part, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.packs import spans_in
from mq.store.core.failures import failure_line
from mq.store.core.find import PASSES, places_alive
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.core.unserved import covering_mark, is_purged
from mq.store.disk.files import is_gone
from mq.store.format.layout import Place
from mq.store.format.packs import tries_of

# Retries when the message moves during each lookup.
READ_LOOKS_MAX: Final = 5

Room: TypeAlias = Callable[[int], object | None]
"""Reserves memory for a number of bytes: returns an object that counts them as long as it is
referenced, or None if there is no room. Called in any thread.
"""


def any_room(size: int) -> object:
    """A Room without a limit."""
    return True


Choice = Callable[[int, int], Part | None]
"""Chooses the part of a body to read, by its size in bytes and the message's receives."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A message at one moment. `size` is the length of the whole body in bytes.

    Of the chosen `part`, exactly one of `body` (in memory, counted by `reservation`) and
    `descriptor` (open; the caller closes it) is set; neither if `part` is None.
    """

    state: State
    id: MessageId
    stamp: Stamp
    headers: Headers
    size: int
    part: Part | None
    body: bytes | None
    descriptor: int | None
    reservation: object | None = None
    failure: str = ""
    """The line of the message's last failure; "" without one."""
    begins: int = 0
    """The offset of the body in the file."""

    @property
    def offset(self) -> int:
        """The offset of the part in the file."""
        return self.begins + (self.part.first if self.part else 0)


def read(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    choice: Choice,
    with_removed: bool = True,
    room: Room = any_room,
) -> Reading:
    """Finds and reads a message that is ready, delayed, leased or, `with_removed`, removed and not
    reaped yet; an item of a pack in the pack's file or in its own. Does not find packs, nor
    messages of an acknowledged lease.

    Blocking. A part of at most BODY_HELD_BYTES_MAX is read into memory if there is `room`; any
    other comes as an open descriptor. Raises QueueNotFound, MessageNotFound, Busy if it moved
    during each lookup, Unavailable, OSError. The answer need not be durable: another process's
    change may not be flushed yet.
    """
    if not message_id.is_possible:
        raise MessageNotFound(message_id.text)
    sought: tuple[_Sought, ...] = ((message_id, ()),)
    if message_id.pack_size:
        sought = ((message_id.pack(), (message_id.place,)), *sought)
    (reading,) = _found(root, queue, sought, choice, room)
    if reading.state is State.REMOVED and not with_removed:
        close(root, reading)
        raise MessageNotFound(message_id.text)
    return reading


def read_each(
    root: Root, queue: QueueName, message_id: MessageId, choice: Choice, room: Room = any_room
) -> list[Reading]:
    """The message, as `read` reads it, or all items of a pack, from one look at its file."""
    return _found(root, queue, ((message_id, range(1, message_id.items + 1)),), choice, room)


_Sought: TypeAlias = tuple[MessageId, Sequence[int]]
"""The id of a file, and the items that are wanted of a pack."""


def _found(
    root: Root, queue: QueueName, sought: Sequence[_Sought], choice: Choice, room: Room
) -> list[Reading]:
    """The readings of the first of these files that is found."""
    if not queue_seen(root, queue):
        raise QueueNotFound(queue.text)
    message_id = sought[-1][0]
    for look in range(READ_LOOKS_MAX):
        has_moved = False
        for place, items, state in _places(root, queue, sought, look):
            if message_status(root, place.path(root.layout)) is None:
                continue
            if readings := _read_file(root, place, choice, room, items):
                return readings if state is None else [replace(readings[0], state=state)]
            # A purged message does not exist, even while its file does.
            is_gone_for_good = place.state is not State.REMOVED and is_purged(
                root, queue, message_id
            )
            has_moved = has_moved or not is_gone_for_good
        if look + 1 >= PASSES and not has_moved:
            raise _nothing(root, queue, message_id)
    raise Busy("the message moved at each look")


def _places(
    root: Root, queue: QueueName, sought: Sequence[_Sought], look: int
) -> Iterator[tuple[Place, Sequence[int], State | None]]:
    """The places to look at, and the state that counts there, if it is another."""
    for message_id, items in sought:
        for state, bucket in places_alive(root, queue, message_id, look):
            yield Place(state, queue, message_id, bucket), items, None
        for bucket in root.places.spots(State.REMOVED, queue, message_id):
            yield Place(State.REMOVED, queue, message_id, bucket), items, None
    if message_id.pack_size:
        for parted in tries_of(root.layout, root.files, queue, message_id.pack()):
            if root.files.is_there(parted.pack_path(root.layout)):
                yield Place(State.NEW, queue, message_id, parted.spot), (), parted.state


def _nothing(root: Root, queue: QueueName, message_id: MessageId) -> Exception:
    if not queue_seen(root, queue):
        return QueueNotFound(queue.text)
    for folder in (root.layout.delay, root.layout.leases, root.layout.remove):
        if root.files.status(folder) is None:
            return StorageFailed(f"{folder} is gone")  # Its messages may still exist.
    return MessageNotFound(message_id.text)


def read_at(root: Root, place: Place, choice: Choice, room: Room = any_room) -> Reading | None:
    """Reads a message at a place, as `read` does; None: it is not there any more. Everything that
    shows messages uses this.

    Raises Unavailable for a file that is truncated, or no pack of its id; OSError.
    """
    found = _read_file(root, place, choice, room)
    return found[0] if found else None


def read_rows(
    root: Root, place: Place, choice: Choice, items: Sequence[int] | None = None
) -> list[Reading]:
    """Reads the file at a place as `read_at` does: the message, or of a pack these of its items,
    by their places in it (None: all of them). None: it is not there any more.
    """
    if items is None:
        items = range(1, place.id.items + 1)
    return _read_file(root, place, choice, any_room, items)


def _read_file(
    root: Root, place: Place, choice: Choice, room: Room, items: Sequence[int] = ()
) -> list[Reading]:
    state, queue, message_id, _ = place
    if state is not State.REMOVED and covering_mark(root, queue, message_id) is not None:
        return []
    path = place.path(root.layout)
    try:
        descriptor = root.files.open_read(path)
    except OSError as error:
        if not is_gone(error):
            raise
        return []
    is_kept = False
    try:
        # Check the name again: while it exists, the file's contents belong to the state.
        status = message_status(root, path)
        opened = root.files.descriptor_status(descriptor)
        if status is None or not os.path.samestat(status, opened):
            return []
        file = _File(root, state, status, descriptor)
        if items:
            readings = file.items(message_id, items, choice, room)
        else:
            readings = [file.whole(message_id, choice, room)]
        is_kept = any(each.descriptor is not None for each in readings)
    finally:
        if not is_kept:
            root.files.close(descriptor)
    line = failure_line(root, queue, message_id, readings[0].stamp)
    return [replace(each, failure=line) for each in readings] if line else readings


@dataclass(frozen=True, slots=True)
class _File:
    """The opened file of a message or a pack, in this state."""

    root: Root
    state: State
    status: os.stat_result
    descriptor: int

    def whole(self, message_id: MessageId, choice: Choice, room: Room) -> Reading:
        """The message whose file it is."""
        head_bytes = message_id.header_bytes
        size = self.status.st_size - head_bytes
        if size < 0:
            raise Unavailable("the file is shorter than its header block")
        read, descriptor = self.root.files.read, self.descriptor
        headers = parse_block(read(descriptor, head_bytes, 0)) if head_bytes else ()
        stamp = Stamp.from_mtime_ns(self.status.st_mtime_ns)
        of = (self.state, message_id, stamp, headers, size)
        part = choice(size, stamp.receives)
        if part is None:
            return Reading(*of, None, None, None)
        reservation = room(part.size) if part.size <= BODY_HELD_BYTES_MAX else None
        if reservation is None:
            return Reading(*of, part, None, descriptor, begins=head_bytes)
        body = read(descriptor, part.size, head_bytes + part.first)
        if len(body) != part.size:
            raise Unavailable("the file ended early")
        return Reading(*of, part, body, None, reservation)

    def items(
        self, pack: MessageId, items: Sequence[int], choice: Choice, room: Room
    ) -> list[Reading]:
        """Items of the pack whose file it is. A single one may keep the descriptor."""
        size = min(self.status.st_size, PACK_BYTES_MAX + 1)
        content = self.root.files.read(self.descriptor, size, 0)
        try:
            spans = spans_in(content, pack)
        except MessageUnreadable as error:
            raise Unavailable("the pack's file is damaged") from error
        headers = parse_block(content[: pack.header_bytes]) if pack.header_bytes else ()
        stamp = Stamp.from_mtime_ns(self.status.st_mtime_ns)
        found = []
        for item in items:
            begins, size = spans[item - 1]
            of = (self.state, pack.item(item), stamp, headers, size)
            part = choice(size, stamp.receives)
            reservation = None if part is None else room(part.size)
            if part is None:
                found.append(Reading(*of, None, None, None))
            elif reservation is None and len(items) == 1:
                found.append(Reading(*of, part, None, self.descriptor, begins=begins))
            else:
                first = begins + part.first
                body = content[first : first + part.size]
                found.append(Reading(*of, part, body, None, reservation))
        return found


def close(root: Root, reading: Reading) -> None:
    """Closes the reading's descriptor, if it has one."""
    if reading.descriptor is not None:
        root.files.close(reading.descriptor)
