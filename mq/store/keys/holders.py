"""Whether a message lives: what its key's link means."""

from functools import partial
from typing import Final, NamedTuple

from mq.model.errors import MqError
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.find import PASSES, leased_rows, places_alive
from mq.store.core.moves import message_status, others_of
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.disk.steps import Flush
from mq.store.format.bucket_names import leading
from mq.store.format.layout import Keys, LinkPlace
from mq.store.keys.links import locked_now, unlink_link

DELIVERED: Final = (State.READY, State.DELAYED, State.LEASED)
"""The states of a message that was published and not removed."""


def whereabouts(root: Root, queue: QueueName, message_id: MessageId) -> State | None:
    """The state of a message of the queue; None: it is nowhere (any more)."""
    if is_staged(root, queue, message_id):
        return State.NEW
    place = _place(root, queue, message_id)
    if place is not None:
        return place[0]
    for bucket in root.places.spots(State.REMOVED, queue, message_id):
        if _is_at(root, State.REMOVED, queue, message_id, bucket):
            return State.REMOVED
    return None


def _place(root: Root, queue: QueueName, message_id: MessageId) -> tuple[State, str] | None:
    """The state and bucket of a message that was published and not removed."""
    for look in range(PASSES):
        for state, bucket in places_alive(root, queue, message_id, look):
            if _is_at(root, state, queue, message_id, bucket):
                return state, bucket
    return None


def is_staged(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether it lies in new/ alone: of two names, which a crash has left, the other one counts."""
    status = message_status(root, root.layout.path(State.NEW, queue, message_id))
    return status is not None and status.st_nlink == 1


def lives(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message holds its key: it was published, and is not removed, purged or gone."""
    state = whereabouts(root, queue, message_id)
    return state in DELIVERED and not is_purged(root, queue, message_id)


def kept_flush(root: Root, queue: QueueName, message_id: MessageId) -> Flush:
    """What makes durable where a message is that lives, and that one is gone, or purged, which does
    not, whoever moved it. Raises SettingsUnreadable.
    """
    layout = root.layout
    if is_purged(root, queue, message_id):
        # Wherever it comes back: the mark goes only once nothing that was before it does.
        return Flush(folders=(layout.purged,))
    delay, ready = layout.delay, layout.queue(queue)
    place, beside = _place(root, queue, message_id), root.places.buckets(queue, message_id)
    # Where it is comes before where it may have come from.
    if place is None or place[0] is State.LEASED:
        held = _ready_across(root, queue, message_id)
        if place is not None:
            held = (layout.leases, *leading(layout.leases, place[1]))
        rows = (*beside, *leased_rows(root))
        return Flush(entries=(ready,), folders=(*held, delay, ready), beside=rows)
    state, bucket = place
    here, other = (ready, delay) if state is State.READY else (delay, ready)
    folders = (here, *leading(here, bucket), other)
    return Flush(entries=(ready,), folders=folders, beside=beside)


class Across(NamedTuple):
    """Where a message lies in another queue than its own: its sideline, or, of a sideline's, its
    queue, or one that a shovel moves messages to; and when it last came anywhere, or was stamped.
    """

    queue: QueueName
    state: State
    bucket: str
    ctime_ns: int


def across(root: Root, queue: QueueName, message_id: MessageId) -> Across | None:
    """Where it is there; None: it is not."""
    for other in others_of(root, queue):
        place = _place(root, other, message_id)
        if place is not None:
            status = message_status(root, root.layout.path(place[0], other, message_id, place[1]))
            return None if status is None else Across(other, *place, status.st_ctime_ns)
    return None


def has_crossed(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message went to the queue's sideline, or came back from it, or went to another
    queue with a shovel, and was not removed there.
    """
    others = others_of(root, queue)
    return any(_place(root, other, message_id) is not None for other in others)


def _ready_across(root: Root, queue: QueueName, message_id: MessageId) -> tuple[str, ...]:
    """The folders that a message lies in which is ready in the queue's sideline, or, of a
    sideline's, in its queue, or where a shovel took it; none where it is not.
    """
    for other in others_of(root, queue):
        place = _place(root, other, message_id)
        if place is not None and place[0] is State.READY:
            ready = root.layout.queue(other)
            return (ready, *leading(ready, place[1]))
    return ()


def free_key(root: Root, queue: QueueName, message_id: MessageId, was_staged: bool = False) -> None:
    """Takes the key's link of a message away that lives no more, when it is easily done: one that
    stays is replaced by the key's next message. `was_staged`: it may live after all, where somebody
    has delivered it, or as another file.
    The removal is on stable media. Durable on return: no.
    """
    if message_id.key is None:
        return
    try:
        place = root.layout.link(Keys.LOOKUP, queue, message_id.key)
        if root.files.linked(place.path) == message_id.text:
            locked_now(root, place, partial(_free, root, place, queue, message_id, was_staged))
    except (OSError, MqError):
        return


def _free(
    root: Root, place: LinkPlace, queue: QueueName, message_id: MessageId, was_staged: bool
) -> None:
    if not was_staged or whereabouts(root, queue, message_id) in (None, State.REMOVED):
        unlink_link(root, place, message_id.text)


def _is_at(root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str) -> bool:
    path = root.layout.path(state, queue, message_id, bucket)
    return message_status(root, path) is not None
