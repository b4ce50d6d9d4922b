"""Deletes messages by their ids: for each one rename to remove/, from any state; one flush for all.

PROTOCOL.md, "delete a message", has the steps and what a crash after each leaves.
"""

import contextlib
import errno
import os
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from mq.model.errors import (
    DeliveredAgain,
    KeyNotFound,
    MessageNotFound,
    MqError,
    QueueNotFound,
    unavailable,
)
from mq.model.history import Event
from mq.model.lifecycle import (
    EXPUNGE_DELAYED,
    EXPUNGE_LEASED,
    EXPUNGE_READY,
    REMOVE_DELAYED,
    REMOVE_LEASED,
    REMOVE_READY,
    State,
)
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.model.totals import Total
from mq.store.core.find import PASSES, Precondition, absence, lives, places_alive
from mq.store.core.moves import Claim, Move, claimed, message_status, move, together
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists, queue_seen
from mq.store.core.unserved import covering_mark
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import leading
from mq.store.format.layout import Keys, Place
from mq.store.keys.entries import block_at, drop_entries
from mq.store.keys.links import LINK_TRIES_MAX, free_key, linked_id, read_link

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
    TAKEN = "here, and unlinked: remove/ had no room for its name"
    REMOVED = "removed before"
    BUSY = "another process is at it, or was: it is not where it was seen"
    NOWHERE = "nowhere"

    __hash__ = object.__hash__  # Enum's own is Python code.


class Wanted(NamedTuple):
    """A message to remove. `if_receives` is called under the inode's lock: whether the message's
    receives are those that the client saw.
    """

    id: MessageId
    if_receives: Precondition | None = None


class _End(NamedTuple):
    """A message after its rename, or as it was found in remove/: there in this `bucket`."""

    found: _Found
    bucket: str
    state: State
    """Before."""
    receives: int


def remove(
    root: Root, queue: QueueName, message_id: MessageId, if_receives: Precondition | None = None
) -> Steps[bool]:
    """Like `remove_many`, for one message. Raises its error."""
    [end] = yield from remove_many(root, queue, [Wanted(message_id, if_receives)])
    if isinstance(end, MqError):
        raise end
    return end


def remove_many(
    root: Root, queue: QueueName, wanted: Sequence[Wanted]
) -> Steps[list[bool | MqError]]:
    """Removes the messages. Returns for each true, false if it was removed before, or the error:
    QueueNotFound, MessageNotFound, DeliveredAgain, Busy, Unavailable.

    Raises QueueNotFound, and an error of the flush. Durable on return: yes; a not-found too, since
    the process that removed the message may have died before its flush.
    """
    # In a queue that another process has just deleted it may still find a message, which is removed
    # all the same; a miss is answered by the current state.
    facts = root.facts.of(queue)
    if not facts.exists and not queue_seen(root, queue):
        yield from no_such_queue(root, queue)
    flushes: dict[Flush, None] = {}
    ends: list[_End | MqError] = []
    for each in wanted:
        try:
            end, flush = _act(root, queue, each, facts.purged_ms is not None)
        except MqError as error:
            ends.append(error)
        except OSError as error:
            ends.append(unavailable(error))
        else:
            ends.append(end)
            flushes[flush] = None
    if flushes:
        flush = next(iter(flushes)) if len(flushes) == 1 else together(flushes)
        # The folder of a queue that was deleted meanwhile, or of a bucket that was reaped.
        with contextlib.suppress(FileNotFoundError):
            yield flush
    if any(isinstance(end, QueueNotFound) for end in ends):
        yield Flush(folders=(root.layout.remove, root.layout.queues))
    return [
        end if isinstance(end, MqError) else _ended(root, queue, each.id, end)
        for each, end in zip(wanted, ends, strict=True)
    ]


def _act(
    root: Root, queue: QueueName, wanted: Wanted, has_mark: bool
) -> tuple[_End | MqError, Flush]:
    """Removes one message. Returns its end, or that it is not found, and the flush that makes this
    durable. Raises QueueNotFound, which is not durable; DeliveredAgain, Busy, StorageFailed.
    """
    message_id = wanted.id
    if has_mark and covering_mark(root, queue, message_id) is not None:
        return MessageNotFound(message_id.text), Flush(folders=(root.layout.purged,))
    seen = set()
    for look in range(PASSES):
        end = _pass(root, queue, message_id, wanted.if_receives, look)
        if end.found in (_Found.HERE, _Found.TAKEN, _Found.REMOVED):
            return end, _flush_of(root, queue, end)
        seen.add(end.found)
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    flush = absence(root, queue, message_id, is_busy=_Found.BUSY in seen)
    return MessageNotFound(message_id.text), flush


def _flush_of(root: Root, queue: QueueName, end: _End) -> Flush:
    """The flush that makes a removal durable, also if it was removed before: the process that
    removed it may not have flushed that. remove/ first, which has the message then.
    """
    layout = root.layout
    starts = (layout.delay, layout.queue(queue))
    way = (layout.remove, *leading(layout.remove, end.bucket)) if end.bucket else (layout.remove,)
    return Flush((), (*way, *starts), len(starts) if end.found is _Found.HERE else 0)


