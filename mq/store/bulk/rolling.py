"""One journal's messages on their way: each staged file is renamed to its place, once.

For whoever has the journal's lock: `roll_forward` takes it. FORMAT.md, "bulk publishes", has the
steps and what a crash after each leaves.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mq.model.bulk_limits import ROLLED_PER_FLUSH_MAX
from mq.model.errors import BadName, Busy, KeyTaken, QueueNotFound
from mq.model.lifecycle import DELIVER, FORGET, SCHEDULE, State, Transition
from mq.model.limits import GROUP_OPERATIONS_MAX, LINK_TRIES_MAX
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.bulk.folds import move_folds
from mq.store.bulk.journal import Journal
from mq.store.bulk.staged import staged_entries, staged_names
from mq.store.core.moves import folders_of, make_ways, move, move_alive, together
from mq.store.core.purged import mark_of
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone, run_group
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import leading
from mq.store.format.layout import Keys, parse_entry
from mq.store.format.pipeline import attempt_folder, staged_spot
from mq.store.format.walk import folders
from mq.store.history.bulk import record_published
from mq.store.keys.holders import has_crossed, whereabouts
from mq.store.keys.keyed import take_links
from mq.store.keys.links import locked

_ENDS: Final = (State.READY, State.DELAYED, State.LEASED, State.REMOVED)


class Rolled(NamedTuple):
    """What became of a publish's messages: brought to their places; not, since a living message
    has their key; not, since their queue is not there and was not deleted: those stay.
    """

    moved: int = 0
    taken: int = 0
    left: int = 0

    def plus(self, other: "Rolled") -> "Rolled":
        """Both."""
        return Rolled(*map(sum, zip(self, other, strict=True)))


class _Batch(NamedTuple):
    """Messages that an attempt has staged for a queue and that go the same way."""

    queue: QueueName
    transition: Transition
    ids: Sequence[MessageId]


@dataclass(slots=True)
class Roller:
    """Brings one journal's messages to their places, for whoever has its lock."""

    root: Root
    flusher: Flusher
    journal: Journal
    leaves_one_name: bool
    """Whether no power cut leaves both names of a rename in the root's file system."""

    def run(self) -> Rolled:
        """Brings them there; blocking. Raises OSError, Unavailable. Durable on return: yes."""
        rolled = Rolled()
        was_tried = False
        for attempt, count in zip(self.journal.attempts, self.journal.counts, strict=False):
            root, job = self.root, self.journal.job
            entries, folders = found = staged_entries(root, job, attempt)
            was_tried = was_tried or found.count(root) != count
            spot = staged_spot(job, attempt)
            if folders:
                go_whole = self.leaves_one_name
                steps = move_folds(root, job, attempt, folders, go_whole)
                whole = run_alone(steps, self.flusher)
                rolled = rolled.plus(Rolled(moved=whole))
                entries = staged_names(root, job, attempt)
            plain, keyed = self._batches(entries)
            for batch in plain:
                rolled = rolled.plus(run_alone(self._move(batch, spot), self.flusher))
            for batch in keyed:
                for ids in _parts(batch.ids, GROUP_OPERATIONS_MAX):
                    rolled = rolled.plus(self._move_keyed(batch, ids, spot))
        if was_tried:
            run_alone(self._flush_all(), self.flusher)
        return rolled

    def _batches(self, entries: "Iterable[os.DirEntry[str]]") -> tuple[list[_Batch], list[_Batch]]:
        """What goes the same way, without keys and with."""
        plain: dict[tuple[QueueName, Transition], list[MessageId]] = defaultdict(list)
        keyed: dict[tuple[QueueName, Transition], list[MessageId]] = defaultdict(list)
        looks = self.journal.is_scheduled or not self.leaves_one_name
        for entry in entries:
            try:
                queue, message_id = parse_entry(entry.name)
            except BadName:
                continue
            status = self.root.files.status(entry.path) if looks else None
            if looks and (
                status is None
                or is_second_name(self.root, queue, message_id, entry.path, status.st_nlink)
            ):
                continue
            transition = self._transition(message_id, status)
            (plain if message_id.key is None else keyed)[queue, transition].append(message_id)
        return _of(plain, ROLLED_PER_FLUSH_MAX), _of(keyed, ROLLED_PER_FLUSH_MAX)

    def _transition(self, message_id: MessageId, status: os.stat_result | None) -> Transition:
        """Where it goes by its time. One that is not for later is due when its id says, perhaps a
        moment from now.
        """
        if not self.journal.is_scheduled or status is None:
            return DELIVER
        due_ms = Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
        is_later = due_ms > self.root.now_ms() and due_ms != message_id.published_ms
        return SCHEDULE if is_later else DELIVER

    def _move(self, batch: _Batch, spot: str) -> Steps[Rolled]:
        """Those without keys. Durable on return: yes."""
        root, layout = self.root, self.root.layout
        queue, transition, ids = batch
        if not queue_exists(root, queue):
            return (yield from self._without_queue(queue, ids, spot))
        if (mark := mark_of(root, queue)) is not None:
            purged = [each for each in ids if mark.covers(each.uuid)]
            yield from self._take_away(queue, purged, spot)
            ids = [each for each in ids if not mark.covers(each.uuid)]
        targets = root.places.targets(transition.target, queue, ids)
        if queue_exists(root, queue):
            yield _ways(root, transition, queue, sorted(set(targets)))
        source = layout.beginning(State.NEW, queue, spot)
        beginnings: dict[str, str] = {}
        failed: list[MessageId] = []
        for message_id, bucket in zip(ids, targets, strict=True):
            beginning = beginnings.get(bucket)
            if beginning is None:
                beginning = layout.beginning(transition.target, queue, bucket)
                beginnings[bucket] = beginning
            name = message_id.text
            try:
                root.files.rename(source + name, beginning + name)
            except OSError as error:
                if not is_gone(error):
                    raise
                failed.append(message_id)
        yield from self._arrived(batch, sorted(beginnings), spot)
        left = frozenset(failed)
        self._record(batch, (each for each in ids if each not in left))
        rolled = Rolled(moved=len(ids) - len(failed))
        for message_id in failed:
            rolled = rolled.plus((yield from self._move_one(batch, message_id, spot)))
        return rolled

    def _arrived(self, batch: _Batch, buckets: Sequence[str], spot: str) -> Steps[None]:
        """Flushes where messages came to, then what they left. That the queue is gone meanwhile
        is all right: they went with it.
        """
        flush = together(
            dict.fromkeys(
                folders_of(self.root, batch.transition, batch.queue, spot, bucket)
                for bucket in buckets
            )
        )
        try:
            yield flush
        except FileNotFoundError:
            if queue_exists(self.root, batch.queue):
                raise

    def _move_one(self, batch: _Batch, message_id: MessageId, spot: str) -> Steps[Rolled]:
        """One whose rename found nothing: its queue, or its bucket, went; or it was moved, and
        the answer lost.
        """
        root, queue = self.root, batch.queue
        if root.files.status(root.layout.path(State.NEW, queue, message_id, spot)) is None:
            self._record(batch, (message_id,))
            return Rolled(moved=1)
        if queue_exists(root, queue):
            try:
                yield (
                    yield from move_alive(root, batch.transition, queue, message_id, source=spot)
                )
                self._record(batch, (message_id,))
                return Rolled(moved=1)
            except OSError as error:
                if not is_gone(error) or queue_exists(root, queue):
                    raise
        return (yield from self._without_queue(queue, (message_id,), spot))

    def _without_queue(
        self, queue: QueueName, ids: Sequence[MessageId], spot: str
    ) -> Steps[Rolled]:
        """What a deleted queue had coming goes; without a tombstone nobody has deleted it."""
        root = self.root
        if root.files.status(root.layout.tombstone(queue)) is None:
            return Rolled(left=len(ids))
        return Rolled(moved=(yield from self._take_away(queue, ids, spot)))

    def _take_away(self, queue: QueueName, ids: Sequence[MessageId], spot: str) -> Steps[int]:
        """To remove/; how many. Durable on return: yes."""
        flushes: dict[Flush, None] = {}
        for message_id in ids:
            try:
                flushes[move(self.root, FORGET, queue, message_id, source=spot)] = None
            except OSError as error:
                if not is_gone(error):
                    raise
        if flushes:
            yield together(flushes)
        return len(ids)

    def _move_keyed(self, batch: _Batch, ids: Sequence[MessageId], spot: str) -> Rolled:
        """Those with keys: each has its link before it shows."""
        mark = mark_of(self.root, batch.queue)
        if mark is not None:
            purged = [each for each in ids if mark.covers(each.uuid)]
            run_alone(self._take_away(batch.queue, purged, spot), self.flusher)
            ids = [each for each in ids if not mark.covers(each.uuid)]
        steps = [self._reveal(batch, each, each.key, spot) for each in ids if each.key is not None]
        rolled = Rolled()
        for outcome in run_group(steps, self.flusher):
            if outcome.error is not None:
                raise outcome.error
            rolled = rolled.plus(outcome.value)
        return rolled

    def _reveal(self, batch: _Batch, message_id: MessageId, key: Key, spot: str) -> Steps[Rolled]:
        root, queue = self.root, batch.queue
        try:
            for _ in range(LINK_TRIES_MAX):
                yield from take_links(root, queue, message_id, None)
                if (yield from self._reveal_linked(batch, message_id, key, spot)):
                    self._record(batch, (message_id,))
                    return Rolled(moved=1)
        except KeyTaken:
            yield from self._take_away(queue, (message_id,), spot)
            return Rolled(taken=1)
        except (QueueNotFound, FileNotFoundError):
            if queue_exists(root, queue):
                raise
            return (yield from self._without_queue(queue, (message_id,), spot))
        raise Busy("others change the key's link again and again")

    def _reveal_linked(
        self, batch: _Batch, message_id: MessageId, key: Key, spot: str
    ) -> Steps[bool]:
        """Moves it if its link is still its own: under the lock, as whoever replaces a link does
        that. False: it is not. Durable on return: yes.
        """
        root, queue, transition = self.root, batch.queue, batch.transition
        place = root.layout.link(Keys.LOOKUP, queue, key)
        staged = root.layout.path(State.NEW, queue, message_id, spot)
        target = root.places.target(transition.target, queue, message_id)
        yield _ways(root, transition, queue, (target,))

        def act() -> Flush | None:
            if root.files.linked(place.path) != message_id.text:
                return None
            if root.files.status(staged) is None:
                return Flush()
            return move(root, transition, queue, message_id, source=spot, target=target)

        flush = yield from locked(root, place, act)
        if flush is not None:
            try:
                yield flush
            except FileNotFoundError:
                if queue_exists(root, queue):
                    raise
        return flush is not None

    def _record(self, batch: _Batch, ids: Iterable[MessageId]) -> None:
        """Tells the queue's history that these are published."""
        record_published(self.root, batch.queue, ids, batch.transition.target)

    def _flush_all(self) -> Steps[None]:
        """Whoever rolled forward before has perhaps died before its flush: all places that
        messages may have come to, then what they left.
        """
        root, layout = self.root, self.root.layout
        ready = [layout.queue(queue) for queue in self.journal.queues if queue_exists(root, queue)]
        tops = [*ready, layout.delay, layout.remove]
        rows = [
            leading(top, bucket) for top in tops for bucket, _ in folders(root.files, top) if bucket
        ]
        yield Flush(folders=tuple(tops), beside=tuple(rows))
        left = [
            attempt_folder(layout, self.journal.job, attempt) for attempt in self.journal.attempts
        ]
        yield Flush(beside=tuple((folder,) for folder in left))


def _ways(root: Root, transition: Transition, queue: QueueName, buckets: Iterable[str]) -> Flush:
    """Makes the buckets that messages are to go to; what makes durable that they, and the queue,
    are there. Raises OSError.
    """
    ways = make_ways(root, transition, ((queue, bucket) for bucket in buckets))
    return ways._replace(entries=(root.layout.queue(queue), *ways.entries))


def _of(found: dict[tuple[QueueName, Transition], list[MessageId]], size: int) -> list[_Batch]:
    return [
        _Batch(queue, transition, part)
        for (queue, transition), ids in found.items()
        for part in _parts(ids, size)
    ]


def _parts(ids: Sequence[MessageId], size: int) -> Iterator[Sequence[MessageId]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def is_second_name(
    root: Root, queue: QueueName, message_id: MessageId, path: str, names: int
) -> bool:
    """Whether the message, of so many names, is at its place already, and this path is a name that
    a power cut brought back, which is taken away: rename(2) between two names of one inode does
    nothing.
    """
    if names == 1:
        return False
    is_here = whereabouts(root, queue, message_id) in _ENDS
    if not is_here and not has_crossed(root, queue, message_id):
        return False
    unlink_if_there(root.files, path)
    return True
