"""The messages of delay/ in an order that stays, so many at a time: first those that lie in no
bucket, then bucket after bucket, each by name.

Whoever goes through all of them holds few names, and can go on behind any.
"""

import contextlib
import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.format.layout import parse_entry
from mq.store.format.walk import entries_if_there, is_bucket, is_deep_folder


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message's file as it was found."""

    queue: QueueName
    id: MessageId
    bucket: str
    name: str
    """What follows `delay/` in its path."""
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class DelayedBatch:
    """Messages in order; `behind` is the last name that was looked at, None: there is no other."""

    found: tuple[Delayed, ...]
    behind: str | None


def delayed_behind(root: Root, behind: str, limit: int) -> DelayedBatch:
    """The next of those whose names come behind this one, "" for the first; no more than `limit`
    names are looked at. What goes meanwhile is left out, and what is foreign. Raises OSError.
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


def _folders_behind(root: Root, behind: str, limit: int) -> Iterator[tuple[str, list[str]]]:
    """delay/ and its buckets in order, but for those that lie before the name, each with its first
    names behind that; no more of them than `limit`.
    """
    folder = root.layout.folder(State.DELAYED)
    passed = behind[: behind.rfind("/") + 1]
    buckets: list[str] = []
    names = _first_names(root.files.entries(folder), behind, "", limit, buckets)
    if not passed:
        yield "", names
    for bucket in sorted(buckets):
        deep: list[str] = []
        entries = entries_if_there(root.files, f"{folder}/{bucket[:-1]}")
        names = _first_names(entries, behind, bucket, limit, deep)
        if bucket >= passed:
            yield bucket, names
        for inner in sorted(deep):
            if bucket + inner >= passed:
                entries = entries_if_there(root.files, f"{folder}/{bucket}{inner[:-1]}")
                yield bucket + inner, _first_names(entries, behind, bucket + inner, limit, [])


def _first_names(
    entries: "Iterator[os.DirEntry[str]]", behind: str, bucket: str, limit: int, folders: list[str]
) -> list[str]:
    """The first names of messages behind that one; `folders` gets the buckets that are there."""
    after = behind[len(bucket) :] if behind.rpartition("/")[0] == bucket[:-1] else ""

    def names() -> Iterator[str]:
        for entry in entries:
            if is_deep_folder(entry) if bucket else is_bucket(entry):
                folders.append(f"{entry.name}/")
            elif entry.name > after:
                yield entry.name

    return heapq.nsmallest(limit, names())


def _look(root: Root, bucket: str, name: str) -> Delayed | None:
    with contextlib.suppress(BadName):
        queue, message_id = parse_entry(name)
        status = message_status(root, root.layout.path(State.DELAYED, queue, message_id, bucket))
        if status is not None:
            return Delayed(queue, message_id, bucket, bucket + name, status)
    return None
