"""Leaves a message's file one name.

A rename has left both names only where a power cut kept the new one and not the end of the old one:
on a file system that does not keep the order of changes, or in a root from before mq relied on it.
rename(2) between two names of one inode does nothing, so the earlier name would stay for ever.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from mq.model.lifecycle import State
from mq.store.core.root import Root
from mq.store.format.layout import Place

# From the earliest to the latest. A sideline's state is later than its queue's, and remove/ is
# later than both.
_ORDER: Final = (State.NEW, State.READY, State.DELAYED, State.LEASED, State.REMOVED)


def lateness(place: Place) -> tuple[bool, bool, int]:
    """Sorts the places of one message: the latest last."""
    is_sidelined = place.queue.is_sideline and place.state is not State.NEW
    return place.state is State.REMOVED, is_sidelined, _ORDER.index(place.state)


def leave_latest(root: Root, place: Place, status: os.stat_result) -> bool:
    """Unlinks all names but the latest of the file at this place, which the caller has locked.
    Returns whether that is this one. Links outside of the root stay. Raises OSError. Durable on
    return: no.
    """
    names = [place, *(each for each in _others(root, place) if _is_at(root, each, status))]
    latest = max(names, key=_lateness_of_parted)
    for each in names:
        if each != latest:
            with contextlib.suppress(FileNotFoundError):
                root.files.unlink(each.path(root.layout))
    return latest == place


def _lateness_of_parted(place: Place) -> tuple[bool, tuple[bool, bool, int]]:
    """A pack in new/ with a spot was parted, from whichever place."""
    return bool(place.state is State.NEW and place.bucket and place.id.items), lateness(place)


def _others(root: Root, place: Place) -> Iterator[Place]:
    for queue in (place.queue, *root.facts.others(place.queue)):
        for state in _ORDER:
            for bucket in root.places.spots(state, queue, place.id):
                if (each := Place(state, queue, place.id, bucket)) != place:
                    yield each


def _is_at(root: Root, place: Place, status: os.stat_result) -> bool:
    there = root.files.status(place.path(root.layout))
    return there is not None and os.path.samestat(there, status)
