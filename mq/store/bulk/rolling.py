"""Rolls one journal forward: renames each staged file to its place, once. The caller holds the
journal's lock, which `roll_forward` takes.

After the commit point the publish is a fact, so each step must be repeatable by any process after a
crash anywhere. A staged file that is there has not been moved; a missing one has. The journal ends
after all renames, so no power cut brings back a staged file that no journal publishes, and none of
them is flushed.

PROTOCOL.md, "bulk publishes", has the steps and what a crash after each leaves.
"""

import operator
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mq.model.errors import KeyTaken, QueueNotFound
from mq.model.headers import tags_in_block
from mq.model.lifecycle import DELIVER, FORGET, SCHEDULE, State, Transition
from mq.model.limits import GROUP_OPERATIONS_MAX
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.model.totals import Total
from mq.store.bulk.folds import move_folds
from mq.store.bulk.journal import Journal
from mq.store.bulk.staged import staged_entries, staged_names
from mq.store.core.moves import Move, make_buckets, move
from mq.store.core.recording import record_published
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import mark_of
from mq.store.disk.files import is_gone
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_group
from mq.store.disk.steps import Steps
from mq.store.format.layout import parse_entry
from mq.store.format.pipeline import staged_spot
from mq.store.format.walk import named
from mq.store.keys.entries import enter
from mq.store.keys.keyed import show_linked

# The number of a publish's files that are renamed between two looks at their queue.
ROLLED_PER_LOOK_MAX: Final = 20_000


class Rolled(NamedTuple):
    """Counts of a publish's messages: moved to their places; dropped, because a living message has
    their key; and left staged, because their queue is missing and was not deleted.
    """

    moved: int = 0
    taken: int = 0
    left: int = 0

    def plus(self, other: "Rolled") -> "Rolled":
        return Rolled(*map(sum, zip(self, other, strict=True)))


class _Batch(NamedTuple):
    """Staged messages of an attempt with the same queue and transition."""

    queue: QueueName
    transition: Transition
    ids: Sequence[MessageId]


