"""Publishing many messages as one operation: all are staged, one flush of all their files, all are
renamed, one flush of the folders.

FORMAT.md, "publish a batch", has the steps and what a crash after each leaves. One message's
failure is its own; what each message costs here beside its system calls is what a batch costs.
"""

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mq.model.errors import MqError, NoInodes, NoSpace, QueueNotFound, Unavailable, unavailable
from mq.model.history import Event
from mq.model.lifecycle import STAGE
from mq.model.message import Stamp
from mq.model.names import MessageId
from mq.store.core.moves import folders_of, together
from mq.store.core.root import Root
from mq.store.core.stamping import stamp_due
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import FilesFailed, Flush, Steps
from mq.store.operations.publish import Draft, assure_queue, discard, refuse_old, reveal

_UUID_MS_DIGITS: Final = 13


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one queue of which the same is said, by `draft`, but for their ids and bodies.
    One that is not scheduled is due when its id says that it was published.
    """

    draft: Draft
    ids: Sequence[MessageId]
    bodies: Sequence[bytes]


def publish_batch(root: Root, batch: Batch) -> Steps[list[MqError | None]]:
    """Publishes the messages; for each None, or why it was not published: NoSpace, QueueNotFound,
    and whatever else of Unavailable. Of those nothing is left behind.

    Raises what fails all of them: QueueNotFound, DueTooFar, Unavailable; after a failed flush of
    a folder they may be there all the same. Durable on return: those with None.
    """
    work = _Work(root, batch)
    scheduled, queue = batch.draft.is_scheduled, batch.draft.queue
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
        yield from work.assure_queue()
    flush = work.deliver()
    if flush.folders:
        try:
            yield flush
        except FileNotFoundError:
            if queue_exists(root, queue):
                raise
            # Deleted between the renames and the flush; the messages went with their queue.
            raise QueueNotFound(queue.text) from None
    if scheduled and not queue_exists(root, queue):
        raise QueueNotFound(queue.text)  # What it has in delay/ goes with it.
    work.record()
    return work.errors


class _Work:
    """One batch on its way. `staged`: the number of each message that has a file in new/, by its
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
        """Writes each message's file in new/. Raises DueTooFar, PublishPurged."""
        refuse_old(self._root, self._draft)
        files, head = self._root.files, self._draft.head
        needs_room = self._claim()
        due_of, stamp = "", Stamp(self._draft.due_ms)
        for number, message_id in enumerate(self._batch.ids):
            body = self._batch.bodies[number]
            if not self._draft.is_scheduled and message_id.uuid[:_UUID_MS_DIGITS] != due_of:
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
            except OSError as error:
                self.drop([(descriptor, error)])

    def drop(self, failed: Iterable[tuple[int, OSError]]) -> None:
        """Those are not published; an error for each, by its descriptor."""
        for descriptor, error in failed:
            self._failed(self.staged.pop(descriptor), error)

    def discard(self, numbers: Iterable[int]) -> None:
        """Takes these messages' files in new/ away."""
        for number in numbers:
            discard(self._root, self._of(number))

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self._open:
            self._root.files.close(descriptor)

    def deliver(self) -> Flush:
        """Renames what is staged to its places; gives what makes that durable, no folders when
        there is nothing.
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
            flushes[folders_of(root, transition, queue, target=bucket)] = None
        return together(flushes)

    def assure_queue(self) -> Steps[None]:
        """Raises QueueNotFound where no rename would say it: into delay/, or on a network mount."""
        root, draft = self._root, self._draft
        try:
            if draft.is_scheduled:
                yield from assure_queue(root, draft)
            elif root.over_network and not queue_exists(root, draft.queue):
                raise QueueNotFound(draft.queue.text)
        except (OSError, MqError):
            self.discard(self.staged.values())
            raise

    def record(self) -> None:
        """Tells the queue's history of those that are published."""
        history, draft = self._root.history, self._draft
        if history.is_on(draft.queue):
            due_ms = draft.due_ms if draft.is_scheduled else None
            for message_id, error in zip(self._batch.ids, self.errors, strict=True):
                if error is None:
                    history.record(draft.queue, Event.PUBLISHED, message_id, 0, due_ms)

    def _buckets(self, numbers: Sequence[int]) -> list[str]:
        """Where each goes; nowhere, all having failed, when nobody can tell."""
        ids, state = [self._batch.ids[number] for number in numbers], self._draft.transition.target
        try:
            return self._root.places.targets(state, self._draft.queue, ids)
        except (OSError, Unavailable) as error:
            for number in numbers:
                self._failed(number, error)
            return []

    def _deliver_alone(self, number: int, error: OSError) -> Flush | None:
        """What its rename's failure means, as for any publish: its bucket may lack."""
        try:
            if is_gone(error):
                return reveal(self._root, self._of(number))
        except (OSError, MqError) as also:
            self._failed(number, also)
        else:
            self._failed(number, error)
        return None

    def _failed(self, number: int, error: OSError | MqError) -> None:
        """It is not published: nothing of it is left in new/."""
        self.errors[number] = error if isinstance(error, MqError) else unavailable(error)
        self.discard((number,))

    def _claim(self) -> bool:
        """Counts on room for all; whether there is not, so that each one asks for its own."""
        size = sum(map(len, self._batch.bodies)) + len(self._draft.head) * len(self.errors)
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
        return replace(self._draft, id=self._batch.ids[number])
