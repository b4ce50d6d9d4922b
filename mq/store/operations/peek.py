"""Peeks at a queue's messages without consuming them: a page in order, with the first bytes of
their bodies. Lists no more folders and opens no more files than the page needs.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from mq.model.errors import MessageNotFound, QueueNotFound, Unavailable
from mq.model.headers import parse_block
from mq.model.lifecycle import State
from mq.model.limits import BATCH_MESSAGES_MAX, PEEK_BODY_BYTES
from mq.model.message import Page, Part, Stamp, cut
from mq.model.names import Key, MessageId, QueueName
from mq.model.selection import Selection
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.core.standing import queue_seen
from mq.store.format.layout import Keys, Place
from mq.store.keys.links import linked_id
from mq.store.keys.orphans import key_folders_of, links
from mq.store.operations.read import Reading, read, read_at, read_rows
from mq.store.operations.tagged import list_tagged
from mq.store.scan.order import list_after, listed

# The limit of groups from which a list of heads is made.
HEADS_SEEN_MAX: Final = 100_000
# Limits of a page with a selection: the names that it checks, the cost of a header block in names,
# and the names listed at a time.
PEEK_WORK_MAX: Final = 20_000
PEEK_WORK_OF_BLOCK: Final = 20
PEEK_LISTED_MAX: Final = 2000


class Head(NamedTuple):
    """A group's head, first claimed at `since_ms` (milliseconds since the epoch). Its body is not
    read.
    """

    since_ms: int
    reading: Reading


def list_heads(root: Root, queue: QueueName, count: int) -> list[Head]:
    """The heads of the queue's groups, at most `count`, the ones claimed first in front, of
    HEADS_SEEN_MAX groups.

    Blocking. Raises QueueNotFound, OSError.
    """
    if not queue_seen(root, queue):
        raise QueueNotFound(queue.text)
    heads: list[Head] = []
    for since_ms, target in sorted(itertools.islice(_linked(root, queue), HEADS_SEEN_MAX)):
        if len(heads) == count:
            break
        message_id = linked_id(target)
        if message_id is None:
            continue
        try:
            reading = read(root, queue, message_id, _nothing, with_removed=False)
        except (MessageNotFound, Unavailable):
            continue  # It has ended, or moves now.
        heads.append(Head(since_ms, reading))
    return heads


def _linked(root: Root, queue: QueueName) -> Iterator[tuple[int, str]]:
    """The targets of the queue's group links, and their times in milliseconds since the epoch."""
    for folder in key_folders_of(root, Keys.GROUP, queue):
        for place, target in links(root, folder):
            if (status := root.files.status(place.path)) is not None:
                yield status.st_mtime_ns // 1_000_000, target


def _nothing(size: int, receives: int) -> None: ...


class Peeked(NamedTuple):
    """The messages of a page, of a pack its items. `after`: the last checked message, or pack, if
    the page ended early without being full.
    """

    found: list[Reading]
    after: MessageId | None = None


def peek(root: Root, queue: QueueName, page: Page) -> Peeked:
    """The page's messages: ready ones in delivery order, others by id. A body is cut after
    PEEK_BODY_BYTES, or a little before so as not to split a character.

    Blocking. A message that moves meanwhile may be seen in two states or in none. Raises
    QueueNotFound, Unavailable, OSError.
    """
    if not queue_seen(root, queue):
        raise QueueNotFound(queue.text)
    if page.tag is not None:
        return _tagged(root, queue, page, page.tag)
    if page.selection is not None:
        return _selected(root, queue, page, page.selection)
    found: list[Reading] = []
    for state in page.states:
        found += _of_state(root, queue, state, replace(page, count=page.count - len(found)))
    return Peeked(found)


def _tagged(root: Root, queue: QueueName, page: Page, tag: Key) -> Peeked:
    """The page's messages among the next BATCH_MESSAGES_MAX entries of the tag."""
    tagged = list_tagged(root, queue, tag, BATCH_MESSAGES_MAX, page.after)
    found: list[Reading] = []
    for message_id, state, bucket in tagged.messages:
        if len(found) == page.count:
            return Peeked(found)
        place = Place(state, queue, message_id, bucket)
        if state in page.states and _is_wanted(root, place, page.selection):
            reading = _first_bytes(root, state, queue, message_id, bucket)
            found += [] if reading is None else [reading]
    return Peeked(found, tagged.after)


