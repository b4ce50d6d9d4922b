"""Taking messages of a sideline back to their queue, or of any queue to another, by renames.

A message has its key in the queue that it comes to before it goes: its link is on stable media
then, and it goes under the lock of the link's folder, after reading the link again, so that no two
living messages have one key. FORMAT.md, "shovel", has the steps and what a crash after each leaves;
"Crossings" what must be on stable media before any message goes between two queues that are not one
the other's sideline.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from mq.model.errors import Busy, KeyTaken, SettingsUnreadable
from mq.model.history import Event
from mq.model.lifecycle import SHOVEL
from mq.model.limits import LINK_TRIES_MAX
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import Criteria, Found, Times, Why, why_it_stays, why_the_queue_takes_none
from mq.store.core.moves import Claim, arrived, claimed, make_ways, message_status, move_there
from mq.store.core.purged import is_purged
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_group
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys
from mq.store.keys.holders import free_key, lives
from mq.store.keys.keyed import take_key
from mq.store.keys.links import linked_id, locked, read_link
from mq.store.scan.order import Candidate
from mq.store.settings.configure import Configured

_DEFAULTS: Final = QueueSettings()


@dataclass(frozen=True, slots=True)
class Aim:
    """What a pass is for: the queue that messages go to, what it takes, and when it began, in
    milliseconds since the epoch.

    `of` is the queue that they are taken from; None: the sideline of the other. Between two queues
    that are not one the other's sideline it is for who has a Crossing of them on stable media.
    `chosen`: what the mtimes of those that were chosen said then, by their ids; None: no matter.
    """

    queue: QueueName
    criteria: Criteria
    began_ms: int
    of: QueueName | None = None
    chosen: Mapping[str, Stamp] | None = None

    @property
    def source(self) -> QueueName:
        """The queue that messages are taken from."""
        return self.of or self.queue.sideline()

    def is_as_chosen(self, message_id: MessageId, status: os.stat_result) -> bool:
        """Whether it is the delivery that was chosen. Of two names, which a crash has left, it is:
        this very move was made, and not flushed.
        """
        if self.chosen is None or status.st_nlink > 1:
            return True
        then, now = self.chosen.get(message_id.text), Stamp.from_mtime_ns(status.st_mtime_ns)
        return then is not None and (then.due_ms, then.receives) == (now.due_ms, now.receives)


class Shovelled(NamedTuple):
    """What became of some messages: those that are back in their queue, on stable media; how many
    are not, by why; and the first error there was, which may have been in the way of several.
    """

    moved: tuple[MessageId, ...] = ()
    stayed: Mapping[Why, int] = {}
    error: Exception | None = None


def shovel_many(
    root: Root, flusher: Flusher, aim: Aim, candidates: Sequence[Candidate]
) -> Shovelled:
    """Takes these back as one group; blocking. It raises nothing: an error is one of what is given.
    Durable on return: those that were moved.
    """
    try:
        settings = settings_of(root, aim.queue)
        none = _why_none(root, aim.queue, settings)
    except Exception as failure:
        return Shovelled(error=failure)
    if settings is None or none is not None:
        return Shovelled(stayed={none or Why.SETTINGS_UNREADABLE: len(candidates)})
    outcomes = run_group([shovel(root, aim, each, settings) for each in candidates], flusher)
    moved: list[MessageId] = []
    stayed: Counter[Why] = Counter()
    first: Exception | None = None
    for candidate, (why, error) in zip(candidates, outcomes, strict=True):
        if isinstance(error, Busy):
            stayed[Why.BUSY] += 1
        elif error is not None:
            first = first or error
        elif why is None:
            moved.append(candidate.id)
        else:
            stayed[why] += 1
    return Shovelled(tuple(moved), stayed, first)


def look_at_many(root: Root, aim: Aim, candidates: Sequence[Candidate]) -> Shovelled:
    """What `shovel_many` would do, as far as a look tells: nothing is locked, changed or flushed.
    Each is looked at for itself: of several that have one key all would be moved. Blocking.
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
                stayed[why] += 1
    except Exception as failure:
        return Shovelled(tuple(moved), stayed, failure)
    return Shovelled(tuple(moved), stayed)


def settings_of(root: Root, queue: QueueName) -> QueueSettings | None:
    """A queue's settings, but for those whose default is the daemon's; None where nobody can tell
    what they say. Raises OSError.
    """
    try:
        return Configured.read(root, queue).settings
    except SettingsUnreadable:
        return None


