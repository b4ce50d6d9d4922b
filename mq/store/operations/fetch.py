"""Fetching: the rename to delay/ is the claim, made and stamped under the inode's lock.

FORMAT.md, "fetch", has the steps and what a crash after each leaves.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from mq.model.errors import Busy, MessageUnreadable, SettingsUnreadable, Unavailable
from mq.model.headers import parse_block
from mq.model.history import Event
from mq.model.lifecycle import FETCH, State
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.message import Delivery, Held, Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.expired import message_expired
from mq.store.core.moves import Claim, claimed, message_status, move_alive
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.core.unreadable import header_block, is_unreadable
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Steps
from mq.store.operations.read import Room, any_room
from mq.store.operations.sideline import sideline_held


class _Won(NamedTuple):
    """A claim that is on stable media: the message's stamp, and where below delay/ it lies."""

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
    """Claims a ready message; None when another process won it, or it is served no more. `bucket`
    is where a listing found it; None: wherever it is. It is the fetcher's for `asked_s`; None: for
    as long as the message says itself, or for `visibility_s`.

    The inode's lock is taken before the rename and held until the stamp is flushed: a process
    that is stopped in between keeps its claim, and mq-mover does not give it to another.
    A body of at most BODY_HELD_BYTES_MAX comes held where there is `room` for it, any other as an
    open descriptor; what is `held` of the message already is not read again.
    What cannot be what was published goes to the queue's sideline instead, durably: raises
    MessageUnreadable then, or what `sideline_held` does. In a sideline it stays.
    Raises Unavailable when the claim cannot be persisted or the file cannot be read: the
    message is where it was, or in delay/, from where mq-mover brings it back. Raises Busy when
    the message is there, and another process holds it in this moment.
    Durable on return: yes.
    """
    sources = (bucket,) if bucket is not None else _sources(root, queue, message_id)
    for source in sources:
        ready = root.layout.path(FETCH.source, queue, message_id, source)
        with claimed(root, ready) as claim:
            if claim is not None and _is_served_no_more(root, queue, message_id):
                return None
            if claim is not None:
                block = header_block(root, message_id, claim, held)
                if not queue.is_sideline and is_unreadable(message_id, claim, block):
                    where = (State.READY, source)
                    why = Reason.UNREADABLE
                    yield from sideline_held(root, queue, message_id, *where, claim, why)
                    raise MessageUnreadable(message_id.text)
                shown_s = asked_s or message_id.visibility_s or visibility_s
                won = yield from _claim(root, queue, message_id, shown_s, source, claim)
                return won and _delivery(root, queue, message_id, won, claim, held, block, room)
            if message_status(root, ready) is not None:
                raise Busy("another process is at the message")
    return None


def _is_served_no_more(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether it was purged, or has expired, since somebody saw it."""
    return is_purged(root, queue, message_id) or message_expired(root, queue, message_id)


def _sources(root: Root, queue: QueueName, message_id: MessageId) -> Iterator[str]:
    # A queue's settings that cannot be read hide nothing: a listing finds its messages.
    with contextlib.suppress(SettingsUnreadable):
        yield from root.places.spots(FETCH.source, queue, message_id)


def _claim(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    visibility_s: float,
    source: str,
    claim: Claim,
) -> Steps[_Won | None]:
    links = claim.status.st_nlink
    target = root.places.target(FETCH.target, queue, message_id)
    try:
        flush = yield from move_alive(root, FETCH, queue, message_id, links, source, target)
    except OSError as error:
        if not is_gone(error) or root.files.status(root.layout.delay) is None:
            raise
        # Deleted; or, on NFS, done and the answer lost. Not claimed: redelivery brings it
        # back.
        return None
    due_ms = root.now_ms() + round(visibility_s * 1000)
    stamp = claim.stamp.received(due_ms)
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    try:
        yield flush._replace(files=(claim.descriptor,))
    except FileNotFoundError:
        return None  # The queue was deleted meanwhile.
    root.history.record(queue, Event.FETCHED, message_id, stamp.receives, due_ms)
    return _Won(stamp, target)


def _delivery(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    won: _Won,
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
        body, headers, hand = held.body, held.headers, held.hand
        return Delivery(queue, message_id, stamp, size, offset, body, None, bucket, headers, hand)
    if block is None:
        block = root.files.read(claim.descriptor, offset, 0)
    headers = parse_block(block) if offset else ()
    hand = room(size + offset) if size <= BODY_HELD_BYTES_MAX else None
    if hand is None and size:
        root.files.unlock(claim.descriptor)  # A duplicate would go on holding the lock.
        descriptor = root.files.duplicate(claim.descriptor)
        return Delivery(queue, message_id, stamp, size, offset, None, descriptor, bucket, headers)
    body = root.files.read(claim.descriptor, size, offset)
    if len(body) != size:
        raise Unavailable("the file ended early")
    return Delivery(queue, message_id, stamp, size, offset, body, None, bucket, headers, hand)
