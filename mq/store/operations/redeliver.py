"""Time-driven moves: a due message of delay/ back to its queue, an abandoned file out of new/, and
an overdue message of a queue to its sideline, or of a sideline back to that.

PROTOCOL.md, "redeliver", "forget, reap" and "sweep overdue messages", has the steps and what a
crash after each leaves.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from mq.model.history import Event
from mq.model.lifecycle import FORGET, REDELIVER, REMOVE_DELAYED, RETIRE, State
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.totals import Total
from mq.store.core.moves import Claim, Move, claimed, move
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import is_purged, message_expired
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Place
from mq.store.operations.expire import Expiry, expire_held
from mq.store.operations.sideline import is_at_its_limit, move_stamped, sideline_held


class Redelivery(Enum):
    """The result for a message that looked due."""

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
    """When a message leaves delay/. `lain_s` None: at its due time, its mtime. Otherwise that many
    seconds after its ctime.
    """

    lain_s: float | None = None

    @property
    def by_mtime(self) -> bool:
        """Whether the message's own due time counts."""
        return self.lain_s is None

    def due_ms(self, mtime_ns: int, ctime_ns: int) -> int:
        """The due time, milliseconds since the epoch."""
        if self.lain_s is None:
            return Stamp.from_mtime_ns(mtime_ns).due_ms
        return ctime_ns // 1_000_000 + round(self.lain_s * 1000)


def redeliver(
    root: Root, queue: QueueName, message_id: MessageId, timer: Timer, bucket: str = ""
) -> Steps[tuple[Redelivery, int]]:
    """Moves a due message from its bucket of delay/: to its queue; to remove/ if the queue was
    deleted or purged since; to its sideline if it has reached its queue's `max_receives`; if it has
    expired, where its queue's expired messages go.

    Reads its mtime again under its lock, just before the move. NOT_DUE comes with the due time
    found, in milliseconds since the epoch. STRAY: the queue does not exist and was not deleted; the
    message stays. Raises SidelineMissing, SidelinePurged, Busy, and other Unavailable: the message
    stays. Durable on return: yes, except for the removal of an expired message: it comes back as
    expired.
    """
    with claimed(root, Place(REDELIVER.source, queue, message_id, bucket)) as claim:
        if claim is None:
            return Redelivery.LOST, 0
        # The due time is read again under the lock, and decides. Since the listing, the consumer
        # may have extended it. A fetch renames a message into delay/ with its old mtime, which
        # looks due, and keeps the lock until its new due time is on stable media. Without the
        # lock, two consumers would have the message.
        due_ms = timer.due_ms(claim.status.st_mtime_ns, claim.status.st_ctime_ns)
        if due_ms > root.now_ms():
            return Redelivery.NOT_DUE, due_ms
        away = yield from _take_away(root, queue, message_id, bucket, claim)
        if away is not None:
            return away, due_ms
        result, flush = _bring_back(root, queue, message_id, bucket, claim)
    if flush is None:
        return result, 0 if result is Redelivery.LOST else due_ms
    # The flush needs no lock: a process that fetches the message from here on has won it.
    try:
        yield flush
    except FileNotFoundError:
        return Redelivery.LOST, 0  # The queue was deleted meanwhile, with the message.
    event = Event.REDELIVERED if result is Redelivery.DELIVERED else Event.REMOVED
    root.history.record(queue, event, message_id, claim.stamp.receives)
    return result, due_ms


def _take_away(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim
) -> Steps[Redelivery | None]:
    """Removes or sidelines a message that must not return: it has expired, or has reached its
    `max_receives`. None: it may return. A purged message, or one without a queue, is left to the
    caller.
    """
    expired = message_expired(root, queue, message_id)
    if not expired and not is_at_its_limit(root, queue, claim.stamp.attempts):
        return None
    if is_purged(root, queue, message_id) or not queue_exists(root, queue):
        return None
    place = Place(State.DELAYED, queue, message_id, bucket)
    if not expired:
        yield from sideline_held(root, place, claim, Reason.RECEIVES)
        return Redelivery.SIDELINED
    try:
        ended = yield from expire_held(root, place, claim)
    except OSError as error:
        if not is_gone(error):
            raise
        return Redelivery.LOST
    return Redelivery.EXPIRED_ASIDE if ended is Expiry.SIDELINED else Redelivery.EXPIRED