@dataclass(slots=True)
class Roller:
    """Moves one journal's messages to their places; the caller holds its lock."""

    root: Root
    journal: Journal
    _tags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The tags of a batch's messages, for their queue's history."""

    def run(self) -> Rolled:
        """Moves all staged messages to their places; blocking. Raises OSError, Unavailable. Durable
        on return: no, but the publish is.
        """
        rolled = Rolled()
        for attempt in self.journal.attempts:
            root, job = self.root, self.journal.job
            entries, folders = staged_entries(root, job, attempt)
            spot = staged_spot(job, attempt)
            if folders:
                whole = move_folds(root, job, attempt, folders)
                rolled = rolled.plus(Rolled(moved=whole))
                entries = staged_names(root, job, attempt)
            plain, keyed = self._batches(entries)
            for batch in plain:
                rolled = rolled.plus(self._move(batch, spot))
            for batch in keyed:
                for ids in _parts(batch.ids, GROUP_OPERATIONS_MAX):
                    rolled = rolled.plus(self._move_keyed(batch, ids, spot))
        return rolled

    def _batches(self, entries: "Iterable[os.DirEntry[str]]") -> tuple[list[_Batch], list[_Batch]]:
        """The batches by queue and transition, without keys and with keys."""
        plain: dict[tuple[QueueName, Transition], list[MessageId]] = defaultdict(list)
        keyed: dict[tuple[QueueName, Transition], list[MessageId]] = defaultdict(list)
        has_groups = False
        for entry, (queue, message_id) in named(entries, parse_entry):
            status = None
            if self.journal.is_scheduled:
                status = self.root.files.status(entry.path)
                if status is None:
                    continue
            transition = self._transition(message_id, status)
            has_groups = has_groups or bool(message_id.group)
            (plain if message_id.key is None else keyed)[queue, transition].append(message_id)
        for ids in (*plain.values(), *keyed.values()) if has_groups else ():
            # The order of the renames is the order in which messages become ready.
            ids.sort(key=operator.attrgetter("uuid"))
        return _of(plain, ROLLED_PER_LOOK_MAX), _of(keyed, ROLLED_PER_LOOK_MAX)

    def _transition(self, message_id: MessageId, status: os.stat_result | None) -> Transition:
        """The transition that the message's due time demands. A message without a later due time is
        due at its id's time, perhaps a moment from now.
        """
        if not self.journal.is_scheduled or status is None:
            return DELIVER
        due_ms = Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
        is_later = due_ms > self.root.now_ms() and due_ms != message_id.published_ms
        return SCHEDULE if is_later else DELIVER

    def _move(self, batch: _Batch, spot: str) -> Rolled:
        """Moves messages without keys."""
        root, layout = self.root, self.root.layout
        queue, transition, ids = batch
        if not queue_exists(root, queue):
            return self._without_queue(queue, ids, spot)
        if (mark := mark_of(root, queue)) is not None:
            purged = [each for each in ids if mark.covers(each.uuid)]
            self._take_away(queue, purged, spot)
            ids = [each for each in ids if not mark.covers(each.uuid)]
        targets = root.places.targets(transition.target, queue, ids)
        if queue_exists(root, queue):
            self._enter(queue, ids, spot)
            make_buckets(root, transition, ((queue, each) for each in sorted(set(targets))))
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
        left = frozenset(failed)
        self._record(batch, (each for each in ids if each not in left))
        rolled = Rolled(moved=len(ids) - len(failed))
        for message_id in failed:
            rolled = rolled.plus(self._move_one(batch, message_id, spot))
        return rolled

    def _enter(self, queue: QueueName, ids: Sequence[MessageId], spot: str) -> None:
        """Makes the index entries of messages before they show."""
        root = self.root
        self._tags.clear()
        entered = [each for each in ids if each.is_entered]
        beginning = root.layout.beginning(State.NEW, queue, spot)
        blocks = ((each, self._block(queue, beginning, each)) for each in entered)
        enter(root, queue, blocks)

    def _block(self, queue: QueueName, beginning: str, message_id: MessageId) -> bytes:
        """A staged message's header block, if its index entries depend on it."""
        if not message_id.tags:
            return b""
        try:
            block = self.root.files.read_file(beginning + message_id.text, message_id.header_bytes)
        except FileNotFoundError:
            return b""  # Another process moved it, with its entries.
        if self.root.history.is_on(queue):
            self._tags[message_id.text] = tags_in_block(block)
        return block

    def _move_one(self, batch: _Batch, message_id: MessageId, spot: str) -> Rolled:
        """Moves a message whose rename found nothing: its queue or bucket is gone, or it was moved
        and the answer lost.
        """
        root, queue = self.root, batch.queue
        if root.files.status(root.layout.path(State.NEW, queue, message_id, spot)) is None:
            self._record(batch, (message_id,))
            return Rolled(moved=1)
        if queue_exists(root, queue):
            try:
                move(root, Move(batch.transition, queue, message_id, spot))
                self._record(batch, (message_id,))
                return Rolled(moved=1)
            except OSError as error:
                if not is_gone(error) or queue_exists(root, queue):
                    raise
        return self._without_queue(queue, (message_id,), spot)

    def _without_queue(self, queue: QueueName, ids: Sequence[MessageId], spot: str) -> Rolled:
        """Removes the messages of a deleted queue; without a tombstone the queue was not deleted,
        and they stay.
        """
        root = self.root
        if root.files.status(root.layout.tombstone(queue)) is None:
            return Rolled(left=len(ids))
        return Rolled(moved=self._take_away(queue, ids, spot))

    def _take_away(self, queue: QueueName, ids: Sequence[MessageId], spot: str) -> int:
        """Moves messages to remove/. Returns their number."""
        for message_id in ids:
            try:
                move(self.root, Move(FORGET, queue, message_id, spot))
            except OSError as error:
                if not is_gone(error):
                    raise
        return len(ids)

    def _move_keyed(self, batch: _Batch, ids: Sequence[MessageId], spot: str) -> Rolled:
        """Moves messages with keys, each under its link's lock."""
        mark = mark_of(self.root, batch.queue)
        if mark is not None:
            purged = [each for each in ids if mark.covers(each.uuid)]
            self._take_away(batch.queue, purged, spot)
            ids = [each for each in ids if not mark.covers(each.uuid)]
        if queue_exists(self.root, batch.queue):
            self._enter(batch.queue, ids, spot)
        steps = [self._reveal(batch, each, each.key, spot) for each in ids if each.key is not None]
        rolled = Rolled()
        for outcome in run_group(steps, NoFlusher()):
            if outcome.error is not None:
                raise outcome.error
            rolled = rolled.plus(outcome.value)
        return rolled

    def _reveal(self, batch: _Batch, message_id: MessageId, key: Key, spot: str) -> Steps[Rolled]:
        root, queue, transition = self.root, batch.queue, batch.transition
        staged = root.layout.path(State.NEW, queue, message_id, spot)
        target = root.places.target(transition.target, queue, message_id)

        def show() -> None:
            if root.files.status(staged) is not None:
                move(root, Move(transition, queue, message_id, spot, target))

        try:
            yield from show_linked(root, queue, message_id, None, show)
        except KeyTaken:
            self._take_away(queue, (message_id,), spot)
            return Rolled(taken=1)
        except (QueueNotFound, FileNotFoundError):
            if queue_exists(root, queue):
                raise
            return self._without_queue(queue, (message_id,), spot)
        self._record(batch, (message_id,))
        return Rolled(moved=1)

    def _record(self, batch: _Batch, ids: Iterable[MessageId]) -> None:
        """Counts the published messages and records them in the queue's history."""
        published = tuple(ids)
        self.root.totals.add(batch.queue, Total.PUBLISHED, len(published))
        state = batch.transition.target
        record_published(self.root, batch.queue, published, state, self._tags)


def _of(found: dict[tuple[QueueName, Transition], list[MessageId]], size: int) -> list[_Batch]:
    return [
        _Batch(queue, transition, part)
        for (queue, transition), ids in found.items()
        for part in _parts(ids, size)
    ]


def _parts(ids: Sequence[MessageId], size: int) -> Iterator[Sequence[MessageId]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
