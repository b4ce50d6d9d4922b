"""What time does to files: back from delay/ when due, out of new/ when forgotten.

FORMAT.md, "redeliver" and "forget", has the steps and what a crash after each leaves.
"""

import os
from dataclasses import dataclass
from enum import Enum

from mq.history import Event
from mq.lifecycle import FORGET, REDELIVER, REMOVE_DELAYED, RETIRE
from mq.message import Stamp
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.moves import claimed, move, move_alive, queue_exists
from mq.store.purged import is_purged
from mq.store.root import Root
from mq.store.steps import Steps


class Redelivery(Enum):
    """What became of a message that looked due."""

    DELIVERED = "delivered"
    RETIRED = "retired"
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
    queue was deleted, or purged since.

    Its mtime is read again under its lock, just before the move: NOT_DUE comes with the due
    time that was found, milliseconds since the epoch. STRAY: the queue is not there and was
    not deleted either; the message stays. Durable on return: yes.
    """
    path = root.layout.path(REDELIVER.source, queue, message_id, bucket)
    with claimed(root, path) as claim:
        if claim is None:
            return Redelivery.LOST, 0
        links = claim.status.st_nlink
        due_ms = timer.due_ms(claim.status.st_mtime_ns, claim.status.st_ctime_ns)
        if due_ms > root.now_ms():
            return Redelivery.NOT_DUE, due_ms
        try:
            if is_purged(root, queue, message_id):
                flush = move(root, REMOVE_DELAYED, queue, message_id, links, bucket)
                result = Redelivery.RETIRED
            else:
                flush = yield from move_alive(root, REDELIVER, queue, message_id, links, bucket)
                result = Redelivery.DELIVERED
        except OSError as error:
            if not is_gone(error):
                raise
            if root.files.status(path) is None:
                return Redelivery.LOST, 0
            if queue_exists(root, queue) or not _was_deleted(root, queue):
                return Redelivery.STRAY, due_ms
            flush = move(root, RETIRE, queue, message_id, links, bucket)
            result = Redelivery.RETIRED
    # Without the lock: whoever fetches it now has won it, flushed or not.
    try:
        yield flush
    except FileNotFoundError:
        return Redelivery.LOST, 0  # The queue was deleted meanwhile, the message with it.
    event = Event.REDELIVERED if result is Redelivery.DELIVERED else Event.REMOVED
    root.history.record(queue, event, message_id, claim.stamp.receives)
    return result, due_ms


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
    return root.now_ms() - status.st_ctime_ns // 1_000_000 >= after_s * 1000


def _was_deleted(root: Root, queue: QueueName) -> bool:
    return root.files.status(root.layout.tombstone(queue)) is not None
