"""Fetching: the rename to delay/ is the claim, made and stamped under the inode's lock.

FORMAT.md, "fetch", has the steps and what a crash after each leaves.
"""

import contextlib
from collections.abc import Iterator

from mq.errors import Busy, SettingsUnreadable, Unavailable
from mq.lifecycle import FETCH, RELEASE
from mq.limits import BODY_HELD_BYTES_MAX
from mq.message import Delivery, Stamp
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.moves import Claim, claimed, message_status, move_alive
from mq.store.root import Root
from mq.store.steps import Steps


def fetch(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    visibility_s: float,
    bucket: str | None = None,
) -> Steps[Delivery | None]:
    """Claims a ready message; None when another process won it. `bucket` is where a listing found
    it; None: wherever it is.

    The inode's lock is taken before the rename and held until the stamp is flushed: a process
    that is stopped in between keeps its claim, and mq-mover does not give it to another.
    A body of at most BODY_HELD_BYTES_MAX comes held, a larger one as an open descriptor.
    Raises Unavailable when the claim cannot be persisted or the file cannot be read: the
    message is where it was, or in delay/, from where mq-mover brings it back. Raises Busy when
    the message is there, and another process holds it in this moment.
    Durable on return: yes.
    """
    sources = (bucket,) if bucket is not None else _sources(root, queue, message_id)
    for source in sources:
        ready = root.layout.path(FETCH.source, queue, message_id, source)
        with claimed(root, ready) as claim:
            if claim is not None:
                return (yield from _claim(root, queue, message_id, visibility_s, source, claim))
            if message_status(root, ready) is not None:
                raise Busy("another process is at the message")
    return None


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
) -> Steps[Delivery | None]:
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
    due_ms = root.now_ms() + round((message_id.visibility_s or visibility_s) * 1000)
    stamp = claim.stamp.received(due_ms)
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    try:
        yield flush._replace(files=(claim.descriptor,))
    except FileNotFoundError:
        return None  # The queue was deleted meanwhile.
    return _delivery(root, queue, message_id, stamp, claim, target)


def release(root: Root, delivery: Delivery) -> Steps[bool]:
    """Puts a claimed message that nobody took back into its queue, unless it has moved on.

    Its receives stay counted. Durable on return: yes, when True.
    """
    delayed = root.layout.path(RELEASE.source, delivery.queue, delivery.id, delivery.bucket)
    with claimed(root, delayed) as claim:
        if claim is None or claim.stamp != delivery.stamp:
            return False
        again = Stamp(root.now_ms(), delivery.stamp.receives)
        root.files.stamp(claim.descriptor, again.mtime_ns())
        try:
            flush = yield from move_alive(
                root,
                RELEASE,
                delivery.queue,
                delivery.id,
                claim.status.st_nlink,
                delivery.bucket,
            )
        except OSError as error:
            if is_gone(error):
                return False  # Its queue is gone; mq-mover decides.
            raise
        # Without the lock: whoever fetches it now has won it, flushed or not.
        root.files.unlock(claim.descriptor)
        try:
            yield flush._replace(files=(claim.descriptor,))
        except FileNotFoundError:
            return False  # The queue was deleted meanwhile, the message with it.
        return True


def _delivery(
    root: Root, queue: QueueName, message_id: MessageId, stamp: Stamp, claim: Claim, bucket: str
) -> Delivery:
    offset = message_id.header_bytes
    size = claim.status.st_size - offset
    if size < 0:
        raise Unavailable("the file is shorter than its header block")
    if size > BODY_HELD_BYTES_MAX:
        root.files.unlock(claim.descriptor)  # A duplicate would go on holding the lock.
        descriptor = root.files.duplicate(claim.descriptor)
        return Delivery(queue, message_id, stamp, size, offset, None, descriptor, bucket)
    body = root.files.read(claim.descriptor, size, offset)
    if len(body) != size:
        raise Unavailable("the file ended early")
    return Delivery(queue, message_id, stamp, size, offset, body, None, bucket)
