"""Operations on items of a pack, wherever they are: in the pack's file, or in files of their own.

A request's ids go here by pack (`model.packs.by_pack`), ids that are no item's directly to the
ordinary operations.
"""

import itertools
from collections.abc import Sequence
from typing import Final

from mq.model.errors import Busy, MessageLeased
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.model.packs import is_whole
from mq.store.core.find import has_crossed, place_of, places_alive, whereabouts
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.core.unserved import covering_mark
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place
from mq.store.format.pipeline import parse_lease_file
from mq.store.packs.parting import part
from mq.store.packs.rolling import roll_on

# A pack moves on between a look and the next: it is fetched, released, and parted once.
_TRIES_MAX: Final = 4
_LIKELY: Final = 2


def find_item(root: Root, queue: QueueName, item: MessageId) -> Place | None:
    """Where an item is: the place of its pack (`place.id.items` > 0), or of its own file. None:
    it is in no place of a message that was published and not removed. Rolls a parted pack forward
    first. Flushes nothing: the place is an answer for reads only. Blocking.
    """
    pack = item.pack()
    if not item.is_possible:
        return None
    if (own := _likely(root, queue, item)) is not None:
        return own
    if (place := _place(root, queue, pack)) is not None:
        return place
    roll_on(root, queue, pack)
    # The pack may have come back behind the first look.
    return _place(root, queue, item) or _place(root, queue, pack)


def units(
    root: Root,
    queue: QueueName,
    ids: Sequence[MessageId],
    *,
    some_take_all: bool = False,
    ready: list[MessageId] | None = None,
) -> Steps[list[MessageId]]:
    """The ids on which to run an ordinary operation that concerns these items of one pack: the
    pack's alone, if it is whole and all its items are among them, or if `some_take_all` (an
    extension to a later time), or if it was removed or sidelined whole; else these ids, after the
    pack was parted. Ids of items that are nowhere are among them: the operation says so. Raises
    MessageLeased, and what `part` does. Durable on return: that the pack is parted. `ready` gets
    the items of a ready pack that it parts.
    """
    pack = ids[0].pack()
    possible = [each for each in ids if each.is_possible]
    takes_all = bool(possible) and (some_take_all or is_whole(possible))
    if possible and _likely(root, queue, possible[0]) is not None:
        return list(ids)  # An item with a file of its own has no pack any more.
    if covering_mark(root, queue, pack) is not None:
        return list(ids)
    for _ in range(_TRIES_MAX):
        place = _place(root, queue, pack)
        if place is None:
            roll_on(root, queue, pack)
            if _place(root, queue, pack) is not None:
                continue
            is_kept = whereabouts(root, queue, pack) is State.REMOVED
            return [pack] if is_kept or has_crossed(root, queue, pack) else list(ids)
        if takes_all:
            return [pack]
        if not possible:
            return list(ids)
        if place.state is State.LEASED:
            raise MessageLeased(parse_lease_file(place.bucket[:-1])[0].text)
        items = yield from part(root, place)
        if ready is not None and items is not None and place.state is State.READY:
            ready += items
    raise Busy("the pack moved again and again")


def _likely(root: Root, queue: QueueName, item: MessageId) -> Place | None:
    """The item's own place, if that is one of the likeliest: of those that were parted it saves
    the search for their pack.
    """
    for state, bucket in itertools.islice(places_alive(root, queue, item, 0), _LIKELY):
        place = Place(state, queue, item, bucket)
        if message_status(root, place.path(root.layout)) is not None:
            return place
    return None


def _place(root: Root, queue: QueueName, message_id: MessageId) -> Place | None:
    found = place_of(root, queue, message_id)
    return None if found is None else Place(found[0], queue, message_id, found[1])
