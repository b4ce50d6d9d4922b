"""Removes expired messages, and deletes expired queues.

A fetch and an expiry of one message race safely: both take its lock, and both check its expiry
under the lock, by settings that are at most half a second old. The first one moves the file, and
the other one finds the name gone. A message does not expire in flight: redelivery checks again.

PROTOCOL.md, "expire", has the steps and what a crash after each leaves.
"""

import heapq
import itertools
from collections.abc import Container
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from mq.model.errors import QueueNotFound, SettingsUnreadable
from mq.model.expiry import Life, expired_up_to_ms, life_of
from mq.model.lifecycle import State
from mq.model.message import Reason
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import SIDELINE, QueueSettings
from mq.model.totals import Total
from mq.store.core.find import place_of
from mq.store.core.locks import queues_locked
from mq.store.core.moves import Claim, claimed
from mq.store.core.root import Root
from mq.store.core.unserved import PurgeMark, expired_mark, message_expired
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Steps
from mq.store.format.entries import Entry, Index, entries_in, entries_of, index_folder, window_ms
from mq.store.format.layout import Place
from mq.store.format.walk import Folder, buckets, entries_if_there, if_there, queue_folders
from mq.store.operations.queues import delete_queue
from mq.store.operations.remove import is_full, take_held
from mq.store.operations.sideline import sideline_held
from mq.store.scan.published_up_to import goes_whole, ready_up_to, take_bucket

# The clock must be this far past a queue's expiry, so that a step ahead of the clock deletes no
# queue.
STEP_BELIEVED_S: Final = 3600.0


class Expiry(Enum):
    """The result for a message that looked expired."""

    REMOVED = "removed"
    SIDELINED = "sidelined"
    LIVES = "lives"
    """It has not expired by its queue's current settings."""
    LOST = "lost"
    """It is gone, or another process has it locked."""


def expired_ready(
    root: Root, queue: QueueName, limit: int, without: Container[MessageId] = ()
) -> list[tuple[str, MessageId]]:
    """At most `limit` of the queue's expired ready messages with their buckets, without those in
    `without`. Lists only folders that may hold some. Blocking. Raises OSError.
    """
    mark = expired_mark(root, queue)
    if mark is None:
        return []
    found = (each for each in ready_up_to(root, queue, mark) if each[1] not in without)
    return list(itertools.islice(found, limit))


class Outlived(NamedTuple):
    """Messages past their own time to live: ready ones with their buckets, and stale entries of
    messages that are gone.
    """

    ready: list[tuple[str, MessageId]]
    stale: list[Entry]


