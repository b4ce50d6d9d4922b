"""Looking into folders without changing them: how often, and what an mtime is worth."""

import os

from mq.model.errors import QueueNotFound, StorageFailed
from mq.model.limits import FOLDER_MTIME_TRUST_S, LOOK_PAUSE_S_MAX, LOOK_SHARE
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen


def look_pause_s(cost_s: float) -> float:
    """How long to leave a folder alone after a look that cost so long: looking takes a small
    share of the time, and a process that was stopped in the middle of a look is soon back.
    """
    return min(cost_s / LOOK_SHARE, LOOK_PAUSE_S_MAX)


def is_settled(folder: os.stat_result, now_ms: int) -> bool:
    """Whether a folder's mtime is so old that a change from now on would show in it."""
    return now_ms - folder.st_mtime_ns // 1_000_000 >= FOLDER_MTIME_TRUST_S * 1000


def not_found(root: Root, queue: QueueName) -> QueueNotFound:
    """What says that there is no such queue, whose folder could not be looked into. Raises
    StorageFailed when that is not sure: a network mount's handle of the folder may be stale, or the
    queue was made just now.
    """
    if queue_seen(root, queue):
        raise StorageFailed(f"{root.layout.queue(queue)} is there, and cannot be looked into")
    return QueueNotFound(queue.text)
