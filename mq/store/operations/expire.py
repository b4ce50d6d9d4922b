"""Taking expired messages away, and deleting queues whose time is over.

FORMAT.md, "expire", has the steps and what a crash after each leaves.
"""

import itertools
import os
from collections.abc import Container
from enum import Enum
from functools import partial

from mq.model.errors import QueueNotFound, SettingsUnreadable
from mq.model.expiry import Life, expired_up_to_ms, life_of
from mq.model.lifecycle import State
from mq.model.limits import STEP_BELIEVED_S
from mq.model.message import Reason
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import SIDELINE, QueueSettings
from mq.store.core.expired import expired_mark, message_expired
from mq.store.core.moves import Claim, claimed
from mq.store.core.purged import PurgeMark
from mq.store.core.queues_lock import queues_locked
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Steps
from mq.store.format.walk import entries_if_there, is_bucket
from mq.store.operations.queues import delete_queue
from mq.store.operations.remove import is_full, take_held
from mq.store.operations.sideline import sideline_held
from mq.store.scan.published_up_to import goes_whole, ready_up_to, take_bucket
from mq.store.settings.configure import Configured


class Expiry(Enum):
    """What became of a message that looked expired."""

    REMOVED = "removed"
    SIDELINED = "sidelined"
    LIVES = "lives"
    """It has not expired, as its queue's settings are now."""
    LOST = "lost"
    """It is not there, or another process is at it."""


def expired_ready(
    root: Root, queue: QueueName, limit: int, without: Container[MessageId] = ()
) -> list[tuple[str, MessageId]]:
    """At most `limit` of the queue's ready messages that have expired, each with its bucket, but
    for these. Only folders are listed that may hold some. Blocking. Raises OSError.
    """
    mark = expired_mark(root, queue)
    if mark is None:
        return []
    found = (each for each in ready_up_to(root, queue, mark) if each[1] not in without)
    return list(itertools.islice(found, limit))


def expire(root: Root, queue: QueueName, message_id: MessageId, bucket: str) -> Steps[Expiry]:
    """Takes a ready message away that was listed as expired, where it is so still.

    Raises as `expire_held`. Durable on return: what was sidelined; what was removed may come back,
    and is as expired then.
    """
    path = root.layout.path(State.READY, queue, message_id, bucket)
    with claimed(root, path) as claim:
        if claim is None:
            return Expiry.LOST
        if not message_expired(root, queue, message_id):
            return Expiry.LIVES
        try:
            return (yield from expire_held(root, queue, message_id, State.READY, bucket, claim))
        except OSError as error:
            if not is_gone(error):
                raise
            return Expiry.LOST


def expire_held(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    state: State,
    bucket: str,
    claim: Claim,
) -> Steps[Expiry]:
    """Takes a message away, DELAYED or READY, that has expired and whose claim the caller has: to
    remove/, or to the queue's sideline, as its settings say; what is a sideline's own always to
    remove/.

    Raises as `sideline_held`: SidelineMissing when `create_queue` has to make the sideline first;
    OSError as rename does. Durable on return: as `expire`.
    """
    if not _are_removed(queue, root.settings.of(queue)):
        yield from sideline_held(root, queue, message_id, state, bucket, claim, Reason.EXPIRED)
        return Expiry.SIDELINED
    take_held(root, state, queue, message_id, bucket, claim)
    return Expiry.REMOVED


def expire_bucket(root: Root, queue: QueueName) -> bool:
    """Moves one of the queue's buckets that hold nothing but what has expired, and is to be
    removed, by one rename into a folder of remove/; whether there was one.

    Under the queues' lock, as settings are changed: nobody says meanwhile that messages live
    longer. Blocking. Raises Busy, OSError. Durable on return: no; what comes back is as expired.
    """
    mark = expired_mark(root, queue)
    if mark is None or not _are_removed(queue, root.settings.of(queue)):
        return False
    for entry in entries_if_there(root.files, root.layout.queue(queue)):
        if is_bucket(entry) and goes_whole(root, entry, mark):
            try:
                return _take_bucket(root, queue, entry)
            except OSError as error:
                if not is_full(error):
                    raise
                return False  # Its messages go one by one, which needs no room.
    return False


def _take_bucket(root: Root, queue: QueueName, bucket: "os.DirEntry[str]") -> bool:
    with queues_locked(root):
        try:
            settings = Configured.read(root, queue).settings
        except SettingsUnreadable:
            return False
        ttl_s = settings.message_ttl_s
        up_to_ms = expired_up_to_ms(ttl_s, root.aged_ms(ttl_s))
        if up_to_ms is None or not _are_removed(queue, settings):
            return False
        if not goes_whole(root, bucket, PurgeMark(up_to_ms)):
            return False
        folder = root.layout.deleted_folder(queue, UuidSource(root.clock).next())
        return take_bucket(root, queue, bucket, folder)


def _are_removed(queue: QueueName, settings: QueueSettings) -> bool:
    """Whether the queue's expired messages go to remove/; a sideline has no other place."""
    return settings.expired_to != SIDELINE or queue.is_sideline


def delete_expired_queue(root: Root, queue: QueueName, uuid: str) -> Steps[bool]:
    """Deletes a queue whose time is over, and its grace too; false where it is not, as its settings
    say under the lock that changes of settings take: so a change at the last moment counts.

    Raises SettingsUnreadable, Busy; see `delete_queue`, also for what is left to do. Durable on
    return: yes.
    """
    try:
        return (yield from delete_queue(root, queue, uuid, partial(_is_over, root, queue)))
    except QueueNotFound:
        return False


def _is_over(root: Root, queue: QueueName) -> bool:
    settings = Configured.read(root, queue).settings
    return is_over(root, settings)


def is_over(root: Root, settings: QueueSettings) -> bool:
    """Whether the time of a queue of these settings is over, and its grace too; an hour at least
    after the clock was set ahead.
    """
    aged_ms = root.aged_ms(max(settings.expiry_grace_s, STEP_BELIEVED_S))
    return life_of(settings, aged_ms) is Life.OVER
