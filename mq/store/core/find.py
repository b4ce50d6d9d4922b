"""Where to look for a message that is known by its id: a small, fixed set of places, in two looks.

A message can move between two places while it is looked for, so a look that found nothing says
nothing; the second ends with the queue's own folder, to which what was fetched comes back.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from mq.model.errors import Busy, MessageNotFound, StorageFailed
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.core.standing import no_such_queue, queue_exists
from mq.store.disk.steps import Flush, Steps

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
    for bucket in places.spots(State.LEASED, queue, message_id):
        yield State.LEASED, bucket
    if look > 0:
        yield State.READY, ""


def leased_rows(root: Root) -> tuple[tuple[str, ...], ...]:
    """The folders of leases, to be flushed beside others by whoever says of a message that it is in
    none of them; none where there was never a lease. Raises OSError.
    """
    return tuple((folder,) for folder in root.places.leases.folders())


def nowhere(root: Root, queue: QueueName, message_id: MessageId, *, is_busy: bool) -> Steps[None]:
    """Ends an operation that did not find its message: raises QueueNotFound, StorageFailed where a
    folder that may have it is away, Busy when it was seen (`is_busy`), else MessageNotFound.

    Durable then: that it is gone, since whoever removed it may have died before its own flush.
    """
    layout = root.layout
    if not queue_exists(root, queue):
        yield from no_such_queue(root, queue)
    for folder in (layout.delay, layout.leases, layout.remove):
        if root.files.status(folder) is None:
            # What may lie there, or could not be taken there, is not gone.
            raise StorageFailed(f"{folder} is gone")
    if is_busy:
        raise Busy("another process is at the message, or it moved between two looks")
    # A folder that is gone is a queue deleted meanwhile, or a bucket that was taken away.
    with contextlib.suppress(FileNotFoundError):
        yield Flush(
            folders=(layout.remove, layout.delay, layout.queue(queue)),
            beside=(*root.places.buckets(queue, message_id), *leased_rows(root)),
        )
    raise MessageNotFound(message_id.text)
