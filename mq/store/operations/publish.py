"""Publishing: a new file in new/, written and flushed, then one rename to its queue.

FORMAT.md, "publish", has the steps and what a crash after each leaves.
"""

import errno
import math
from collections.abc import Callable
from dataclasses import dataclass

from mq.model.errors import NoInodes, PublishPurged, QueueNotFound, StagedFileGone
from mq.model.history import Event
from mq.model.lifecycle import DELIVER, DISCARD, SCHEDULE, STAGE, State, Transition
from mq.model.limits import FORGOTTEN_AFTER_S, IDEMPOTENCY_S_DEFAULT
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.store.core.moves import folders_of, move
from mq.store.core.purged import mark_of
from mq.store.core.root import Root
from mq.store.core.stamping import stamp_due
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import Keys
from mq.store.keys.holders import DELIVERED, free_key, has_crossed, kept_flush, whereabouts
from mq.store.keys.keyed import Once, give_back, take_links


@dataclass(frozen=True, slots=True)
class Draft:
    """A message as it is published: due at `due_ms`, milliseconds since the epoch, and until then
    in delay/ when it `is_scheduled`. `head` is the header block before its body. Publishes of one
    `idempotency` key are one publish, for `idempotency_s` seconds from the first one on; those of
    one `firing` of a schedule are as long as anybody knows of it.
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
        """What makes it one with other publishes."""
        if self.firing is not None:
            return Once(Keys.FIRING, self.firing, math.inf)
        if self.idempotency is not None:
            return Once(Keys.IDEMPOTENCY, self.idempotency, self.idempotency_s)
        return None

    @property
    def is_linked(self) -> bool:
        """Whether it has a key of one kind or another."""
        return self.id.key is not None or self.once is not None

    @property
    def transition(self) -> Transition:
        """How it leaves new/."""
        return SCHEDULE if self.is_scheduled else DELIVER


def _nothing() -> None:
    """What is looked at before a message shows: for most nothing more."""


def publish(
    root: Root,
    draft: Draft,
    body: bytes | bytearray,
    look_again: Callable[[], None] = _nothing,
) -> Steps[MessageId]:
    """Publishes a message whose body is held in memory. `look_again` is called once its links are
    there, before it shows: what that raises ends the publish.

    Raises QueueNotFound, NoSpace, NoInodes; nothing is left behind then.
    Durable on return: yes.
    """
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
    """Opens the message's new file in new/ for a body of at least `size` bytes; its descriptor,
    for writing, behind its header block. Raises NoSpace, NoInodes, PublishPurged. Durable on
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
    """Raises PublishPurged for an id that is older than the queue's purge: what is published with
    it from here on would never be served.
    """
    if (mark := mark_of(root, draft.queue)) is not None and mark.covers(draft.id.uuid):
        raise PublishPurged(mark.ms)


def append(root: Root, descriptor: int, data: bytes | bytearray) -> None:
    """Writes a staged file's next bytes. Raises NoSpace. Durable on return: no."""
    root.space.claim(len(data), inodes=0)
    root.files.write(descriptor, data)


def seal(root: Root, draft: Draft, descriptor: int) -> None:
    """Ends a staged file that was written bit by bit: its time, and its own fsync. Raises
    DueTooFar.

    Durable on return: the file, not its place; `deliver` does the rest.
    """
    stamp_due(root, descriptor, Stamp(draft.due_ms))
    root.files.sync(descriptor)


def deliver(
    root: Root, draft: Draft, look_again: Callable[[], None] = _nothing
) -> Steps[MessageId]:
    """Renames a staged file, whose bytes are on stable media, to its queue, or to delay/ when it is
    scheduled; with its links made before. Its id; or that of an earlier publish of the same
    idempotency key, and this one's file is taken away.

    Raises QueueNotFound, KeyTaken, SettingsUnreadable, Busy, and takes the file away;
    StagedFileGone when it lay in new/ for so long that it was taken for forgotten.
    Durable on return: yes.
    """
    try:
        if draft.is_linked:
            first = yield from take_links(root, draft.queue, draft.id, draft.once)
            if first is not None:
                discard(root, draft)
                return first
        if draft.is_scheduled:
            yield from assure_queue(root, draft)
        look_again()
        flush = reveal(root, draft)
    except Exception:
        if draft.is_linked:
            yield from _give_up(root, draft)
        else:
            discard(root, draft)
        raise
    try:
        yield flush
    except FileNotFoundError:
        if queue_exists(root, draft.queue):
            raise  # It is new/ that is gone.
        # Deleted between the rename and the flush; the message went with its queue.
        raise QueueNotFound(draft.queue.text) from None
    if draft.is_scheduled and not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)  # What it has in delay/ goes with it.
    due_ms = draft.due_ms if draft.is_scheduled else None
    root.history.record(draft.queue, Event.PUBLISHED, draft.id, 0, due_ms)
    return draft.id


def reveal(root: Root, draft: Draft) -> Flush:
    """Renames a staged file to its place; what makes that durable. Raises as `deliver`."""
    target = ""
    try:
        target = root.places.target(draft.transition.target, draft.queue, draft.id)
        return move(root, draft.transition, draft.queue, draft.id, target=target)
    except OSError as error:
        if not is_gone(error):
            raise
        return _after_gone(root, draft, target)


def _give_up(root: Root, draft: Draft) -> Steps[None]:
    """Leaves nothing of a publish that failed; or, where that cannot be, all that it takes to end
    it: who publishes with the same idempotency key does, or mq-mover takes it away.
    """
    if (yield from give_back(root, draft.queue, draft.id, draft.once)):
        discard(root, draft)
        free_key(root, draft.queue, draft.id, was_staged=True)


def assure_queue(root: Root, draft: Draft) -> Steps[None]:
    """No rename into delay/ says that the queue is gone; and whoever made it may have died before
    its own flush: a power cut would leave a message that has no queue to go to.
    """
    yield Flush(entries=(root.layout.queue(draft.queue),))
    if not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)


def discard(root: Root, draft: Draft) -> None:
    """Takes a staged file away whose publish failed; nobody was told of it."""
    try:
        root.files.unlink(root.layout.path(DISCARD.source, draft.queue, draft.id))
    except OSError:
        return  # What stays is never delivered, and goes when it is an hour old.


def _after_gone(root: Root, draft: Draft, target: str) -> Flush:
    """A rename that said ENOENT: NFS may have done it and lost the answer, or somebody who met the
    message's link has delivered it; else say what lacks.
    """
    delivered = root.layout.path(draft.transition.target, draft.queue, draft.id, target)
    if root.files.status(delivered) is not None:
        return folders_of(root, draft.transition, draft.queue, target=target)
    if not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)
    if draft.is_linked and _was_delivered(root, draft):
        return kept_flush(root, draft.queue, draft.id)
    raise StagedFileGone("its file in new/ is gone")


def _was_delivered(root: Root, draft: Draft) -> bool:
    """Whether it is, or was removed since; not because it was taken for forgotten."""
    state = whereabouts(root, draft.queue, draft.id)
    if state is State.REMOVED:
        # By wall time: the process that forgot the file may not have seen the step.
        return root.now_ms() - draft.id.published_ms < FORGOTTEN_AFTER_S * 1000
    return state in DELIVERED or has_crossed(root, draft.queue, draft.id)
