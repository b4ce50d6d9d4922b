"""Moving one message by one transition of the lifecycle, and the lock on its inode."""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mq.errors import QueueNotFound, StorageFailed
from mq.lifecycle import State, Transition
from mq.message import Stamp
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.root import Root
from mq.store.steps import Flush, Steps

_LATEST_FIRST: Final = (State.REMOVED, State.DELAYED, State.READY, State.NEW)


@dataclass(frozen=True, slots=True)
class Claim:
    """A message's file whose inode is locked, and what it was when the lock was taken."""

    descriptor: int
    status: os.stat_result

    @property
    def stamp(self) -> Stamp:
        """What its mtime says."""
        return Stamp.from_mtime_ns(self.status.st_mtime_ns)


@contextlib.contextmanager
def claimed(root: Root, path: str) -> Iterator[Claim | None]:
    """Opens the file and takes its inode's lock, as whatever depends on an mtime does.

    Gives None for a lost race: the name is gone, another has the lock, or the name came to
    mean another file meanwhile; and for what is no regular file. The lock ends with the block.
    """
    try:
        descriptor = root.files.open_claimed(path)
    except OSError as error:
        if not is_gone(error):
            raise
        yield None
        return
    try:
        yield _claim(root, path, descriptor)
    finally:
        root.files.close(descriptor)


def _claim(root: Root, path: str, descriptor: int) -> Claim | None:
    if not root.files.lock(descriptor):
        return None
    status = root.files.status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    if not os.path.samestat(status, root.files.descriptor_status(descriptor)):
        return None
    return Claim(descriptor, status)


def move(
    root: Root, transition: Transition, queue: QueueName, message_id: MessageId, links: int = 1
) -> Flush:
    """Renames the message as the transition says; gives what makes the rename durable.

    `links` is the file's link count before. Raises OSError as rename does: ENOENT or ESTALE is
    a lost race, or a folder that is gone.
    """
    root.files.rename(
        root.layout.path(transition.source, queue, message_id),
        root.layout.path(transition.target, queue, message_id),
    )
    if links > 1:
        return keep_one_name(root, transition.target, queue, message_id)
    return folders_of(root, transition, queue)


def keep_one_name(root: Root, kept: State, queue: QueueName, message_id: MessageId) -> Flush:
    """Takes a file's other names away; gives what makes that durable.

    A crash between the flushes of a rename's two folders can leave both names (btrfs), and
    rename(2) between two names of one inode does nothing.
    """
    inode = root.files.status(root.layout.path(kept, queue, message_id))
    for state in _LATEST_FIRST:
        path = root.layout.path(state, queue, message_id)
        other = None if state is kept else root.files.status(path)
        if other is not None and inode is not None and os.path.samestat(other, inode):
            with contextlib.suppress(FileNotFoundError):
                root.files.unlink(path)
    states = dict.fromkeys((kept, *_LATEST_FIRST))
    return Flush(folders=tuple(root.layout.parent(state, queue) for state in states))


def folders_of(root: Root, transition: Transition, queue: QueueName) -> Flush:
    """The folders that a rename by this transition changes, the destination first."""
    ends = (transition.target, transition.source)
    return Flush(
        folders=tuple(root.layout.parent(state, queue) for state in ends),
        entries=(root.layout.queue(queue),) if State.READY in ends else (),
        first_covers=True,
    )


def message_status(root: Root, path: str) -> os.stat_result | None:
    """The regular file that has the name; None where nothing has it, or what is foreign."""
    status = root.files.status(path)
    return status if status is not None and stat.S_ISREG(status.st_mode) else None


def no_such_queue(root: Root, queue: QueueName) -> Steps[None]:
    """Ends a deletion that finds no queue: raises QueueNotFound. Durable then: that it is gone,
    since whoever deleted it may have died before its own flush.
    """
    yield Flush(folders=(root.layout.remove, root.layout.queues))
    raise QueueNotFound(queue.text)


def queue_exists(root: Root, queue: QueueName) -> bool:
    """Whether the queue's folder is there. A symbolic link is not followed, and is no queue.
    Raises StorageFailed when it is the folder of all queues that is gone.
    """
    status = root.files.status(root.layout.queue(queue))
    if status is None and root.files.status(root.layout.queues) is None:
        raise StorageFailed(f"{root.layout.queues} is gone")
    return status is not None and stat.S_ISDIR(status.st_mode)
