"""What time does to files: back from delay/ when due, out of new/ when forgotten.

FORMAT.md, "redeliver" and "forget", has the steps and what a crash after each leaves.
"""

import os
from dataclasses import dataclass
from enum import Enum

from mq.model.history import Event
from mq.model.lifecycle import FORGET, REDELIVER, REMOVE_DELAYED, RETIRE, State
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.expired import message_expired
from mq.store.core.moves import Claim, claimed, move, move_alive
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.operations.expire import Expiry, expire_held
from mq.store.operations.sideline import is_at_its_limit, sideline_held


class Redelivery(Enum):
    """What became of a message that looked due."""

    DELIVERED = "delivered"
    RETIRED = "retired"
    SIDELINED = "sidelined"
    EXPIRED = "expired"
    EXPIRED_ASIDE = "expired, to the sideline"
    NOT_DUE = "not due"
    LOST = "lost"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class Timer:
    """When a message in delay/ leaves: by its own due time, or so long after it came there.

    `lain_s` None: its mtime says when. Else that many seconds after its ctime.
    """

    lain_s: float | None = None

    @property
    def by_mtime(self) -> bool:
        """Whether it is the message's own due time that counts."""
        return self.lain_s is None

    def due_ms(self, mtime_ns: int, ctime_ns: int) -> int:
        """The due time, milliseconds since the epoch."""
        if self.lain_s is None:
            return Stamp.from_mtime_ns(mtime_ns).due_ms
        return ctime_ns // 1_000_000 + round(self.lain_s * 1000)


def redeliver(
    root: Root, queue: QueueName, message_id: MessageId, timer: Timer, bucket: str = ""
) -> Steps[tuple[Redelivery, int]]:
    """Moves a message that is due from its bucket of delay/ to its queue; to remove/ when the
    queue was deleted, or purged since; to its sideline when it was received as often as its queue
    allows; where it has expired, to where such messages of its queue go.

    Its mtime is read again under its lock, just before the move: NOT_DUE comes with the due
    time that was found, milliseconds since the epoch. STRAY: the queue is not there and was
    not deleted either; the message stays. Raises SidelineMissing when `create_queue` has to make
    the sideline first, SidelinePurged, Busy, and other Unavailable: the message stays.
    Durable on return: yes, but for the removal of one that has expired: it comes back as expired.
    """
    path = root.layout.path(REDELIVER.source, queue, message_id, bucket)
    with claimed(root, path) as claim:
        if claim is None:
            return Redelivery.LOST, 0
        due_ms = timer.due_ms(claim.status.st_mtime_ns, claim.status.st_ctime_ns)
        if due_ms > root.now_ms():
            return Redelivery.NOT_DUE, due_ms
        away = yield from _take_away(root, queue, message_id, bucket, claim)
        if away is not None:
            return away, due_ms
        result, flush = yield from _bring_back(root, queue, message_id, bucket, claim)
    if flush is None:
        return result, 0 if result is Redelivery.LOST else due_ms
    # Without the lock: whoever fetches it now has won it, flushed or not.
    try:
        yield flush
    except FileNotFoundError:
        return Redelivery.LOST, 0  # The queue was deleted meanwhile, the message with it.
    event = Event.REDELIVERED if result is Redelivery.DELIVERED else Event.REMOVED
    root.history.record(queue, event, message_id, claim.stamp.receives)
    return result, due_ms


def _take_away(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim
) -> Steps[Redelivery | None]:
    """What became of one that is not to come back: it has expired, or was received often enough.
    None: it is to. What is purged, or of a queue that is not there, goes as that does.
    """
    expired = message_expired(root, queue, message_id)
    if not expired and not is_at_its_limit(root, queue, claim.stamp.attempts):
        return None
    if is_purged(root, queue, message_id) or not queue_exists(root, queue):
        return None
    where = (State.DELAYED, bucket)
    if not expired:
        yield from sideline_held(root, queue, message_id, *where, claim, Reason.RECEIVES)
        return Redelivery.SIDELINED
    try:
        ended = yield from expire_held(root, queue, message_id, *where, claim)
    except OSError as error:
        if not is_gone(error):
            raise
        return Redelivery.LOST
    return Redelivery.EXPIRED_ASIDE if ended is Expiry.SIDELINED else Redelivery.EXPIRED


def _bring_back(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim
) -> Steps[tuple[Redelivery, Flush | None]]:
    """What became of it, and what makes that durable; None: it is where it was, or is gone."""
    links = claim.status.st_nlink
    try:
        if is_purged(root, queue, message_id):
            flush = move(root, REMOVE_DELAYED, queue, message_id, links, bucket)
            return Redelivery.RETIRED, flush
        flush = yield from move_alive(root, REDELIVER, queue, message_id, links, bucket)
    except OSError as error:
        if not is_gone(error):
            raise
        if root.files.status(root.layout.path(REDELIVER.source, queue, message_id, bucket)) is None:
            return Redelivery.LOST, None
        if queue_exists(root, queue) or not _was_deleted(root, queue):
            return Redelivery.STRAY, None
        return Redelivery.RETIRED, move(root, RETIRE, queue, message_id, links, bucket)
    return Redelivery.DELIVERED, flush


def forget(root: Root, queue: QueueName, message_id: MessageId, after_s: float) -> bool:
    """Moves a file of new/ to remove/ when nothing was written to it for `after_s` seconds.

    Such a publish was never answered, and the file may be torn. False when it stays, went
    meanwhile, or was the name of a delivered message that a crash had left: that alone goes.
    Raises OSError. Durable on return: no; what a crash undoes is forgotten again.
    """
    path = root.layout.path(FORGET.source, queue, message_id)
    status = root.files.status(path)
    if status is None or not is_forgotten(root, status, after_s):
        return False
    try:
        if status.st_nlink > 1:
            root.files.unlink(path)
            return False
        move(root, FORGET, queue, message_id)
    except OSError as error:
        if is_gone(error):
            return False
        raise
    return True


def is_forgotten(root: Root, status: os.stat_result, after_s: float) -> bool:
    """Whether nothing was written to a file of new/ for so long."""
    return root.aged_ms(after_s) - status.st_ctime_ns // 1_000_000 >= after_s * 1000


def _was_deleted(root: Root, queue: QueueName) -> bool:
    return root.files.status(root.layout.tombstone(queue)) is not None
