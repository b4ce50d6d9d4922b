"""Whether a queue exists: its folder is there, and is not that of a deleted queue.

On a network mount, a name may lead for a while to the folder of a queue that another machine has
deleted and made again. So a deleted queue's folder is marked, before the deletion is answered or
the queue is made again; and mq opens a queue's folder, which asks the server, before it adds a file
there. PROTOCOL.md, "deleted queues over a network", shows why that is enough.
"""

import errno
import os
import stat
from typing import Final

from mq.model.errors import QueueNotFound, StorageFailed
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps

# The permission bit that marks a deleted queue's folder on a network mount. It denies nothing.
_DELETED_MARK: Final = stat.S_ISVTX


def no_such_queue(root: Root, queue: QueueName) -> Steps[None]:
    """Ends a deletion that finds no queue: raises QueueNotFound. The absence is durable then: the
    process that deleted the queue may have died before its flush.
    """
    yield Flush(folders=(root.layout.remove, root.layout.queues))
    raise QueueNotFound(queue.text)


def queue_exists(root: Root, queue: QueueName) -> bool:
    """Whether the queue's folder is there; a symbolic link is not a queue. On a network mount the
    server is asked: a file that is added by the folder's path from here on goes to this queue, or
    to a later one.

    Raises StorageFailed when the folder of all queues is missing, and when a mount keeps showing a
    deleted queue's folder.
    """
    return _standing(root, queue) if root.over_network else queue_seen(root, queue)


def queue_seen(root: Root, queue: QueueName) -> bool:
    """`queue_exists` for operations that only read or remove: on a network mount, as the mount
    remembers it.
    """
    return _is_queue(root, queue, root.files.status(root.layout.queue(queue)))


def not_found(root: Root, queue: QueueName) -> QueueNotFound:
    """The error for a queue whose folder could not be read. Raises StorageFailed when its absence
    is uncertain: a network mount's handle of the folder may be stale, or the queue was made just
    now.
    """
    if queue_seen(root, queue):
        raise StorageFailed(f"{root.layout.queue(queue)} is there, and cannot be looked into")
    return QueueNotFound(queue.text)


def _is_queue(root: Root, queue: QueueName, status: os.stat_result | None) -> bool:
    if status is None and root.files.status(root.layout.queues) is None:
        raise StorageFailed(f"{root.layout.queues} is gone")
    is_there = status is not None and stat.S_ISDIR(status.st_mode)
    if not is_there:
        # All other known facts of it are obsolete too.
        root.facts.forget(queue)
    return is_there


def _standing(root: Root, queue: QueueName) -> bool:
    """A mount's name may lead to the folder of a queue that another machine has deleted, and made
    again: that one says so itself.
    """
    folder = root.layout.queue(queue)
    status = look(root, folder, root.layout.queues)
    if is_marked(status):
        raise StorageFailed(f"{folder} has a deleted queue's mode; chmod -t ends that")
    return _is_queue(root, queue, status)


def look(root: Root, folder: str, around: str) -> os.stat_result | None:
    """What a folder's name, in the folder `around`, leads to on a network mount. Where that is
    nothing, or marked, the mount looks for the name again once it knows that the folder around has
    changed; where the server's times are too coarse to tell, it is changed. Raises OSError.
    """
    files = root.files
    status = files.asked_status(folder)
    if status is None or is_marked(status):
        files.asked_status(around)
        status = files.asked_status(folder)
    if is_marked(status):
        files.touch(around)
        files.asked_status(around)
        status = files.asked_status(folder)
    return status


def is_marked(status: os.stat_result | None) -> bool:
    """Whether it is of a folder that a deleted queue had."""
    return status is not None and bool(status.st_mode & _DELETED_MARK)


def mark(root: Root, folder: str, status: os.stat_result) -> None:
    """Marks a folder, for clients whose old name for it still leads to it. Raises OSError. Durable
    on return: no.
    """
    if stat.S_ISDIR(status.st_mode):
        root.files.set_mode(folder, stat.S_IMODE(status.st_mode) | _DELETED_MARK)


def bits_left(root: Root) -> int:
    """What fsck leaves of a folder's mode: whether it hands its group on; and, where a mount's name
    may lead to it by mistake, whether it is a deleted queue's.
    """
    return stat.S_ISGID | (_DELETED_MARK if root.over_network else 0)


def refuse_gone(root: Root, *queues: QueueName) -> None:
    """On a network mount, before a rename that would succeed in a deleted queue's folder: raises
    FileNotFoundError where one of these is not there, as that rename does elsewhere.
    """
    for queue in queues if root.over_network else ():
        if not queue_exists(root, queue):
            raise FileNotFoundError(errno.ENOENT, "the queue is gone", root.layout.queue(queue))


def mark_deleted(root: Root, queue: QueueName, uuid: str) -> Steps[None]:
    """Marks a deleted queue's folder. Durable on return: yes."""
    folder = root.layout.deleted_folder(queue, uuid)
    status = root.files.status(folder)
    if status is None or is_marked(status):
        return
    try:
        mark(root, folder, status)
        yield Flush(folders=(folder,))
    except OSError as error:
        # mq-reaper may have removed it meanwhile: on another machine the handle is stale then.
        if not is_gone(error) or root.files.asked_status(folder) is not None:
            raise
