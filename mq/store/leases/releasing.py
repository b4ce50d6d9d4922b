"""Releases a lease's messages to their queues: it lapsed, or its consumer released it.

PROTOCOL.md, "give a lease back", has the steps. If the process dies, the next one continues.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from mq.model.errors import Busy, LeaseLost, SettingsUnreadable
from mq.model.history import Event, Told
from mq.model.lifecycle import RETURN, RETURN_DELAYED, State, Transition
from mq.model.limits import RECEIVES_MAX
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, items_of
from mq.model.totals import Total
from mq.store.core.moves import (
    BUCKET_TRIES_MAX,
    claimed,
    claimed_path,
    folders_of,
    make_buckets,
    together,
)
from mq.store.core.root import Root, rename_once
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import is_purged
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Place, parse_entry
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path
from mq.store.format.walk import entries_if_there, named
from mq.store.leases.manifest import LEASED_MESSAGES_MAX
from mq.store.operations.remove import take_away
from mq.store.operations.sideline import is_at_its_limit

# Messages that are released between two flushes.
RETURNED_PER_FLUSH_MAX: Final = 1_000

_Target: TypeAlias = tuple[Transition, QueueName, str]
"""A message's transition, its queue, and its bucket there."""


@dataclass(frozen=True, slots=True)
class Released:
    """The results for a lease's messages. `returned`: to their queues or, at their queue's
    `max_receives`, to delay/ as due. `removed`: purged, or of a deleted queue. `stuck`: their queue
    is missing but was not deleted, its settings are unreadable, or another process has them locked.
    While any are stuck, or `more` remain, the release is not complete.
    """

    returned: int = 0
    removed: int = 0
    stuck: int = 0
    more: bool = False


class Release(Enum):
    NOT_DUE = "it is not due yet"
    BUSY = "another process has it locked"
    ENDED = "it ended before, or is not known"


def release(root: Root, lease: LeaseName) -> Steps[Released]:
    """Releases the lease's messages now: each has one more receive. Raises LeaseLost if the lease
    ended before; Busy if another process is releasing it; Unavailable, OSError. Durable on return:
    yes, its end and the messages' places; perhaps not their receives.
    """
    released = yield from give_back(root, lease, only_due=False)
    if isinstance(released, Released):
        return released
    if released is Release.BUSY:
        raise Busy("another process is at the lease")
    raise LeaseLost(lease.text)


def give_back(
    root: Root, lease: LeaseName, *, only_due: bool, limit: int = LEASED_MESSAGES_MAX
) -> Steps[Released | Release]:
    """Releases the lease, or continues with that, for some `limit` messages; with `only_due` only
    if the lease is due. Raises Unavailable, OSError. Durable on return: as `release`.
    """
    file = _manifest(root, lease)
    with claimed_path(root, lease_path(root.layout, lease, file)) as claim:
        if claim is None:
            return Release.BUSY if _is_there(root, lease) else Release.ENDED
        due_ms, now_ms = claim.stamp.due_ms, root.now_ms()
        if not _is_there(root, lease, LeaseFile.RELEASED):
            if only_due and due_ms > now_ms:
                return Release.NOT_DUE
            try:
                _rename(root, lease)
            except OSError as error:
                if not is_gone(error):
                    raise
                return Release.ENDED
        if due_ms > now_ms:
            due_ms = now_ms
            root.files.stamp(claim.descriptor, Stamp(due_ms).mtime_ns())
        event = Event.REDELIVERED if only_due else Event.RELEASED
        released = yield from _Return(root, lease, due_ms, limit, event).run()
        if not released.stuck and not released.more:
            yield from _end(root, lease, file)
        return released


