"""Moving one message by one transition of the lifecycle, and the lock on its inode."""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Final

from mq.lifecycle import State, Transition
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.root import Root
from mq.store.steps import Flush, Steps

_LATEST_FIRST: Final = (State.REMOVED, State.DELAYED, State.READY)


def move(root: Root, transition: Transition, queue: QueueName, message_id: MessageId) -> Flush:
    """Renames the message as the transition says; gives what makes the rename durable.

    Raises OSError as rename does: ENOENT or ESTALE is a lost race, or a folder that is gone.
    """
    target = root.layout.path(transition.target, queue, message_id)
    root.files.rename(root.layout.path(transition.source, queue, message_id), target)
    there = root.files.status(target)
    if there is not None and there.st_nlink > 1:
        _keep_one_name(root, transition.target, queue, message_id)
        return Flush(folders=tuple(root.layout.parent(state, queue) for state in _LATEST_FIRST))
    return folders_of(root, transition, queue)


def _keep_one_name(root: Root, kept: State, queue: QueueName, message_id: MessageId) -> None:
    """A crash between the flushes of a rename's two folders can leave both names (btrfs), and
    rename(2) between two names of one inode does nothing. The others go.
    """
    inode = root.files.status(root.layout.path(kept, queue, message_id))
    for state in _LATEST_FIRST:
        path = root.layout.path(state, queue, message_id)
        other = None if state is kept else root.files.status(path)
        if other is not None and inode is not None and os.path.samestat(other, inode):
            with contextlib.suppress(FileNotFoundError):
                root.files.unlink(path)


def folders_of(root: Root, transition: Transition, queue: QueueName) -> Flush:
    """The folders that a rename by this transition changes, the destination first."""
    return Flush(
        folders=(
            root.layout.parent(transition.target, queue),
            root.layout.parent(transition.source, queue),
        )
    )


def flush_ready(root: Root, queue: QueueName, flush: Flush) -> Steps[None]:
    """Flushes a rename into the queue's folder; at this process's first use of the folder its
    own entry too, whoever made it.
    """
    status = root.files.status(root.layout.queue(queue))
    if status is None or root.used_queues.get(queue) == status.st_ino:
        yield flush
        return
    yield Flush(flush.files, (*flush.folders, root.layout.queues))
    root.used_queues[queue] = status.st_ino


@contextlib.contextmanager
def claimed(root: Root, path: str) -> Iterator[int | None]:
    """Opens the file and takes its inode's lock, as every change in delay/ does.

    Gives the descriptor, or None for a lost race: the name is gone, another has the lock, or
    the name came to mean another file meanwhile. The lock ends with the block.
    """
    try:
        descriptor = root.files.open_claimed(path)
    except OSError as error:
        if not is_gone(error):
            raise
        yield None
        return
    try:
        held = root.files.lock(descriptor) and root.files.names(path, descriptor)
        yield descriptor if held else None
    finally:
        root.files.close(descriptor)


def is_message(root: Root, path: str) -> bool:
    """Whether a regular file has the name; what else may have it is foreign."""
    status = root.files.status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def queue_exists(root: Root, queue: QueueName) -> bool:
    """Whether the queue's folder is there. A symbolic link is not followed, and is no queue."""
    path = root.layout.queue(queue)
    status = root.files.status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)
