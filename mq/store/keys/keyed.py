"""Publishes with a key, an idempotency key, or both, and firings of schedules: links are made
before the message shows.

A link is made only once the message's file in new/ is on stable media. So the link names a complete
message, and its publisher's death loses nothing: a process that meets the link
delivers the message itself before it answers with its id. The other order would be wrong: a message
that shows before its link could be published twice by a retry. The link of a failed publish is
undone (`give_back`). If that is uncertain, the staged file stays: otherwise the link would claim a
publish that never happened.

PROTOCOL.md, "publish with a key", has the steps and what a crash after each leaves.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from mq.model.errors import Busy, KeyTaken, MqError, QueueNotFound
from mq.model.history import Event
from mq.model.lifecycle import DELIVER, SCHEDULE, State
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.find import (
    DELIVERED,
    has_crossed,
    is_staged,
    kept_flush,
    lives,
    whereabouts,
)
from mq.store.core.moves import Move, message_status, move
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys, LinkPlace
from mq.store.keys.entries import block_at
from mq.store.keys.links import (
    LINK_TRIES_MAX,
    link_flush,
    linked_id,
    locked,
    make_link,
    read_link,
    replace_link,
    unlink_link,
)


class Once(NamedTuple):
    """The identity of a publish: an idempotency key, or a firing of a schedule; and its validity in
    seconds from the first publish.
    """

    kind: Keys
    key: Key
    kept_s: float


def take_links(
    root: Root, queue: QueueName, message_id: MessageId, once: Once | None
) -> Steps[MessageId | None]:
    """Makes the links of a message that is on stable media in new/. Returns the id of an earlier
    publish with the same `once`, which is delivered, durably; None: there is none, and the links
    are made.

    Raises QueueNotFound; KeyTaken, Busy and other errors, after which the caller must call
    `give_back`. Durable on return: yes.
    """
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    try:
        if once is not None:
            first = yield from _take_once(root, queue, message_id, once)
            if first is not None:
                return first
        if message_id.key is not None:
            yield from take_key(root, queue, message_id, message_id.key)
    except FileNotFoundError:
        if queue_exists(root, queue):
            raise  # The folder of all queues' keys is gone.
        raise QueueNotFound(queue.text) from None
    return None


def earlier_publish(root: Root, queue: QueueName, once: Once) -> Steps[MessageId | None]:
    """The id of an earlier publish with the same `once`; None: there is none. Raises as
    `take_links`. Durable on return: its delivery.
    """
    place = root.layout.link(once.kind, queue, once.key)
    target = read_link(root, place)
    if target is None or not is_young(root, place, once.kept_s):
        return None
    return (yield from _first_of(root, queue, place, target))


def give_back(
    root: Root, queue: QueueName, message_id: MessageId, once: Once | None
) -> Steps[bool]:
    """Undoes the links of a failed publish, unless another process has delivered the message. False
    if that is uncertain: the staged file must then stay, since its link may stay and would report
    it as published. Durable on return: yes, if True.
    """
    if once is None:
        return True
    place = root.layout.link(once.kind, queue, once.key)

    def give() -> None:
        if _came_to_nothing(root, queue, message_id, once.kind):
            unlink_link(root, place, message_id.text)

    try:
        if root.files.linked(place.path) == message_id.text:
            yield from locked(root, place, give)
            yield Flush(folders=(place.folder,))
    except FileNotFoundError:
        return True  # The folder went with its queue.
    except (OSError, MqError):
        return False
    return True


def _came_to_nothing(root: Root, queue: QueueName, message_id: MessageId, kind: Keys) -> bool:
    """Whether certainly no process has delivered a message that has a link. A firing's message, or
    a pack, that was delivered and is removed or parted by now was published all the same.
    """
    if kind is Keys.FIRING or message_id.items:
        return is_staged(root, queue, message_id)
    is_here = whereabouts(root, queue, message_id) in DELIVERED
    return not is_here and not has_crossed(root, queue, message_id)


def _take_once(
    root: Root, queue: QueueName, message_id: MessageId, once: Once
) -> Steps[MessageId | None]:
    place = root.layout.link(once.kind, queue, once.key)
    for _ in range(LINK_TRIES_MAX):
        if (made := make_link(root, place, message_id.text)) is not None:
            yield made
            return None
        target = read_link(root, place)
        if target is None:
            continue  # It is gone.
        if target == message_id.text:
            yield link_flush(place)  # NFS made it, and lost the answer.
            return None
        if is_young(root, place, once.kept_s):
            first = yield from _first_of(root, queue, place, target)
            if first is not None:
                return first
        replace = partial(replace_link, root, place, target, message_id.text)
        if (yield from locked(root, place, replace)):
            yield link_flush(place)
            return None
    raise Busy("others change the publish's link again and again")


def is_young(root: Root, place: LinkPlace, young_s: float) -> bool:
    """Whether the link was made less than `young_s` seconds ago."""
    status = root.files.status(place.path)
    return status is not None and not root.has_aged(status.st_mtime_ns // 1_000_000, young_s)


def _first_of(
    root: Root, queue: QueueName, place: LinkPlace, target: str
) -> Steps[MessageId | None]:
    """The earlier publish that the link names; None: it failed."""
    first = linked_id(target)
    if first is None:
        return None
    if is_staged(root, queue, first):
        # If it is not staged, its link is durable: the message showed after that.
        yield link_flush(place)
        if first.key is not None:
            try:
                yield from take_key(root, queue, first, first.key)
            except KeyTaken:
                return None  # Its key is taken, and its publisher gets the same answer.
        yield from _deliver(root, queue, place, first)
        if read_link(root, place) != target:
            return None  # Its publisher has given up.
    yield kept_flush(root, queue, first)
    return first


def take_key(root: Root, queue: QueueName, message_id: MessageId, key: Key) -> Steps[None]:
    """Points the key's link at the message, before the message shows in the queue. Raises KeyTaken
    if another living message has the key; Busy; FileNotFoundError if the queue is gone. Durable on
    return: yes.
    """
    holder = yield from _take(root, queue, root.layout.link(Keys.LOOKUP, queue, key), message_id)
    if holder is not None:
        yield kept_flush(root, queue, holder)
        raise KeyTaken(key.text, holder.text)


def take_group(root: Root, queue: QueueName, message_id: MessageId) -> Steps[MessageId | None]:
    """Makes a ready message the head of its group, before it is claimed. None: it is the head.
    Otherwise returns the living head, which goes first.

    The group's link, not the order of a listing, keeps the group's order: two processes may see
    different first messages, and only the one whose message gets the link may claim. A head keeps
    the link while it lives in its queue (ready, delayed, in flight or leased). It loses the link
    only once its removal is on stable media: a crash that brought it back would otherwise put two
    messages of the group in flight. Raises Busy, OSError. Durable on return: yes.
    """
    place = root.layout.link(Keys.GROUP, queue, Key(message_id.group))
    return (yield from _take(root, queue, place, message_id))


def _take(
    root: Root, queue: QueueName, place: LinkPlace, message_id: MessageId
) -> Steps[MessageId | None]:
    """Points a link at the message. Returns the living message that already has the link, if there
    is one.
    """
    for _ in range(LINK_TRIES_MAX):
        if (made := make_link(root, place, message_id.text)) is not None:
            yield made
            return None
        target = read_link(root, place)
        if target is None:
            continue  # Another process has removed it.
        if target == message_id.text:
            # Another process made it: one that met the message's other link, or that died.
            yield link_flush(place)
            return None
        holder = linked_id(target)
        if holder is not None:
            yield from settle(root, queue, place, holder)
            if lives(root, queue, holder):
                return holder
            yield Flush()  # Another of this group may be about to deliver it.
        take_over = partial(_take_over, root, queue, place, target, message_id)
        if (yield from locked(root, place, take_over)):
            yield link_flush(place)
            return None
    raise Busy("others change the link again and again")


def _take_over(
    root: Root, queue: QueueName, place: LinkPlace, target: str, message_id: MessageId
) -> bool:
    """Replaces, under the lock, a link whose message does not live. False: the link has changed, or
    its message lives by now, since a shovel or a roll-forward moved it there.
    """
    holder = linked_id(target)
    if holder is not None and lives(root, queue, holder):
        return False
    return replace_link(root, place, target, message_id.text)


def settle(root: Root, queue: QueueName, place: LinkPlace, message_id: MessageId) -> Steps[None]:
    """Delivers a message of new/ that a link names. Durable on return: its delivery, and the
    link.
    """
    if is_staged(root, queue, message_id):
        # If it is not staged, its link is durable: the message showed after that.
        yield link_flush(place)
        yield from _deliver(root, queue, place, message_id)


def _deliver(root: Root, queue: QueueName, place: LinkPlace, message_id: MessageId) -> Steps[None]:
    """Delivers another process's staged message, whose durable links name it, unless it was
    delivered meanwhile or its publisher gave up. Raises QueueNotFound. Durable on return: yes.
    """

    due_ms: int | None = None
    path = root.layout.path(State.NEW, queue, message_id)
    block = block_at(root, path, message_id) if root.history.is_on(queue) else b""

    def deliver() -> Flush | None:
        nonlocal due_ms
        # Under the lock, as a publisher that gives up removes the link.
        if root.files.linked(place.path) != message_id.text:
            return None
        staged = message_status(root, path)
        if staged is None:
            return None
        stamped_ms = Stamp.from_mtime_ns(staged.st_mtime_ns).due_ms
        due_ms = stamped_ms if stamped_ms > root.now_ms() else None
        if not queue_exists(root, queue):
            raise QueueNotFound(queue.text)
        try:
            return move(root, Move(DELIVER if due_ms is None else SCHEDULE, queue, message_id))
        except OSError as error:
            if is_gone(error):
                return None  # Its own publisher was faster.
            raise

    flush = yield from locked(root, place, deliver)
    if flush is not None:
        yield flush
        root.history.record(queue, Event.PUBLISHED, message_id, 0, due_ms, block=block)


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