class OwnExpiry:
    """Finds messages past their own time to live, by their index entries."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._queues: frozenset[QueueName] = frozenset()
        self._behind = ("", "")
        """The folder and the name of the last checked entry."""

    def begin(self) -> None:
        """Begins a pass: lists the queues with entries. Raises OSError."""
        top = index_folder(self._root.layout, Index.EXPIRY)
        self._queues = frozenset(queue for queue, _ in queue_folders(self._root.files, top))
        self._behind = ("", "")

    def some(self, queue: QueueName, limit: int) -> Outlived | None:
        """Checks up to `limit` entries of the queue after those of the last call; None: the pass
        has finished the queue. Blocking. Raises OSError, SettingsUnreadable.
        """
        if queue not in self._queues:
            return None
        found = self._next(queue, limit)
        if not found:
            self._behind = ("", "")
            return None
        self._behind = found[-1]
        outlived = Outlived([], [])
        for folder, name in found:
            message_id = MessageId.parse(name)
            place = place_of(self._root, queue, message_id)
            if place is not None and place[0] is State.READY:
                outlived.ready.append((place[1], message_id))
            elif place is None:
                path = f"{folder}/{name}"
                outlived.stale.append(Entry(Index.EXPIRY, queue, message_id, folder, path))
        return outlived

    def _next(self, queue: QueueName, limit: int) -> list[tuple[str, str]]:
        """The first entries after the checked ones, of messages that may have expired."""
        root, found = self._root, list[tuple[str, str]]()
        top = entries_of(root.layout, Index.EXPIRY, queue)
        now_ms = root.now_ms()
        folders = sorted(
            entry.path
            for entry in entries_if_there(root.files, top)
            if (from_ms := window_ms(entry.name)) is not None and from_ms <= now_ms
        )
        for folder in folders:
            if folder < self._behind[0]:
                continue
            behind = self._behind[1] if folder == self._behind[0] else ""
            names = (message_id.text for _, message_id in entries_in(root.files, folder))
            first = heapq.nsmallest(limit - len(found), (name for name in names if name > behind))
            found += ((folder, name) for name in first)
            if len(found) >= limit:
                break
        return found


def expire(root: Root, queue: QueueName, message_id: MessageId, bucket: str) -> Steps[Expiry]:
    """Moves a listed message away if it is still expired.

    Raises as `expire_held`. Durable on return: a move to the sideline. A crash may bring a removed
    message back, which is then still expired.
    """
    place = Place(State.READY, queue, message_id, bucket)
    with claimed(root, place) as claim:
        if claim is None:
            return Expiry.LOST
        if not message_expired(root, queue, message_id):
            return Expiry.LIVES
        try:
            return (yield from expire_held(root, place, claim))
        except OSError as error:
            if not is_gone(error):
                raise
            return Expiry.LOST


def expire_held(root: Root, place: Place, claim: Claim) -> Steps[Expiry]:
    """Moves away an expired message, DELAYED or READY, that the caller has claimed: to remove/, or
    to the queue's sideline if `expired_to` says so. A sideline's own messages always go to remove/.

    Raises as `sideline_held`; OSError as rename does. Durable on return: as `expire`.
    """
    if not _are_removed(place.queue, root.facts.settings(place.queue)):
        yield from sideline_held(root, place, claim, Reason.EXPIRED)
        return Expiry.SIDELINED
    take_held(root, place, claim)
    root.totals.add(place.queue, Total.EXPIRED, place.id.items or 1)
    return Expiry.REMOVED


def expire_bucket(root: Root, queue: QueueName) -> bool:
    """Moves one bucket to remove/ by one rename, if all its messages have expired and `expired_to`
    is remove. False if there is none.

    Holds the queues' lock, as changes of settings do, so that no change prolongs the messages' life
    meanwhile. Blocking. Raises Busy, OSError. Durable on return: no; messages that come back are
    still expired.
    """
    mark = expired_mark(root, queue)
    if mark is None or not _are_removed(queue, root.facts.settings(queue)):
        return False
    for bucket in if_there(buckets(root.files, root.layout.queue(queue))):
        if goes_whole(root, bucket, mark):
            try:
                return _take_bucket(root, queue, bucket)
            except OSError as error:
                if not is_full(error):
                    raise
                return False  # Its messages are removed one by one, which needs no room.
    return False


def _take_bucket(root: Root, queue: QueueName, bucket: Folder) -> bool:
    with queues_locked(root):
        try:
            settings = root.facts.configured(queue).settings
        except SettingsUnreadable:
            return False
        ttl_s = settings.message_ttl_s
        up_to_ms = expired_up_to_ms(ttl_s, root.aged_ms(ttl_s))
        if up_to_ms is None or not _are_removed(queue, settings):
            return False
        if not (count := goes_whole(root, bucket, PurgeMark(up_to_ms))):
            return False
        folder = root.layout.deleted_folder(queue, UuidSource(root.clock).next())
        if not take_bucket(root, queue, bucket, folder):
            return False
        root.totals.add(queue, Total.EXPIRED, count)
        return True


def _are_removed(queue: QueueName, settings: QueueSettings) -> bool:
    """Whether the queue's expired messages go to remove/; those of a sideline always do."""
    return settings.expired_to != SIDELINE or queue.is_sideline


def delete_expired_queue(root: Root, queue: QueueName, uuid: str) -> Steps[bool]:
    """Deletes an expired queue after its grace period. False if the queue is not expired by its
    settings under the lock that changes of settings take: so a change at the last moment counts.

    Raises SettingsUnreadable, Busy; see `delete_queue`, also for the remaining work. Durable on
    return: yes.
    """
    try:
        return (yield from delete_queue(root, queue, uuid, partial(_is_over, root, queue)))
    except QueueNotFound:
        return False


def _is_over(root: Root, queue: QueueName) -> bool:
    settings = root.facts.configured(queue).settings
    return is_over(root, settings)


def is_over(root: Root, settings: QueueSettings) -> bool:
    """Whether a queue with these settings has expired and its grace period has ended; at the
    earliest an hour after the clock was set ahead.
    """
    aged_ms = root.aged_ms(max(settings.expiry_grace_s, STEP_BELIEVED_S))
    return life_of(settings, aged_ms) is Life.OVER
