"""Publishes many messages as one operation: stages all, flushes all files at once, renames all, and
flushes the folders once.

PROTOCOL.md, "publish a batch", has the steps and what a crash after each leaves. A message that
fails does not affect the others. Code per message dominates a batch's cost, beside the system
calls.
"""

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mq.model.errors import (
    DueTooFar,
    MqError,
    NoInodes,
    NoSpace,
    QueueNotFound,
    Unavailable,
    unavailable,
)
from mq.model.history import Event
from mq.model.lifecycle import STAGE
from mq.model.message import Stamp
from mq.model.names import MessageId
from mq.model.totals import Total
from mq.store.core.message_file import stamp_due
from mq.store.core.moves import folders_of, together
from mq.store.core.packed import allow_packs
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import FilesFailed, Flush, Steps
from mq.store.keys.entries import drop_if_stale, enter
from mq.store.operations.publish import Draft, discard, refuse_missing, refuse_old, reveal

_UUID_MS_DIGITS: Final = 13


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one queue with the attributes of `draft`, except for their ids and bodies. A
    message that is not scheduled is due at its id's publish time. `drafts`: one for each message,
    if their attributes differ; all or none are scheduled, and none has a key.
    """

    draft: Draft
    ids: Sequence[MessageId]
    bodies: Sequence[bytes | bytearray]
    drafts: Sequence[Draft] = ()

    @classmethod
    def of(cls, drafts: Sequence[Draft], bodies: Sequence[bytes | bytearray]) -> "Batch":
        """A batch of messages with their own attributes."""
        return cls(drafts[0], [each.id for each in drafts], bodies, drafts)

    @property
    def is_entered(self) -> bool:
        """Whether messages have index entries."""
        return self.draft.id.is_entered or any(each.id.is_entered for each in self.drafts)

    @property
    def heads(self) -> Sequence[bytes]:
        """The header block of each message."""
        if self.drafts:
            return [each.head for each in self.drafts]
        return [self.draft.head] * len(self.ids)


def publish_batch(root: Root, batch: Batch) -> Steps[list[MqError | None]]:
    """Publishes the messages. Returns for each None, or why it was not published: NoSpace,
    QueueNotFound, DueTooFar, and any other Unavailable. Nothing is left behind of failed messages.

    Raises errors of the whole batch: QueueNotFound, Unavailable. After a failed flush of a folder,
    messages may be published anyway. Durable on return: messages with None.
    """
    work = _Work(root, batch)
    scheduled, queue = batch.draft.is_scheduled, batch.draft.queue
    yield from allow_packs(root, batch.ids)
    try:
        work.stage()
        if work.staged:
            yield Flush(files=tuple(work.staged))
    except FilesFailed as failed:
        work.drop(failed.errors.items())
    except BaseException:
        work.discard(work.staged.values())
        raise
    finally:
        work.close()
    if work.staged:
        work.refuse_missing()
    if work.staged and batch.is_entered:
        work.enter()
    flush = work.deliver()
    if flush.folders:
        try:
            yield flush
        except FileNotFoundError:
            if queue_exists(root, queue):
                raise
            # Deleted between the renames and the flush; its messages went with it.
            raise QueueNotFound(queue.text) from None
    if scheduled and not queue_exists(root, queue):
        raise QueueNotFound(queue.text)  # Its messages in delay/ go with it.
    work.record()
    return work.errors


class _Work:
    """One batch in progress. `staged`: the number of each message with a file in new/, by
    descriptor.
    """

    def __init__(self, root: Root, batch: Batch) -> None:
        self.errors: list[MqError | None] = [None] * len(batch.ids)
        self.staged: dict[int, int] = {}
        self._root = root
        self._batch = batch
        self._draft = batch.draft
        self._new = root.layout.beginning(STAGE.target, batch.draft.queue)
        self._open: list[int] = []

    def stage(self) -> None:
        """Writes the messages' files in new/. Raises PublishPurged."""
        refuse_old(self._root, self._draft)
        files, head, drafts = self._root.files, self._draft.head, self._batch.drafts
        needs_room = self._claim()
        due_of, stamp = "", Stamp(self._draft.due_ms)
        for number, message_id in enumerate(self._batch.ids):
            body = self._batch.bodies[number]
            if drafts:
                head, stamp = drafts[number].head, Stamp(drafts[number].due_ms)
            elif not self._draft.is_scheduled and message_id.uuid[:_UUID_MS_DIGITS] != due_of:
                due_of = message_id.uuid[:_UUID_MS_DIGITS]
                stamp = Stamp(message_id.published_ms)
            try:
                if needs_room:
                    self._root.space.claim(len(head) + len(body))
                descriptor = files.create(self._new + message_id.text)
            except (OSError, Unavailable) as error:
                self.errors[number] = self._refusal(error)
                continue
            self._open.append(descriptor)
            self.staged[descriptor] = number
            try:
                files.write(descriptor, head + body if head else body)
                stamp_due(self._root, descriptor, stamp)
            except (OSError, DueTooFar) as error:
                self.drop([(descriptor, error)])

    def drop(self, failed: Iterable[tuple[int, OSError | MqError]]) -> None:
        """Fails messages, given by descriptor with their errors."""
        for descriptor, error in failed:
            self._failed(self.staged.pop(descriptor), error)

    def discard(self, numbers: Iterable[int]) -> None:
        """Removes these messages' files from new/."""
        for number in numbers:
            discard(self._root, self._of(number))

    def close(self) -> None:
        for descriptor in self._open:
            self._root.files.close(descriptor)

    def deliver(self) -> Flush:
        """Renames the staged files to their places. Returns the flush that makes this durable;
        without folders if there is nothing.
        """
        root, draft = self._root, self._draft
        transition, queue = draft.transition, draft.queue
        files, numbers = root.files, list(self.staged.values())
        buckets = self._buckets(numbers)
        beginnings: dict[str, str] = {}
        reached: set[str] = set()
        flushes: dict[Flush, None] = {}
        for number, bucket in zip(numbers, buckets, strict=False):
            name = self._batch.ids[number].text
            beginning = beginnings.get(bucket)
            if beginning is None:
                beginning = root.layout.beginning(transition.target, queue, bucket)
                beginnings[bucket] = beginning
            try:
                files.rename(self._new + name, beginning + name)
            except OSError as error:
                flush = self._deliver_alone(number, error)
                if flush is not None:
                    flushes[flush] = None
            else:
                reached.add(bucket)
        for bucket in sorted(reached):
            flushes[folders_of(root, transition, (queue, ""), (queue, bucket))] = None
        return together(flushes)

    def refuse_missing(self) -> None:
        """Raises QueueNotFound in cases that a rename does not report: into delay/, or on a network
        mount.
        """
        root, draft = self._root, self._draft
        try:
            if draft.is_scheduled or root.over_network:
                refuse_missing(root, draft.queue)
        except (OSError, MqError):
            self.discard(self.staged.values())
            raise

    def enter(self) -> None:
        """Makes the index entries of the staged messages."""
        heads = self._batch.heads
        messages = ((self._batch.ids[each], heads[each]) for each in self.staged.values())
        try:
            enter(self._root, self._draft.queue, messages)
        except (OSError, MqError):
            self.discard(self.staged.values())
            raise

    def record(self) -> None:
        """Records the published messages in the queue's history."""
        history, draft = self._root.history, self._draft
        if not history.is_on(draft.queue):
            ids = self._batch.ids
            published = sum(
                ids[number].items or 1 for number, error in enumerate(self.errors) if error is None
            )
            self._root.totals.add(draft.queue, Total.PUBLISHED, published)
        else:
            for number, error in enumerate(self.errors):
                if error is None:
                    each = self._of(number)
                    due_ms = each.due_ms if draft.is_scheduled else None
                    block = self._batch.heads[number]
                    history.record(draft.queue, Event.PUBLISHED, each.id, 0, due_ms, block=block)

    def _buckets(self, numbers: Sequence[int]) -> list[str]:
        """The bucket of each message; an empty list, and all failed, if settings are unreadable."""
        ids, state = [self._batch.ids[number] for number in numbers], self._draft.transition.target
        try:
            return self._root.places.targets(state, self._draft.queue, ids)
        except (OSError, Unavailable) as error:
            for number in numbers:
                self._failed(number, error)
            return []

    def _deliver_alone(self, number: int, error: OSError) -> Flush | None:
        """Handles a failed rename as any publish does: a missing bucket is made."""
        try:
            if is_gone(error):
                return reveal(self._root, self._of(number))
        except (OSError, MqError) as also:
            self._failed(number, also)
        else:
            self._failed(number, error)
        return None

    def _failed(self, number: int, error: OSError | MqError) -> None:
        """Fails the message, and leaves nothing of it in new/."""
        self.errors[number] = error if isinstance(error, MqError) else unavailable(error)
        self.discard((number,))
        if (message_id := self._batch.ids[number]).is_entered:
            head = self._batch.heads[number]
            drop_if_stale(self._root, self._draft.queue, message_id, head)

    def _claim(self) -> bool:
        """Claims room for all. Returns true if there is none, so that each message claims its
        own.
        """
        size = sum(map(len, self._batch.bodies)) + sum(map(len, self._batch.heads))
        try:
            self._root.space.claim(size, inodes=len(self.errors))
        except (NoSpace, NoInodes):
            return True
        return False

    def _refusal(self, error: OSError | Unavailable) -> Unavailable:
        if isinstance(error, Unavailable):
            return error
        if error.errno == errno.ENOSPC and self._root.space.has_no_inode():
            return NoInodes(str(error))
        return unavailable(error)

    def _of(self, number: int) -> Draft:
        if self._batch.drafts:
            return self._batch.drafts[number]
        return self._draft._replace(id=self._batch.ids[number])
