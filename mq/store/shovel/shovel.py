"""Moves messages of a sideline back to their queue, or from any queue to another, by renames.

A message's key is linked in the target queue before the message moves: the link is on stable media,
and is read again under the lock of the link's folder, so that no two living messages have one key.
PROTOCOL.md, "shovel", has the steps and what a crash leaves.
"""

import os
import threading
from collections import Counter, deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from mq.model.errors import Busy, KeyTaken, QueueNotFound, SettingsUnreadable
from mq.model.history import Event
from mq.model.lifecycle import SHOVEL, State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import Criteria, Found, Times, Why, why_it_stays, why_the_queue_takes_none
from mq.store.core.failures import came_from
from mq.store.core.find import lives
from mq.store.core.message_file import NO_BLOCK, header_block
from mq.store.core.moves import (
    Claim,
    Move,
    arrived,
    claimed,
    make_buckets,
    message_status,
    move_there,
)
from mq.store.core.room import Load
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import is_purged, uuid_beginning
from mq.store.disk.files import is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_group
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys, Place
from mq.store.keys.entries import enter
from mq.store.keys.keyed import show_linked
from mq.store.keys.links import LINK_TRIES_MAX, free_key, linked_id, read_link
from mq.store.scan.order import Candidate, OrderUntil, list_after

# The limit of names that a pass holds at a time.
SHOVEL_LISTED_MAX: Final = 2000
# How far a message's id may be ahead of the pass's start: more than a purge mark moves a process's
# ids ahead.
SHOVEL_IDS_AHEAD_S: Final = 2 * 3600

_DEFAULTS: Final = QueueSettings()


@dataclass(frozen=True, slots=True)
class Aim:
    """The aim of a pass: the target queue, the criteria, and the start of the pass in milliseconds
    since the epoch.

    `of` is the source queue; None: the target's sideline. `chosen`: the stamps of the chosen
    messages at that time, by id; None: stamps do not matter. `takes_all`: whether it takes messages
    of a sideline that came from other queues. `renews`: a message that comes to a queue has none of
    its attempts.
    """

    queue: QueueName
    criteria: Criteria
    began_ms: int
    of: QueueName | None = None
    chosen: Mapping[str, Stamp] | None = None
    takes_all: bool = False
    renews: bool = False

    @property
    def source(self) -> QueueName:
        """The queue that messages are taken from."""
        return self.of or self.queue.sideline()

    def is_as_chosen(self, message_id: MessageId, status: os.stat_result) -> bool:
        """Whether this is the chosen delivery."""
        if self.chosen is None:
            return True
        then, now = self.chosen.get(message_id.text), Stamp.from_mtime_ns(status.st_mtime_ns)
        return then is not None and (then.due_ms, then.receives) == (now.due_ms, now.receives)


class Shovelled(NamedTuple):
    """The results: the moved files, on stable media; the number of other messages, by reason; and
    the first error, which may have affected several messages.
    """

    moved: tuple[MessageId, ...] = ()
    stayed: Mapping[Why, int] = {}
    error: Exception | None = None


def shovel_many(
    root: Root, flusher: Flusher, aim: Aim, candidates: Sequence[Candidate]
) -> Shovelled:
    """Moves these messages back as one group. Never raises: an error is part of the result.
    Blocking. Durable on return: the moved messages.
    """
    try:
        settings = settings_of(root, aim.queue)
        none = _why_none(root, aim.queue, settings)
    except Exception as failure:
        return Shovelled(error=failure)
    if settings is None or none is not None:
        messages = sum(each.messages for each in candidates)
        return Shovelled(stayed={none or Why.SETTINGS_UNREADABLE: messages})
    outcomes = run_group([shovel(root, aim, each, settings) for each in candidates], flusher)
    moved: list[MessageId] = []
    stayed: Counter[Why] = Counter()
    first: Exception | None = None
    for candidate, (why, error) in zip(candidates, outcomes, strict=True):
        if isinstance(error, Busy):
            stayed[Why.BUSY] += candidate.messages
        elif error is not None:
            first = first or error
        elif why is None:
            moved.append(candidate.id)
        else:
            stayed[why] += candidate.messages
    return Shovelled(tuple(moved), stayed, first)