def _selected(root: Root, queue: QueueName, page: Page, selection: Selection) -> Peeked:
    """The page's messages of a selection, among as many next names as PEEK_WORK_MAX allows."""
    (state,), work = page.states, 0
    found, after = _rest_of_pack(root, queue, state, page)
    is_over = False
    while not is_over and len(found) < page.count:
        some, is_over = list_after(root, state, queue, PEEK_LISTED_MAX, after)
        is_over = is_over or not some
        for candidate in some:
            if work >= PEEK_WORK_MAX:
                return Peeked(found, after)
            after, bucket = candidate.id, candidate.bucket or ""
            work += PEEK_WORK_OF_BLOCK if selection.matches_name(after.text) is None else 1
            if not _is_wanted(root, Place(state, queue, after, bucket), selection):
                continue
            found += _rows(root, Place(state, queue, after, bucket), page.count - len(found))
            if len(found) == page.count:
                return Peeked(found)
    return Peeked(found)


def _is_wanted(root: Root, place: Place, selection: Selection | None) -> bool:
    """Whether a message matches the selection; False if its file cannot be read, so that it hides
    no other.
    """
    if selection is None:
        return True
    name = place.id.text
    if (is_wanted := selection.matches_name(name)) is not None:
        return is_wanted
    try:
        block = root.files.read_file(place.path(root.layout), place.id.header_bytes)
    except OSError:
        return False
    return selection.matches_headers(name, parse_block(block))


def _of_state(root: Root, queue: QueueName, state: State, page: Page) -> list[Reading]:
    """The page's messages of one state. A scan may end early, and its messages may be gone by now:
    then another one begins behind them.
    """
    found, after = _rest_of_pack(root, queue, state, page)
    while len(found) < page.count:
        candidates, complete = list_after(root, state, queue, page.count - len(found), after)
        for candidate in candidates:
            after = candidate.id
            place = Place(state, queue, after, candidate.bucket or "")
            found += _rows(root, place, page.count - len(found))
            if len(found) == page.count:
                break
        if complete or not candidates:
            break
    return found


def _rest_of_pack(
    root: Root, queue: QueueName, state: State, page: Page
) -> tuple[list[Reading], MessageId | None]:
    """The items of the pack behind the item with which the last page ended, and the pack, after
    which the page goes on: other messages may sort between the pack and that item. Where the pack
    is not whole any more, no items, and the id after which the page begins.
    """
    after = page.after
    if after is None or not after.pack_size:
        return [], after
    pack = after.pack()
    candidate = listed(root, state, queue, pack)
    if candidate is None:
        return [], after
    place = Place(state, queue, pack, candidate.bucket or "")
    is_wanted = _is_wanted(root, place, page.selection)
    return _rows(root, place, page.count, after.place) if is_wanted else [], pack


def _rows(root: Root, place: Place, count: int, behind: int = 0) -> list[Reading]:
    """The message at the place with its first bytes; of a pack the next `count` items behind one
    of them. None if it is not there any more.
    """
    state, queue, message_id, bucket = place
    if not message_id.items:
        reading = _first_bytes(root, state, queue, message_id, bucket)
        return [] if reading is None else [reading]
    items = range(behind + 1, min(behind + count, message_id.items) + 1)
    try:
        readings = read_rows(root, place, _choose, items) if items else []
    except Unavailable:
        damaged = _damaged(root, state, queue, message_id, bucket)
        return (
            []
            if damaged is None
            else [replace(damaged, id=message_id.item(each)) for each in items]
        )
    if readings and readings[0].state is not state:
        return []
    return [
        replace(each, body=cut(each.body))
        if each.body is not None and len(each.body) < each.size
        else each
        for each in readings
    ]


def _first_bytes(
    root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str
) -> Reading | None:
    try:
        reading = read_at(root, Place(state, queue, message_id, bucket), _choose)
    except Unavailable:
        return _damaged(root, state, queue, message_id, bucket)
    if reading is None or reading.state is not state:
        return None
    if reading.body is not None and len(reading.body) < reading.size:
        return replace(reading, body=cut(reading.body))
    return reading


def _damaged(
    root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str
) -> Reading | None:
    """A message with a truncated file: shown without a body, so that it hides no other."""
    status = message_status(root, root.layout.path(state, queue, message_id, bucket))
    if status is None:
        return None
    stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
    return Reading(state, message_id, stamp, (), 0, None, None, None)


def _choose(size: int, receives: int) -> Part:
    return Part(0, min(size, PEEK_BODY_BYTES))