@dataclass(slots=True)
class _Return:
    """The messages of one lease on their way back."""

    root: Root
    lease: LeaseName
    due_ms: int
    limit: int
    event: Event
    """The event for the messages' histories."""
    returned: int = 0
    removed: int = 0

    def run(self) -> Steps[Released]:
        """Repeats passes until one moves nothing."""
        moved, stuck = yield from self._pass(self.limit)
        more = moved + stuck >= self.limit
        if more and moved:
            return Released(self.returned, self.removed, 0, more=True)
        for _ in range(BUCKET_TRIES_MAX):
            if not stuck:
                break
            # All messages: stuck ones must not hide others.
            moved, stuck = yield from self._pass(None)
            if not moved:
                break
        return Released(self.returned, self.removed, stuck)

    def _pass(self, limit: int | None) -> Steps[tuple[int, int]]:
        before, met = self.returned + self.removed, 0
        entries = self._entries(limit)
        while chunk := list(itertools.islice(entries, RETURNED_PER_FLUSH_MAX)):
            met += sum(message_id.items or 1 for _, message_id in chunk)
            yield from self._chunk(chunk)
        moved = self.returned + self.removed - before
        return moved, met - moved

    def _entries(self, limit: int | None) -> Iterator[tuple[QueueName, MessageId]]:
        # Read at once: an entry that is renamed meanwhile may be listed twice, or hide others.
        folder = lease_path(self.root.layout, self.lease, LeaseFile.RELEASED)
        entries = itertools.islice(entries_if_there(self.root.files, folder), limit)
        return (of for _, of in named(list(entries), parse_entry))

    def _chunk(self, chunk: Sequence[tuple[QueueName, MessageId]]) -> Steps[None]:
        by_queue: dict[QueueName, list[MessageId]] = {}
        for queue, message_id in chunk:
            if is_purged(self.root, queue, message_id):
                self._remove(queue, message_id, Total.PURGED)
            else:
                by_queue.setdefault(queue, []).append(message_id)
        targets: dict[_Target, list[MessageId]] = {}
        for queue, ids in by_queue.items():
            for act, message_id, bucket in self._targets(queue, ids):
                targets.setdefault((act, queue, bucket), []).append(message_id)
        try:
            for act in (RETURN, RETURN_DELAYED):
                make_buckets(self.root, act, [each[1:] for each in targets if each[0] is act])
        except OSError as error:
            if not is_gone(error):
                raise
            targets = {}  # A queue was deleted meanwhile; the next pass decides.
        flushes: dict[Flush, None] = {}
        moved: dict[tuple[Transition, QueueName], list[Told]] = {}
        for (act, queue, bucket), ids in targets.items():
            back = moved.setdefault((act, queue), [])
            flushes |= dict.fromkeys(self._move(act, queue, bucket, ids, back))
        folder = lease_path(self.root.layout, self.lease, LeaseFile.RELEASED)
        # If all messages were removed or had moved on, flush where they left.
        flush = together(flushes) if flushes else Flush(folders=(folder,))
        with contextlib.suppress(FileNotFoundError):  # A queue that was deleted meanwhile.
            yield flush
        for (act, queue), back in moved.items():
            event = self.event if act is RETURN else Event.RELEASED
            self._count(queue, event, back)
            self.root.history.record_many(queue, event, back, self.lease.text)

    def _count(self, queue: QueueName, event: Event, back: Sequence[Told]) -> None:
        if event is Event.RELEASED:
            count = sum(items_of(each.id) for each in back)
            self.root.totals.add(queue, Total.RELEASED, count)

    def _targets(
        self, queue: QueueName, ids: Sequence[MessageId]
    ) -> Iterator[tuple[Transition, MessageId, str]]:
        """Each message's transition and destination. Messages of deleted queues are removed; others
        without a destination stay. Messages at their `max_receives` go to delay/, from where
        mq-mover sidelines them.
        """
        root = self.root
        if not queue_exists(root, queue):
            if root.files.status(root.layout.tombstone(queue)) is not None:
                for message_id in ids:
                    self._remove(queue, message_id)
            return
        by_act: dict[Transition, list[MessageId]] = {}
        for message_id in ids:
            ends = self._is_at_its_limit(queue, message_id)
            by_act.setdefault(RETURN_DELAYED if ends else RETURN, []).append(message_id)
        for act, of in by_act.items():
            with contextlib.suppress(SettingsUnreadable):
                targets = root.places.targets(act.target, queue, of)
                yield from ((act, *each) for each in zip(of, targets, strict=True))

    def _is_at_its_limit(self, queue: QueueName, message_id: MessageId) -> bool:
        if not is_at_its_limit(self.root, queue, RECEIVES_MAX):
            return False  # The queue has no limit, so the stamp does not matter.
        spot = self.lease.released_spot
        status = self.root.files.status(
            self.root.layout.path(RETURN.source, queue, message_id, spot)
        )
        return status is not None and is_at_its_limit(
            self.root, queue, self._received(Stamp.from_mtime_ns(status.st_mtime_ns)).attempts
        )

    def _move(
        self,
        act: Transition,
        queue: QueueName,
        bucket: str,
        ids: Sequence[MessageId],
        back: list[Told],
    ) -> Iterator[Flush]:
        layout, files, spot = self.root.layout, self.root.files, self.lease.released_spot
        source = layout.beginning(act.source, queue, spot)
        target = layout.beginning(act.target, queue, bucket)
        for message_id in ids:
            with claimed(self.root, Place(act.source, queue, message_id, spot)) as claim:
                if claim is None:
                    continue
                stamp = self._received(claim.stamp)
                if stamp != claim.stamp:
                    files.stamp(claim.descriptor, stamp.mtime_ns())
                try:
                    files.rename(source + message_id.text, target + message_id.text)
                except OSError as error:
                    if not is_gone(error):
                        raise
                    continue  # Its bucket or queue was removed; the next pass decides.
            self.returned += message_id.items or 1
            due_ms = None if act is RETURN else stamp.due_ms
            back.append(Told(message_id.text, stamp.receives, due_ms))
            yield folders_of(self.root, act, (queue, spot), (queue, bucket))

    def _received(self, stamp: Stamp) -> Stamp:
        """The stamp with one more receive. Counts once, also after a process that stamped it died
        before the move.
        """
        return stamp if stamp.due_ms == self.due_ms else stamp.received(self.due_ms)

    def _remove(
        self, queue: QueueName, message_id: MessageId, counted: Total | None = None
    ) -> None:
        spot = self.lease.released_spot
        if take_away(self.root, Place(State.LEASED, queue, message_id, spot)):
            self.removed += message_id.items or 1
            if counted is not None:
                self.root.totals.add(queue, counted, message_id.items or 1)


