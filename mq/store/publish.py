"""Publishing: a new file in new/, written and flushed, then one rename to its queue.

FORMAT.md, "publish", has the steps and what a crash after each leaves.
"""

import errno
from dataclasses import dataclass

from mq.errors import MqError, NoInodes, QueueNotFound, StagedFileGone, Unavailable
from mq.lifecycle import DELIVER, DISCARD, SCHEDULE, STAGE, Transition
from mq.message import Stamp
from mq.names import Key, MessageId, QueueName
from mq.store.files import is_gone
from mq.store.moves import folders_of, move, queue_exists
from mq.store.root import Root
from mq.store.stamping import stamp_due
from mq.store.steps import Flush, Steps


@dataclass(frozen=True, slots=True)
class Draft:
    """A message as it is published: due at `due_ms`, milliseconds since the epoch, and until then
    in delay/ when it `is_scheduled`. `head` is the header block before its body.
    """

    queue: QueueName
    id: MessageId
    due_ms: int
    is_scheduled: bool = False
    head: bytes = b""
    idempotency: Key | None = None

    @property
    def transition(self) -> Transition:
        """How it leaves new/."""
        return SCHEDULE if self.is_scheduled else DELIVER


def publish(root: Root, draft: Draft, body: bytes | bytearray) -> Steps[MessageId]:
    """Publishes a message whose body is held in memory.

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
    return (yield from deliver(root, draft))


def stage(root: Root, draft: Draft, size: int = 0) -> int:
    """Opens the message's new file in new/ for a body of at least `size` bytes; its descriptor,
    for writing, behind its header block. Raises NoSpace, NoInodes. Durable on return: no.
    """
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


def deliver(root: Root, draft: Draft) -> Steps[MessageId]:
    """Renames a staged file, whose bytes are on stable media, to its queue, or to delay/ when it is
    scheduled.

    Raises QueueNotFound, SettingsUnreadable, Busy, and takes the file away; StagedFileGone when
    it lay in new/ for so long that it was taken for forgotten. Durable on return: yes.
    """
    if draft.is_scheduled:
        try:
            yield from assure_queue(root, draft)
        except (OSError, MqError):
            discard(root, draft)
            raise
    flush = place(root, draft)
    try:
        yield flush
    except FileNotFoundError:
        if queue_exists(root, draft.queue):
            raise  # It is new/ that is gone.
        # Deleted between the rename and the flush; the message went with its queue.
        raise QueueNotFound(draft.queue.text) from None
    if draft.is_scheduled and not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)  # What it has in delay/ goes with it.
    return draft.id


def assure_queue(root: Root, draft: Draft) -> Steps[None]:
    """No rename into delay/ says that the queue is gone; and whoever made it may have died before
    its own flush: a power cut would leave a message that has no queue to go to.
    """
    yield Flush(entries=(root.layout.queue(draft.queue),))
    if not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)


def place(root: Root, draft: Draft) -> Flush:
    """Renames a staged file to its place; gives what makes that durable. Raises as `deliver`, and
    takes the file away.
    """
    target, transition = "", draft.transition
    try:
        target = root.places.target(transition.target, draft.queue, draft.id)
        return move(root, transition, draft.queue, draft.id, target=target)
    except OSError as error:
        if not is_gone(error):
            discard(root, draft)
            raise
        return _after_gone(root, draft, target)
    except Unavailable:
        discard(root, draft)
        raise


def discard(root: Root, draft: Draft) -> None:
    """Takes a staged file away whose publish failed; nobody was told of it."""
    try:
        root.files.unlink(root.layout.path(DISCARD.source, draft.queue, draft.id))
    except OSError:
        return  # What stays is never delivered, and goes when it is an hour old.


def _after_gone(root: Root, draft: Draft, target: str) -> Flush:
    """A rename that said ENOENT: NFS may have done it and lost the answer; else say what lacks."""
    delivered = root.layout.path(draft.transition.target, draft.queue, draft.id, target)
    if root.files.status(delivered) is not None:
        return folders_of(root, draft.transition, draft.queue, target=target)
    discard(root, draft)
    if not queue_exists(root, draft.queue):
        raise QueueNotFound(draft.queue.text)
    raise StagedFileGone("its file in new/ is gone")
