"""Deleting a message by its id: one rename to remove/, from wherever it is.

FORMAT.md, "delete", has the steps and what a crash after each leaves.
"""

import contextlib
import errno
import os
from enum import Enum
from typing import Final

from mq.model.errors import DeliveredAgain, MessageNotFound
from mq.model.history import Event
from mq.model.lifecycle import (
    EXPUNGE_DELAYED,
    EXPUNGE_LEASED,
    EXPUNGE_READY,
    REMOVE_DELAYED,
    REMOVE_LEASED,
    REMOVE_READY,
    State,
    Transition,
)
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.find import PASSES, Precondition, leased_rows, nowhere, places_alive
from mq.store.core.moves import (
    Claim,
    claimed,
    crossed_from,
    keep_one_name,
    message_status,
    move,
    rows_across,
)
from mq.store.core.purged import refuse_purged
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_seen
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import leading
from mq.store.keys.holders import free_key

_REMOVALS: Final = {
    State.DELAYED: REMOVE_DELAYED,
    State.READY: REMOVE_READY,
    State.LEASED: REMOVE_LEASED,
}
_EXPUNGED: Final = {
    REMOVE_DELAYED: EXPUNGE_DELAYED,
    REMOVE_READY: EXPUNGE_READY,
    REMOVE_LEASED: EXPUNGE_LEASED,
}
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class _Found(Enum):
    HERE = "here, and removed by one rename"
    TAKEN = "here, and its names were taken away one by one"
    REMOVED = "removed before"
    BUSY = "another process is at it, or was: it is not where it was seen"
    NOWHERE = "nowhere"


def remove(
    root: Root, queue: QueueName, message_id: MessageId, if_receives: Precondition | None = None
) -> Steps[bool]:
    """Removes the message; False when it lay in remove/ already.

    `if_receives` is asked, under the inode's lock, whether the message's receives are those
    that the client saw. Raises QueueNotFound, MessageNotFound, DeliveredAgain, Busy,
    StorageFailed. Durable on return: yes; and so is what a not-found says, since whoever removed
    the message may have died before its own flush.
    """
    layout = root.layout
    if not queue_seen(root, queue):
        yield from no_such_queue(root, queue)
    yield from refuse_purged(root, queue, message_id)
    # Also where it was before: whoever moved it from there, or removed it, has perhaps not flushed
    # that yet. remove/ comes first, which has the message then.
    beside: tuple[tuple[str, ...], ...] = root.places.buckets(queue, message_id)
    beside = (*beside, *rows_across(root, crossed_from(root, queue), message_id))
    starts = (layout.delay, layout.queue(queue))
    folders: tuple[str, ...] = (layout.remove, *starts)
    seen = set()
    for look in range(PASSES):
        found, bucket, state, receives = _pass(root, queue, message_id, if_receives, look)
        seen.add(found)
        if found in (_Found.HERE, _Found.TAKEN, _Found.REMOVED):
            if found is not _Found.HERE or state is State.LEASED:
                beside = (*beside, *leased_rows(root))
            if bucket:
                folders = (layout.remove, *leading(layout.remove, bucket), *starts)
            # A folder that is gone is a queue deleted meanwhile, or a bucket that was reaped.
            with contextlib.suppress(FileNotFoundError):
                covered = len(starts) if found is _Found.HERE else 0
                yield Flush(folders=folders, beside=beside, covered=covered)
            if message_id.key is not None:
                free_key(root, queue, message_id)
            if found is not _Found.REMOVED:
                root.history.record(queue, Event.REMOVED, message_id, receives)
            return found is not _Found.REMOVED
    yield from nowhere(root, queue, message_id, is_busy=_Found.BUSY in seen)
    raise MessageNotFound(message_id.text)


def take_away(
    root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str
) -> bool:
    """Moves a message that nobody may have any more from this place to remove/; False when it is
    not there, or another process is at it. Raises OSError, Busy. Durable on return: no.
    """
    removal = _REMOVALS[state]
    status = message_status(root, root.layout.path(state, queue, message_id, bucket))
    if status is None:
        return False
    target = root.places.target(removal.target, queue, message_id)
    try:
        if status.st_nlink == 1:
            _remove(root, removal, queue, message_id, 1, bucket, target)
        elif _remove_locked(root, removal, queue, message_id, None, bucket, target) is _Found.BUSY:
            return False
    except OSError as error:
        if not is_gone(error):
            raise
        return False
    root.history.record(queue, Event.REMOVED, message_id, _receives(status))
    return True


