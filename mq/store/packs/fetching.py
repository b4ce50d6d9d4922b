"""Fetches a pack whole: one claim for all its items, as a fetch claims a message.

PROTOCOL.md, "fetch", has the steps and what a crash after each leaves.
"""

from mq.model.errors import Busy, MessageUnreadable
from mq.model.headers import parse_block
from mq.model.lifecycle import FETCH
from mq.model.message import Delivery, Reason
from mq.model.names import MessageId, QueueName
from mq.model.packs import spans_in
from mq.store.core.moves import Claim, claimed, message_status
from mq.store.core.root import Root
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place
from mq.store.operations.fetch import claim_held, is_served_no_more, sources_of
from mq.store.operations.read import Room
from mq.store.operations.sideline import sideline_held


class PackToPart(Busy):
    """The pack must be parted before its items are delivered."""


def fetch_pack(
    root: Root, place: tuple[QueueName, MessageId, str | None], shown_s: float, room: Room
) -> Steps[Delivery | None]:
    """Claims a ready pack for `shown_s` seconds. `place`: its queue, its id, and the bucket where a
    listing found it (None: look in every place). Returns a delivery whose body is all bytes of the
    pack's file (see `items_of`); None when another process won the pack, or it was purged or
    has expired.

    Raises PackToPart, and claims nothing, where a delivery of the pack counts as an attempt, since
    one of its messages may make consumers fail, or where `room` has none for it. Raises
    MessageUnreadable for damaged contents, and else as `fetch`. Durable on return: yes.
    """
    queue, pack, bucket = place
    sources = (bucket,) if bucket is not None else sources_of(root, queue, pack)
    for source in sources:
        at = Place(FETCH.source, queue, pack, source)
        with claimed(root, at) as claim:
            if claim is not None:
                if is_served_no_more(root, queue, pack):
                    return None
                return (yield from _fetch_held(root, at, claim, shown_s, room))
            if message_status(root, at.path(root.layout)) is not None:
                raise Busy("another process has the pack locked")
    return None


def _fetch_held(
    root: Root, place: Place, claim: Claim, shown_s: float, room: Room
) -> Steps[Delivery | None]:
    _, queue, pack, _ = place
    size, offset = claim.status.st_size, pack.header_bytes
    reservation = None if claim.stamp.attempts else room(size)
    if reservation is None:
        raise PackToPart(pack.text)
    content = root.files.read(claim.descriptor, size, 0)
    try:
        spans_in(content, pack)
    except MessageUnreadable:
        if queue.is_sideline:
            raise Busy("the pack is unreadable") from None  # It stays, and others go first.
        yield from sideline_held(root, place, claim, Reason.UNREADABLE)
        raise
    won = yield from claim_held(root, place, claim, shown_s)
    if won is None:
        return None
    headers = parse_block(content[:offset]) if offset else ()
    return Delivery(
        *(queue, pack, won.stamp, size, offset, content, None, won.bucket, headers, reservation)
    )


def items_of(delivery: Delivery) -> list[Delivery]:
    """The deliveries of a pack's items; the delivery itself, if it is of a message."""
    pack, content = delivery.id, delivery.body
    if not pack.items or content is None:
        return [delivery]
    spans = spans_in(content, pack)
    return [
        delivery._replace(id=pack.item(place), size=span.size, body=content[span.offset : span.end])
        for place, span in enumerate(spans, 1)
    ]


def pack_of(delivery: Delivery) -> Delivery:
    """The delivery of the pack, for the delivery of one of its items; without its body."""
    return delivery._replace(id=delivery.id.pack(), body=b"", headers=(), reservation=None)
