"""Fetching: the rename to delay/ is the claim, made and stamped under the inode's lock.

The rename decides a race, since only one process can rename a name away. But a rename keeps the
mtime, so between the rename and the stamp the message lies in delay/ with its old due time and
looks due to mq-mover. The lock, taken before the rename and held until the stamp is flushed, keeps
redelivery off: it takes the same lock before it looks at the mtime. A crash frees the lock and
leaves a message in delay/ that is due, which is delivered again. Whether the message was purged or
has expired is checked under the lock as well, since the listing may be old.

PROTOCOL.md, "fetch", has the steps and what a crash after each leaves.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from mq.model.errors import Busy, GroupHeld, MessageUnreadable, SettingsUnreadable, Unavailable
from mq.model.headers import parse_block
from mq.model.history import Event
from mq.model.lifecycle import FETCH
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.message import Delivery, Held, Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.failures import failure_line
from mq.store.core.message_file import header_block, is_unreadable
from mq.store.core.moves import Claim, Move, claimed, message_status, move
from mq.store.core.root import Root
from mq.store.core.unserved import covering_mark, message_expired
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place
from mq.store.keys.keyed import take_group
from mq.store.operations.read import Room, any_room
from mq.store.operations.sideline import sideline_held


class Won(NamedTuple):
    """A claim on stable media: the message's stamp, and its bucket in delay/."""

    stamp: Stamp
    bucket: str


def fetch(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    visibility_s: float,
    bucket: str | None = None,
    asked_s: float | None = None,
    held: Held | None = None,
    room: Room = any_room,
) -> Steps[Delivery | None]:
    """Claims a ready message for `asked_s` seconds (None: the message's own visibility timeout, or
    `visibility_s`). `bucket`: where a listing found it; None: look in every place. Returns None
    when another process won the message, or it was purged or has expired.

    A body of at most BODY_HELD_BYTES_MAX is read into memory where there is `room` for it; any
    other comes as an open descriptor. Parts in `held` are not read again.

    Raises MessageUnreadable for a file that is not the published one: it was moved to the queue's
    sideline, durably; or what `sideline_held` raises. In a sideline such a message stays. Raises
    Unavailable when the claim cannot be made durable or the file cannot be read: the message is
    ready, or in delay/, from where mq-mover brings it back. Raises Busy when another process has
    the message locked, and GroupHeld when another message of its group goes first. From the claim
    on, the link that makes the message its group's head is durable. Durable on return: yes.
    """
    sources = (bucket,) if bucket is not None else sources_of(root, queue, message_id)
    for source in sources:
        place = Place(FETCH.source, queue, message_id, source)
        with claimed(root, place) as claim:
            # Under the lock: it may have been purged or have expired since it was listed.
            if claim is not None and is_served_no_more(root, queue, message_id):
                return None
            if claim is not None:
                block = header_block(root, message_id, claim, held)
                if not queue.is_sideline and is_unreadable(message_id, claim, block):
                    yield from sideline_held(root, place, claim, Reason.UNREADABLE)
                    raise MessageUnreadable(message_id.text)
                if message_id.group:
                    head = yield from take_group(root, queue, message_id)
                    if head is not None:
                        raise GroupHeld(head.text)
                shown_s = asked_s or message_id.visibility_s or visibility_s
                won = yield from claim_held(root, place, claim, shown_s)
                if won is None:
                    return None
                found = _delivery(root, queue, message_id, won, claim, held, block, room)
                if won.stamp.receives == 1 and not queue.is_sideline:
                    return found
                line = failure_line(root, queue, message_id, won.stamp)
                return found._replace(failure=line) if line else found
            if message_status(root, place.path(root.layout)) is not None:
                raise Busy("another process has the message locked")
    return None


def is_served_no_more(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether it was purged or has expired since it was listed."""
    return covering_mark(root, queue, message_id) is not None or message_expired(
        root, queue, message_id
    )


def sources_of(root: Root, queue: QueueName, message_id: MessageId) -> Iterator[str]:
    # Unreadable settings hide no message: a listing found it.
    with contextlib.suppress(SettingsUnreadable):
        yield from root.places.spots(FETCH.source, queue, message_id)


def claim_held(root: Root, place: Place, claim: Claim, visibility_s: float) -> Steps[Won | None]:
    """Moves a ready message that the caller holds to delay/, for `visibility_s` seconds. None:
    another process won it. Raises OSError. Durable on return: yes.
    """
    _, queue, message_id, source = place
    target = root.places.target(FETCH.target, queue, message_id)
    try:
        act = Move(FETCH, queue, message_id, source, target)
        flush = move(root, act)
    except OSError as error:
        if not is_gone(error) or root.files.status(root.layout.delay) is None:
            raise
        # Deleted, or claimed by another process; or NFS did the rename and lost the answer. These
        # look the same here, so this is no claim: redelivery returns the message.
        return None
    due_ms = root.now_ms() + round(visibility_s * 1000)
    stamp = claim.stamp.received(due_ms)
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    try:
        yield flush._replace(stamps=(claim.descriptor,))
    except FileNotFoundError:
        return None  # The queue was deleted meanwhile.
    root.history.record(queue, Event.FETCHED, message_id, stamp.receives, due_ms)
    return Won(stamp, target)


def _delivery(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    won: Won,
    claim: Claim,
    held: Held | None,
    block: bytes | None,
    room: Room,
) -> Delivery:
    stamp, bucket = won
    offset = message_id.header_bytes
    size = claim.status.st_size - offset
    if size < 0:
        raise Unavailable("the file is shorter than its header block")
    if held is not None and len(held.body) == size and held.head_bytes == offset:
        body, headers, reservation = held.body, held.headers, held.reservation
        return Delivery(
            queue, message_id, stamp, size, offset, body, None, bucket, headers, reservation
        )
    if block is None:
        block = root.files.read(claim.descriptor, offset, 0)
    headers = parse_block(block) if offset else ()
    reservation = room(size + offset) if size <= BODY_HELD_BYTES_MAX else None
    if reservation is None and size:
        root.files.unlock(claim.descriptor)  # A duplicate would keep the lock.
        descriptor = root.files.duplicate(claim.descriptor)
        return Delivery(queue, message_id, stamp, size, offset, None, descriptor, bucket, headers)
    body = root.files.read(claim.descriptor, size, offset)
    if len(body) != size:
        raise Unavailable("the file ended early")
    return Delivery(
        queue, message_id, stamp, size, offset, body, None, bucket, headers, reservation
    )
