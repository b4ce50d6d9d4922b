"""Purging a queue: a durable mark with a time, and taking away what is before it.

FORMAT.md, "purge a queue", has the steps and what a crash after each leaves.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.limits import (
    PURGE_MARK_KEPT_S,
    PURGED_BUCKETS_PER_HOP_MAX,
    PURGED_PER_HOP_MAX,
    PURGED_PER_PASS_MAX,
)
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.bulk.journal import journals
from mq.store.core.find import leased_rows
from mq.store.core.moves import others_of
from mq.store.core.purged import PurgeMark, forget_mark, mark_of
from mq.store.core.queues_lock import queues_locked
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import leading
from mq.store.format.layout import entry_prefix, is_deleted_folder, parse_entry
from mq.store.format.walk import entries_if_there, folders, is_bucket, rows_of, walk, walk_spots
from mq.store.operations.remove import is_full, take_away
from mq.store.scan.published_up_to import goes_whole, ready_up_to, take_bucket


class Taken(NamedTuple):
    """How many purged messages were met, and how many of them were moved."""

    met: int
    moved: int


def purge(root: Root, queue: QueueName, before_ms: int) -> Steps[int]:
    """Has nothing be served any more that was published up to this time, milliseconds since the
    epoch; up to which time that is so now, which another process may have made later.

    `take_purged` takes it away. Raises QueueNotFound, Busy. Durable on return: yes.
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
        return before_ms


def take_purged(root: Root, queue: QueueName, limit: int = PURGED_PER_HOP_MAX) -> Taken:
    """Moves some `limit` of what is purged of a queue to remove/; blocking. None met: there is
    none any more, but for what moved meanwhile.

    Raises OSError, Busy, SettingsUnreadable. Durable on return: no; the mark stands as long as a
    crash may bring some back.
    """
    mark = mark_of(root, queue)
    met = moved = 0
    if mark is None:
        return Taken(0, 0)
    # delay/ first: what is released from there meanwhile is found in the queue then.
    for state, bucket, message_id in _purged_names(root, queue, mark):
        met += 1
        moved += take_away(root, state, queue, message_id, bucket)
        if met >= limit:
            break
    return Taken(met, moved)


def take_purged_buckets(root: Root, queue: QueueName) -> int:
    """Moves a few of the queue's buckets that hold nothing but what is purged, each by one rename,
    into a folder of remove/ like a deleted queue's; how many. Blocking; else like `take_purged`.
    """
    mark = mark_of(root, queue)
    if mark is None:
        return 0
    folder = root.layout.deleted_folder(queue, UuidSource(root.clock).next())
    taken = 0
    for entry in entries_if_there(root.files, root.layout.queue(queue)):
        if is_bucket(entry) and goes_whole(root, entry, mark):
            try:
                taken += take_bucket(root, queue, entry, folder)
            except OSError as error:
                if is_full(error):
                    break  # Its messages go one by one, which needs no room.
                raise
            if taken >= PURGED_BUCKETS_PER_HOP_MAX:
                break
    return taken


def sweep_purged(root: Root, done: dict[QueueName, PurgeMark]) -> Steps[int]:
    """What a crash has left of purges; how many messages went to remove/. A mark goes when
    nothing needs it any more: nothing was found, and it is older than any publish or fetch in hand.
    `done` are the marks for which a pass has found nothing, which are not looked at before that.

    Raises Busy. Durable on return: that what a mark stood for does not come back once it is gone.
    """
    moved = 0
    marks = {queue: mark_of(root, queue) for queue in _marked(root)}
    for queue in set(done) - set(marks):
        del done[queue]
    for queue, mark in marks.items():
        if mark is None or not queue_exists(root, queue) or moved >= PURGED_PER_PASS_MAX:
            continue
        is_old = root.aged_ms(PURGE_MARK_KEPT_S) - mark.ms >= PURGE_MARK_KEPT_S * 1000
        if done.get(queue) == mark and not is_old:
            continue
        while take_purged_buckets(root, queue):
            pass
        taken = take_purged(root, queue, PURGED_PER_PASS_MAX - moved)
        moved += taken.moved
        if not taken.met:
            done[queue] = mark
            # What is still to come of a publish that was committed before it may be covered.
            if is_old and not _is_leased(root, queue, mark) and not journals(root):
                yield from _drop_mark(root, queue, mark)
    return moved


def sweep_marks(root: Root) -> Steps[None]:
    """Takes away, under the queues' lock, marks that a crash has left of queues that are not there.
    Durable on return: yes.
    """
    for queue in _marked(root):
        if not queue_exists(root, queue):
            yield from forget_mark(root, queue)


def _marked(root: Root) -> list[QueueName]:
    found = []
    for entry in entries_if_there(root.files, root.layout.purged):
        with contextlib.suppress(BadName):
            found.append(QueueName.parse(entry.name))
    return found


def _purged_names(
    root: Root, queue: QueueName, mark: PurgeMark
) -> Iterator[tuple[State, str, MessageId]]:
    """In delay/, then in the queue. What begins after the mark is not listed."""
    prefix = entry_prefix(queue)
    for bucket, entry in walk(root.files, root.layout.delay):
        if not entry.name.startswith(prefix) or not entry.is_file(follow_symlinks=False):
            continue
        with contextlib.suppress(BadName):
            _, message_id = parse_entry(entry.name)
            if mark.covers(message_id.uuid):
                yield State.DELAYED, bucket, message_id
    for bucket, message_id in ready_up_to(root, queue, mark):
        yield State.READY, bucket, message_id


def _is_leased(root: Root, queue: QueueName, mark: PurgeMark) -> bool:
    """Whether a lease holds what is purged: the mark stays until that ended."""
    prefix = entry_prefix(queue)
    leased = walk_spots(root.files, root.layout.leases, root.places.leases.spots())
    return any(
        entry.name.startswith(prefix) and mark.covers(entry.name[len(prefix) :])
        for _, entry in leased
    )


def _drop_mark(root: Root, queue: QueueName, mark: PurgeMark) -> Steps[None]:
    """Takes the mark away once nothing comes back that was before it."""
    layout = root.layout
    with queues_locked(root):
        if mark_of(root, queue) != mark or not queue_exists(root, queue):
            return
        ready = layout.queue(queue)
        rows = [
            leading(top, bucket)
            for top in (layout.remove, layout.delay, ready)
            for bucket, _ in folders(root.files, top)
        ]
        prefix = entry_prefix(queue)
        rows += [
            (entry.path,)
            for entry in root.files.entries(layout.remove)
            if entry.name.startswith(prefix) and is_deleted_folder(entry.name)
        ]
        rows += leased_rows(root)
        # What was purged after it had come from there, by one who died before its own flush.
        for other in others_of(root, queue):
            rows += rows_of(root.files, layout.queue(other))
        yield Flush(folders=(layout.remove, layout.delay, ready), beside=tuple(rows))
        yield from forget_mark(root, queue)
