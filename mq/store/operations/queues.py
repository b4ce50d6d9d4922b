"""Makes and deletes queues: a folder, a tombstone, and one lock for both (`queues_lock`).

A queue exists while its folder does. A tombstone beside a folder is a deletion that was never
acknowledged, and has no effect. PROTOCOL.md, "create a queue" and "delete a queue", has the steps
and what a crash after each leaves.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName, Busy, NameTaken, ShapeFixed
from mq.model.lifecycle import REMOVE_LEASED, RETIRE, Transition
from mq.model.limits import UUID_CHARS
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.locks import queues_locked
from mq.store.core.moves import Move, claimed, move
from mq.store.core.root import Root, rename_folder, sweep_unfinished, unlink_if_there
from mq.store.core.standing import mark_deleted, no_such_queue, queue_exists
from mq.store.core.unserved import forget_mark
from mq.store.disk.files import is_gone
from mq.store.disk.steps import LISTS, Flush, Steps
from mq.store.format.bucket_names import Shape
from mq.store.format.layout import Place, parse_entry, parse_settings
from mq.store.format.packs import parts
from mq.store.format.settings import forget_settings, write_shape
from mq.store.format.walk import named, walk, walk_spots
from mq.store.keys.entries import sweep_entries_of_deleted
from mq.store.operations.purge import sweep_marks

TOMBSTONE_KEPT_S: Final = 3600
# Scans of delay/ for messages of a deleted queue before the queue is made again.
RETIRE_PASSES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class WantedShape:
    """The shape in a request to make a queue; None where the request names none."""

    digits: int | None = None
    shards: int | None = None

    def fits(self, shape: Shape) -> bool:
        """Whether a queue of this shape satisfies the request."""
        return self.digits in (None, shape.digits) and self.shards in (None, shape.shards)

    def shape(self) -> Shape:
        """The shape for a new queue."""
        made = Shape()
        return Shape(self.digits or made.digits, self.shards or made.shards)


ANY_SHAPE: Final = WantedShape()


def create_queue(root: Root, queue: QueueName, wanted: WantedShape = ANY_SHAPE) -> Steps[bool]:
    """Makes the queue; False if it existed. Raises as `make_queue`; ShapeFixed if the queue exists
    with an unwanted shape, SettingsUnreadable if its shape is unknown. Durable on return: yes, also
    if another process made it.
    """
    created = yield from make_queue(root, queue, wanted)
    if not created and wanted != ANY_SHAPE and not wanted.fits(root.facts.shape_now(queue)):
        raise ShapeFixed(queue.text)
    yield Flush(folders=(root.layout.queues,))
    return created


def make_queue(root: Root, queue: QueueName, wanted: WantedShape = ANY_SHAPE) -> Steps[bool]:
    """Makes the queue; False if it existed. A deleted queue of that name leaves neither messages
    nor its shape in it. Raises Busy; NameTaken if a file that is not a folder has the name. Durable
    on return: no; with the flush of the first message that comes to it.
    """
    if queue_exists(root, queue):
        return False
    if _has_tombstone(root, queue):
        yield LISTS
    with queues_locked(root):
        if queue_exists(root, queue):
            return False
        if _has_tombstone(root, queue):
            # While it stands, which says that they may be removed.
            yield from root.hooks.forget(root, queue)
            yield from _bury(root, queue)
        forget_mark(root, queue)
        yield from write_shape(root.layout, root.files, queue, wanted.shape())
        _make_folder(root, queue)
        _forget(root, queue)
        return True


def delete_queue(
    root: Root, queue: QueueName, uuid: str, is_to_go: Callable[[], bool] | None = None
) -> Steps[bool]:
    """Deletes the queue with its ready messages; `uuid` names its folder in remove/. False if
    `is_to_go`, called under the lock, says that it stays.

    Its messages in delay/ and in leases cannot be reached from here on; `retire_delayed` removes
    them. Raises QueueNotFound, Busy, and the errors of `is_to_go`. Durable on return: yes.
    """
    with queues_locked(root):
        if not queue_exists(root, queue):
            yield from _mark_buried(root, queue)
            yield from no_such_queue(root, queue)
        if is_to_go is not None and not is_to_go():
            return False
        descriptor = root.files.open_kept(root.layout.tombstone(queue))
        try:
            root.files.write(descriptor, uuid.encode("ascii"))
            root.files.stamp(descriptor, Stamp(root.now_ms()).mtime_ns())
            if root.over_network:
                yield Flush(files=(descriptor,))  # Elsewhere it says nothing that is needed.
        finally:
            root.files.close(descriptor)
        _move_folder(root, queue, uuid)
        _forget(root, queue)
        if root.over_network:
            yield from mark_deleted(root, queue, uuid)
        # What a crash leaves of these goes with the next queue of the name, or by a sweep.
        yield from root.hooks.forget(root, queue)
        forget_mark(root, queue)
        forget_settings(root.layout, root.files, queue)
        yield Flush(folders=(root.layout.remove, root.layout.queues))
        return True


def retire_delayed(root: Root, queue: QueueName) -> int:
    """Moves a deleted queue's messages in delay/ and in leases to remove/. Returns their number.
    Does nothing if the queue exists or was never deleted. Raises Busy. Durable on return: no; what
    comes back is out of reach as before.
    """
    with queues_locked(root):
        if queue_exists(root, queue) or not _has_tombstone(root, queue):
            return 0
        return _retire_pass(root, frozenset({queue}))


def sweep_tombstones(root: Root, limit: int | None = None) -> Steps[int]:
    """One pass over delay/ and leases for all deleted queues. Returns how many messages moved to
    remove/. Ends after `limit` messages (None: no limit); the next pass finds the rest.

    Removes a tombstone that nothing needs any more: one beside a folder, or one without remaining
    messages that is older than any publish or fetch in progress. Raises Busy. Durable on return:
    no; what comes back is swept again.
    """
    with queues_locked(root):
        standing = _tombstones(root)
        deleted = frozenset(queue for queue in standing if not queue_exists(root, queue))
        for queue in sorted(deleted):
            yield from _mark_buried(root, queue)
        retired = _retire_pass(root, deleted, limit) if deleted else 0
        yield from root.hooks.sweep(root)
        for queue, since_ms in standing.items():
            is_old = root.has_aged(since_ms, TOMBSTONE_KEPT_S)
            # A commit behind the pass still has to meet the deletion.
            is_over = is_old and not retired and not root.hooks.is_more_to_come(root)
            if queue not in deleted or is_over:
                unlink_if_there(root.files, root.layout.tombstone(queue))
        _sweep_settings(root)
        sweep_entries_of_deleted(root)
        sweep_marks(root)
        _sweep_unfinished(root)
        return retired


def _sweep_settings(root: Root) -> None:
    """Removes settings that a crash left of queues that were not made, or are deleted."""
    for _, queue in named(root.files.entries(root.layout.settings), parse_settings):
        if not queue_exists(root, queue):
            forget_settings(root.layout, root.files, queue)


def _sweep_unfinished(root: Root) -> None:
    """Removes unfinished files of processes that died under the lock."""
    for folder in (root.layout.settings, root.layout.purged):
        sweep_unfinished(root, folder, kept_s=None)


def _tombstones(root: Root) -> dict[QueueName, int]:
    """The queues with a tombstone, and its time in milliseconds since the epoch."""
    return {
        queue: Stamp.from_mtime_ns(entry.stat(follow_symlinks=False).st_mtime_ns).due_ms
        for entry, queue in named(root.files.entries(root.layout.tombstones), QueueName.parse)
    }


def _forget(root: Root, queue: QueueName) -> None:
    """Forgets this process's knowledge of the former queue, and restarts the totals."""
    root.places.forget(queue)
    root.totals.begin_anew(queue)


