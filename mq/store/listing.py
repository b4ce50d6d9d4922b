"""Looking into folders without changing them: candidates for a fetch, and counts."""

import heapq
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
from mq.store.root import Root


@dataclass(frozen=True, slots=True)
class FolderMark:
    """When a folder last changed, as a listing saw it; believed only when it is old enough,
    since a change soon after another may leave the same mtime.
    """

    mtime_ns: int
    trusted: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The first ready messages of a queue in delivery order; `complete` when they are all."""

    ids: list[MessageId]
    complete: bool
    mark: FolderMark


@dataclass(frozen=True, slots=True)
class Counts:
    """How many files a queue has in each state, and its oldest ready message's publish time.

    `overdue` are those of `delayed` and `in_flight` that a mover should have brought back.
    """

    ready: int
    delayed: int
    in_flight: int
    overdue: int
    removed: int
    sidelined: int
    foreign: int
    oldest_ready_ms: int | None


def delivery_order(message_id: MessageId) -> tuple[int, str]:
    """What messages are served by: priority first, then publish order."""
    return (-message_id.priority, message_id.text)


def look_pause_s(cost_s: float) -> float:
    """How long to leave a folder alone after a look that cost so long: looking takes a small
    share of the time, and a process that was stopped in the middle of a look is soon back.
    """
    return min(cost_s / LOOK_SHARE, LOOK_PAUSE_S_MAX)


def is_settled(folder: os.stat_result, now_ms: int) -> bool:
    """Whether a folder's mtime is so old that a change from now on would show in it."""
    return now_ms - folder.st_mtime_ns // 1_000_000 >= FOLDER_MTIME_TRUST_S * 1000


def list_ready(
    root: Root, queue: QueueName, limit: int, known: FolderMark | None = None
) -> Listing | None:
    """The queue's first `limit` ready messages, or None when nothing changed since `known`.

    Blocking, and as long as the folder is large. Raises QueueNotFound.
    """
    folder = root.layout.queue(queue)
    status = root.files.status(folder)
    if status is None:
        raise _not_found(root, queue)
    if known is not None and known.trusted and known.mtime_ns == status.st_mtime_ns:
        return None
    mark = FolderMark(status.st_mtime_ns, is_settled(status, root.now_ms()))
    found, _ = _ids(root, folder, queue)
    if len(found) <= limit:
        return Listing(sorted(found, key=delivery_order), True, mark)
    return Listing(heapq.nsmallest(limit, found, key=delivery_order), False, mark)


def count(root: Root, queue: QueueName) -> Counts:
    """Counts the queue's files by listing their folders; blocking. Raises QueueNotFound."""
    folder = root.layout.queue(queue)
    ready, foreign = _ids(root, folder, queue)
    delayed = in_flight = overdue = 0
    overdue_ms = root.now_ms() - round(OVERDUE_AFTER_S * 1000)
    for entry in _entries(root, State.DELAYED, queue):
        try:
            stamp = Stamp.from_mtime_ns(entry.stat(follow_symlinks=False).st_mtime_ns)
        except FileNotFoundError:
            continue
        overdue += stamp.due_ms < overdue_ms
        if stamp.receives:
            in_flight += 1
        else:
            delayed += 1
    return Counts(
        ready=len(ready),
        delayed=delayed,
        in_flight=in_flight,
        overdue=overdue,
        removed=sum(1 for _ in _entries(root, State.REMOVED, queue)),
        sidelined=_sidelined(root, queue),
        foreign=foreign,
        oldest_ready_ms=min((found.published_ms for found in ready), default=None),
    )


def _entries(root: Root, state: State, queue: QueueName) -> "Iterator[os.DirEntry[str]]":
    """The queue's messages in a folder that it shares with other queues."""
    prefix = entry_prefix(queue)
    for entry in root.files.entries(root.layout.folder(state)):
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
        return len(_ids(root, root.layout.queue(queue.sideline()), queue)[0])
    except QueueNotFound:
        return 0


def _ids(root: Root, folder: str, queue: QueueName) -> tuple[list[MessageId], int]:
    """The ids of the messages in a queue's folder, and how many other names there are."""
    foreign = 0
    found = []
    try:
        for entry in root.files.entries(folder):
            try:
                message_id = MessageId.parse(entry.name)
            except BadName:
                foreign += 1
                continue
            if entry.is_file(follow_symlinks=False):
                found.append(message_id)
            else:
                foreign += 1
    except OSError as error:
        if is_gone(error):
            raise _not_found(root, queue) from None
        raise
    return found, foreign


def _not_found(root: Root, queue: QueueName) -> QueueNotFound:
    """What says that there is no such queue. Raises StorageFailed when that is not sure."""
    queue_exists(root, queue)
    return QueueNotFound(queue.text)
