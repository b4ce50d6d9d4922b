"""Giving a message another due time: released to its queue, kept back in delay/, or extended.

FORMAT.md, "extend, release, postpone", has the steps and what a crash after each leaves.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mq.model.errors import Busy, DeliveredAgain, MessageLeased, MessageNotFound
from mq.model.history import Event
from mq.model.lifecycle import POSTPONE, RELEASE, State
from mq.model.message import Delivery, GivenBack, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.find import PASSES, Precondition, nowhere, places_alive
from mq.store.core.moves import Claim, claimed, keep_one_name, message_status, move_alive
from mq.store.core.purged import refuse_purged
from mq.store.core.root import Root
from mq.store.core.stamping import check_due, stamp_due
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import leading
from mq.store.format.pipeline import parse_lease_file
from mq.store.operations.sideline import is_at_its_limit


def release(root: Root, delivery: Delivery) -> Steps[bool]:
    """Puts a claimed message that nobody took back into its queue, unless it has moved on.

    Its receives stay counted. One that was received as often as its queue allows is due now, and
    stays for mq-mover to sideline: False. Durable on return: yes, when True.
    """
    delayed = root.layout.path(RELEASE.source, delivery.queue, delivery.id, delivery.bucket)
    with claimed(root, delayed) as claim:
        if claim is None or claim.stamp != delivery.stamp:
            return False
        now = replace(claim.stamp, due_ms=root.now_ms())
        if is_at_its_limit(root, delivery.queue, now.attempts):
            # Not flushed: a crash has it due when it was to be.
            root.files.stamp(claim.descriptor, now.mtime_ns())
            _record(root, Event.RELEASED, delivery.queue, delivery.id, now)
            return False
        try:
            yield from _release(root, delivery.queue, delivery.id, delivery.bucket, claim, now)
        except OSError as error:
            if is_gone(error):
                return False  # Its queue is gone; mq-mover decides.
            raise
        return True


def extend(root: Root, delivery: Delivery, due_ms: int) -> Steps[Delivery | None]:
    """Gives a message that this process has claimed, and flushed, another due time, milliseconds
    since the epoch; None when it has moved on. Durable on return: yes.
    """
    delayed = root.layout.path(State.DELAYED, delivery.queue, delivery.id, delivery.bucket)
    with claimed(root, delayed) as claim:
        if claim is None or claim.stamp != delivery.stamp:
            return None
        stamp = replace(claim.stamp, due_ms=due_ms)
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        yield Flush(files=(claim.descriptor,))
    _record(root, Event.EXTENDED, delivery.queue, delivery.id, stamp)
    return replace(delivery, stamp=stamp)


class _Moved(Busy):
    """A rename found nothing, or was done and the answer lost."""


def reschedule(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    due_in_s: float,
    if_receives: Precondition | None = None,
    given: GivenBack = GivenBack.NO,
) -> Steps[Stamp]:
    """Has the message be ready in so many seconds from now, 0: at once, wherever it is; its new
    stamp. Its receives stay as they are. What was tried as often as its queue allows does not come
    back from delay/: mq-mover sidelines it, when it is due.

    `given`: where its delivery ends with that, what was tried as often as its queue allows is due
    now, to be sidelined; and one that no program had, and has not lapsed, is no attempt.
    `if_receives` is asked, under the inode's lock, whether they are those that the client saw.
    Raises QueueNotFound, MessageNotFound, MessageLeased, DeliveredAgain, DueTooFar, Busy,
    StorageFailed. Durable on return: yes; and so is what a not-found says.
    """
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    yield from refuse_purged(root, queue, message_id)
    is_busy = has_moved = False
    for look in range(PASSES):
        for state, bucket in places_alive(root, queue, message_id, look):
            try:
                stamp = yield from _reschedule_at(
                    root, queue, message_id, state, bucket, due_in_s, if_receives, given
                )
            except Busy as busy:
                is_busy = True
                has_moved = has_moved or isinstance(busy, _Moved)
                continue
            except DeliveredAgain as again:
                if has_moved:
                    # Perhaps because this request has released it: then it was not refused.
                    raise Busy("the message moved while it was held") from again
                raise
            if stamp is not None:
                return stamp
    yield from nowhere(root, queue, message_id, is_busy=is_busy)
    raise MessageNotFound(message_id.text)


def _reschedule_at(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    state: State,
    bucket: str,
    due_in_s: float,
    if_receives: Precondition | None,
    given: GivenBack,
) -> Steps[Stamp | None]:
    """None: it is not there. Raises Busy when another is at it, or moved it meanwhile."""
    path = root.layout.path(state, queue, message_id, bucket)
    if message_status(root, path) is None:
        return None
    if state is State.LEASED:
        raise MessageLeased(parse_lease_file(bucket[:-1])[0].text)
    with claimed(root, path) as claim:
        if claim is None:
            raise Busy("another process is at the message")
        if if_receives is not None and not if_receives(claim.stamp.receives):
            raise DeliveredAgain(claim.stamp.receives)
        due_in_ms = round(due_in_s * 1000)
        now_ms = root.now_ms()
        # Once alone, also where the request comes again: what a crash left here is due.
        is_held = state is State.DELAYED
        is_returned = is_held and given is GivenBack.UNHANDLED and claim.stamp.can_return(now_ms)
        attempts = claim.stamp.attempts
        is_over = is_held and not is_returned and is_at_its_limit(root, queue, attempts)
        is_given = is_held and given is not GivenBack.NO
        if is_over and is_given:
            due_in_ms = 0  # It is mq-mover's to sideline, and nothing is waited for.
        act: Callable[..., Steps[Stamp]]
        if not is_held:
            act = _postpone if due_in_ms > 0 else _leave
        elif due_in_ms > 0 or is_over:
            act = partial(_stay, event=Event.RELEASED if is_given else Event.EXTENDED)
        else:
            act = _release
        stamp = claim.stamp.given_back(now_ms + due_in_ms, is_returned)
        try:
            return (yield from act(root, queue, message_id, bucket, claim, stamp))
        except OSError as error:
            if not is_gone(error):
                raise
            # NFS may have done it and lost the answer; or a folder is gone, perhaps with its queue.
            raise _Moved("the message moved while it was held") from error


def _stay(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    bucket: str,
    claim: Claim,
    stamp: Stamp,
    event: Event,
) -> Steps[Stamp]:
    """Whoever brought it to delay/ may have died before its own flush, and what a power cut took
    back to its queue would be served before its time.
    """
    stamp_due(root, claim.descriptor, stamp)
    delay, top = root.layout.delay, root.layout.queue(queue)
    if claim.status.st_nlink > 1:
        flush = keep_one_name(root, State.DELAYED, queue, message_id, bucket)
    else:
        ways = (delay, *leading(delay, bucket), top)
        flush = Flush(folders=ways, beside=root.places.buckets(queue, message_id), covered=1)
    yield flush._replace(files=(claim.descriptor,), entries=(top,))
    _record(root, event, queue, message_id, stamp)
    return stamp


def _postpone(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim, stamp: Stamp
) -> Steps[Stamp]:
    """The rename first, as in a fetch: in its queue a message is served whatever its time."""
    check_due(root, claim.descriptor, stamp)
    flush = yield from move_alive(root, POSTPONE, queue, message_id, claim.status.st_nlink, bucket)
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    yield flush._replace(files=(claim.descriptor,))
    _record(root, Event.EXTENDED, queue, message_id, stamp)
    return stamp


def _release(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim, stamp: Stamp
) -> Steps[Stamp]:
    """The time first: between the two steps it is due, and comes back by itself."""
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    flush = yield from move_alive(root, RELEASE, queue, message_id, claim.status.st_nlink, bucket)
    # Without the lock: whoever fetches it now has won it, flushed or not.
    root.files.unlock(claim.descriptor)
    yield flush._replace(files=(claim.descriptor,))
    _record(root, Event.RELEASED, queue, message_id, stamp)
    return stamp


def _leave(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim, stamp: Stamp
) -> Steps[Stamp]:
    """It is ready as it is; but whoever brought it there has perhaps not flushed that."""
    top = root.layout.queue(queue)
    ways = (top, *leading(top, bucket), root.layout.delay)
    beside = root.places.buckets(queue, message_id)
    yield Flush(folders=ways, entries=(top,), beside=beside, covered=1)
    return claim.stamp


def _record(
    root: Root, event: Event, queue: QueueName, message_id: MessageId, stamp: Stamp
) -> None:
    root.history.record(queue, event, message_id, stamp.receives, stamp.due_ms)
