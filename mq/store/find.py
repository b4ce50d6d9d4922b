"""Where to look for a message that is known by its id: a small, fixed set of places, in two looks.

A message can move between two places while it is looked for, so a look that found nothing says
nothing; the second ends with the queue's own folder, to which what was fetched comes back.
"""

from collections.abc import Callable, Iterator
from typing import Final

from mq.lifecycle import State
from mq.names import MessageId, QueueName
from mq.store.root import Root

PASSES: Final = 2

Precondition = Callable[[int], bool]
"""Asked whether a message's receives are those that a client saw."""


def places_alive(
    root: Root, queue: QueueName, message_id: MessageId, look: int
) -> Iterator[tuple[State, str]]:
    """The places of a message that was not removed, each its state and its bucket: at the
    likeliest one of each state first.
    """
    places = root.places
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
    if look > 0:
        yield State.READY, ""