def _bring_back(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str, claim: Claim
) -> tuple[Redelivery, Flush | None]:
    """The result, and the flush that makes it durable; None: the message has not moved, or is
    gone.
    """
    try:
        if is_purged(root, queue, message_id):
            flush = move(root, Move(REMOVE_DELAYED, queue, message_id, bucket))
            root.totals.add(queue, Total.PURGED, message_id.items or 1)
            return Redelivery.RETIRED, flush
        flush = move(root, Move(REDELIVER, queue, message_id, bucket))
    except OSError as error:
        if not is_gone(error):
            raise
        if root.files.status(root.layout.path(REDELIVER.source, queue, message_id, bucket)) is None:
            return Redelivery.LOST, None
        if queue_exists(root, queue) or not _was_deleted(root, queue):
            return Redelivery.STRAY, None
        return Redelivery.RETIRED, move(root, Move(RETIRE, queue, message_id, bucket))
    return Redelivery.DELIVERED, flush


def forget(root: Root, queue: QueueName, message_id: MessageId, after_s: float) -> bool:
    """Moves a file of new/ to remove/ if nothing was written to it for `after_s` seconds.

    Such a publish was never acknowledged, and the file may be torn. False if the file stays, is
    gone, or was a second name of a delivered message, which a crash left: only that name is
    removed. Raises OSError. Durable on return: no; what a crash undoes is swept again.
    """
    path = root.layout.path(FORGET.source, queue, message_id)
    status = root.files.status(path)
    if status is None or not is_forgotten(root, status, after_s):
        return False
    try:
        if status.st_nlink > 1:
            root.files.unlink(path)
            return False
        move(root, Move(FORGET, queue, message_id))
    except OSError as error:
        if is_gone(error):
            return False
        raise
    return True


def is_forgotten(root: Root, status: os.stat_result, after_s: float) -> bool:
    """Whether nothing was written to a file of new/ for `after_s` seconds."""
    return root.has_aged(status.st_ctime_ns // 1_000_000, after_s)


def _was_deleted(root: Root, queue: QueueName) -> bool:
    return root.files.status(root.layout.tombstone(queue)) is not None


class Swept(Enum):
    """The result for a message that looked overdue."""

    SIDELINED = "sidelined"
    RETURNED = "returned"
    """Back to the sideline that it was fetched from."""
    STAYS = "stays"
    """It is not overdue, its queue is missing, it is purged, or another process has it locked."""


def sweep_overdue(
    root: Root, place: Place, is_overdue: Callable[[os.stat_result], bool]
) -> Steps[Swept]:
    """Moves an overdue message of delay/ to its queue's sideline, with reason SWEPT; a message of a
    sideline back to that, as ready. Calls `is_overdue` again under its inode's lock.

    Raises SidelineMissing, SidelinePurged, Busy, StorageFailed, SettingsUnreadable: the message is
    where it was. Durable on return: yes.
    """
    _, queue, message_id, bucket = place
    with claimed(root, place) as claim:
        if claim is None or not is_overdue(claim.status):
            return Swept.STAYS
        if not queue_exists(root, queue) or is_purged(root, queue, message_id):
            return Swept.STAYS
        if queue.is_sideline:
            act = Move(REDELIVER, queue, message_id, bucket)
            stamp = yield from move_stamped(root, act, claim, Reason.SWEPT)
        else:
            yield from sideline_held(root, place, claim, Reason.SWEPT)
            return Swept.SIDELINED
    root.history.record(queue, Event.REDELIVERED, message_id, stamp.receives)
    return Swept.RETURNED
