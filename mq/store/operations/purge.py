"""Purging a queue: a durable mark with a time, and removing the messages before it.

PROTOCOL.md, "purge a queue", has the steps and what a crash after each leaves.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.totals import Total
from mq.store.core.locks import queues_locked
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.core.unserved import PurgeMark, forget_mark, mark_of
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Place, entry_prefix
from mq.store.format.walk import buckets, entries_if_there, if_there, named, walk, walk_spots
from mq.store.operations.remove import is_full, take_away
from mq.store.scan.published_up_to import goes_whole, ready_up_to, take_bucket

# How long a purge mark stays at least, and how far ahead of the clock a mark may move ids.
PURGE_MARK_KEPT_S: Final = 3600
PURGE_MARK_AHEAD_S: Final = 3600
# Limits: purged names and buckets that mq removes in one hop, and names in one pass of mq-mover.
PURGED_PER_HOP_MAX: Final = 500
PURGED_BUCKETS_PER_HOP_MAX: Final = 1
PURGED_PER_PASS_MAX: Final = 20_000


class Taken(NamedTuple):
    """The number of purged messages found, and the number of those that were moved."""

    met: int
    moved: int


def purge(root: Root, queue: QueueName, before_ms: int) -> Steps[int]:
    """Marks all messages that were published up to `before_ms`, in milliseconds since the epoch, as
    purged. Returns the time of the mark in force, which another process may have set later.

    `take_purged` removes the messages. The caller answers FACTS_SETTLE_S later, when every process
    knows the mark. Raises QueueNotFound, Busy. Durable on return: yes.
    """
    layout = root.layout
    with queues_locked(root):
        if not queue_exists(root, queue):
            yield from no_such_queue(root, queue)
        known = mark_of(root, queue)
        if known is not None and known.ms >= before_ms:
            yield Flush(folders=(layout.purged,))
            return known.ms
        mtime_ns = Stamp(before_ms).mtime_ns()
        written, path = layout.new_purge_mark(queue), layout.purge_mark(queue)
        yield from replace_file(root.files, written, path, mtime_ns=mtime_ns)
        root.facts.look_again(queue)
        return before_ms


def take_purged(root: Root, queue: QueueName, limit: int = PURGED_PER_HOP_MAX) -> Taken:
    """Moves about `limit` purged messages of a queue to remove/. Blocking. If it finds none, none
    is left, except for messages that moved meanwhile.

    Raises OSError, Busy, SettingsUnreadable. Durable on return: no; the mark stays as long as a
    crash may bring some back.
    """
    mark = mark_of(root, queue)
    met = moved = 0
    if mark is None:
        return Taken(0, 0)
    # delay/ first: a message that is released meanwhile is then found in the queue.
    for place in _purged_places(root, queue, mark):
        met += 1
        if take_away(root, place):
            root.totals.add(queue, Total.PURGED, place.id.items or 1)
            moved += 1
        if met >= limit:
            break
    return Taken(met, moved)


def take_purged_buckets(root: Root, queue: QueueName) -> int:
    """Moves a few of the queue's buckets that hold only purged messages, each by one rename, to a
    folder of remove/ like a deleted queue's. Returns the number of messages. Blocking; otherwise
    like `take_purged`.
    """
    mark = mark_of(root, queue)
    if mark is None:
        return 0
    folder = root.layout.deleted_folder(queue, UuidSource(root.clock).next())
    taken = 0
    for bucket in if_there(buckets(root.files, root.layout.queue(queue))):
        if count := goes_whole(root, bucket, mark):
            try:
                if take_bucket(root, queue, bucket, folder):
                    root.totals.add(queue, Total.PURGED, count)
                    taken += 1
            except OSError as error:
                if is_full(error):
                    break  # Its messages are removed one by one, which needs no room.
                raise
            if taken >= PURGED_BUCKETS_PER_HOP_MAX:
                break
    return taken


def sweep_purged(root: Root, done: dict[QueueName, PurgeMark]) -> int:
    """Finishes purges after a crash. Returns how many messages moved to remove/. Removes a mark if
    a pass found no message and the mark is older than any publish or fetch in progress. `done`: the
    marks for which a pass found nothing, which are skipped until then.

    Blocking. Raises Busy. Durable on return: no; a mark goes after what it covers.
    """
    moved = 0
    marks = {queue: mark_of(root, queue) for queue in _marked(root)}
    for queue in set(done) - set(marks):
        del done[queue]
    for queue, mark in marks.items():
        if mark is None or not queue_exists(root, queue) or moved >= PURGED_PER_PASS_MAX:
            continue
        is_old = root.has_aged(mark.ms, PURGE_MARK_KEPT_S)
        if done.get(queue) == mark and not is_old:
            continue
        while take_purged_buckets(root, queue):
            pass
        taken = take_purged(root, queue, PURGED_PER_PASS_MAX - moved)
        moved += taken.moved
        if not taken.met:
            done[queue] = mark
            # A committed bulk publish may still bring covered messages.
            if (
                is_old
                and not _is_leased(root, queue, mark)
                and not root.hooks.is_more_to_come(root)
            ):
                _drop_mark(root, queue, mark)
    return moved


def sweep_marks(root: Root) -> None:
    """Removes marks of missing queues, which a crash left, under the queues' lock."""
    for queue in _marked(root):
        if not queue_exists(root, queue):
            forget_mark(root, queue)


def _marked(root: Root) -> list[QueueName]:
    entries = entries_if_there(root.files, root.layout.purged)
    return [queue for _, queue in named(entries, QueueName.parse)]


def _purged_places(root: Root, queue: QueueName, mark: PurgeMark) -> Iterator[Place]:
    """Covered messages in delay/, then in the queue. Lists no bucket that begins after the mark."""
    prefix = entry_prefix(queue)
    for folder, entry in walk(root.files, root.layout.delay):
        text = entry.name[len(prefix) :] if entry.name.startswith(prefix) else ""
        if not MessageId.is_written(text) or not mark.covers(text):
            continue
        if entry.is_file(follow_symlinks=False):
            yield Place(State.DELAYED, queue, MessageId.parse(text), folder.spot)
    for bucket, message_id in ready_up_to(root, queue, mark):
        yield Place(State.READY, queue, message_id, bucket)


def _is_leased(root: Root, queue: QueueName, mark: PurgeMark) -> bool:
    """Whether a lease holds purged messages: the mark stays until the lease has ended."""
    prefix = entry_prefix(queue)
    leased = walk_spots(root.files, root.layout.leases, root.places.leases.spots())
    return any(
        entry.name.startswith(prefix) and mark.covers(entry.name[len(prefix) :])
        for _, entry in leased
    )


def _drop_mark(root: Root, queue: QueueName, mark: PurgeMark) -> None:
    """Removes the mark, once no covered message can come back."""
    with queues_locked(root):
        if mark_of(root, queue) == mark and queue_exists(root, queue):
            forget_mark(root, queue)