def _manifest(root: Root, lease: LeaseName) -> LeaseFile:
    """The lease's file that has its due time."""
    for file in (LeaseFile.MANIFEST, LeaseFile.LAPSED):
        if root.files.status(lease_path(root.layout, lease, file)) is not None:
            return file
    return LeaseFile.MANIFEST


def _is_there(root: Root, lease: LeaseName, *files: LeaseFile) -> bool:
    return any(
        root.files.status(lease_path(root.layout, lease, file)) is not None
        for file in files or (LeaseFile.FOLDER, LeaseFile.RELEASED)
    )


def _rename(root: Root, lease: LeaseName) -> None:
    """Ends the lease, unless it has ended, under the manifest's lock, as every end of a lease."""
    files = (LeaseFile.FOLDER, LeaseFile.RELEASED)
    rename_once(root.files, *(lease_path(root.layout, lease, file) for file in files))


def _end(root: Root, lease: LeaseName, file: LeaseFile) -> Steps[None]:
    """Records that the lease lapsed, then removes the empty folder: a manifest without a folder
    would mean that it was acknowledged.
    """
    lapsed = lease_path(root.layout, lease, LeaseFile.LAPSED)
    if file is not LeaseFile.LAPSED:
        root.files.rename(lease_path(root.layout, lease, file), lapsed)
    folder = lease_path(root.layout, lease, LeaseFile.RELEASED)
    with contextlib.suppress(FileNotFoundError):
        root.files.rmdir(folder)
    yield Flush(folders=(root.layout.leases,))
