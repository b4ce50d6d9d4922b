"""Publishes with a key, an idempotency key, or both, and firings of schedules: a message shows
under the locks of its links' folders, just after its links name it.

So a link that another process meets under the lock names a message that was published; or one in
new/, whose publisher has died in between, or could not go on: that one was never answered, and its
link is taken over. A power cut keeps no message without its links, which were made before.

PROTOCOL.md, "publish with a key", has the steps and what a crash after each leaves.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mq.model.errors import KeyTaken, MqError, QueueNotFound
from mq.model.lifecycle import State
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.find import is_staged, kept_flush, lives
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists, refuse_gone
from mq.store.disk.steps import Steps, T
from mq.store.format.layout import Keys, LinkPlace
from mq.store.keys.links import linked_id, locked, make_link, point_link, read_link, unlink_link


class Once(NamedTuple):
    """The identity of a publish: an idempotency key, or a firing of a schedule; and its validity in
    seconds from the first publish.
    """

    kind: Keys
    key: Key
    kept_s: float


class PublishedBefore(Exception):
    """An earlier publish has the same `once`: nothing was done."""

    def __init__(self, first: MessageId) -> None:
        super().__init__(first.text)
        self.first = first


def show_linked(
    root: Root, queue: QueueName, message_id: MessageId, once: Once | None, show: Callable[[], T]
) -> Steps[T]:
    """Points the message's links at it, and returns what `show` returns, which moves it to its
    place; all of that under the links' locks.

    Raises PublishedBefore, KeyTaken, both of a message that is durably published; QueueNotFound,
    Busy, OSError, and what `show` raises. Durable on return: no, until the move is flushed.
    """
    places = _places(root, queue, message_id, once)

    def act() -> T:
        _refuse(root, queue, message_id, once)
        try:
            for place in places:
                point_link(root, place, message_id.text)
            return show()
        except BaseException:
            _take_back(root, queue, message_id, places)
            raise

    try:
        refuse_gone(root, queue)  # Elsewhere the folders of its links cannot be made.
        return (yield from locked(root, places, act))
    except PublishedBefore as before:
        yield kept_flush(root, queue, before.first)
        raise
    except KeyTaken as taken:
        yield kept_flush(root, queue, MessageId.parse(taken.id))
        raise
    except FileNotFoundError:
        if queue_exists(root, queue):
            raise  # The staged file is gone, or a network mount has lost an answer.
        raise QueueNotFound(queue.text) from None


def _take_back(
    root: Root, queue: QueueName, message_id: MessageId, places: Sequence[LinkPlace]
) -> None:
    """Unlinks the links of a message that does not show. See `is_named` for what stays."""
    with contextlib.suppress(OSError):
        if is_staged(root, queue, message_id):
            for place in places:
                unlink_link(root, place, message_id.text)


def _refuse(root: Root, queue: QueueName, message_id: MessageId, once: Once | None) -> None:
    """Raises what keeps the message from being shown; the caller holds the links' locks."""
    if once is not None:
        first = _earlier(root, queue, once)
        if first is not None and first != message_id:
            raise PublishedBefore(first)
    if message_id.key is not None:
        place = root.layout.link(Keys.LOOKUP, queue, message_id.key)
        holder = _living(root, queue, place, message_id)
        if holder is not None:
            raise KeyTaken(message_id.key.text, holder.text)


def earlier_publish(root: Root, queue: QueueName, once: Once) -> Steps[MessageId | None]:
    """The id of an earlier publish with the same `once`; None: there is none. Raises OSError.
    Durable on return: its delivery.
    """
    first = _earlier(root, queue, once)
    if first is not None:
        yield kept_flush(root, queue, first)
    return first


def is_named(root: Root, queue: QueueName, message_id: MessageId, once: Once | None) -> bool:
    """Whether the link of a failed publish may name its message: its file must stay in new/ then,
    since the link would report a message that was never published.
    """
    try:
        return once is not None and (
            root.files.linked(root.layout.link(once.kind, queue, once.key).path) == message_id.text
        )
    except OSError:
        return True


def _places(
    root: Root, queue: QueueName, message_id: MessageId, once: Once | None
) -> list[LinkPlace]:
    """The places of the message's links."""
    places = [] if once is None else [root.layout.link(once.kind, queue, once.key)]
    if message_id.key is not None:
        places.append(root.layout.link(Keys.LOOKUP, queue, message_id.key))
    return places


def _earlier(root: Root, queue: QueueName, once: Once) -> MessageId | None:
    """The message that the link names, if it was published and the link is young enough."""
    place = root.layout.link(once.kind, queue, once.key)
    target = read_link(root, place)
    first = None if target is None else linked_id(target)
    if first is None or not is_young(root, place, once.kept_s) or is_staged(root, queue, first):
        return None
    return first


def _living(
    root: Root, queue: QueueName, place: LinkPlace, message_id: MessageId
) -> MessageId | None:
    """The living message that has the link; None: there is none but this one."""
    target = read_link(root, place)
    holder = None if target is None else linked_id(target)
    if holder is None or holder == message_id or not lives(root, queue, holder):
        return None
    return holder


def is_young(root: Root, place: LinkPlace, young_s: float) -> bool:
    """Whether the link was made less than `young_s` seconds ago."""
    status = root.files.status(place.path)
    return status is not None and not root.has_aged(status.st_mtime_ns // 1_000_000, young_s)


def take_group(root: Root, queue: QueueName, message_id: MessageId) -> Steps[MessageId | None]:
    """Makes a ready message the head of its group, before it is claimed. None: it is the head.
    Otherwise returns the living head, which goes first.

    The group's link, not the order of a listing, keeps the group's order: two processes may see
    different first messages, and only the one whose message gets the link may claim. A head keeps
    the link while it lives in its queue (ready, delayed, in flight or leased). Raises Busy,
    OSError. Durable on return: no; the claim's flush covers it.
    """
    place = root.layout.link(Keys.GROUP, queue, Key(message_id.group))

    def act() -> MessageId | None:
        holder = _living(root, queue, place, message_id)
        if holder is None:
            point_link(root, place, message_id.text)
        return holder

    try:
        if make_link(root, place, message_id.text):
            return None
        return (yield from locked(root, (place,), act))
    except FileNotFoundError:
        if queue_exists(root, queue):
            raise  # A network mount may have lost an answer.
        return None  # The message went with its queue.


def still_heads(root: Root, queue: QueueName, heads: Mapping[str, str]) -> dict[str, str]:
    """The heads, by their groups' digits, that are still heads, or may be. Blocking."""
    return {group: head for group, head in heads.items() if _is_head(root, queue, group, head)}


def _is_head(root: Root, queue: QueueName, group: str, head: str) -> bool:
    message_id = linked_id(head)
    if message_id is None:
        return False
    try:
        if root.files.linked(root.layout.link(Keys.GROUP, queue, Key(group)).path) != head:
            return False
        delayed = root.layout.path(State.DELAYED, queue, message_id)
        return root.files.status(delayed) is not None or lives(root, queue, message_id)
    except (OSError, MqError):
        return True
