"""Publishing: a new file in new/, written and flushed, then one rename to its queue.

PROTOCOL.md, "publish", has the steps and what a crash after each leaves.
"""

import errno
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mq.model.errors import NoInodes, PublishPurged, QueueNotFound, StagedFileGone
from mq.model.history import Event
from mq.model.lifecycle import DELIVER, DISCARD, SCHEDULE, STAGE, Transition
from mq.model.limits import IDEMPOTENCY_S_DEFAULT
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.message_file import stamp_due
from mq.store.core.moves import Move, folders_of, move
from mq.store.core.packed import allow_packs
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import covering_mark
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys
from mq.store.keys.entries import drop_if_stale, enter
from mq.store.keys.keyed import Once, PublishedBefore, is_named, show_linked


class Draft(NamedTuple):
    """A message to publish, due at `due_ms`, in milliseconds since the epoch; in delay/ until then
    if it `is_scheduled`. `head`: the header block before its body. Publishes with one `idempotency`
    key are one publish, for `idempotency_s` seconds from the first one. Publishes with one `firing`
    of a schedule are one publish, as long as the firing is known.
    """

    queue: QueueName
    id: MessageId
    due_ms: int
    is_scheduled: bool = False
    head: bytes = b""
    idempotency: Key | None = None
    idempotency_s: float = IDEMPOTENCY_S_DEFAULT
    firing: Key | None = None

    @property
    def once(self) -> Once | None:
        """Its identity for deduplication; None: it has none."""
        if self.firing is not None:
            return Once(Keys.FIRING, self.firing, math.inf)
        if self.idempotency is not None:
            return Once(Keys.IDEMPOTENCY, self.idempotency, self.idempotency_s)
        return None

    @property
    def is_linked(self) -> bool:
        """Whether it has a key of any kind."""
        is_once = self.idempotency is not None or self.firing is not None
        return is_once or self.id.key is not None

    @property
    def transition(self) -> Transition:
        return SCHEDULE if self.is_scheduled else DELIVER


def _nothing() -> None:
    """The default check before a message shows."""


def publish(
    root: Root,
    draft: Draft,
    body: bytes | bytearray,
    look_again: Callable[[], None] = _nothing,
) -> Steps[MessageId]:
    """Publishes a message with its body in memory. Calls `look_again` after the links are made and
    before the message shows; an error that it raises ends the publish.

    Raises QueueNotFound, NoSpace, NoInodes, and leaves nothing behind then. Durable on return: yes.
    """
    if draft.id.items:
        yield from allow_packs(root, (draft.id,))
    descriptor = stage(root, draft, len(body))
    try:
        root.files.write(descriptor, body)
        stamp_due(root, descriptor, Stamp(draft.due_ms))
        yield Flush(files=(descriptor,))
    except BaseException:
        discard(root, draft)
        raise
    finally:
        root.files.close(descriptor)
    return (yield from deliver(root, draft, look_again))


def stage(root: Root, draft: Draft, size: int = 0) -> int:
    """Creates the message's file in new/ for a body of at least `size` bytes, and writes its header
    block. Returns the descriptor, for the body. Raises NoSpace, NoInodes, PublishPurged. Durable on
    return: no.
    """
    refuse_old(root, draft)
    root.space.claim(size + len(draft.head))
    try:
        descriptor = root.files.create(root.layout.path(STAGE.target, draft.queue, draft.id))
    except OSError as error:
        if error.errno == errno.ENOSPC and root.space.has_no_inode():
            raise NoInodes(str(error)) from error
        raise
    if draft.head:
        try:
            root.files.write(descriptor, draft.head)
        except BaseException:
            root.files.close(descriptor)
            discard(root, draft)
            raise
    return descriptor


def refuse_old(root: Root, draft: Draft) -> None:
    """Raises PublishPurged for an id before the queue's purge mark: its message would never be
    delivered.
    """
    if (mark := covering_mark(root, draft.queue, draft.id)) is not None:
        raise PublishPurged(mark.ms)


