"""Moves a message to its queue's sideline by one rename, so that its only copy always exists.

PROTOCOL.md, "sideline", has the steps and what a crash after each leaves.
"""

import contextlib
from typing import Final, NamedTuple

from mq.model.errors import (
    AlreadySideline,
    Busy,
    DeliveredAgain,
    MessageLeased,
    MessageNotFound,
    MqError,
    SidelineMissing,
    SidelinePurged,
    unavailable,
)
from mq.model.failure import Failure
from mq.model.history import Event
from mq.model.lifecycle import SIDELINE_DELAYED, SIDELINE_READY, State
from mq.model.log import Logger
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.failures import keep_failure
from mq.store.core.find import PASSES, Precondition, kept_flush, nowhere, places_alive
from mq.store.core.message_file import NO_BLOCK, header_block
from mq.store.core.moves import Claim, Move, claimed, message_status, move
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.core.unserved import is_purged, refuse_purged
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Steps
from mq.store.format.crossings import Joint
from mq.store.format.layout import Place
from mq.store.format.pipeline import parse_lease_file
from mq.store.keys.entries import drop_entries, enter
from mq.store.keys.links import free_key
from mq.store.operations.queues import make_queue


class Sidelined(NamedTuple):
    """A message's sideline, and its stamp there."""

    into: QueueName
    stamp: Stamp


# Queues of which a process remembers that their messages are stuck.
_STUCK_MAX: Final = 1000

_MOVES: Final = {State.DELAYED: SIDELINE_DELAYED, State.READY: SIDELINE_READY}


def sideline(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    reason: Reason = Reason.REJECTED,
    if_receives: Precondition | None = None,
    failure: Failure | None = None,
) -> Steps[Sidelined]:
    """Moves the message, in any state, to its queue's sideline or the sideline that its queue
    shares, which it makes if it is missing. A message that is there, or was fetched from there,
    stays as it is. Its receives stay; its key becomes free.

    `if_receives` is called under the inode's lock: whether the receives are those that the client
    saw. `failure` is kept with the message. Raises AlreadySideline, QueueNotFound, MessageNotFound,
    MessageLeased, DeliveredAgain; SidelineMissing, SidelinePurged, Busy, StorageFailed: the message
    stays where it was. Durable on return: yes; a not-found too.
    """
    if queue.is_sideline:
        raise AlreadySideline(queue.text)
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    is_busy = False
    for look in range(0 if is_purged(root, queue, message_id) else PASSES):
        for state, bucket in places_alive(root, queue, message_id, look):
            try:
                place = Place(state, queue, message_id, bucket)
                moved = yield from _from(root, place, reason, if_receives, failure)
            except Busy:
                is_busy = True
                continue
            if moved is not None:
                return moved
    moved = yield from _already(root, queue, message_id)
    if moved is not None:
        return moved
    yield from refuse_purged(root, queue, message_id)
    yield from nowhere(root, queue, message_id, is_busy=is_busy)
    raise MessageNotFound(message_id.text)


def _from(
    root: Root,
    place: Place,
    reason: Reason,
    if_receives: Precondition | None,
    failure: Failure | None,
) -> Steps[Sidelined | None]:
    """None: the message is not there. Raises Busy if another process has it locked or moved it."""
    if message_status(root, place.path(root.layout)) is None:
        return None
    if place.state is State.LEASED:
        raise MessageLeased(parse_lease_file(place.bucket[:-1])[0].text)
    with claimed(root, place) as claim:
        if claim is None:
            raise Busy("another process has the message locked")
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        return (yield from sideline_held(root, place, claim, reason, failure))


def opened(root: Root, queue: QueueName) -> Steps[QueueName]:
    """The sideline for the queue's messages, made if it is missing; one that it shares is joined to
    it. Raises AlreadySideline; SidelineMissing from the error why it cannot be made; OSError.
    Durable on return: no; with the flush of the message.
    """
    if queue.is_sideline:
        raise AlreadySideline(queue.text)
    into = root.facts.settings(queue).aside(queue)
    try:
        yield from make_queue(root, into)
    except (MqError, OSError) as error:
        why = unavailable(error) if isinstance(error, OSError) else error
        raise SidelineMissing(f"{into.text}: {why!r}") from why
    if into != queue.sideline():
        _join(root, Joint(queue, into))
    return into


def _join(root: Root, joint: Joint) -> None:
    """Says that the queue shares the sideline, before a message goes there. The message's own flush
    covers it.
    """
    files, crossings = root.files, root.layout.crossings
    if files.is_there(joint.path(root.layout)):
        return
    files.refuse_links(crossings)
    with contextlib.suppress(FileExistsError):
        files.mkdir(crossings)
    with contextlib.suppress(FileExistsError):
        files.close(files.create(joint.path(root.layout)))


