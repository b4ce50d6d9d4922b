"""What of a queue has expired, as its settings and the clock say in this moment.

Like a purge's mark it has a time, and covers what was published up to that; but nothing of it is
written down: it moves on by itself, and back where the queue's settings say so. Whatever gives out
what is ready asks here; what lies in delay/ or in a lease is asked about when it comes back.
"""

from mq.model.errors import QueueExpired
from mq.model.expiry import expired_up_to_ms, has_expired, is_expired
from mq.model.names import MessageId, QueueName
from mq.store.core.purged import PurgeMark, mark_of
from mq.store.core.root import Root


def expired_mark(root: Root, queue: QueueName) -> PurgeMark | None:
    """What of the queue has expired; None: nothing."""
    ttl_s = root.settings.of(queue).message_ttl_s
    up_to_ms = expired_up_to_ms(ttl_s, root.aged_ms(ttl_s)) if ttl_s else None
    return None if up_to_ms is None else PurgeMark(up_to_ms)


def unserved_mark(root: Root, queue: QueueName) -> PurgeMark | None:
    """What of the queue's ready messages is not given out, purged or expired; None: all is."""
    purged, expired = mark_of(root, queue), expired_mark(root, queue)
    if purged is None or expired is None:
        return purged or expired
    return purged if purged.ms >= expired.ms else expired


def message_expired(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message has lived longer than its queue's messages may."""
    ttl_s = root.settings.of(queue).message_ttl_s  # In the way of every fetch.
    return ttl_s > 0 and has_expired(message_id.published_ms, ttl_s, root.aged_ms(ttl_s))


def refuse_expired(root: Root, queue: QueueName) -> None:
    """Raises QueueExpired for a queue that takes and gives nothing any more."""
    settings = root.settings.of(queue)
    if settings.expires_at is not None and is_expired(settings, root.now_ms()):
        raise QueueExpired(queue.text, settings.expires_at)


def queue_expired(root: Root, queue: QueueName) -> bool:
    """Whether the queue itself takes and gives nothing any more."""
    return is_expired(root.settings.of(queue), root.now_ms())
