"""Makes room in a queue at its limit: its oldest ready messages are removed or sidelined, once the
published message is on stable media.

PROTOCOL.md, "make room", has the steps and what a crash after each leaves.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mq.model.lifecycle import State
from mq.model.message import Reason
from mq.model.names import MessageId, QueueName, items_of
from mq.model.settings import QueueSettings
from mq.model.totals import Total
from mq.store.core.moves import claimed, message_status
from mq.store.core.room import Load
from mq.store.core.root import Root
from mq.store.core.unserved import mark_of
from mq.store.disk.steps import Steps
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.layout import Place
from mq.store.format.walk import Folder, buckets, if_there, walk
from mq.store.operations.remove import take_held
from mq.store.operations.sideline import sideline_held

# The number of messages, the oldest ones, that are listed at a time.
OLDEST_LISTED_MAX: Final = 1000


class Old(NamedTuple):
    """A ready message that may have to make room, and its file's size in bytes."""

    place: Place
    bytes: int


def oldest_ready(root: Root, queue: QueueName, with_bytes: bool) -> list[Old]:
    """The queue's oldest ready messages of any priority, without the newest of all, which stays
    unless it is a pack: that alone may exceed the queue's limit. Lists only folders that may hold
    some. `with_bytes`: with their sizes, by a stat of each. Blocking. Raises OSError.
    """
    top, most = Folder(root.layout.queue(queue)), OLDEST_LISTED_MAX + 1
    mark = mark_of(root, queue)
    found: list[tuple[str, str]] = []

    def names(folder: Folder, is_wanted: bool) -> Iterator[tuple[str, str]]:
        for of, entry in if_there(walk(root.files, folder, lambda _: is_wanted)):
            name = entry.name
            if MessageId.is_written(name) and not (mark is not None and mark.covers(name)):
                yield name, of.spot

    found = heapq.nsmallest(most, names(top, is_wanted=False))
    for bucket in sorted(if_there(buckets(root.files, top.path)), key=_begins):
        parsed = parse_bucket(bucket.name)
        if (
            len(found) == most
            and parsed is not None
            and parsed.begins_after(MessageId.parse(found[-1][0]).published_ms)
        ):
            continue
        found = heapq.nsmallest(most, (*found, *names(bucket, is_wanted=True)))
    if found and items_of(found[-1][0]) == 1:
        del found[-1]
    places = (Place(State.READY, queue, MessageId.parse(name), spot) for name, spot in found)
    return list(_sized(root, places) if with_bytes else (Old(place, 0) for place in places))


def to_go(oldest: Iterable[Old], excess: Load) -> list[Place]:
    """The first of these messages that together cover the excess. A pack goes as a whole once one
    of its items must.
    """
    going: list[Place] = []
    left = excess
    for old in oldest:
        if left.messages <= 0 and left.bytes <= 0:
            break
        going.append(old.place)
        left -= Load(old.place.id.items or 1, old.bytes)
    return going


def make_room(root: Root, place: Place, settings: QueueSettings) -> Steps[bool]:
    """Moves a ready message to remove/ or to its queue's sideline, as `overflow` says; False if it
    is gone, or another process has it locked. A sideline's own messages go to remove/.

    Raises as `sideline_held`; OSError. Durable on return: a move to the sideline; a removed message
    may come back, and is removed again.
    """
    with claimed(root, place) as claim:
        if claim is None:
            return False
        if goes_aside(place.queue, settings):
            yield from sideline_held(root, place, claim, Reason.OVERFLOW)
        else:
            take_held(root, place, claim)
            root.totals.add(place.queue, Total.DROPPED, place.id.items or 1)
    return True


def goes_aside(queue: QueueName, settings: QueueSettings) -> bool:
    """Whether messages that make room go to the sideline; a sideline has none."""
    return settings.overflow == "sideline-oldest" and not queue.is_sideline


def _begins(bucket: Folder) -> str:
    parsed = parse_bucket(bucket.name)
    return "" if parsed is None else parsed.digits


def _sized(root: Root, places: Iterable[Place]) -> Iterator[Old]:
    for place in places:
        status = message_status(root, place.path(root.layout))
        if status is not None:
            yield Old(place, status.st_size)
