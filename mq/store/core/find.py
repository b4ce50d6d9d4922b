"""Finds a message by its id: in a small, fixed set of places, in two looks.

A message can move from a place that is not looked at yet to one that was. So a single look without
a result proves nothing; the second look ends with the queue's own folder, to which a fetched
message returns.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from mq.model.errors import Busy, MessageNotFound, StorageFailed
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import message_status
from mq.store.core.packed import is_on_its_way
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.core.unserved import is_purged
from mq.store.disk.steps import Flush, Steps

PASSES: Final = 2
DELIVERED: Final = (State.READY, State.DELAYED, State.LEASED)
"""The states of a message that was published and not removed."""
ALIVE: Final[tuple[State, ...]] = (State.NEW, *DELIVERED)
"""The states of a message that is published, or is being published."""

Precondition = Callable[[int], bool]
"""A test whether a message's receives are those that a client saw."""


def places_alive(
    root: Root, queue: QueueName, message_id: MessageId, look: int
) -> Iterator[tuple[State, str]]:
    """The places of a message that was not removed, as state and bucket, the likeliest first."""
    places = root.places
    if look > 0:
        # A not-found must rest on the queue's current shape.
        root.facts.look(queue)
    is_flat = look == 0 and places.is_flat(State.DELAYED, queue)
    if is_flat:
        yield State.DELAYED, ""
        if places.is_flat(State.READY, queue):
            yield State.READY, ""
    for bucket in places.spots(State.DELAYED, queue, message_id):
        if bucket or not is_flat:
            yield State.DELAYED, bucket
    for bucket in places.spots(State.READY, queue, message_id):
        yield State.READY, bucket
    for bucket in places.spots(State.LEASED, queue, message_id):
        yield State.LEASED, bucket
    if look > 0:
        yield State.READY, ""


def nowhere(root: Root, queue: QueueName, message_id: MessageId, *, is_busy: bool) -> Steps[None]:
    """Ends an operation that did not find its message. Raises QueueNotFound; what `absence` raises;
    else MessageNotFound. The absence is durable then: the process that removed the message may have
    died before its flush.
    """
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    flush = absence(root, queue, message_id, is_busy=is_busy)
    # A missing folder is a queue that was deleted meanwhile, or a bucket that was removed.
    with contextlib.suppress(FileNotFoundError):
        yield flush
    raise MessageNotFound(message_id.text)


def absence(root: Root, queue: QueueName, message_id: MessageId, *, is_busy: bool) -> Flush:
    """The flush that makes durable that a message was not found. Raises StorageFailed where a
    folder that may have it is missing; Busy when it was seen (`is_busy`).
    """
    layout = root.layout
    for folder in (layout.delay, layout.leases, layout.remove):
        if root.files.status(folder) is None:
            # What may lie there, or could not be taken there, is not gone.
            raise StorageFailed(f"{folder} is gone")
    if is_busy:
        raise Busy("another process is at the message, or it moved between two looks")
    if message_id.pack_size and is_on_its_way(root, queue, message_id):
        raise Busy("its pack was parted just now")
    return Flush(folders=(layout.remove, layout.delay, layout.queue(queue)))


def whereabouts(root: Root, queue: QueueName, message_id: MessageId) -> State | None:
    """The state of a message of the queue; None: it is in none."""
    if is_staged(root, queue, message_id):
        return State.NEW
    place = place_of(root, queue, message_id)
    if place is not None:
        return place[0]
    for bucket in root.places.spots(State.REMOVED, queue, message_id):
        if _is_at(root, State.REMOVED, queue, message_id, bucket):
            return State.REMOVED
    return None


def place_of(root: Root, queue: QueueName, message_id: MessageId) -> tuple[State, str] | None:
    """The state and bucket of a message that was published and not removed."""
    for look in range(PASSES):
        for state, bucket in places_alive(root, queue, message_id, look):
            if _is_at(root, state, queue, message_id, bucket):
                return state, bucket
    return None


def is_staged(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether it lies in new/ alone. Of two names, which a crash can leave, the other
    one counts.
    """
    status = message_status(root, root.layout.path(State.NEW, queue, message_id))
    return status is not None and status.st_nlink == 1


def lives(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message holds its key: it was published, and is not removed, purged or gone."""
    state = whereabouts(root, queue, message_id)
    return state in DELIVERED and not is_purged(root, queue, message_id)


def kept_flush(root: Root, queue: QueueName, message_id: MessageId) -> Flush:
    """The flush that makes durable where a living message is, or that a message is gone or purged,
    whichever process moved it. Raises SettingsUnreadable.
    """
    layout = root.layout
    place = place_of(root, queue, message_id)
    if place is None:
        return Flush(folders=(layout.delay, layout.queue(queue)))
    return Flush(folders=(layout.parent(place[0], queue, place[1]),))


def has_crossed(root: Root, queue: QueueName, message_id: MessageId) -> bool:
    """Whether the message was moved to a sideline of the queue, or back, and was not removed
    there.
    """
    others = root.facts.others(queue)
    return any(place_of(root, other, message_id) is not None for other in others)


def _is_at(root: Root, state: State, queue: QueueName, message_id: MessageId, bucket: str) -> bool:
    path = root.layout.path(state, queue, message_id, bucket)
    return message_status(root, path) is not None
