"""Finds the messages of a queue with a tag, by the tag's index entries: lists one folder, and looks
up each message of the page by its id.
"""

import heapq
from typing import NamedTuple

from mq.model.errors import QueueNotFound
from mq.model.lifecycle import State
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.find import place_of
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.core.unserved import mark_of
from mq.store.format.entries import Entry, Index, entries_in, owner_of_entries, tag_group
from mq.store.keys.entries import is_stale, is_young


class Found(NamedTuple):
    """A living message of the queue, its state, and its bucket."""

    id: MessageId
    state: State
    bucket: str = ""


class TagPage(NamedTuple):
    """The messages of a page of entries; the number of the tag's entries in the queue and its
    sideline; the last checked entry, if there are others behind it; and stale entries.
    """

    messages: list[Found]
    entries: int
    after: MessageId | None
    stale: list[Entry]


def list_tagged(
    root: Root, queue: QueueName, tag: Key, count: int, after: MessageId | None
) -> TagPage:
    """The messages of up to `count` entries of the tag, by id, behind `after`. Blocking: lists all
    entries of the tag, but holds only the page in memory. Raises QueueNotFound, SettingsUnreadable,
    OSError.
    """
    if not queue_seen(root, queue):
        raise QueueNotFound(queue.text)
    group = tag_group(root.layout, queue, tag)
    root.files.refuse_links(*group.above)
    first, entries = _first(root, group.path, count + 1, "" if after is None else after.text)
    mark, page = mark_of(root, queue), TagPage([], entries, None, [])
    for name in first[:count]:
        message_id = MessageId.parse(name)
        place = place_of(root, queue, message_id)
        if place is not None:
            if mark is None or not mark.covers(name):
                page.messages.append(Found(message_id, *place))
            continue
        owner, path = owner_of_entries(queue), group.entry(message_id)
        entry = Entry(Index.TAGS, owner, message_id, group.path, path)
        if not is_young(root, path) and is_stale(root, entry):
            page.stale.append(entry)
    if len(first) > count:
        return page._replace(after=message_id)
    return page


def _first(root: Root, folder: str, count: int, behind: str) -> tuple[list[str], int]:
    """The first `count` ids after `behind`, and the number of entries in the folder."""
    entries, page = 0, list[str]()
    for _, message_id in entries_in(root.files, folder):
        entries += 1
        if message_id.text > behind:
            page.append(message_id.text)
            if len(page) >= 2 * count:
                page = heapq.nsmallest(count, page)
    return heapq.nsmallest(count, page), entries