def shovel(
    root: Root, aim: Aim, candidate: Candidate, settings: QueueSettings
) -> Steps[Why | None]:
    """Takes a message to the queue whose settings these are; None, or why it was not. It is due
    now; its receives stay as they were; it has its key there.

    All is looked at under the inode's lock, just before the rename: a process that was stopped in
    between, or comes second, moves nothing that was not meant. Raises Busy, StorageFailed, OSError:
    it is where it was, or moved and not flushed. Durable on return: yes, where it is None.
    """
    message_id, of = candidate.id, aim.source
    if not aim.criteria.selects(message_id.text):
        return Why.NOT_SELECTED
    source = candidate.bucket or ""
    path = root.layout.path(SHOVEL.source, of, message_id, source)
    with claimed(root, path) as claim:
        if claim is None:
            return Why.GONE if message_status(root, path) is None else Why.BUSY
        times = Times(aim.began_ms, root.now_ms())
        why = why_it_stays(aim.criteria, settings, Found(message_id, claim.stamp), times)
        if why is None:
            why = _why_not(root, aim, message_id, claim.status)
        if why is not None:
            return why
        flush = yield from _move(root, aim, message_id, source, claim)
        if isinstance(flush, Why):
            return flush
        stamp = Stamp(root.now_ms(), claim.stamp.receives, _reason(aim, claim))
        _stamp(root, claim, stamp)
        try:
            # Under the lock: who fetches and removes it must not find it where it was again.
            yield flush._replace(files=(claim.descriptor,))
        except FileNotFoundError:
            if not queue_exists(root, aim.queue):
                return Why.QUEUE_MISSING  # Deleted meanwhile, the message with it.
        free_key(root, of, message_id)
    root.history.record(aim.queue, Event.SHOVELLED, message_id, stamp.receives)
    return None


def _reason(aim: Aim, claim: Claim) -> int:
    """It goes on meaning something from one sideline to another alone."""
    return claim.stamp.reason if aim.source.is_sideline and aim.queue.is_sideline else 0


def _stamp(root: Root, claim: Claim, stamp: Stamp) -> None:
    """Where the answer to the rename was lost, a network mount may look for it under its old name;
    what its mtime says means nothing in its queue.
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


def _why_not(root: Root, aim: Aim, message_id: MessageId, status: os.stat_result) -> Why | None:
    """Why a message cannot go, by what else there is. Raises StorageFailed, OSError."""
    if not aim.is_as_chosen(message_id, status):
        return Why.CHANGED
    queue = aim.queue
    why = _why_not_now(root, aim, message_id)
    if why is None and message_id.key is not None:
        target = read_link(root, root.layout.link(Keys.LOOKUP, queue, message_id.key))
        holder = None if target is None else linked_id(target)
        if holder is not None and holder != message_id and lives(root, queue, holder):
            return Why.KEY_TAKEN
    return why


def _why_not_now(root: Root, aim: Aim, message_id: MessageId) -> Why | None:
    """Of this, what is asked once more just before the rename."""
    if is_purged(root, aim.source, message_id):
        return Why.GONE
    if is_purged(root, aim.queue, message_id):
        return Why.PURGED
    return None if queue_exists(root, aim.queue) else Why.QUEUE_MISSING


def _move(
    root: Root, aim: Aim, message_id: MessageId, source: str, claim: Claim
) -> Steps[Flush | Why]:
    """Takes it there, with its key; what makes that durable, or why not. Raises Busy."""
    queue = aim.queue
    target = root.places.target(SHOVEL.target, queue, message_id)
    go = partial(_rename, root, aim, message_id, source, target, claim)
    for _ in range(LINK_TRIES_MAX):
        # Whoever made the queue, or its bucket, or took the mark of its purge away, may have died
        # before its own flush: without the one, or with the other, the message would be lost.
        if target:
            yield make_ways(root, SHOVEL, ((queue, target),))
        yield Flush(folders=(root.layout.purged,), entries=(root.layout.queue(queue),))
        try:
            if message_id.key is None:
                moved = go()
            else:
                moved = yield from _move_keyed(root, queue, message_id, message_id.key, go)
        except FileNotFoundError:
            if queue_exists(root, queue):
                raise
            return Why.QUEUE_MISSING
        if moved is not None:
            return moved
    raise Busy("its bucket, or its key's link, is changed by others again and again")


def _move_keyed(
    root: Root,
    queue: QueueName,
    message_id: MessageId,
    key: Key,
    go: Callable[[], Flush | Why | None],
) -> Steps[Flush | Why | None]:
    """`go`, of a message that has a key. None: others were at its link, or its bucket. A link
    that stays where the message does not go means nothing; the key's next publish replaces it.
    """
    place = root.layout.link(Keys.LOOKUP, queue, key)
    try:
        yield from take_key(root, queue, message_id, key)
    except KeyTaken:
        return Why.KEY_TAKEN

    def act() -> Flush | Why | None:
        # As whoever replaces a link, or takes one away, does that under the lock.
        return go() if root.files.linked(place.path) == message_id.text else None

    return (yield from locked(root, place, act))


def _rename(
    root: Root, aim: Aim, message_id: MessageId, source: str, target: str, claim: Claim
) -> Flush | Why | None:
    """One try; None: its bucket was taken away."""
    if (why := _why_not_now(root, aim, message_id)) is not None:
        return why
    queue, of, links = aim.queue, aim.source, claim.status.st_nlink
    try:
        return move_there(root, SHOVEL, of, message_id, links, source, target, queue)
    except OSError as error:
        if not is_gone(error):
            raise
    status = message_status(root, root.layout.path(SHOVEL.target, queue, message_id, target))
    if status is not None and os.path.samestat(status, claim.status):
        # NFS did it, and lost the answer: nobody else may, without the lock.
        return arrived(root, SHOVEL, of, message_id, links, source, target, queue)
    if message_status(root, root.layout.path(SHOVEL.source, of, message_id, source)) is None:
        return Why.GONE
    return None if queue_exists(root, queue) else Why.QUEUE_MISSING
