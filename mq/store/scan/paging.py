"""A queue's messages of a state, some at a time, in their order: for whoever looks and for shovels.

Looking as for a fetch, from behind an id on; FORMAT.md, "Order".
"""

import heapq

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.listing import not_found
from mq.store.core.purged import mark_of
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.layout import entry_prefix
from mq.store.format.walk import walk_spots
from mq.store.scan.order import (
    NO_RANK,
    RANK_CHARS,
    STRICT,
    Candidate,
    Look,
    OfQueue,
    Order,
    covers_nothing,
)


def list_after(
    root: Root,
    state: State,
    queue: QueueName,
    limit: int,
    after: MessageId | None = None,
    ready: Order = STRICT,
) -> tuple[list[Candidate], bool]:
    """The queue's first `limit` messages of a state behind this id, or fewer, and whether these are
    all: ready ones in this order, which has no shards, others by id.

    No folder is listed that lies wholly before the id, nor any behind the last one found. Blocking.
    Raises QueueNotFound, OSError.
    """
    if state is State.LEASED:
        return _list_leased(root, queue, limit, after)
    folder = root.layout.base(state, queue)
    order = ready if state is State.READY else OfQueue(entry_prefix(queue))
    behind = ""
    if after is not None:
        behind = STRICT.key(after.text) if state is State.READY else NO_RANK + after.text
    purged = None if state is State.REMOVED else mark_of(root, queue)
    look = Look(root, folder, limit, order, purged, behind)
    try:
        look.open(folder, "", None)
    except OSError as error:
        if is_gone(error) and state is State.READY:
            raise not_found(root, queue) from None
        raise
    complete = look.merge()
    look.found.sort()
    return look.found, complete


def _list_leased(
    root: Root, queue: QueueName, limit: int, after: MessageId | None
) -> tuple[list[Candidate], bool]:
    """`list_after`, of leased messages."""
    order, mark = OfQueue(entry_prefix(queue)), mark_of(root, queue)
    is_purged = covers_nothing if mark is None else mark.covers
    behind = "" if after is None else NO_RANK + after.text
    leased = walk_spots(root.files, root.layout.leases, root.places.leases.spots())
    found = heapq.nsmallest(
        limit + 1,
        (
            Candidate(key, spot)
            for spot, entry in leased
            if (key := order.key(entry.name)) > behind
            and MessageId.is_written(key[RANK_CHARS:])
            and not is_purged(key[RANK_CHARS:])
        ),
    )
    return found[:limit], len(found) <= limit
