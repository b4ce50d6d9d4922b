"""The messages of a queue that are no longer served: purged and expired ones.

A purge leaves a mark with a time: `purged/{queue}` is an empty file whose mtime it is. A message's
time is in its id, so a purge takes the same few calls for ten million messages as for one, and
messages published later are not covered. Each operation that would deliver a message, move it to
its queue or find it by its id checks the mark: by the facts (`facts.py`), up to half a second old,
where it serves messages; by a look, where it moves or removes one for good. A purge answers only
after FACTS_SETTLE_S, when every process knows the mark. A mark must outlive every message that it
covers: one that went too early would bring purged messages back.

Expiry works like a mark with a moving time, computed from the settings and the clock and never
written down. So it can move back, when a longer `message_ttl_s` revives messages that were not
removed yet. A fetch checks it under the message's lock; messages in delay/ or in a lease are
checked when they come back.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mq.model.errors import MessageNotFound, QueueExpired, QueuePaused
from mq.model.expiry import expired_up_to_ms, has_expired, is_expired, lived_out
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.core.facts import mark_ms
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import DEEP_DIGITS, Bucket

OWN_TTL: Final = ",e="
"""What the ids of messages with a time to live of their own have in them, and no others."""
_OWN_TTL: Final = re.compile(rf"{OWN_TTL}([1-9][0-9]*)")
# How many characters of an id tell its time.
TIME_CHARS: Final = 13


@dataclass(frozen=True, slots=True)
class PurgeMark:
    """The time up to which a queue was purged, inclusive, in `ms` since the epoch."""

    ms: int
    _text: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", uuid_beginning(self.ms))

    def covers(self, name: str) -> bool:
        """Whether the message of this id, as text, was published up to the mark."""
        return name[:TIME_CHARS] <= self._text

    def covers_all(self, bucket: Bucket, deep: str = "") -> bool:
        """Whether all messages of the bucket, or of this folder below it, were published up to the
        mark.
        """
        return Bucket(bucket.priority, bucket.digits + deep[:DEEP_DIGITS], None).ends_by(self.ms)


def uuid_beginning(ms: int) -> str:
    """How the ids of this millisecond since the epoch begin: their first TIME_CHARS characters."""
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}"


def mark_of(root: Root, queue: QueueName) -> PurgeMark | None:
    """The queue's mark as it is now; None: it has none."""
    ms = mark_ms(root.layout, root.files, queue)
    return None if ms is None else PurgeMark(ms)


def known_mark(root: Root, queue: QueueName) -> PurgeMark | None:
    """The queue's mark as this process knows it. A purge answers once every process knows its mark,
    so an operation that uses an older one began before the purge was answered.
    """
    ms = root.facts.of(queue).purged_ms
    return None if ms is None else PurgeMark(ms)


def is_purged(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message was purged, by a look. For operations that move or remove a message for
    good because of it, and where an unknown mark would lose one, as in a sideline whose mark covers
    later arrivals.
    """
    ms = mark_ms(root.layout, root.files, queue)
    return ms is not None and message_id.published_ms <= ms


def covering_mark(root: Root, queue: QueueName, message_id: MessageId) -> PurgeMark | None:
    """The mark that covers the message, as this process knows it (`known_mark`): for what serves
    messages. A mark that covers one is looked at again, since it may be gone by now.
    """
    known = root.facts.of(queue).purged_ms
    if known is None or message_id.published_ms > known:
        return None
    ms = mark_ms(root.layout, root.files, queue)
    return PurgeMark(ms) if ms is not None and message_id.published_ms <= ms else None


def refuse_purged(root: Root, queue: QueueName, message_id: MessageId) -> Steps[None]:
    """Raises MessageNotFound for a purged message. The mark is durable then: the process that made
    it may have died before its flush.
    """
    if covering_mark(root, queue, message_id) is not None:
        yield Flush(folders=(root.layout.purged,))
        raise MessageNotFound(message_id.text)


def forget_mark(root: Root, queue: QueueName) -> None:
    """Removes the queue's mark, if it has one. Durable on return: no."""
    try:
        root.files.unlink(root.layout.purge_mark(queue))
    except OSError as error:
        if not is_gone(error):
            raise
        return
    root.facts.look_again(queue)


def expired_mark(root: Root, queue: QueueName) -> PurgeMark | None:
    """The mark up to which the queue's messages have expired; None: no message has."""
    ttl_s = root.facts.settings(queue).message_ttl_s
    up_to_ms = expired_up_to_ms(ttl_s, root.aged_ms(ttl_s)) if ttl_s else None
    return None if up_to_ms is None else PurgeMark(up_to_ms)


def unserved_mark(root: Root, queue: QueueName) -> PurgeMark | None:
    """The mark up to which the queue's ready messages are not delivered, purged or expired; None:
    all are delivered.
    """
    purged, expired = known_mark(root, queue), expired_mark(root, queue)
    if purged is None or expired is None:
        return purged or expired
    return purged if purged.ms >= expired.ms else expired


def message_expired(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message has outlived its queue's `message_ttl_s`, or its own. A sideline ignores
    the latter.
    """
    ttl_s = root.facts.settings(queue).message_ttl_s  # In the way of every fetch.
    if message_id.ttl_s is not None and not queue.is_sideline:
        ttl_s = lived_out(message_id, ttl_s)
    return ttl_s > 0 and has_expired(message_id.published_ms, ttl_s, root.aged_ms(ttl_s))


def own_expiry(root: Root, queue: QueueName) -> Callable[[str], bool]:
    """A test of ready messages' ids, as text: whether a message has outlived its own
    time to live.
    """
    if queue.is_sideline:
        return lambda name: False
    return partial(_has_outlived, root)


def _has_outlived(root: Root, name: str) -> bool:
    match = _OWN_TTL.search(name)  # A key has no comma.
    if match is None:
        return False
    ttl_s = int(match[1])
    return int(name[:8] + name[9:TIME_CHARS], 16) + ttl_s * 1000 <= root.aged_ms(ttl_s)


def refuse_publish(root: Root, queue: QueueName, settings: QueueSettings) -> None:
    """Raises QueueExpired or QueuePaused for a queue that takes no messages."""
    if settings.expires_at is not None and is_expired(settings, root.now_ms()):
        raise QueueExpired(queue.text, settings.expires_at)
    if not settings.takes:
        raise QueuePaused(queue.text)


def leases_nothing(root: Root, queue: QueueName) -> bool:
    """Whether no message of the queue is leased: it has expired, its deliveries rest, or one
    consumer gets them alone.
    """
    settings = root.facts.settings(queue)
    return not settings.gives or settings.is_single or is_expired(settings, root.now_ms())
