"""Looking into folders without changing them: counts, and how often to look."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from mq.errors import BadName, QueueNotFound
from mq.lifecycle import State
from mq.limits import (
    FOLDER_MTIME_TRUST_S,
    LOOK_PAUSE_S_MAX,
    LOOK_SHARE,
    OVERDUE_AFTER_S,
    SIDELINE_SUFFIX,
)
from mq.message import Stamp
from mq.names import MessageId, QueueName
from mq.store.files import is_gone
from mq.store.layout import entry_prefix, parse_entry
from mq.store.moves import queue_exists
from mq.store.purged import PurgeMark, mark_of
from mq.store.root import Root
from mq.store.walk import walk, walk_spots


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages a queue has in each state, and its oldest ready message's publish time;
    purged ones count only as removed.

    `overdue` are those of `delayed` and `in_flight` that a mover should have brought back.
    """

    ready: int
    delayed: int
    in_flight: int
    leased: int
    overdue: int
    removed: int
    sidelined: int
    foreign: int
    oldest_ready_ms: int | None


def look_pause_s(cost_s: float) -> float:
    """How long to leave a folder alone after a look that cost so long: looking takes a small
    share of the time, and a process that was stopped in the middle of a look is soon back.
    """
    return min(cost_s / LOOK_SHARE, LOOK_PAUSE_S_MAX)


def is_settled(folder: os.stat_result, now_ms: int) -> bool:
    """Whether a folder's mtime is so old that a change from now on would show in it."""
    return now_ms - folder.st_mtime_ns // 1_000_000 >= FOLDER_MTIME_TRUST_S * 1000


def count(root: Root, queue: QueueName) -> Counts:
    """Counts the queue's files by listing their folders; blocking. Raises QueueNotFound."""
    mark = mark_of(root, queue)
    ready, foreign, oldest = _ready(root, queue, mark)
    delayed = in_flight = overdue = 0
    overdue_ms = root.now_ms() - round(OVERDUE_AFTER_S * 1000)
    for entry in _entries(root, State.DELAYED, queue):
        if mark is not None and mark.covers(parse_entry(entry.name)[1].uuid):
            continue
        try:
            stamp = Stamp.from_mtime_ns(entry.stat(follow_symlinks=False).st_mtime_ns)
        except FileNotFoundError:
            continue
        overdue += stamp.due_ms < overdue_ms
        if stamp.receives:
            in_flight += 1
        else:
            delayed += 1
    leased = 0
    for entry in _entries(root, State.LEASED, queue):
        leased += mark is None or not mark.covers(parse_entry(entry.name)[1].uuid)
    return Counts(
        ready=ready,
        delayed=delayed,
        in_flight=in_flight,
        leased=leased,
        overdue=overdue,
        removed=sum(1 for _ in _entries(root, State.REMOVED, queue)),
        sidelined=_sidelined(root, queue),
        foreign=foreign,
        oldest_ready_ms=MessageId.parse(oldest).published_ms if oldest else None,
    )


def _entries(root: Root, state: State, queue: QueueName) -> "Iterator[os.DirEntry[str]]":
    """The queue's messages in a folder that it shares with other queues."""
    prefix = entry_prefix(queue)
    top = root.layout.folder(state)
    if state is State.LEASED:
        found = walk_spots(root.files, top, root.places.leases.spots())
    else:
        found = walk(root.files, top)
    for _, entry in found:
        if not entry.name.startswith(prefix) or not entry.is_file(follow_symlinks=False):
            continue
        try:
            parse_entry(entry.name)
        except BadName:
            continue
        yield entry


def _sidelined(root: Root, queue: QueueName) -> int:
    if queue.text.endswith(SIDELINE_SUFFIX):
        return 0
    try:
        sideline = queue.sideline()
        return _ready(root, sideline, mark_of(root, sideline))[0]
    except QueueNotFound:
        return 0


def _ready(root: Root, queue: QueueName, mark: PurgeMark | None) -> tuple[int, int, str]:
    """How many ready messages the queue has behind the mark, how many names that are none's, and
    the first id ("": none).
    """
    ready = foreign = 0
    oldest = ""
    try:
        for _, entry in walk(root.files, root.layout.queue(queue)):
            name = entry.name
            if not MessageId.is_written(name) or not entry.is_file(follow_symlinks=False):
                foreign += 1
                continue
            if mark is not None and mark.covers(name):
                continue
            ready += 1
            if not oldest or name < oldest:
                oldest = name
    except OSError as error:
        if is_gone(error):
            raise not_found(root, queue) from None
        raise
    return ready, foreign, oldest


def not_found(root: Root, queue: QueueName) -> QueueNotFound:
    """What says that there is no such queue. Raises StorageFailed when that is not sure."""
    queue_exists(root, queue)
    return QueueNotFound(queue.text)
