"""Deleting a message by its id: one rename to remove/, from wherever it is.

FORMAT.md, "delete", has the steps and what a crash after each leaves.
"""

import contextlib
import errno
from collections.abc import Callable
from enum import Enum
from typing import Final

from mq.errors import Busy, DeliveredAgain, MessageNotFound, StorageFailed
from mq.lifecycle import (
    EXPUNGE_DELAYED,
    EXPUNGE_READY,
    REMOVE_DELAYED,
    REMOVE_READY,
    State,
    Transition,
)
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.moves import (
    claimed,
    keep_one_name,
    message_status,
    move,
    no_such_queue,
    queue_exists,
)
from mq.store.root import Root
from mq.store.steps import Flush, Steps

# Where a delete looks, in this order: what was fetched, then what was not. The second pass ends
# with the ready folder, since a message can come back between two looks.
_PASSES: Final = 2
_REMOVALS: Final = (REMOVE_DELAYED, REMOVE_READY)
_EXPUNGED: Final = {REMOVE_DELAYED: EXPUNGE_DELAYED, REMOVE_READY: EXPUNGE_READY}
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)

Precondition = Callable[[int], bool]


class _Found(Enum):
    HERE = "here, and removed"
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
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    everywhere = Flush(folders=(layout.remove, layout.delay, layout.queue(queue)))
    seen = set()
    for _ in range(_PASSES):
        found = _pass(root, queue, message_id, if_receives)
        seen.add(found)
        if found in (_Found.HERE, _Found.REMOVED):
            # Also where it was before: whoever moved it from there, or removed it, has perhaps
            # not flushed that yet. A folder that is gone is a queue deleted meanwhile; remove/,
            # flushed first, has the message.
            with contextlib.suppress(FileNotFoundError):
                yield everywhere._replace(first_covers=True)
            return found is _Found.HERE
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    for folder in (layout.delay, layout.remove):
        if root.files.status(folder) is None:
            # What may lie there, or could not be taken there, is not gone.
            raise StorageFailed(f"{folder} is gone")
    if _Found.BUSY in seen:
        raise Busy("another process is at the message, or it moved between two looks")
    with contextlib.suppress(FileNotFoundError):
        yield everywhere
    raise MessageNotFound(message_id.text)


def _pass(
    root: Root, queue: QueueName, message_id: MessageId, if_receives: Precondition | None
) -> _Found:
    """Looks once into every place of the message, and removes it from the first that has it."""
    missed = _Found.NOWHERE
    for removal in _REMOVALS:
        status = message_status(root, root.layout.path(removal.source, queue, message_id))
        if status is None:
            continue
        try:
            # Of two names a fetch would take remove/'s away: only the lock keeps it off.
            if if_receives is None and status.st_nlink == 1:
                _remove(root, removal, queue, message_id, 1)
                return _Found.HERE
            if _remove_locked(root, removal, queue, message_id, if_receives):
                return _Found.HERE
        except OSError as error:
            if not is_gone(error):
                raise
            # It moved on; or NFS did it and lost the answer, and its cache hides remove/'s name.
            missed = _Found.BUSY
            continue
        missed = _Found.BUSY
    if message_status(root, root.layout.path(State.REMOVED, queue, message_id)) is not None:
        return _Found.REMOVED
    return missed


def _remove(
    root: Root, removal: Transition, queue: QueueName, message_id: MessageId, links: int
) -> None:
    try:
        move(root, removal, queue, message_id, links)
        return
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
    # remove/ cannot grow by a name: take the name away instead, which frees.
    expunged = _EXPUNGED[removal]
    if links > 1:
        keep_one_name(root, expunged.source, queue, message_id)
    root.files.unlink(root.layout.path(expunged.source, queue, message_id))


def _remove_locked(
    root: Root,
    removal: Transition,
    queue: QueueName,
    message_id: MessageId,
    if_receives: Precondition | None,
) -> bool:
    """False when another process is at the message."""
    with claimed(root, root.layout.path(removal.source, queue, message_id)) as claim:
        if claim is None:
            return False
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        _remove(root, removal, queue, message_id, claim.status.st_nlink)
        return True
