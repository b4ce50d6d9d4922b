"""Releases many messages of a disconnected consumer at once.

PROTOCOL.md, "extend, postpone, release", has the steps and what a crash after each leaves.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from mq.model.history import Event
from mq.model.lifecycle import RELEASE
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import claimed, folders_of, make_buckets, together
from mq.store.core.root import Root
from mq.store.core.standing import refuse_gone
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Place
from mq.store.operations.sideline import is_at_its_limit

# The number of a disconnected consumer's messages that are released between two flushes.
RELEASED_PER_FLUSH_MAX: Final = 250


def release_many(
    root: Root, queue: QueueName, deliveries: Sequence[Delivery], unhandled: bool = False
) -> Steps[list[MessageId]]:
    """Releases those of a queue's deliveries that have not moved on. Returns their ids. Their
    receives stay. A message that cannot be released now returns when it is due. A message at its
    queue's `max_receives` becomes due, and stays for mq-mover to sideline.

    `unhandled`: no program had the messages, so the deliveries do not count as attempts.

    Raises SettingsUnreadable, OSError. Durable on return: yes, except for the due times, which mean
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
    """Raises FileNotFoundError if the queue is gone."""
    refuse_gone(root, queue)
    deliveries = [each for each in deliveries if not _stays(root, each, unhandled)]
    targets = root.places.targets(RELEASE.target, queue, [each.id for each in deliveries])
    make_buckets(root, RELEASE, dict.fromkeys((queue, target) for target in targets))
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
    """Whether the message stays in delay/ because of its attempts. Makes it due now, unless it has
    moved on. Not flushed: after a crash it is due at its former time.
    """
    if unhandled and delivery.stamp.can_return(root.now_ms()):
        return False
    if not is_at_its_limit(root, delivery.queue, delivery.stamp.attempts):
        return False
    queue, message_id, bucket = delivery.queue, delivery.id, delivery.bucket
    with claimed(root, Place(RELEASE.source, queue, message_id, bucket)) as claim:
        if claim is not None and claim.stamp == delivery.stamp:
            now = claim.stamp._replace(due_ms=root.now_ms())
            root.files.stamp(claim.descriptor, now.mtime_ns())
            root.history.record(queue, Event.RELEASED, message_id, now.receives, now.due_ms)
    return True


def _put_back(
    root: Root, delivery: Delivery, target: str, now_ms: int, unhandled: bool
) -> Flush | None:
    """Stamps and renames the message. Returns the flush that makes this durable; None: it has moved
    on, or its bucket or queue is gone. Stamps first: between the two steps the message is due, and
    returns by itself.
    """
    layout, queue, message_id = root.layout, delivery.queue, delivery.id
    delayed = Place(RELEASE.source, queue, message_id, delivery.bucket)
    with claimed(root, delayed) as claim:
        if claim is None or claim.stamp != delivery.stamp:
            return None
        stamp = claim.stamp.given_back(now_ms, unhandled and claim.stamp.can_return(now_ms))
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        try:
            root.files.rename(
                delayed.path(layout), layout.path(RELEASE.target, queue, message_id, target)
            )
        except OSError as error:
            if not is_gone(error):
                raise
            return None
        root.places.went(layout.parent(RELEASE.source, queue, delivery.bucket))
    return folders_of(root, RELEASE, (queue, delivery.bucket), (queue, target))
