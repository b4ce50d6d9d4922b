"""Making and deleting queues: a folder, a tombstone, and one lock for both.

A queue exists while its folder does. A tombstone beside a folder is a deletion that was never
answered, and means nothing. FORMAT.md, "create a queue" and "delete a queue", has the steps and
what a crash after each leaves.
"""

import contextlib
from collections.abc import Iterator

from mq.errors import BadName, Busy, QueueNotFound
from mq.lifecycle import RETIRE, State
from mq.limits import TOMBSTONE_KEPT_S
from mq.message import Stamp
from mq.names import QueueName
from mq.store.files import is_gone
from mq.store.layout import entry_prefix, parse_entry
from mq.store.moves import claimed, flush_ready, move, queue_exists
from mq.store.root import Root
from mq.store.steps import Flush, Steps


@contextlib.contextmanager
def queues_locked(root: Root) -> Iterator[None]:
    """Only one process at a time makes or deletes queues. Raises Busy at once when it is
    another's turn.
    """
    descriptor = root.files.open_kept(root.layout.queues_lock)
    try:
        if not root.files.lock(descriptor):
            raise Busy("another process makes or deletes a queue")
        yield
    finally:
        root.files.close(descriptor)


def create_queue(root: Root, queue: QueueName) -> Steps[bool]:
    """Makes the queue; False when it was there.

    Nothing of a deleted queue of that name turns up in it. Raises Busy; Unavailable when what
    has the name is no folder. Durable on return: yes, also when another process made it.
    """
    created = False
    if not queue_exists(root, queue):
        with queues_locked(root):
            if not queue_exists(root, queue):
                yield from _bury(root, queue)
                root.used_queues.pop(queue, None)
                root.files.mkdir(root.layout.queue(queue))
                created = True
    yield from flush_ready(root, queue, Flush())
    return created


def delete_queue(root: Root, queue: QueueName, uuid: str) -> Steps[None]:
    """Deletes the queue with its ready messages; `uuid` names its folder in remove/.

    What it has in delay/ is out of reach from here on; `retire_delayed` takes it away.
    Raises QueueNotFound, Busy. Durable on return: yes.
    """
    with queues_locked(root):
        if not queue_exists(root, queue):
            raise QueueNotFound(queue.text)
        descriptor = root.files.open_kept(root.layout.tombstone(queue))
        try:
            root.files.stamp(descriptor, Stamp(root.now_ms()).mtime_ns())
            yield Flush(files=(descriptor,), folders=(root.layout.tombstones,))
        finally:
            root.files.close(descriptor)
        root.files.rename(root.layout.queue(queue), root.layout.deleted_folder(queue, uuid))
        yield Flush(folders=(root.layout.remove, root.layout.queues))


def retire_delayed(root: Root, queue: QueueName) -> Steps[int]:
    """Moves what a deleted queue has in delay/ to remove/; how many. Does nothing to a queue
    that exists, or that was never deleted. Raises Busy. Durable on return: yes.
    """
    with queues_locked(root):
        if queue_exists(root, queue) or not _has_tombstone(root, queue):
            return 0
        return (yield from _retire_pass(root, queue))


def forget_tombstone(root: Root, queue: QueueName) -> Steps[bool]:
    """Takes away a tombstone that nothing needs any more: one beside a folder, or one that is
    older than any publish or fetch in hand. Raises Busy. Durable on return: yes.
    """
    with queues_locked(root):
        status = root.files.status(root.layout.tombstone(queue))
        if status is None:
            return False
        age_ms = root.now_ms() - Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
        if not queue_exists(root, queue):
            if age_ms < TOMBSTONE_KEPT_S * 1000:
                return False
            yield from _bury(root, queue)
            return True
        root.files.unlink(root.layout.tombstone(queue))
        yield Flush(folders=(root.layout.tombstones,))
        return True


def tombstones(root: Root) -> list[QueueName]:
    """The queues that have a tombstone; foreign names are passed over."""
    found = []
    for entry in root.files.entries(root.layout.tombstones):
        with contextlib.suppress(BadName):
            found.append(QueueName.parse(entry.name))
    return found


def _has_tombstone(root: Root, queue: QueueName) -> bool:
    return root.files.status(root.layout.tombstone(queue)) is not None


def _bury(root: Root, queue: QueueName) -> Steps[None]:
    """Ends a deletion: delay/ is swept until nothing is found, then the tombstone goes."""
    if not _has_tombstone(root, queue):
        return
    while (yield from _retire_pass(root, queue)):
        pass
    root.files.unlink(root.layout.tombstone(queue))
    yield Flush(folders=(root.layout.tombstones,))


def _retire_pass(root: Root, queue: QueueName) -> Steps[int]:
    prefix = entry_prefix(queue)
    retired = 0
    for entry in root.files.entries(root.layout.delay):
        if not entry.name.startswith(prefix) or not entry.is_file(follow_symlinks=False):
            continue
        try:
            _, message_id = parse_entry(entry.name)
        except BadName:
            continue  # Foreign: left alone.
        path = root.layout.path(State.DELAYED, queue, message_id)
        with claimed(root, path) as descriptor:
            if descriptor is None:
                if root.files.status(path) is None:
                    continue
                raise Busy("another process is at a message of the deleted queue")
            try:
                move(root, RETIRE, queue, message_id)
            except OSError as error:
                if not is_gone(error):
                    raise
        retired += 1
    if retired:
        yield Flush(folders=(root.layout.remove, root.layout.delay))
    return retired
