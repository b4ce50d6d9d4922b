"""Messages that came to a deleted queue's folder after the deletion: they go back to the queue.

mq asks a network mount's server before it puts anything there (`standing.queue_exists`). This is
for what others rename through a mount that still shows the deleted queue's folder.
"""

import logging

from mq.model.errors import MqError
from mq.model.lifecycle import State
from mq.model.limits import LATE_AFTER_MS
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.format.layout import Keys

_log = logging.getLogger("mq.late")


def give_back_late(
    root: Root, queue: QueueName, deleted_ms: int, message_id: MessageId, path: str
) -> bool:
    """Moves a message from a deleted queue's folder to the queue of that name that is there now;
    False where it stays: it was published before the deletion, or while that went on, its key is
    another's, or there is no such queue. Raises OSError. Durable on return: yes.
    """
    layout, files = root.layout, root.files
    if message_id.published_ms <= deleted_ms + LATE_AFTER_MS:
        return False
    status = files.status(path)
    if status is None or status.st_ctime_ns // 1_000_000 <= deleted_ms:
        return False
    key = message_id.key
    if key is not None and files.linked(layout.link(Keys.LOOKUP, queue, key).path) != (
        message_id.text
    ):
        return False
    target = layout.path(State.READY, queue, message_id)
    try:
        if not queue_exists(root, queue) or files.status(target) is not None:
            return False
    except MqError:  # There is no folder of queues beside this one.
        return False
    files.rename(path, target)
    files.sync_folder(layout.queue(queue))
    fields = {"queue": queue.text, "id": message_id.text}
    _log.warning("a message that came to a deleted queue went back", extra={"fields": fields})
    return True
