"""Giving a message another due time: released to its queue, kept back in delay/, or extended.

FORMAT.md, "extend, release, postpone", has the steps and what a crash after each leaves.
"""

import contextlib
from dataclasses import replace
from typing import Final

from mq.errors import Busy, DeliveredAgain, MessageNotFound, StorageFailed
from mq.lifecycle import POSTPONE, RELEASE, State
from mq.message import Delivery, Stamp
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.find import PASSES, Precondition, places_alive
from mq.store.moves import (
    Claim,
    claimed,
    message_status,
    move_alive,
    no_such_queue,
    queue_exists,
)
from mq.store.purged import refuse_purged
from mq.store.root import Root
from mq.store.stamping import stamp_due
from mq.store.steps import Flush, Steps

_NOTHING_MORE: Final = Flush()


def release(root: Root, delivery: Delivery) -> Steps[bool]:
    """Puts a claimed message that nobody took back into its queue, unless it has moved on.

    Its receives stay counted. Durable on return: yes, when True.
    """
    delayed = root.layout.path(RELEASE.source, delivery.queue, delivery.id, delivery.bucket)
    with claimed(root, delayed) as claim:
        if claim is None or claim.stamp != delivery.stamp:
            return False
        try:
            yield from _release(root, delivery.queue, delivery.id, delivery.bucket, claim)
        except OSError as error:
            if is_gone(error):
                return False  # Its queue is gone; mq-mover decides.
            raise
        return True


def extend(root: Root, delivery: Delivery, due_ms: int) -> Steps[Delivery | None]:
    """Gives a claimed message another due time, milliseconds since the epoch; None when it has
    moved on. Durable on return: yes.
    """
    delayed = root.layout.path(State.DELAYED, delivery.queue, delivery.id, delivery.bucket)
    with claimed(root, delayed) as claim:
        if claim is None or claim.stamp != delivery.stamp:
            return None
        stamp = yield from _stamp(root, claim, due_ms)
    return replace(delivery, stamp=stamp)


def reschedule(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    due_in_s: float,
    if_receives: Precondition | None = None,
) -> Steps[Stamp]:
    """Has the message be ready in so many seconds from now, 0: at once, wherever it is; its new
    stamp. Its receives stay as they are.

    `if_receives` is asked, under the inode's lock, whether they are those that the client saw.
    Raises QueueNotFound, MessageNotFound, DeliveredAgain, Busy, StorageFailed.
    Durable on return: yes.
    """
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    yield from refuse_purged(root, queue, message_id)
    busy = None
    for look in range(PASSES):
        for state, bucket in places_alive(root, queue, message_id, look):
            try:
                stamp = yield from _reschedule_at(
                    root, queue, message_id, state, bucket, due_in_s, if_receives
                )
            except Busy as error:
                busy = error
                continue
            if stamp is not None:
                return stamp
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    if root.files.status(root.layout.delay) is None:
        raise StorageFailed(f"{root.layout.delay} is gone")
    raise busy or MessageNotFound(message_id.text)


def _reschedule_at(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    state: State,
    bucket: str,
    due_in_s: float,
    if_receives: Precondition | None,
) -> Steps[Stamp | None]:
    """None: it is not there. Raises Busy when another is at it, or moved it meanwhile."""
    path = root.layout.path(state, queue, message_id, bucket)
    if message_status(root, path) is None:
        return None
    with claimed(root, path) as claim:
        if claim is None:
            raise Busy("another process is at the message")
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        try:
            return (yield from _reschedule(root, queue, message_id, state, bucket, claim, due_in_s))
        except OSError as error:
            if not is_gone(error):
                raise
            raise Busy("the message moved while it was held") from error


def _reschedule(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    state: State,
    bucket: str,
    claim: Claim,
    due_in_s: float,
) -> Steps[Stamp]:
    due_ms = root.now_ms() + round(due_in_s * 1000)
    if due_in_s <= 0:
        if state is State.DELAYED:
            return (yield from _release(root, queue, message_id, bucket, claim))
        # As it was; but whoever brought it there has perhaps not flushed that.
        yield Flush(folders=(root.layout.parent(state, queue, bucket),))
        return claim.stamp
    if state is State.DELAYED:
        return (yield from _stamp(root, claim, due_ms))
    # The rename first, as in a fetch: a ready file with a due time to come would be fetched.
    flush = yield from move_alive(root, POSTPONE, queue, message_id, claim.status.st_nlink, bucket)
    return (yield from _stamp(root, claim, due_ms, flush))


def _release(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim
) -> Steps[Stamp]:
    again = Stamp(root.now_ms(), claim.stamp.receives)
    root.files.stamp(claim.descriptor, again.mtime_ns())
    flush = yield from move_alive(root, RELEASE, queue, message_id, claim.status.st_nlink, bucket)
    # Without the lock: whoever fetches it now has won it, flushed or not.
    root.files.unlock(claim.descriptor)
    yield flush._replace(files=(claim.descriptor,))
    return again


def _stamp(root: Root, claim: Claim, due_ms: int, flush: Flush = _NOTHING_MORE) -> Steps[Stamp]:
    stamp = replace(claim.stamp, due_ms=due_ms)
    stamp_due(root, claim.descriptor, stamp)
    with contextlib.suppress(FileNotFoundError):  # The queue was deleted meanwhile.
        yield flush._replace(files=(claim.descriptor,))
    return stamp
