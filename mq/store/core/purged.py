"""What a purge leaves: a mark with a time. What was published up to it is served no more.

`purged/{queue}` is an empty file whose mtime is the time; a message's is its id's. Each operation
that would give out a message, move it to its queue or find it by its id asks here.
"""

import stat
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import MessageNotFound
from mq.model.limits import DEEP_DIGITS
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import Bucket

# So much of an id's text tells its time.
TIME_CHARS: Final = 13


@dataclass(frozen=True, slots=True)
class PurgeMark:
    """Up to when a queue was purged: `ms` since the epoch, and that one too."""

    ms: int
    _text: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", uuid_beginning(self.ms))

    def covers(self, name: str) -> bool:
        """Whether the message of this id, as text, was published by then."""
        return name[:TIME_CHARS] <= self._text

    def covers_all(self, bucket: Bucket, deep: str = "") -> bool:
        """Whether all were that belong in the bucket, or in this folder below it."""
        return Bucket(bucket.priority, bucket.digits + deep[:DEEP_DIGITS], None).ends_by(self.ms)


def uuid_beginning(ms: int) -> str:
    """How the ids of this millisecond since the epoch begin: their first TIME_CHARS characters."""
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}"


def mark_of(root: Root, queue: QueueName) -> PurgeMark | None:
    """The queue's mark; None: it has none."""
    ms = _mark_ms(root, queue)
    return None if ms is None else PurgeMark(ms)


def is_purged(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message, wherever it lies, is served no more."""
    ms = _mark_ms(root, queue)
    return ms is not None and message_id.published_ms <= ms


def _mark_ms(root: Root, queue: QueueName) -> int | None:
    path = root.layout.purge_mark(queue)
    if not root.files.is_there(path):  # As nearly always: this takes less.
        return None
    status = root.files.status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return Stamp.from_mtime_ns(status.st_mtime_ns).due_ms


def refuse_purged(root: Root, queue: QueueName, message_id: MessageId) -> Steps[None]:
    """Raises MessageNotFound for a message that is served no more. Durable then: that it is not,
    since whoever made the mark may have died before its own flush.
    """
    if is_purged(root, queue, message_id):
        yield Flush(folders=(root.layout.purged,))
        raise MessageNotFound(message_id.text)


def forget_mark(root: Root, queue: QueueName) -> Steps[None]:
    """Takes the queue's mark away, where it has one. Durable on return: yes."""
    try:
        root.files.unlink(root.layout.purge_mark(queue))
    except OSError as error:
        if not is_gone(error):
            raise
        return
    yield Flush(folders=(root.layout.purged,))