def append(root: Root, descriptor: int, data: bytes | bytearray) -> None:
    """Writes the next bytes of a staged file. Raises NoSpace. Durable on return: no."""
    root.space.claim(len(data), inodes=0)
    root.files.write(descriptor, data)


def seal(root: Root, draft: Draft, descriptor: int) -> None:
    """Completes a staged file that was written in parts: sets its mtime and flushes it. Raises
    DueTooFar.

    Durable on return: the file, not its place; `deliver` does the rest.
    """
    stamp_due(root, descriptor, Stamp(draft.due_ms))
    root.files.sync(descriptor)


def deliver(
    root: Root, draft: Draft, look_again: Callable[[], None] = _nothing
) -> Steps[MessageId]:
    """Renames a staged file, whose bytes are on stable media, to its queue, or to delay/ if it is
    scheduled, after making its links. Returns its id; or the id of an earlier publish with the same
    idempotency key, and unlinks this file.

    Raises QueueNotFound, KeyTaken, SettingsUnreadable, Busy, and unlinks the file; StagedFileGone
    if the file was in new/ for so long that it was swept as abandoned. Durable on return: yes.
    """
    show = partial(_show, root, draft, look_again)
    try:
        if draft.id.is_entered:
            enter(root, draft.queue, ((draft.id, draft.head),))
        if draft.is_scheduled:
            refuse_missing(root, draft.queue)
        if draft.is_linked:
            flush = yield from show_linked(root, draft.queue, draft.id, draft.once, show)
        else:
            flush = show()
    except PublishedBefore as before:
        discard(root, draft)
        drop_if_stale(root, draft.queue, draft.id, draft.head)
        return before.first
    except Exception:
        if not is_named(root, draft.queue, draft.id, draft.once):
            discard(root, draft)
        drop_if_stale(root, draft.queue, draft.id, draft.head)
        raise
    try:
        yield flush
    except FileNotFoundError:
        if queue_exists(root, draft.queue):
            raise  # new/ itself is gone.
        # Deleted between the rename and the flush; the message went with it.
        raise QueueNotFound(draft.queue.text) from None
    if draft.is_scheduled and not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)  # Its messages in delay/ go with it.
    due_ms = draft.due_ms if draft.is_scheduled else None
    root.history.record(draft.queue, Event.PUBLISHED, draft.id, 0, due_ms, block=draft.head)
    return draft.id


def _show(root: Root, draft: Draft, look_again: Callable[[], None]) -> Flush:
    look_again()
    return reveal(root, draft)


def reveal(root: Root, draft: Draft) -> Flush:
    """Renames a staged file to its place. Returns the flush that makes this durable. Raises as
    `deliver`.
    """
    target, transition = "", draft.transition
    try:
        target = root.places.target(transition.target, draft.queue, draft.id)
        return move(root, Move(transition, draft.queue, draft.id, target=target))
    except OSError as error:
        if not is_gone(error):
            raise
        return _after_gone(root, draft, target)


def refuse_missing(root: Root, queue: QueueName) -> None:
    """Raises QueueNotFound, for a rename into delay/, which does not fail for a missing queue."""
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)


def discard(root: Root, draft: Draft) -> None:
    """Unlinks the staged file of a failed publish, which was not acknowledged."""
    try:
        root.files.unlink(root.layout.path(DISCARD.source, draft.queue, draft.id))
    except OSError:
        return  # A remaining file is never delivered, and is swept after an hour.


def _after_gone(root: Root, draft: Draft, target: str) -> Flush:
    """Handles ENOENT of a rename: NFS may have done it and lost the answer. Otherwise raises the
    error of the missing part.
    """
    delivered = root.layout.path(draft.transition.target, draft.queue, draft.id, target)
    if root.files.status(delivered) is not None:
        return folders_of(root, draft.transition, (draft.queue, ""), (draft.queue, target))
    if not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)
    raise StagedFileGone("its file in new/ is gone")
