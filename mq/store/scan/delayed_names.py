"""The messages of delay/ in a stable order, in parts: first those outside buckets, then bucket
after bucket, each by name.

A pass holds few names in memory, and can resume after any name.
"""

import contextlib
import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, messages_of
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.core.unserved import mark_of
from mq.store.format.layout import Place, entry_prefix, parse_entry
from mq.store.format.walk import Folder, if_there, walk


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message's file."""

    place: Place
    name: str
    """The part of its path behind `delay/`."""
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class DelayedBatch:
    """Messages in order. `behind`: the last name of the scan; None: there are no more."""

    found: tuple[Delayed, ...]
    behind: str | None


def delayed_behind(root: Root, behind: str, limit: int) -> DelayedBatch:
    """The next messages after the name `behind` ("" for the first). Looks at no more than `limit`
    names. Skips files that disappear meanwhile, and foreign names. Raises OSError.
    """
    found: list[Delayed] = []
    left, last = limit, behind
    for bucket, names in _folders_behind(root, behind, limit + 1):
        for name in names[:left]:
            last = bucket + name
            message = _look(root, bucket, name)
            if message is not None:
                found.append(message)
        if len(names) > left:
            return DelayedBatch(tuple(found), last)
        left -= len(names)
    return DelayedBatch(tuple(found), None)


def in_flight(root: Root, queue: QueueName, shown_s: float, limit: int) -> list[tuple[str, int]]:
    """The ids of the queue's messages in flight, of a pack its items', and their due times in
    milliseconds since the epoch; at most `limit`, in no order. A message that is due later than
    `shown_s`, or its own visibility, from now counts as postponed, not as in flight. Blocking:
    lists delay/. Raises OSError.
    """
    now_ms = root.now_ms()
    found: list[tuple[str, int]] = []
    for name, stamp in delayed_of(root, queue):
        shown_for_s = max(shown_s, MessageId.parse(name).visibility_s or 0)
        is_shown = now_ms < stamp.due_ms <= now_ms + round(shown_for_s * 1000)
        if is_shown and stamp.receives:
            found += ((each, stamp.due_ms) for each in messages_of(name))
        if len(found) >= limit:
            break
    return found[:limit]


def delayed_ids(root: Root, queue: QueueName) -> Iterator[str]:
    """The ids of the queue's messages in delay/ that are not purged, of a pack its items', in no
    order. Blocking: lists delay/. Raises OSError.
    """
    for name, _ in _entries_of(root, queue):
        yield from messages_of(name)


def delayed_of(root: Root, queue: QueueName) -> Iterator[tuple[str, Stamp]]:
    """The ids and stamps of the queue's messages in delay/ that are not purged, in no order.
    Blocking: lists delay/. Raises OSError.
    """
    for name, path in _entries_of(root, queue):
        if (status := message_status(root, path)) is not None:
            yield name, Stamp.from_mtime_ns(status.st_mtime_ns)


def _entries_of(root: Root, queue: QueueName) -> Iterator[tuple[str, str]]:
    """The ids and paths of the queue's messages in delay/ that are not purged."""
    prefix, mark = entry_prefix(queue), mark_of(root, queue)
    for _, entry in walk(root.files, root.layout.delay):
        if not entry.name.startswith(prefix):
            continue
        name = entry.name.removeprefix(prefix)
        if MessageId.is_written(name) and (mark is None or not mark.covers(name)):
            yield name, entry.path


def _folders_behind(root: Root, behind: str, limit: int) -> Iterator[tuple[str, list[str]]]:
    """delay/ and its buckets in order from the name on, each with its first names after it, at most
    `limit`.
    """
    passed = behind[: behind.rfind("/") + 1]
    top = Folder(root.layout.delay)
    waiting = [top]
    while waiting:
        folder, inner = waiting.pop(), list[Folder]()
        entries = root.files.entries(folder.path)
        names = _names(entries if folder is top else if_there(entries), folder, behind, inner)
        first = heapq.nsmallest(limit, names)
        if folder.spot >= passed:
            yield folder.spot, first
        # Depth first: folders below a bucket come before the next bucket.
        inner.sort(key=lambda each: each.spot, reverse=True)
        waiting += [each for each in inner if each.spot >= passed or passed.startswith(each.spot)]


def _names(
    entries: "Iterator[os.DirEntry[str]]", folder: Folder, behind: str, inner: list[Folder]
) -> Iterator[str]:
    """The names after `behind`; `inner` collects the folders of messages among them."""
    after = behind[len(folder.spot) :] if behind.rpartition("/")[0] == folder.spot[:-1] else ""
    for entry in entries:
        if (found := folder.inner(entry)) is not None:
            inner.append(found)
        elif entry.name > after:
            yield entry.name


def _look(root: Root, bucket: str, name: str) -> Delayed | None:
    with contextlib.suppress(BadName):
        queue, message_id = parse_entry(name)
        place = Place(State.DELAYED, queue, message_id, bucket)
        status = message_status(root, place.path(root.layout))
        if status is not None:
            return Delayed(place, bucket + name, status)
    return None