def look_at_many(root: Root, aim: Aim, candidates: Sequence[Candidate]) -> Shovelled:
    """The result that `shovel_many` would have, without locks, changes or flushes. Checks each
    message by itself: of several messages with one key, all count as moved. Blocking.
    """
    moved: list[MessageId] = []
    stayed: Counter[Why] = Counter()
    try:
        settings = settings_of(root, aim.queue)
        none = _why_none(root, aim.queue, settings)
        for candidate in candidates:
            why = none or _look(root, aim, candidate, settings or _DEFAULTS)
            if why is None:
                moved.append(candidate.id)
            else:
                stayed[why] += candidate.messages
    except Exception as failure:
        return Shovelled(tuple(moved), stayed, failure)
    return Shovelled(tuple(moved), stayed)


def settings_of(root: Root, queue: QueueName) -> QueueSettings | None:
    """A queue's settings, without the daemon's defaults; None if they are unreadable. Raises
    OSError.
    """
    try:
        return root.facts.configured(queue).settings
    except SettingsUnreadable:
        return None


def shovel(
    root: Root, aim: Aim, candidate: Candidate, settings: QueueSettings
) -> Steps[Why | None]:
    """Moves a message to the target queue, which has these settings. Returns None, or the reason
    why it stays. The message is due now, keeps its receives, and has its key in the target.

    Checks everything under the inode's lock, just before the rename: a process that was stopped
    meanwhile, or comes second, moves no message against the criteria. Raises Busy, StorageFailed,
    OSError: the message is in its place, or moved and not flushed. Durable on return: yes, if None.
    """
    message_id, of = candidate.id, aim.source
    if not aim.criteria.selects(message_id.text):
        return Why.NOT_SELECTED
    source = candidate.bucket or ""
    place = Place(SHOVEL.source, of, message_id, source)
    with claimed(root, place) as claim:
        if claim is None:
            is_gone_on = message_status(root, place.path(root.layout)) is None
            return Why.GONE if is_gone_on else Why.BUSY
        times = Times(aim.began_ms, root.now_ms())
        why = why_it_stays(aim.criteria, settings, Found(message_id, claim.stamp), times)
        if why is None:
            why = _why_not_in(root, aim, message_id, settings, claim)
        if why is not None:
            return why
        if message_id.is_entered:
            block = header_block(root, message_id, claim, None) or NO_BLOCK
            enter(root, aim.queue, ((message_id, block),))
        flush = yield from _move(root, aim, message_id, source, claim)
        if isinstance(flush, Why):
            return flush
        stamp = _stamp_there(root, aim, claim)
        _stamp(root, claim, stamp)
        try:
            # Under the lock: a process that fetches and removes it must not find it in its old
            # place again.
            yield flush._replace(stamps=(claim.descriptor,))
        except FileNotFoundError:
            if not queue_exists(root, aim.queue):
                return Why.QUEUE_MISSING  # Deleted meanwhile, with the message.
        free_key(root, of, message_id)
    root.history.record(aim.queue, Event.SHOVELLED, message_id, stamp.receives)
    return None


def _stamp_there(root: Root, aim: Aim, claim: Claim) -> Stamp:
    """The reason stays only if the message moves between sidelines."""
    if aim.source.is_sideline and aim.queue.is_sideline:
        return Stamp(root.now_ms(), claim.stamp.receives, claim.stamp.reason)
    stamp = Stamp(root.now_ms(), claim.stamp.receives)
    return stamp.renewed() if aim.renews else stamp


def _stamp(root: Root, claim: Claim, stamp: Stamp) -> None:
    """Stamps the moved message. If the rename's answer was lost, a network mount may look for the
    file under its old name; that is no failure, since the mtime means nothing in a queue.
    """
    try:
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
    except OSError as error:
        if not is_gone(error):
            raise


