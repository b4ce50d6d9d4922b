"""Publishing with a key, an idempotency key, or both, and firings of schedules: links are made
before the message shows.

A link is made only once the message's file in new/ and its name are on stable media. So a message
in new/ that a link names is whole, and whoever meets it delivers it before answering with its id.
FORMAT.md, "publish with a key", has the steps and what a crash after each leaves.
"""

from functools import partial
from typing import NamedTuple

from mq.model.errors import Busy, KeyTaken, MqError, QueueNotFound
from mq.model.history import Event
from mq.model.lifecycle import DELIVER, SCHEDULE, State
from mq.model.limits import LINK_TRIES_MAX
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.moves import message_status, move
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys, LinkPlace
from mq.store.keys.holders import (
    DELIVERED,
    Across,
    across,
    has_crossed,
    is_staged,
    kept_flush,
    lives,
    whereabouts,
)
from mq.store.keys.links import (
    link_flush,
    linked_id,
    locked,
    make_link,
    read_link,
    replace_link,
    unlink_link,
)


class Once(NamedTuple):
    """What makes publishes one publish: an idempotency key, or a firing of a schedule, and for how
    many seconds from the first one on.
    """

    kind: Keys
    key: Key
    kept_s: float


def take_links(
    root: Root, queue: QueueName, message_id: MessageId, once: Once | None
) -> Steps[MessageId | None]:
    """Makes the links of a message whose bytes are on stable media, and whose file is in new/.
    Gives the id of an earlier publish that is the same by `once`, which is delivered and on stable
    media then; None: there is none, and the links are there.

    Raises QueueNotFound; KeyTaken, Busy, and whatever else stands in the way, when `give_back`
    is to be called. Durable on return: yes.
    """
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    yield Flush(folders=(root.layout.folder(State.NEW),))
    try:
        if once is not None:
            first = yield from _take_once(root, queue, message_id, once)
            if first is not None:
                return first
        if message_id.key is not None:
            yield from take_key(root, queue, message_id, message_id.key)
    except FileNotFoundError:
        if queue_exists(root, queue):
            raise  # It is the folder of all queues' keys that is gone.
        raise QueueNotFound(queue.text) from None
    return None


def earlier_publish(root: Root, queue: QueueName, once: Once) -> Steps[MessageId | None]:
    """The id of an earlier publish that is the same by `once`; None: there is none. Raises as
    `take_links`. Durable on return: that it is delivered.
    """
    place = root.layout.link(once.kind, queue, once.key)
    target = read_link(root, place)
    if target is None or not is_young(root, place, once.kept_s):
        return None
    return (yield from _first_of(root, queue, place, target))


def give_back(
    root: Root, queue: QueueName, message_id: MessageId, once: Once | None
) -> Steps[bool]:
    """Ends a publish that failed: what makes it one with others means nothing any more, unless
    somebody has delivered it. False when that cannot be made sure: the staged file must stay then,
    since the link may, and would say that it was published. Durable on return: yes, when True.
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
    """Whether nobody has delivered a message whose link was met. Of a firing's link it is to be
    sure: what was delivered, and is removed by now, was published all the same.
    """
    if kind is Keys.FIRING:
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
            continue  # It went meanwhile.
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
    """Whether the link was made less than so many seconds ago."""
    status = root.files.status(place.path)
    if status is None:
        return False
    return root.aged_ms(young_s) - status.st_mtime_ns // 1_000_000 < young_s * 1000


def _first_of(
    root: Root, queue: QueueName, place: LinkPlace, target: str
) -> Steps[MessageId | None]:
    """The earlier publish that such a link names; None: it came to nothing."""
    first = linked_id(target)
    if first is None:
        return None
    if is_staged(root, queue, first):
        # Else it is: the message showed after that.
        yield link_flush(place)
        if first.key is not None:
            try:
                yield from take_key(root, queue, first, first.key)
            except KeyTaken:
                return None  # It cannot be delivered, and whoever is at it will hear that too.
        yield from _deliver(root, queue, place, first)
        if read_link(root, place) != target:
            return None  # Whoever was at it has given up.
    yield kept_flush(root, queue, first)
    return first


def take_key(root: Root, queue: QueueName, message_id: MessageId, key: Key) -> Steps[None]:
    """Has the key's link say the message, before that shows in the queue. Raises KeyTaken when
    another message that has the key lives, for sure; Busy; FileNotFoundError when the queue went.
    Durable on return: yes.
    """
    place = root.layout.link(Keys.LOOKUP, queue, key)
    for _ in range(LINK_TRIES_MAX):
        if (made := make_link(root, place, message_id.text)) is not None:
            yield made
            return
        target = read_link(root, place)
        if target is None:
            continue  # It went meanwhile.
        if target == message_id.text:
            # Somebody has made it who met the message's other link.
            yield link_flush(place)
            return
        holder = linked_id(target)
        seen = None
        if holder is not None:
            yield from settle(root, queue, place, holder)
            if lives(root, queue, holder):
                yield kept_flush(root, queue, holder)
                raise KeyTaken(key.text, holder.text)
            # That it was removed is on stable media before another has its key: if it came back,
            # two would.
            seen = across(root, queue, holder)
            yield kept_flush(root, queue, holder)
        take_over = partial(_take_over, root, queue, place, target, message_id, seen)
        if (yield from locked(root, place, take_over)):
            yield link_flush(place)
            return
    raise Busy("others change the key's link again and again")


def _take_over(
    root: Root,
    queue: QueueName,
    place: LinkPlace,
    target: str,
    message_id: MessageId,
    seen: Across | None,
) -> bool:
    """Replaces a link whose message does not live, under the lock. False: it says something else;
    or its message lives by now, since a shovel, or what rolls a bulk publish forward, has brought
    it there; or it came and went meanwhile, which is perhaps not flushed.
    """
    holder = linked_id(target)
    if holder is not None and (lives(root, queue, holder) or across(root, queue, holder) != seen):
        return False
    return replace_link(root, place, target, message_id.text)


def settle(root: Root, queue: QueueName, place: LinkPlace, message_id: MessageId) -> Steps[None]:
    """Delivers a message whose link was met where it lies in new/. Durable on return: that, and the
    link.
    """
    if is_staged(root, queue, message_id):
        # Else the link is durable: the message showed after that.
        yield link_flush(place)
        yield from _deliver(root, queue, place, message_id)


def _deliver(root: Root, queue: QueueName, place: LinkPlace, message_id: MessageId) -> Steps[None]:
    """Delivers another's message that its links, which are on stable media, name; unless that has
    happened meanwhile, or it was given up. Raises QueueNotFound. Durable on return: yes.
    """

    due_ms: int | None = None

    def deliver() -> Flush | None:
        nonlocal due_ms
        # Under the lock, as who gives up takes the link away.
        if root.files.linked(place.path) != message_id.text:
            return None
        staged = message_status(root, root.layout.path(State.NEW, queue, message_id))
        if staged is None:
            return None
        stamped_ms = Stamp.from_mtime_ns(staged.st_mtime_ns).due_ms
        due_ms = stamped_ms if stamped_ms > root.now_ms() else None
        if not queue_exists(root, queue):
            raise QueueNotFound(queue.text)
        try:
            return move(root, DELIVER if due_ms is None else SCHEDULE, queue, message_id)
        except OSError as error:
            if is_gone(error):
                return None  # Its own publisher was faster.
            raise

    flush = yield from locked(root, place, deliver)
    if flush is not None:
        yield flush
        root.history.record(queue, Event.PUBLISHED, message_id, 0, due_ms)
