"""Putting many claimed messages back into their queue at once: whoever had them is gone.

FORMAT.md, "extend, release, postpone", has the steps and what a crash after each leaves.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from mq.model.history import Event
from mq.model.lifecycle import RELEASE
from mq.model.limits import RELEASED_PER_FLUSH_MAX
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import claimed, folders_of, keep_one_name, make_ways, together
from mq.store.core.root import Root
from mq.store.core.standing import refuse_gone
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.operations.sideline import is_at_its_limit


def release_many(
    root: Root, queue: QueueName, deliveries: Sequence[Delivery], unhandled: bool = False
) -> Steps[list[MessageId]]:
    """Puts those of a queue's deliveries back that have not moved on; their ids. Their receives
    stay counted. What cannot be put back now comes back when it is due; what was tried as often as
    its queue allows is due now, and stays for mq-mover to sideline.

    `unhandled`: no program had them, and the deliveries are no attempts.

    Raises SettingsUnreadable, OSError. Durable on return: yes, but for their due times, which mean
    nothing in a queue.
    """
    released: list[MessageId] = []
    waiting = iter(deliveries)
    while part := list(itertools.islice(waiting, RELEASED_PER_FLUSH_MAX)):
        try:
            released += yield from _release(root, queue, part, unhandled)
        except OSError as error:
            if is_gone(error):
                break  # Its queue is gone; mq-mover decides.
            raise
    return released


def _release(
    root: Root, queue: QueueName, deliveries: Sequence[Delivery], unhandled: bool
) -> Steps[list[MessageId]]:
    """Raises FileNotFoundError when the queue is gone."""
    refuse_gone(root, queue)
    deliveries = [each for each in deliveries if not _stays(root, each, unhandled)]
    targets = root.places.targets(RELEASE.target, queue, [each.id for each in deliveries])
    ways = make_ways(root, RELEASE, dict.fromkeys((queue, target) for target in targets))
    if ways.folders or ways.entries:
        yield ways
    moved: list[tuple[Delivery, int]] = []
    flushes: dict[Flush, None] = {}
    for delivery, target in zip(deliveries, targets, strict=True):
        now_ms = root.now_ms()
        flush = _put_back(root, delivery, target, now_ms, unhandled)
        if flush is not None:
            flushes[flush] = None
            moved.append((delivery, now_ms))
    if flushes:
        yield together(flushes)
    for delivery, now_ms in moved:
        root.history.record(queue, Event.RELEASED, delivery.id, delivery.stamp.receives, now_ms)
    return [delivery.id for delivery, _ in moved]


def _stays(root: Root, delivery: Delivery, unhandled: bool) -> bool:
    """Whether it is not to come back: then it is due now, unless it has moved on. Not flushed: a
    crash has it due when it was to be.
    """
    if unhandled and delivery.stamp.can_return(root.now_ms()):
        return False
    if not is_at_its_limit(root, delivery.queue, delivery.stamp.attempts):
        return False
    queue, message_id, bucket = delivery.queue, delivery.id, delivery.bucket
    with claimed(root, root.layout.path(RELEASE.source, queue, message_id, bucket)) as claim:
        if claim is not None and claim.stamp == delivery.stamp:
            now = replace(claim.stamp, due_ms=root.now_ms())
            root.files.stamp(claim.descriptor, now.mtime_ns())
            root.history.record(queue, Event.RELEASED, message_id, now.receives, now.due_ms)
    return True


def _put_back(
    root: Root, delivery: Delivery, target: str, now_ms: int, unhandled: bool
) -> Flush | None:
    """What makes it durable; None: it has moved on, its bucket was taken away, or its queue. The
    time first: between the two steps it is due, and comes back by itself.
    """
    layout, queue, message_id = root.layout, delivery.queue, delivery.id
    delayed = layout.path(RELEASE.source, queue, message_id, delivery.bucket)
    with claimed(root, delayed) as claim:
        if claim is None or claim.stamp != delivery.stamp:
            return None
        stamp = claim.stamp.given_back(now_ms, unhandled and claim.stamp.can_return(now_ms))
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        try:
            root.files.rename(delayed, layout.path(RELEASE.target, queue, message_id, target))
        except OSError as error:
            if not is_gone(error):
                raise
            return None
        root.places.went(layout.parent(RELEASE.source, queue, delivery.bucket))
        if claim.status.st_nlink > 1:
            return keep_one_name(root, RELEASE.target, queue, message_id, target)
    return folders_of(root, RELEASE, queue, delivery.bucket, target)