def _why_none(root: Root, queue: QueueName, settings: QueueSettings | None) -> Why | None:
    if not queue_exists(root, queue):
        return Why.QUEUE_MISSING
    return why_the_queue_takes_none(settings, root.now_ms())


def _look(root: Root, aim: Aim, candidate: Candidate, settings: QueueSettings) -> Why | None:
    message_id, bucket = candidate.id, candidate.bucket or ""
    if not aim.criteria.selects(message_id.text):
        return Why.NOT_SELECTED
    path = root.layout.path(SHOVEL.source, aim.source, message_id, bucket)
    status = message_status(root, path)
    if status is None:
        return Why.GONE
    found = Found(message_id, Stamp.from_mtime_ns(status.st_mtime_ns))
    times = Times(aim.began_ms, root.now_ms())
    why = why_it_stays(aim.criteria, settings, found, times)
    return why or _why_not(root, aim, message_id, status)


def _why_not_in(
    root: Root, aim: Aim, message_id: MessageId, settings: QueueSettings, claim: Claim
) -> Why | None:
    """The reason of `_why_not`, or a full queue. If the queue is not full, the message counts as
    part of it.
    """
    why = _why_not(root, aim, message_id, claim.status)
    load = Load(message_id.items or 1, claim.status.st_size)
    if why is None and not root.room.takes_in(aim.queue, settings, load):
        return Why.QUEUE_FULL
    return why


def _why_not(root: Root, aim: Aim, message_id: MessageId, status: os.stat_result) -> Why | None:
    """Why other messages and queues prevent the move. Raises StorageFailed, OSError."""
    if not aim.is_as_chosen(message_id, status):
        return Why.CHANGED
    if not (aim.takes_all or aim.chosen is not None or _is_its(root, aim, message_id)):
        return Why.NOT_SELECTED
    queue = aim.queue
    why = _why_not_now(root, aim, message_id)
    if why is None and message_id.key is not None:
        target = read_link(root, root.layout.link(Keys.LOOKUP, queue, message_id.key))
        holder = None if target is None else linked_id(target)
        if holder is not None and holder != message_id and lives(root, queue, holder):
            return Why.KEY_TAKEN
    return why


def _is_its(root: Root, aim: Aim, message_id: MessageId) -> bool:
    """Whether a message of a shared sideline came from the target queue. The sideline's own queue
    gets all messages that came from no other.
    """
    is_own = aim.source == aim.queue.sideline()
    users = root.facts.users(aim.source)
    if is_own and not users:
        return True
    queue = came_from(root, message_id)
    return queue == aim.queue or (is_own and queue not in users)


def _why_not_now(root: Root, aim: Aim, message_id: MessageId) -> Why | None:
    """The reasons of `_why_not` that are checked once more just before the rename."""
    if is_purged(root, aim.source, message_id):
        return Why.GONE
    if is_purged(root, aim.queue, message_id):
        return Why.PURGED
    return None if queue_exists(root, aim.queue) else Why.QUEUE_MISSING


def _move(
    root: Root, aim: Aim, message_id: MessageId, source: str, claim: Claim
) -> Steps[Flush | Why]:
    """Renames the message, after linking its key. Returns the flush that makes this durable, or the
    reason why it stays. Raises Busy.
    """
    queue = aim.queue
    target = root.places.target(SHOVEL.target, queue, message_id)
    go = partial(_rename, root, aim, message_id, source, target, claim)
    for _ in range(LINK_TRIES_MAX):
        make_buckets(root, SHOVEL, ((queue, target),))
        try:
            if message_id.key is None:
                moved = go()
            else:
                moved = yield from show_linked(root, queue, message_id, None, go)
        except KeyTaken:
            return Why.KEY_TAKEN
        except QueueNotFound:
            return Why.QUEUE_MISSING
        except FileNotFoundError:
            if queue_exists(root, queue):
                raise
            return Why.QUEUE_MISSING
        if moved is not None:
            return moved
    raise Busy("its bucket is taken away by others again and again")


