"""Reading a message without consuming it: found by its id, in any state but new, and opened as it
is. Nothing on disk changes, and no lock is taken.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from mq.model.errors import Busy, MessageNotFound, QueueNotFound, StorageFailed, Unavailable
from mq.model.headers import Headers, parse_block
from mq.model.lifecycle import State
from mq.model.limits import BODY_HELD_BYTES_MAX, READ_LOOKS_MAX
from mq.model.looking import Part
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.find import PASSES, places_alive
from mq.store.core.moves import message_status
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.disk.files import is_gone

# In the order of a life: of two names of a file the later state is the message's.
_LATER: Final = {
    State.READY: (State.REMOVED, State.DELAYED, State.LEASED),
    State.LEASED: (State.REMOVED, State.DELAYED),
    State.DELAYED: (State.REMOVED,),
    State.REMOVED: (),
}
Room: TypeAlias = Callable[[int], object | None]
"""Asked for room for so many bytes; what counts them for as long as anybody has it, or None where
there is none. Called in any thread.
"""


def any_room(size: int) -> object:
    """What a caller has who counts nothing."""
    return True


Choice = Callable[[int, int], Part | None]
"""Asked what is wanted of a body of so many bytes, of a message with so many receives."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A message as it was at one moment. `size` counts all of its body's bytes.

    Of the `part` that was chosen, exactly one of `body` (held, which `hand` counts) and
    `descriptor` (open; whoever has the reading closes it) is there, and neither where it is None.
    """

    state: State
    id: MessageId
    stamp: Stamp
    headers: Headers
    size: int
    part: Part | None
    body: bytes | None
    descriptor: int | None
    hand: object | None = None

    @property
    def offset(self) -> int:
        """Where in the file the part begins."""
        return self.id.header_bytes + (self.part.first if self.part else 0)


def read(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    choice: Choice,
    with_removed: bool = True,
    room: Room = any_room,
) -> Reading:
    """Finds a message that is ready, delayed, leased, or, `with_removed`, removed and not yet
    reaped; what an acknowledged lease held is not found.

    Blocking. A part of at most BODY_HELD_BYTES_MAX comes held where there is `room` for it, any
    other as an open descriptor.
    Raises QueueNotFound, MessageNotFound, Busy when it moved at each look, Unavailable, OSError.
    What it says need not be durable: whoever changes it may not have flushed that yet.
    """
    if not queue_seen(root, queue):
        raise QueueNotFound(queue.text)
    for look in range(READ_LOOKS_MAX):
        has_moved = False
        for state, bucket in _places(root, queue, message_id, look):
            if message_status(root, root.layout.path(state, queue, message_id, bucket)) is None:
                continue
            reading = read_at(root, state, queue, message_id, bucket, choice, room)
            if reading is None:
                # What is purged is gone, also while it lies where it did.
                is_gone_for_good = state is not State.REMOVED and is_purged(root, queue, message_id)
                has_moved = has_moved or not is_gone_for_good
                continue
            if reading.state is State.REMOVED and not with_removed:
                close(root, reading)
                raise MessageNotFound(message_id.text)
            return reading
        if look + 1 >= PASSES and not has_moved:
            raise _nothing(root, queue, message_id)
    raise Busy("the message moved at each look")


def _places(
    root: Root, queue: QueueName, message_id: MessageId, look: int
) -> Iterator[tuple[State, str]]:
    yield from places_alive(root, queue, message_id, look)
    for bucket in root.places.spots(State.REMOVED, queue, message_id):
        yield State.REMOVED, bucket


def _nothing(root: Root, queue: QueueName, message_id: MessageId) -> Exception:
    if not queue_seen(root, queue):
        return QueueNotFound(queue.text)
    for folder in (root.layout.delay, root.layout.leases, root.layout.remove):
        if root.files.status(folder) is None:
            return StorageFailed(f"{folder} is gone")  # What lies there is not gone.
    return MessageNotFound(message_id.text)


def read_at(
    root: Root,
    state: State,
    queue: QueueName,
    message_id: MessageId,
    bucket: str,
    choice: Choice,
    room: Room = any_room,
) -> Reading | None:
    """The message where it lies, as `read` gives it; None when it lies there no more. All that is
    shown of messages comes from here.

    Raises Unavailable for a file that is shorter than it says; OSError.
    """
    if state is not State.REMOVED and is_purged(root, queue, message_id):
        return None
    path = root.layout.path(state, queue, message_id, bucket)
    try:
        descriptor = root.files.open_read(path)
    except OSError as error:
        if not is_gone(error):
            raise
        return None
    try:
        # By the name: while that is there, what its file says belongs to its state.
        status = message_status(root, path)
        opened = root.files.descriptor_status(descriptor)
        if status is None or not os.path.samestat(status, opened):
            root.files.close(descriptor)
            return None
        if status.st_nlink > 1:
            state = latest(root, state, queue, message_id, status)
        reading = _reading(root, state, message_id, status, descriptor, choice, room)
    except BaseException:
        root.files.close(descriptor)
        raise
    if reading.descriptor is None:
        root.files.close(descriptor)
    return reading


def latest(
    root: Root, state: State, queue: QueueName, message_id: MessageId, status: os.stat_result
) -> State:
    """The state of a file that a crash left with two names (FORMAT.md, "Two names"), which `state`
    is one of.
    """
    for later in _LATER[state]:
        for bucket in root.places.spots(later, queue, message_id):
            other = root.files.status(root.layout.path(later, queue, message_id, bucket))
            if other is not None and os.path.samestat(other, status):
                return later
    return state


def _reading(
    root: Root,
    state: State,
    message_id: MessageId,
    status: os.stat_result,
    descriptor: int,
    choice: Choice,
    room: Room,
) -> Reading:
    stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
    head_bytes = message_id.header_bytes
    size = status.st_size - head_bytes
    if size < 0:
        raise Unavailable("the file is shorter than its header block")
    headers = parse_block(root.files.read(descriptor, head_bytes, 0)) if head_bytes else ()
    part = choice(size, stamp.receives)
    if part is None:
        return Reading(state, message_id, stamp, headers, size, None, None, None)
    hand = room(part.size) if part.size <= BODY_HELD_BYTES_MAX else None
    if hand is None:
        return Reading(state, message_id, stamp, headers, size, part, None, descriptor)
    body = root.files.read(descriptor, part.size, head_bytes + part.first)
    if len(body) != part.size:
        raise Unavailable("the file ended early")
    return Reading(state, message_id, stamp, headers, size, part, body, None, hand)


def close(root: Root, reading: Reading) -> None:
    """Gives the reading's descriptor back, where it has one."""
    if reading.descriptor is not None:
        root.files.close(reading.descriptor)
