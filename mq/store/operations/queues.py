"""Making and deleting queues: a folder, a tombstone, and one lock for both (`queues_lock`).

A queue exists while its folder does. A tombstone beside a folder is a deletion that was never
answered, and means nothing. FORMAT.md, "create a queue" and "delete a queue", has the steps and
what a crash after each leaves.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq.model.errors import BadName, Busy, NameTaken, ShapeFixed
from mq.model.lifecycle import REMOVE_LEASED, RETIRE, Transition
from mq.model.limits import RETIRE_PASSES_MAX, TOMBSTONE_KEPT_S, UUID_CHARS
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.bulk.roll_forward import retire_staged
from mq.store.core.find import leased_rows
from mq.store.core.moves import claimed, move, others_of
from mq.store.core.purged import forget_mark
from mq.store.core.queues_lock import queues_locked
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import mark_deleted, no_such_queue, queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import Shape, leading
from mq.store.format.layout import Keys, is_unfinished, parse_entry, parse_settings
from mq.store.format.settings import forget_settings, write_shape
from mq.store.format.walk import entries_if_there, folders, rows_of, walk, walk_spots
from mq.store.keys.links import move_keys
from mq.store.operations.purge import sweep_marks
from mq.store.schedules.schedules import forget_schedules, sweep_schedules


@dataclass(frozen=True, slots=True)
class WantedShape:
    """What whoever makes a queue says of its shape; None where nothing is said."""

    digits: int | None = None
    shards: int | None = None

    def fits(self, shape: Shape) -> bool:
        """Whether a queue of this shape is what is wanted."""
        return self.digits in (None, shape.digits) and self.shards in (None, shape.shards)

    def shape(self) -> Shape:
        """The shape of a queue that is made so."""
        made = Shape()
        return Shape(self.digits or made.digits, self.shards or made.shards)


ANY_SHAPE: Final = WantedShape()


def create_queue(root: Root, queue: QueueName, wanted: WantedShape = ANY_SHAPE) -> Steps[bool]:
    """Makes the queue; False when it was there.

    Nothing of a deleted queue of that name turns up in it, nor does its shape. Raises Busy;
    NameTaken when what has the name is no folder; ShapeFixed when the queue was there with a
    shape that is not wanted, SettingsUnreadable when nobody can tell.
    Durable on return: yes, also when another process made it.
    """
    created = False
    if not queue_exists(root, queue):
        with queues_locked(root):
            if not queue_exists(root, queue):
                # While the tombstone stands, which says that they may go.
                yield from forget_schedules(root, queue)
                yield from _bury(root, queue)
                yield from move_keys(root, queue, UuidSource(root.clock).next())
                yield from forget_mark(root, queue)
                yield from write_shape(root.layout, root.files, queue, wanted.shape())
                _make_folder(root, queue)
                _forget(root, queue)
                created = True
    if not created and wanted != ANY_SHAPE and not wanted.fits(root.places.shape(queue)):
        raise ShapeFixed(queue.text)
    yield Flush(folders=(root.layout.queues,))
    return created


def delete_queue(
    root: Root, queue: QueueName, uuid: str, is_to_go: Callable[[], bool] | None = None
) -> Steps[bool]:
    """Deletes the queue with its ready messages; `uuid` names its folder in remove/. False where
    `is_to_go`, which is asked under the lock, says that it stays.

    What it has in delay/ and in leases is out of reach from here on; `retire_delayed` takes it
    away.
    Raises QueueNotFound, Busy, what `is_to_go` raises. Durable on return: yes.
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
            yield Flush(files=(descriptor,), folders=(root.layout.tombstones,))
        finally:
            root.files.close(descriptor)
        _move_folder(root, queue, uuid)
        # What came from its sideline, or, to a sideline, from its queue, by one who died before its
        # own flush, goes with it, and does not come back there.
        others = (root.layout.queue(other) for other in others_of(root, queue))
        beside = tuple(row for folder in others for row in rows_of(root.files, folder))
        yield Flush(folders=(root.layout.remove, root.layout.queues), beside=beside)
        _forget(root, queue)
        if root.over_network:
            yield from mark_deleted(root, queue, uuid)
        yield from forget_schedules(root, queue)
        yield from move_keys(root, queue, uuid)
        yield from forget_mark(root, queue)
        yield from forget_settings(root.layout, root.files, queue)
        return True


