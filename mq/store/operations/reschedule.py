"""Changes a message's due time: releases it to its queue, postpones it in delay/, or extends its
visibility timeout.

PROTOCOL.md, "extend, postpone, release", has the steps and what a crash after each leaves.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mq.model.errors import Busy, DeliveredAgain, MessageLeased, MessageNotFound
from mq.model.failure import Failure
from mq.model.history import Event
from mq.model.lifecycle import POSTPONE, RELEASE, State
from mq.model.message import GivenBack, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.failures import keep_failure
from mq.store.core.find import PASSES, Precondition, nowhere, places_alive
from mq.store.core.message_file import check_due, stamp_due
from mq.store.core.moves import Claim, Move, claimed, message_status, move
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.core.unserved import refuse_purged
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import leading
from mq.store.format.layout import Place
from mq.store.format.pipeline import parse_lease_file
from mq.store.operations.sideline import is_at_its_limit


class _Wanted(NamedTuple):
    """The arguments of `reschedule`."""

    due_in_s: float
    if_receives: Precondition | None
    given: GivenBack
    failure: Failure | None


class _Moved(Busy):
    """A rename found nothing, or was done and its answer lost."""


def reschedule(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    due_in_s: float,
    if_receives: Precondition | None = None,
    given: GivenBack = GivenBack.NO,
    failure: Failure | None = None,
) -> Steps[Stamp]:
    """Makes the message due in `due_in_s` seconds (0: ready at once), in any state. Returns its new
    stamp. Its receives stay. A message at its `max_receives` does not return from delay/: mq-mover
    sidelines it when it is due.

    `given`: whether and how this ends its delivery. If it does, a message at its `max_receives` is
    due now, to be sidelined; and a delivery that no program handled does not count as an attempt,
    unless its visibility timeout ended. `if_receives` is called under the inode's lock: whether the
    receives are those that the client saw. `failure` is kept with the message. Raises
    QueueNotFound, MessageNotFound, MessageLeased, DeliveredAgain, DueTooFar, Busy, StorageFailed.
    Durable on return: yes; a not-found too.
    """
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    yield from refuse_purged(root, queue, message_id)
    is_busy = has_moved = False
    for look in range(PASSES):
        for state, bucket in places_alive(root, queue, message_id, look):
            try:
                place = Place(state, queue, message_id, bucket)
                stamp = yield from _reschedule_at(
                    root, place, _Wanted(due_in_s, if_receives, given, failure)
                )
            except Busy as busy:
                is_busy = True
                has_moved = has_moved or isinstance(busy, _Moved)
                continue
            except DeliveredAgain as again:
                if has_moved:
                    # This request may have released it, and so moved it: that is no refusal.
                    raise Busy("the message moved while it was held") from again
                raise
            if stamp is not None:
                return stamp
    yield from nowhere(root, queue, message_id, is_busy=is_busy)
    raise MessageNotFound(message_id.text)


def _reschedule_at(root: Root, place: Place, wanted: "_Wanted") -> Steps[Stamp | None]:
    """None: the message is not there. Raises Busy if another process has it locked or moved it."""
    due_in_s, if_receives, given, failure = wanted
    if message_status(root, place.path(root.layout)) is None:
        return None
    if place.state is State.LEASED:
        raise MessageLeased(parse_lease_file(place.bucket[:-1])[0].text)
    with claimed(root, place) as claim:
        if claim is None:
            raise Busy("another process has the message locked")
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        yield from _keep(root, place, claim, failure)
        due_in_ms = round(due_in_s * 1000)
        now_ms = root.now_ms()
        # Once only, also if the request is repeated: what a crash left here is due.
        is_held = place.state is State.DELAYED
        is_returned = is_held and given is GivenBack.UNHANDLED and claim.stamp.can_return(now_ms)
        attempts = claim.stamp.attempts
        is_over = is_held and not is_returned and is_at_its_limit(root, place.queue, attempts)
        is_given = given is not GivenBack.NO
        if is_over and is_given:
            due_in_ms = 0  # mq-mover sidelines it as soon as possible.
        event = Event.RELEASED if is_given else Event.EXTENDED
        act: Callable[..., Steps[Stamp]]
        if not is_held:
            act = partial(_postpone, event=event) if due_in_ms > 0 else _leave
        elif due_in_ms > 0 or is_over:
            act = partial(_stay, event=event)
        else:
            act = _release
        stamp = claim.stamp.given_back(now_ms + due_in_ms, is_returned)
        try:
            return (yield from act(root, place, claim, stamp))
        except OSError as error:
            if not is_gone(error):
                raise
            # NFS may have done it and lost the answer; or a folder is gone, perhaps with its queue.
            raise _Moved("the message moved while it was held") from error


def _keep(root: Root, place: Place, claim: Claim, failure: Failure | None) -> Steps[None]:
    """Records the failure before the message moves: afterwards another consumer may have it."""
    if failure is not None:
        event = (Event.RELEASED, claim.stamp.receives)
        yield from keep_failure(root, place.queue, place.id, event, failure)


def _stay(root: Root, place: Place, claim: Claim, stamp: Stamp, event: Event) -> Steps[Stamp]:
    """Flushes the entry in delay/ too: the process that moved it there may have died before its
    own flush, and a power cut would then return the message to its queue before its time.
    """
    stamp_due(root, claim.descriptor, stamp)
    delay, top = root.layout.delay, root.layout.queue(place.queue)
    ways = (delay, *leading(delay, place.bucket), top)
    yield Flush(folders=ways, covered=1, stamps=(claim.descriptor,))
    _record(root, event, place, stamp)
    return stamp


def _postpone(root: Root, place: Place, claim: Claim, stamp: Stamp, event: Event) -> Steps[Stamp]:
    """Renames before it stamps, as a fetch does: in its queue a message is delivered whatever its
    due time.
    """
    check_due(root, claim.descriptor, stamp)
    act = Move(POSTPONE, place.queue, place.id, place.bucket)
    flush = move(root, act)
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    yield flush._replace(stamps=(claim.descriptor,))
    _record(root, event, place, stamp)
    return stamp


def _release(root: Root, place: Place, claim: Claim, stamp: Stamp) -> Steps[Stamp]:
    """Stamps before it renames: a message between the two steps is due, and returns by itself."""
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    act = Move(RELEASE, place.queue, place.id, place.bucket)
    flush = move(root, act)
    # The flush needs no lock: a process that fetches the message from here on has won it.
    root.files.unlock(claim.descriptor)
    yield flush._replace(stamps=(claim.descriptor,))
    _record(root, Event.RELEASED, place, stamp)
    return stamp


def _leave(root: Root, place: Place, claim: Claim, stamp: Stamp) -> Steps[Stamp]:
    """Flushes a message that is ready already: the process that moved it there may not have flushed
    that.
    """
    top = root.layout.queue(place.queue)
    yield Flush(folders=(top, *leading(top, place.bucket)))
    return claim.stamp


def _record(root: Root, event: Event, place: Place, stamp: Stamp) -> None:
    root.history.record(place.queue, event, place.id, stamp.receives, stamp.due_ms)
