"""Moving a message to its queue's sideline, for good: one rename, so that the only copy is never at
risk.

FORMAT.md, "sideline", has the steps and what a crash after each leaves.
"""

from typing import Final

from mq.model.errors import (
    AlreadySideline,
    Busy,
    DeliveredAgain,
    MessageLeased,
    MessageNotFound,
    SidelineMissing,
    SidelinePurged,
)
from mq.model.history import Event
from mq.model.lifecycle import SIDELINE_DELAYED, SIDELINE_READY, State, Transition
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.find import PASSES, Precondition, nowhere, places_alive
from mq.store.core.moves import Claim, claimed, message_status, move_alive, others_of, rows_across
from mq.store.core.purged import is_purged, refuse_purged
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.pipeline import parse_lease_file
from mq.store.keys.holders import free_key, kept_flush

_MOVES: Final = {State.DELAYED: SIDELINE_DELAYED, State.READY: SIDELINE_READY}


def sideline(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    reason: Reason = Reason.REJECTED,
    if_receives: Precondition | None = None,
) -> Steps[Stamp]:
    """Moves the message to its queue's sideline, wherever it is; its stamp there. One that is
    there already, or was fetched from there, stays as it is. Its receives stay as they are; its
    key is free.

    `if_receives` is asked, under the inode's lock, whether they are those that the client saw.
    Raises AlreadySideline, QueueNotFound, MessageNotFound, MessageLeased, DeliveredAgain;
    SidelineMissing when `create_queue` has to make the sideline first; SidelinePurged, Busy,
    StorageFailed: the message is where it was. Durable on return: yes; and so is what a not-found
    says.
    """
    if queue.is_sideline:
        raise AlreadySideline(queue.text)
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    is_busy = False
    for look in range(0 if is_purged(root, queue, message_id) else PASSES):
        for state, bucket in places_alive(root, queue, message_id, look):
            try:
                stamp = yield from _from(
                    root, queue, message_id, state, bucket, reason, if_receives
                )
            except Busy:
                is_busy = True
                continue
            if stamp is not None:
                return stamp
    stamp = yield from _already(root, queue, message_id)
    if stamp is not None:
        return stamp
    yield from refuse_purged(root, queue, message_id)
    yield from nowhere(root, queue, message_id, is_busy=is_busy)
    raise MessageNotFound(message_id.text)


def _from(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    state: State,
    bucket: str,
    reason: Reason,
    if_receives: Precondition | None,
) -> Steps[Stamp | None]:
    """None: it is not there. Raises Busy when another is at it, or moved it meanwhile."""
    path = root.layout.path(state, queue, message_id, bucket)
    if message_status(root, path) is None:
        return None
    if state is State.LEASED:
        raise MessageLeased(parse_lease_file(bucket[:-1])[0].text)
    if not queue_exists(root, queue.sideline()):
        raise SidelineMissing(queue.sideline().text)
    with claimed(root, path) as claim:
        if claim is None:
            raise Busy("another process is at the message")
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        return (yield from sideline_held(root, queue, message_id, state, bucket, claim, reason))


def sideline_held(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    state: State,
    bucket: str,
    claim: Claim,
    reason: Reason,
) -> Steps[Stamp]:
    """Moves a message, DELAYED or READY, whose claim the caller has, and keeps meanwhile, to its
    queue's sideline; its stamp there. Its receives stay as they are; its key is free.

    Raises AlreadySideline for what is a sideline's own; SidelineMissing when `create_queue` has to
    make the sideline first; SidelinePurged; Busy when it moved all the same, or is purged;
    StorageFailed, SettingsUnreadable, OSError: the message is where it was, or was moved and not
    flushed. Durable on return: yes.
    """
    if queue.is_sideline:
        raise AlreadySideline(queue.text)
    into = queue.sideline()
    if not queue_exists(root, into):
        raise SidelineMissing(into.text)
    # Whoever made the sideline, or took its purge's mark away, may have died before its own
    # flush: without the one, or with the other, the message would be lost.
    yield Flush(folders=(root.layout.purged,), entries=(root.layout.queue(into),))
    if is_purged(root, queue, message_id):
        raise Busy("the message is purged")
    if is_purged(root, into, message_id):
        raise SidelinePurged(into.text)
    act = _MOVES[state]
    try:
        stamp = yield from move_stamped(root, act, queue, message_id, bucket, claim, reason, into)
    except Busy as error:
        if not queue_exists(root, into):
            raise SidelineMissing(into.text) from error
        raise
    free_key(root, queue, message_id)
    why = reason.name.lower()
    root.history.record(queue, Event.SIDELINED, message_id, stamp.receives, reason=why)
    return stamp


def is_at_its_limit(root: Root, queue: QueueName, attempts: int) -> bool:
    """Whether a message was tried as often as its queue allows: it goes to the sideline instead
    of back. Never in a sideline, which has none of its own. Blocking, now and then, for a look at
    the queue's settings; where these cannot be understood they are as last known.
    """
    return not queue.is_sideline and 0 < root.settings.of(queue).max_receives <= attempts


def move_stamped(
    root: Root,
    transition: Transition,
    queue: QueueName,
    message_id: MessageId,
    bucket: str,
    claim: Claim,
    reason: Reason,
    into: QueueName,
) -> Steps[Stamp]:
    """Moves a message whose claim the caller has to where it is ready in a sideline, and says since
    when and why; its stamp there. The rename first: where it fails, nothing has changed. The lock
    stays until all is flushed: what is fetched, and removed, there must not come back here.

    Raises Busy when it moved all the same, or `into` is gone; OSError. Durable on return: yes.
    """
    links = claim.status.st_nlink
    try:
        flush = yield from move_alive(root, transition, queue, message_id, links, bucket, into=into)
        stamp = Stamp(root.now_ms(), claim.stamp.receives, reason)
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        yield flush._replace(files=(claim.descriptor,))
    except OSError as error:
        if not is_gone(error):
            raise
        # NFS may have done it and lost the answer; or the queue was deleted meanwhile.
        raise Busy("the message moved while it was held") from error
    return stamp


def _already(root: Root, queue: QueueName, message_id: MessageId) -> Steps[Stamp | None]:
    """Its stamp where it is the sideline's message already; None: it is not."""
    into = queue.sideline()
    if not queue_exists(root, into) or is_purged(root, into, message_id):
        return None
    for look in range(PASSES):
        for state, bucket in places_alive(root, into, message_id, look):
            status = message_status(root, root.layout.path(state, into, message_id, bucket))
            if status is not None:
                flush = kept_flush(root, into, message_id)
                rows = rows_across(root, others_of(root, into), message_id)
                yield flush._replace(beside=flush.beside + rows)
                return Stamp.from_mtime_ns(status.st_mtime_ns)
    return None