def retire_delayed(root: Root, queue: QueueName) -> Steps[int]:
    """Moves what a deleted queue has in delay/ and in leases to remove/; how many. Does nothing to
    a queue that exists, or that was never deleted. Raises Busy. Durable on return: yes.
    """
    with queues_locked(root):
        if queue_exists(root, queue) or not _has_tombstone(root, queue):
            return 0
        return (yield from _retire_pass(root, frozenset({queue})))


def sweep_tombstones(root: Root, limit: int | None = None) -> Steps[int]:
    """One pass over delay/ and leases for all deleted queues; how many messages went to remove/.
    It ends behind so many of them (None: behind all), and another finds the rest.

    A tombstone goes when nothing needs it any more: one beside a folder, and one for which
    the pass found nothing and that is older than any publish or fetch in hand. Raises Busy.
    Durable on return: yes.
    """
    with queues_locked(root):
        standing = _tombstones(root)
        deleted = frozenset(queue for queue in standing if not queue_exists(root, queue))
        for queue in sorted(deleted):
            yield from _mark_buried(root, queue)
        retired = (yield from _retire_pass(root, deleted, limit)) if deleted else 0
        yield from sweep_schedules(root)
        for queue, since_ms in standing.items():
            old = root.aged_ms(TOMBSTONE_KEPT_S) - since_ms >= TOMBSTONE_KEPT_S * 1000
            if queue not in deleted or (old and not retired):
                unlink_if_there(root.files, root.layout.tombstone(queue))
        if standing:
            yield Flush(folders=(root.layout.tombstones,))
        yield from _sweep_settings(root)
        yield from _sweep_keys(root)
        yield from sweep_marks(root)
        _sweep_unfinished(root)
        return retired


def _sweep_settings(root: Root) -> Steps[None]:
    """What a crash has left of queues that were not made, or are deleted."""
    for entry in root.files.entries(root.layout.settings):
        with contextlib.suppress(BadName):
            queue = parse_settings(entry.name)
            if not queue_exists(root, queue):
                yield from forget_settings(root.layout, root.files, queue)


def _sweep_unfinished(root: Root) -> None:
    """What was being written under the lock by a process that died."""
    for folder in (root.layout.settings, root.layout.purged):
        for entry in root.files.entries(folder):
            if is_unfinished(entry.name):
                unlink_if_there(root.files, entry.path)


def _sweep_keys(root: Root) -> Steps[None]:
    """Those that a crash has left of deleted queues."""
    left = set()
    for kind in Keys:
        for entry in entries_if_there(root.files, root.layout.keys(kind)):
            with contextlib.suppress(BadName):
                if entry.is_dir(follow_symlinks=False):
                    left.add(QueueName.parse(entry.name))
    for queue in sorted(left):
        if not queue_exists(root, queue):
            yield from move_keys(root, queue, UuidSource(root.clock).next())


def _tombstones(root: Root) -> dict[QueueName, int]:
    """The queues that have one, and since when (milliseconds since the epoch)."""
    found = {}
    for entry in root.files.entries(root.layout.tombstones):
        with contextlib.suppress(BadName):
            stamp = Stamp.from_mtime_ns(entry.stat(follow_symlinks=False).st_mtime_ns)
            found[QueueName.parse(entry.name)] = stamp.due_ms
    return found


def _forget(root: Root, queue: QueueName) -> None:
    """What this process knows of it is of the queue that was."""
    root.places.forget(queue)
    root.settings.look_again(queue)