def sideline_held(
    root: Root, place: Place, claim: Claim, reason: Reason, failure: Failure | None = None
) -> Steps[Sidelined]:
    """Moves a message, DELAYED or READY, that the caller has claimed and keeps claimed, to its
    queue's sideline or the sideline that its queue shares, which it makes if it is missing. Its
    receives stay; its key becomes free. `failure` is kept with it, and in a shared sideline also
    its queue.

    Raises AlreadySideline for a sideline's own message; SidelineMissing if the sideline cannot be
    made; SidelinePurged; Busy if the message moved in spite of the claim or was purged, or the
    sideline was deleted; StorageFailed, SettingsUnreadable, OSError: the message is where it was,
    or was moved and not flushed. Durable on return: yes.
    """
    state, queue, message_id, bucket = place
    into = yield from opened(root, queue)
    is_own = into == queue.sideline()
    if failure is not None or not is_own:
        event = (Event.SIDELINED, claim.stamp.receives)
        yield from keep_failure(root, queue, message_id, event, failure)
    block = NO_BLOCK
    if message_id.tags and not is_own:
        block = header_block(root, message_id, claim, None) or NO_BLOCK
        enter(root, into, ((message_id, block),))
    if is_purged(root, queue, message_id):
        raise Busy("the message is purged")
    if is_purged(root, into, message_id):
        raise SidelinePurged(into.text)
    act = Move(_MOVES[state], queue, message_id, bucket, into=into)
    stamp = yield from move_stamped(root, act, claim, reason)
    free_key(root, queue, message_id)
    if block:
        drop_entries(root, queue, message_id, block)
    why = reason.name.lower()
    root.history.record(queue, Event.SIDELINED, message_id, stamp.receives, reason=why)
    return Sidelined(into, stamp)


def is_at_its_limit(root: Root, queue: QueueName, attempts: int) -> bool:
    """Whether a message with this many attempts has reached its queue's `max_receives`, so that it
    goes to the sideline. Never in a sideline. May block for a read of the settings; unreadable
    settings keep their last known values.
    """
    return not queue.is_sideline and 0 < root.facts.settings(queue).max_receives <= attempts


def move_stamped(root: Root, act: Move, claim: Claim, reason: Reason) -> Steps[Stamp]:
    """Moves a message that the caller has claimed to the ready state of a sideline, and stamps the
    time and the reason. Returns the stamp. Renames before it stamps, so that a failed rename
    changes nothing. Keeps the lock until the flush: a message that is fetched and removed there
    must not come back here.

    Raises Busy if the message moved in spite of the claim, or its sideline is gone; OSError.
    Durable on return: yes.
    """
    try:
        flush = move(root, act)
        stamp = Stamp(root.now_ms(), claim.stamp.receives, reason)
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        yield flush._replace(stamps=(claim.descriptor,))
    except OSError as error:
        if not is_gone(error):
            raise
        # NFS may have done it and lost the answer; or the queue was deleted meanwhile.
        raise Busy("the message moved while it was held") from error
    return stamp


def _already(root: Root, queue: QueueName, message_id: MessageId) -> Steps[Sidelined | None]:
    """The message's sideline and stamp if it is in a sideline; None: it is not."""
    for into in root.facts.sidelines(queue):
        if not queue_exists(root, into) or is_purged(root, into, message_id):
            continue
        for look in range(PASSES):
            for state, bucket in places_alive(root, into, message_id, look):
                status = message_status(root, root.layout.path(state, into, message_id, bucket))
                if status is not None:
                    yield kept_flush(root, into, message_id)
                    return Sidelined(into, Stamp.from_mtime_ns(status.st_mtime_ns))
    return None


def is_of_a_moment(error: object) -> bool:
    """Whether the sideline could not be made since another process makes or deletes a queue."""
    return isinstance(error, SidelineMissing) and isinstance(error.__cause__, Busy)


class Stuck:
    """The queues whose messages cannot go to their sideline now: each is logged once. For one
    thread.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._queues: set[QueueName] = set()

    def failed(self, queue: QueueName, error: BaseException) -> None:
        """A message stays where it is."""
        if queue in self._queues or len(self._queues) >= _STUCK_MAX:
            return
        self._queues.add(queue)
        self._log.warning(
            "cannot move messages to their queue's sideline; they stay where they are",
            extra={"fields": {"queue": queue.text, "error": repr(error)}},
        )

    def moved(self, queue: QueueName) -> None:
        """A message went to the sideline."""
        self._queues.discard(queue)