def _ended(root: Root, queue: QueueName, message_id: MessageId, end: _End) -> bool:
    """What follows a removal that is on stable media. Whether this operation removed it."""
    free_key(root, queue, message_id)
    if message_id.is_entered:
        path = root.layout.path(State.REMOVED, queue, message_id, end.bucket)
        block = block_at(root, path, message_id)
        drop_entries(root, queue, message_id, block)
    if end.found is not _Found.REMOVED:
        root.totals.add(queue, Total.DELETED, message_id.items or 1)
        root.history.record(queue, Event.REMOVED, message_id, end.receives)
    return end.found is not _Found.REMOVED


def take_away(root: Root, place: Place) -> bool:
    """Moves a message that is no longer served to remove/. False if it is gone. Raises OSError,
    Busy. Durable on return: no.
    """
    status = message_status(root, place.path(root.layout))
    if status is None:
        return False
    queue, message_id, removal = place.queue, place.id, _removal(root, *place)
    try:
        _remove(root, removal)
    except OSError as error:
        if not is_gone(error):
            raise
        return False
    root.history.record(queue, Event.REMOVED, message_id, _receives(status))
    return True


def take_held(root: Root, place: Place, claim: Claim) -> None:
    """Like `take_away`, for a message that the caller has claimed. Raises OSError as rename
    does.
    """
    _remove(root, _removal(root, *place))
    root.history.record(place.queue, Event.REMOVED, place.id, claim.stamp.receives)


def _removal(root: Root, state: State, queue: QueueName, message_id: MessageId, at: str) -> Move:
    target = root.places.target(State.REMOVED, queue, message_id)
    return Move(_REMOVALS[state], queue, message_id, at, target)


def is_full(error: OSError) -> bool:
    """Whether the error means that there is no room for another name."""
    return error.errno in _NO_SPACE


def _pass(
    root: Root, queue: QueueName, message_id: MessageId, if_receives: Precondition | None, look: int
) -> _End:
    """Searches every place of the message once, and removes it from the first one that has it."""
    missed = _Found.NOWHERE
    for state, source in places_alive(root, queue, message_id, look):
        status = message_status(root, root.layout.path(state, queue, message_id, source))
        if status is None:
            continue
        removal = _removal(root, state, queue, message_id, source)
        try:
            if if_receives is None and status.st_nlink == 1:
                return _End(_remove(root, removal), removal.bucket, state, _receives(status))
            found = _remove_locked(root, removal, if_receives)
            if found is not _Found.BUSY:
                return _End(found, removal.bucket, state, _receives(status))
        except OSError as error:
            if not is_gone(error):
                raise
            # It moved on; or NFS did it and lost the answer, and its cache hides remove/'s name.
            missed = _Found.BUSY
            continue
        missed = _Found.BUSY
    for bucket in root.places.spots(State.REMOVED, queue, message_id):
        path = root.layout.path(State.REMOVED, queue, message_id, bucket)
        if message_status(root, path) is not None:
            return _End(_Found.REMOVED, bucket, State.REMOVED, 0)
    return _End(missed, "", State.ABSENT, 0)


def _receives(status: os.stat_result) -> int:
    return Stamp.from_mtime_ns(status.st_mtime_ns).receives


def _remove(root: Root, removal: Move) -> _Found:
    try:
        move(root, removal)
        return _Found.HERE
    except OSError as error:
        if not is_full(error):
            raise
    # remove/ cannot grow by a name: unlink the message instead, which frees space.
    expunged = removal._replace(transition=_EXPUNGED[removal.transition])
    root.files.unlink(expunged.source_path(root.layout))
    return _Found.TAKEN


def _remove_locked(root: Root, removal: Move, if_receives: Precondition | None) -> _Found:
    place = Place(removal.transition.source, removal.queue, removal.id, removal.source)
    with claimed(root, place) as claim:
        if claim is None:
            return _Found.BUSY
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        return _remove(root, removal)


def find_key(root: Root, queue: QueueName, key: Key) -> Steps[MessageId]:
    """The living message with the key. Raises QueueNotFound, KeyNotFound. Durable on return: that
    it has the key.
    """
    holder = yield from _named(root, queue, key)
    if holder is None or not lives(root, queue, holder):
        raise KeyNotFound(key.text)
    return holder


def remove_by_key(
    root: Root, queue: QueueName, key: Key, if_receives: Precondition | None = None
) -> Steps[bool]:
    """Removes the message with the key, as `remove` does; False if it was removed before. Raises
    KeyNotFound, and the errors of `remove`. Durable on return: yes.
    """
    last = None
    for _ in range(LINK_TRIES_MAX):
        holder = yield from _named(root, queue, key)
        if holder is None or holder == last:
            break
        try:
            return (yield from remove(root, queue, holder, if_receives))
        except MessageNotFound:
            last = holder  # Or another message has the key now.
    raise KeyNotFound(key.text)


def _named(root: Root, queue: QueueName, key: Key) -> Steps[MessageId | None]:
    """The message that the key's link names; None: there is none."""
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    place = root.layout.link(Keys.LOOKUP, queue, key)
    target = read_link(root, place)
    return None if target is None else linked_id(target)