def _make_folder(root: Root, queue: QueueName) -> None:
    try:
        root.files.mkdir(root.layout.queue(queue))
    except FileExistsError:
        if not queue_exists(root, queue):
            raise NameTaken(queue.text) from None


def _move_folder(root: Root, queue: QueueName, uuid: str) -> None:
    target = root.layout.deleted_folder(queue, uuid)
    try:
        root.files.rename(root.layout.queue(queue), target)
    except OSError as error:
        # NFS may have done it and lost the answer; the uuid is this deletion's alone.
        if not is_gone(error) or root.files.status(target) is None:
            raise


def _has_tombstone(root: Root, queue: QueueName) -> bool:
    return root.files.status(root.layout.tombstone(queue)) is not None


def _bury(root: Root, queue: QueueName) -> Steps[None]:
    """Ends a deletion: delay/ is swept until nothing is found, then the tombstone goes."""
    if not _has_tombstone(root, queue):
        return
    yield from _mark_buried(root, queue)
    for _ in range(RETIRE_PASSES_MAX):
        if not (yield from _retire_pass(root, frozenset({queue}))):
            break
    else:
        raise Busy("messages of the deleted queue are still on their way")
    unlink_if_there(root.files, root.layout.tombstone(queue))
    yield Flush(folders=(root.layout.tombstones,))


def _mark_buried(root: Root, queue: QueueName) -> Steps[None]:
    """Marks the folder of a deleted queue, in case the process that deleted it died before: the
    tombstone says the folder's name.
    """
    if not root.over_network:
        return
    with contextlib.suppress(FileNotFoundError, BadName):
        uuid = root.files.read_file(root.layout.tombstone(queue), UUID_CHARS)
        yield from mark_deleted(root, queue, MessageId.parse(uuid.decode("ascii", "replace")).uuid)


def _retire_pass(root: Root, deleted: frozenset[QueueName], limit: int | None = None) -> Steps[int]:
    """Moves what these queues have in delay/ and in leases, or are to get by bulk publishes, to
    remove/, or so many of them; how many names it met.

    Flushed also when nothing was found: whoever moved the last one from delay/ has perhaps not
    flushed that yet, and a message that came back would turn up in the queue that is made next.
    """
    # First, since what is rolled forward meanwhile may go to delay/.
    met = yield from retire_staged(root, deleted)
    rows: dict[tuple[str, ...], None] = {}
    # Leases first: what is given back meanwhile is not, where its queue is gone.
    leased = walk_spots(root.files, root.layout.leases, root.places.leases.spots())
    delayed = walk(root.files, root.layout.delay)
    for transition, found in ((REMOVE_LEASED, leased), (RETIRE, delayed)):
        for bucket, entry in found:
            if limit is not None and met >= limit:
                break
            try:
                queue, message_id = parse_entry(entry.name)
            except BadName:
                continue  # Foreign: left alone.
            if queue in deleted and entry.is_file(follow_symlinks=False):
                target = _retire(root, transition, queue, message_id, bucket)
                rows[leading(root.layout.remove, target)] = None
                met += 1
    delay = root.layout.delay
    left = (leading(delay, bucket) for bucket, _ in folders(root.files, delay))
    beside = (*rows, *left, *leased_rows(root))
    yield Flush(folders=(root.layout.remove, delay), beside=beside)
    return met


def _retire(
    root: Root, transition: Transition, queue: QueueName, message_id: MessageId, bucket: str
) -> str:
    """Moves it, unless it has moved meanwhile, or a network mount's cache hides it; its bucket of
    remove/.
    """
    target = root.places.target(transition.target, queue, message_id)
    path = root.layout.path(transition.source, queue, message_id, bucket)
    with claimed(root, path) as claim:
        if claim is None:
            if root.files.status(path) is None:
                return target
            raise Busy("another process is at a message of the deleted queue")
        try:
            move(root, transition, queue, message_id, claim.status.st_nlink, bucket, target)
        except OSError as error:
            if not is_gone(error) or root.files.status(path) is not None:
                raise  # It is there still: a queue that is made now would get it.
    return target