def _make_folder(root: Root, queue: QueueName) -> None:
    try:
        root.files.mkdir(root.layout.queue(queue))
    except FileExistsError:
        if not queue_exists(root, queue):
            raise NameTaken(queue.text) from None


def _move_folder(root: Root, queue: QueueName, uuid: str) -> None:
    # Only this deletion uses the uuid.
    rename_folder(root.files, root.layout.queue(queue), root.layout.deleted_folder(queue, uuid))


def _has_tombstone(root: Root, queue: QueueName) -> bool:
    return root.files.status(root.layout.tombstone(queue)) is not None


def _bury(root: Root, queue: QueueName) -> Steps[None]:
    """Ends a deletion: sweeps delay/ until nothing is found, then removes the tombstone."""
    yield from _mark_buried(root, queue)
    # A pack that is being parted comes back to delay/ once, as its items, behind a pass.
    wanted, empty = 2 if root.files.is_there(parts(root.layout)) else 1, 0
    for _ in range(RETIRE_PASSES_MAX):
        met = _retire_pass(root, frozenset({queue}))
        empty = 0 if met else empty + 1
        if empty == wanted:
            break
    else:
        raise Busy("messages of the deleted queue are still on their way")
    unlink_if_there(root.files, root.layout.tombstone(queue))


def _mark_buried(root: Root, queue: QueueName) -> Steps[None]:
    """Marks the folder of a deleted queue, since the process that deleted it may have died before:
    the tombstone has the folder's name.
    """
    if not root.over_network:
        return
    with contextlib.suppress(FileNotFoundError, BadName):
        uuid = root.files.read_file(root.layout.tombstone(queue), UUID_CHARS)
        yield from mark_deleted(root, queue, MessageId.parse(uuid.decode("ascii", "replace")).uuid)


def _retire_pass(root: Root, deleted: frozenset[QueueName], limit: int | None = None) -> int:
    """Moves messages of these queues in delay/, in leases and in bulk publishes to remove/, or
    `limit` of them. Returns the number of names that it met. Durable on return: no. Where the next
    queue of the name outlasts a power cut, so do these earlier moves.
    """
    # First, since a roll-forward may still move messages to delay/.
    met = root.hooks.retire(root, deleted)
    # Leases first: then no message is released to the missing queue meanwhile.
    leased = walk_spots(root.files, root.layout.leases, root.places.leases.spots())
    delayed = walk(root.files, root.layout.delay)
    for transition, found in ((REMOVE_LEASED, leased), (RETIRE, delayed)):
        for folder, entry in found:
            if limit is not None and met >= limit:
                break
            try:
                queue, message_id = parse_entry(entry.name)
            except BadName:
                continue  # Foreign files are left alone.
            if queue in deleted and entry.is_file(follow_symlinks=False):
                _retire(root, transition, queue, message_id, folder.spot)
                met += 1
    return met


def _retire(
    root: Root, transition: Transition, queue: QueueName, message_id: MessageId, bucket: str
) -> None:
    """Moves the message, unless it has moved or a network mount's cache hides it."""
    target = root.places.target(transition.target, queue, message_id)
    place = Place(transition.source, queue, message_id, bucket)
    path = place.path(root.layout)
    with claimed(root, place) as claim:
        if claim is None:
            if root.files.status(path) is None:
                return
            raise Busy("another process is at a message of the deleted queue")
        try:
            act = Move(transition, queue, message_id, bucket, target)
            move(root, act)
        except OSError as error:
            if not is_gone(error) or root.files.status(path) is not None:
                raise  # It still exists, and a new queue would get it.