def take_held(
    root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim
) -> None:
    """Like `take_away` of a message whose claim the caller has. Raises OSError as rename does."""
    removal, links = _REMOVALS[state], claim.status.st_nlink
    target = root.places.target(removal.target, queue, message_id)
    _remove(root, removal, queue, message_id, links, bucket, target)
    root.history.record(queue, Event.REMOVED, message_id, claim.stamp.receives)


def is_full(error: OSError) -> bool:
    """Whether the error says that there is no room for a name."""
    return error.errno in _NO_SPACE


def _pass(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    if_receives: Precondition | None,
    look: int,
) -> tuple[_Found, str, State, int]:
    """Looks once into every place of the message, and removes it from the first that has it; what
    came of it, the bucket of remove/ that it lies in then, where it was, and its receives.
    """
    missed = _Found.NOWHERE
    for state, source in places_alive(root, queue, message_id, look):
        removal = _REMOVALS[state]
        status = message_status(root, root.layout.path(removal.source, queue, message_id, source))
        if status is None:
            continue
        target = root.places.target(removal.target, queue, message_id)
        try:
            # Of two names a fetch would take remove/'s away: only the lock keeps it off.
            if if_receives is None and status.st_nlink == 1:
                found = _remove(root, removal, queue, message_id, 1, source, target)
                return found, target, state, _receives(status)
            found = _remove_locked(root, removal, queue, message_id, if_receives, source, target)
            if found is not _Found.BUSY:
                return found, target, state, _receives(status)
        except OSError as error:
            if not is_gone(error):
                raise
            # It moved on; or NFS did it and lost the answer, and its cache hides remove/'s name.
            missed = _Found.BUSY
            continue
        missed = _Found.BUSY
    for bucket in root.places.spots(State.REMOVED, queue, message_id):
        path = root.layout.path(State.REMOVED, queue, message_id, bucket)
        if (status := message_status(root, path)) is None:
            continue
        if status.st_nlink > 1 and not _keep_removed(root, queue, message_id, bucket):
            missed = _Found.BUSY
            continue
        return _Found.REMOVED, bucket, State.REMOVED, 0
    return missed, "", State.ABSENT, 0


def _keep_removed(root: Root, queue: QueueName, message_id: MessageId, bucket: str) -> bool:
    """Takes the other name away of one that is removed: it may be of the queue's sideline, or in a
    sideline of its queue, where nobody has looked. False when another process is at it.
    """
    with claimed(root, root.layout.path(State.REMOVED, queue, message_id, bucket)) as claim:
        if claim is not None:
            keep_one_name(root, State.REMOVED, queue, message_id, bucket)
        return claim is not None


def _receives(status: os.stat_result) -> int:
    return Stamp.from_mtime_ns(status.st_mtime_ns).receives


def _remove(
    root: Root,
    removal: Transition,
    queue: QueueName,
    message_id: MessageId,
    links: int,
    source: str,
    target: str,
) -> _Found:
    try:
        move(root, removal, queue, message_id, links, source, target)
        return _Found.HERE if links == 1 else _Found.TAKEN
    except OSError as error:
        if not is_full(error):
            raise
    # remove/ cannot grow by a name: take the name away instead, which frees.
    expunged = _EXPUNGED[removal]
    if links > 1:
        keep_one_name(root, expunged.source, queue, message_id, source)
    root.files.unlink(root.layout.path(expunged.source, queue, message_id, source))
    return _Found.TAKEN


def _remove_locked(
    root: Root,
    removal: Transition,
    queue: QueueName,
    message_id: MessageId,
    if_receives: Precondition | None,
    source: str,
    target: str,
) -> _Found:
    with claimed(root, root.layout.path(removal.source, queue, message_id, source)) as claim:
        if claim is None:
            return _Found.BUSY
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        links = claim.status.st_nlink
        return _remove(root, removal, queue, message_id, links, source, target)