def _rename(
    root: Root, aim: Aim, message_id: MessageId, source: str, target: str, claim: Claim
) -> Flush | Why | None:
    """One try; None: the bucket was removed."""
    if (why := _why_not_now(root, aim, message_id)) is not None:
        return why
    queue, of = aim.queue, aim.source
    act = Move(SHOVEL, of, message_id, source, target, queue)
    try:
        return move_there(root, act)
    except OSError as error:
        if not is_gone(error):
            raise
    status = message_status(root, root.layout.path(SHOVEL.target, queue, message_id, target))
    if status is not None and os.path.samestat(status, claim.status):
        # NFS did it and lost the answer: no other process can have moved it without the lock.
        return arrived(root, act)
    if message_status(root, act.source_path(root.layout)) is None:
        return Why.GONE
    return None if queue_exists(root, queue) else Why.QUEUE_MISSING


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Messages of a sideline in order, and the aim of their move."""

    candidates: tuple[Candidate, ...]
    aim: Aim

    @property
    def messages(self) -> int:
        """How many messages it has, of a pack the items."""
        return sum(each.messages for each in self.candidates)

    def cut(self, count: int) -> tuple["Batch", "Batch | None"]:
        """Splits the batch: the first `count` messages, and the others. A pack is not split: the
        last one may exceed the count.
        """
        left = deque(self.candidates)
        first = Batch(_taken(left, count), self.aim)
        return first, Batch(tuple(left), self.aim) if left else None

    def without(self, moved: Container[MessageId]) -> "Batch":
        return Batch(tuple(each for each in self.candidates if each.id not in moved), self.aim)


def _taken(candidates: deque[Candidate], count: int) -> tuple[Candidate, ...]:
    """Takes the first candidates with `count` messages, or all."""
    taken = []
    while candidates and count > 0:
        taken.append(candidate := candidates.popleft())
        count -= candidate.messages
    return tuple(taken)


class Pass:
    """The messages in a queue's sideline at the start of the pass, then, unless it `takes_all` of
    the one, in sidelines that it shares. Thread-safe.

    Messages that come later wait for the next pass, also messages that this pass moved back and
    that were sidelined again: their time of sidelining shows it.
    """

    def __init__(self, root: Root, aim: Aim) -> None:
        """Raises OSError."""
        self.aim = aim
        """The aim for the sideline that is being listed."""
        self._root = root
        self._asides = [] if aim.takes_all else list(root.facts.sidelines(aim.queue)[1:])
        # Only so that the pass ends in a sideline that grows faster than it is listed.
        until_ms = self.aim.began_ms + SHOVEL_IDS_AHEAD_S * 1000
        self._order = OrderUntil(until=uuid_beginning(until_ms))
        self._lock = threading.Lock()
        self._listed: deque[Candidate] = deque()
        self._is_listed = False
        self._at: MessageId | None = None

    def batch(self, count: int) -> Batch | None:
        """The next messages, at most `count`, which the last pack may exceed; None: there are no
        more. Blocking. Raises OSError; the next call then returns the same messages.
        """
        with self._lock:
            if not self._listed:
                self._list()
            if not self._listed:
                return None
            return Batch(_taken(self._listed, count), self.aim)

    def _list(self) -> None:
        """Lists more candidates. A scan may end early without a wanted message."""
        while not self._listed and not (self._is_listed and not self._asides):
            if self._is_listed:
                self.aim = replace(self.aim, of=self._asides.pop(0))
                self._is_listed, self._at = False, None
            source = self.aim.source
            try:
                found, self._is_listed = list_after(
                    self._root, State.READY, source, SHOVEL_LISTED_MAX, self._at, self._order
                )
            except QueueNotFound:
                found = []
            if found:
                self._at = found[-1].id
                self._listed.extend(found)
            else:
                self._is_listed = True
