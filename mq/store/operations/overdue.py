"""Sweeping a message that redelivery cannot bring back: to its queue's sideline; one of a sideline
comes back there itself.

FORMAT.md, "sweep what is overdue", has the steps and what a crash after each leaves.
"""

import os
from collections.abc import Callable
from enum import Enum

from mq.model.history import Event
from mq.model.lifecycle import REDELIVER, State
from mq.model.message import Reason
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import claimed
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.steps import Steps
from mq.store.operations.sideline import move_stamped, sideline_held


class Swept(Enum):
    """What became of a message that looked overdue."""

    SIDELINED = "sidelined"
    RETURNED = "returned"
    """To the sideline that it was fetched from."""
    STAYS = "stays"
    """It is not overdue, or its queue is not there, or it is purged; or another is at it."""


def sweep_overdue(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    bucket: str,
    is_overdue: Callable[[os.stat_result], bool],
) -> Steps[Swept]:
    """Moves a message of delay/ that is overdue to its queue's sideline, reason SWEPT; one of a
    sideline back into that, as ready. `is_overdue` is asked again under its inode's lock.

    Raises SidelineMissing when `create_queue` has to make the sideline first; SidelinePurged, Busy,
    StorageFailed, SettingsUnreadable: the message is where it was. Durable on return: yes.
    """
    path = root.layout.path(State.DELAYED, queue, message_id, bucket)
    with claimed(root, path) as claim:
        if claim is None or not is_overdue(claim.status):
            return Swept.STAYS
        if not queue_exists(root, queue) or is_purged(root, queue, message_id):
            return Swept.STAYS
        if queue.is_sideline:
            stamp = yield from move_stamped(
                root, REDELIVER, queue, message_id, bucket, claim, Reason.SWEPT, queue
            )
        else:
            yield from sideline_held(
                root, queue, message_id, State.DELAYED, bucket, claim, Reason.SWEPT
            )
            return Swept.SIDELINED
    root.history.record(queue, Event.REDELIVERED, message_id, stamp.receives)
    return Swept.RETURNED
