"""Publishing: files in new/, written and flushed together; then each is renamed to its queue, and
the folders are flushed once. One message is a list of one. A message that fails does not affect the
others.

PROTOCOL.md, "publish", has the steps and what a crash after each leaves. Beside the system calls,
code per message is what a batch costs.
"""

import errno
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mq.model.errors import (
    MqError,
    NoInodes,
    NoSpace,
    PublishPurged,
    QueueNotFound,
    StagedFileGone,
    unavailable,
)
from mq.model.history import Event
from mq.model.lifecycle import DELIVER, DISCARD, SCHEDULE, STAGE, Transition
from mq.model.limits import IDEMPOTENCY_S_DEFAULT
from mq.model.message import Stamp
from mq.model.names import Key, MessageId, QueueName
from mq.model.totals import Total
from mq.store.core.message_file import stamp_due
from mq.store.core.moves import Move, folders_of, move, together
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import covering_mark
from mq.store.disk.files import is_gone
from mq.store.disk.steps import FilesFailed, Flush, Steps
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


Check = Callable[[], None]
"""A check just before a message with a key shows: an error that it raises ends the publish."""


def publish(
    root: Root, draft: Draft, body: bytes | bytearray, look_again: Check | None = None
) -> Steps[MessageId]:
    """`publish_many` for one message: returns its id, or raises its error. Durable on return:
    yes.
    """
    return _only((yield from publish_many(root, [draft], [body], look_again)))


def publish_many(
    root: Root,
    drafts: Sequence[Draft],
    bodies: Sequence[bytes | bytearray],
    look_again: Check | None = None,
) -> Steps[list[MessageId | Exception]]:
    """Publishes messages of one queue, whose bodies are in memory, in the order of their ids.
    Returns for each its id; that of an earlier publish with the same idempotency key; or why it was
    not published: KeyTaken, DueTooFar, what `look_again` raised, Busy and any other Unavailable.
    Nothing is left behind of those.

    Raises an error of all: PublishPurged for ids before the queue's purge mark, QueueNotFound,
    OSError. After a failed flush of a folder, messages may be published anyway. Durable on return:
    those with an id.
    """
    _refuse_old(root, drafts[0])
    ends: list[MessageId | Exception] = [each.id for each in drafts]
    staged = yield from _stage_all(root, drafts, bodies, ends)
    if staged:
        shown = yield from _show_all(root, [drafts[each] for each in staged], look_again)
        for number, end in zip(staged, shown, strict=True):
            ends[number] = end
    return ends


def deliver(root: Root, draft: Draft) -> Steps[MessageId]:
    """Ends a publish whose file is sealed. Returns its id, or that of an earlier publish with the
    same idempotency key.

    Raises the message's error, and unlinks the file; StagedFileGone if the file was in new/ for so
    long that it was swept as abandoned. Durable on return: yes.
    """
    return _only((yield from _show_all(root, [draft])))


def _only(ends: Sequence[MessageId | Exception]) -> MessageId:
    (end,) = ends
    if isinstance(end, Exception):
        raise end
    return end


def begin(root: Root, draft: Draft) -> int:
    """Creates the file of a message that is written in parts, with its header block. Returns the
    descriptor. Raises NoSpace, NoInodes, PublishPurged, OSError. Durable on return: no.
    """
    _refuse_old(root, draft)
    root.space.claim(len(draft.head))
    descriptor = _create(root, draft)
    try:
        if draft.head:
            root.files.write(descriptor, draft.head)
    except BaseException:
        root.files.close(descriptor)
        discard(root, draft)
        raise
    return descriptor


def append(root: Root, descriptor: int, data: bytes | bytearray) -> None:
    """Writes the next bytes of a file that was begun. Raises NoSpace. Durable on return: no."""
    root.space.claim(len(data), inodes=0)
    root.files.write(descriptor, data)


def seal(root: Root, draft: Draft, descriptor: int) -> None:
    """Completes a file that was written in parts: sets its mtime and flushes it. Raises DueTooFar.

    Durable on return: the file, not its place; `deliver` does the rest.
    """
    stamp_due(root, descriptor, Stamp(draft.due_ms))
    root.files.sync(descriptor)


def discard(root: Root, draft: Draft) -> None:
    """Unlinks the staged file of a failed publish, which was not acknowledged."""
    try:
        root.files.unlink(root.layout.path(DISCARD.source, draft.queue, draft.id))
    except OSError:
        return  # A remaining file is never delivered, and is swept after an hour.


def _refuse_old(root: Root, draft: Draft) -> None:
    """Raises PublishPurged for an id before the queue's purge mark: its message would never be
    delivered.
    """
    if (mark := covering_mark(root, draft.queue, draft.id)) is not None:
        raise PublishPurged(mark.ms)


def _stage_all(
    root: Root,
    drafts: Sequence[Draft],
    bodies: Sequence[bytes | bytearray],
    ends: list[MessageId | Exception],
) -> Steps[list[int]]:
    """Writes the messages' files in new/ and flushes them. Returns the numbers of those that are
    whole; the error of any other is its end.
    """
    opened: dict[int, int] = {}  # The messages' numbers, by their descriptors.
    try:
        has_room = _claim(root, drafts, bodies)
        for number, draft in enumerate(drafts):
            try:
                opened[_stage(root, draft, bodies[number], has_room)] = number
            except (OSError, MqError) as error:
                ends[number] = _given_up(root, draft, error)
        if opened:
            yield Flush(files=tuple(opened))
    except FilesFailed as failed:
        for descriptor, why in failed.errors.items():
            number = opened.pop(descriptor)
            root.files.close(descriptor)
            ends[number] = _given_up(root, drafts[number], why)
    except BaseException:
        for number in opened.values():
            discard(root, drafts[number])
        raise
    finally:
        for descriptor in opened:
            root.files.close(descriptor)
    return list(opened.values())


def _claim(root: Root, drafts: Sequence[Draft], bodies: Sequence[bytes | bytearray]) -> bool:
    """Claims room for all. False if there is none, so that each message claims its own."""
    size = sum(map(len, bodies)) + sum([len(each.head) for each in drafts])
    try:
        root.space.claim(size, inodes=len(drafts))
    except (NoSpace, NoInodes):
        return False
    return True


def _stage(root: Root, draft: Draft, body: bytes | bytearray, has_room: bool) -> int:
    """Writes a message's file. Returns its descriptor. Durable on return: no."""
    content = draft.head + body if draft.head else body
    if not has_room:
        root.space.claim(len(content))
    descriptor = _create(root, draft)
    try:
        root.files.write(descriptor, content)
        stamp_due(root, descriptor, Stamp(draft.due_ms))
    except BaseException:
        root.files.close(descriptor)
        raise
    return descriptor


def _create(root: Root, draft: Draft) -> int:
    try:
        return root.files.create(root.layout.path(STAGE.target, draft.queue, draft.id))
    except OSError as error:
        if error.errno == errno.ENOSPC and root.space.has_no_inode():
            raise NoInodes(str(error)) from error
        raise


def _show_all(
    root: Root, drafts: Sequence[Draft], look_again: Check | None = None
) -> Steps[list[MessageId | Exception]]:
    """Renames staged files, whose bytes are on stable media, to their queue, or to delay/ those
    that are scheduled. Those with keys come last, each under its links' locks.
    """
    queue = drafts[0].queue
    ends: list[MessageId | Exception] = []
    flushes: list[Flush] = []
    plain: dict[Transition, list[int]] = {}
    linked: list[int] = []
    for number, draft in enumerate(drafts):
        ends.append(draft.id)
        alike = linked if draft.is_linked else plain.setdefault(draft.transition, [])
        alike.append(number)
    is_later = any(each.is_scheduled for each in drafts)
    _prepare(root, drafts, is_asked=is_later or (root.over_network and bool(plain)))
    for transition, numbers in plain.items():
        flushes += _rename_all(root, transition, drafts, numbers, ends)
    for number in linked:
        draft = drafts[number]
        try:
            flushes.append((yield from _show_linked(root, draft, look_again)))
        except PublishedBefore as before:
            _drop(root, draft)
            ends[number] = before.first
        except Exception as error:
            ends[number] = _given_up(root, draft, error)
    if flushes:
        yield from _flush(root, queue, together(flushes))
    if is_later:
        _refuse_missing(root, queue)  # Its messages in delay/ go with it.
    _record(root, [draft for draft, end in zip(drafts, ends, strict=True) if end is draft.id])
    return ends


def _prepare(root: Root, drafts: Sequence[Draft], is_asked: bool) -> None:
    """Makes the index entries. `is_asked`: raises QueueNotFound first, where a rename does not say
    that the queue is gone: into delay/, or over a network.
    """
    queue = drafts[0].queue
    try:
        if is_asked:
            _refuse_missing(root, queue)
        if any(each.id.is_entered for each in drafts):
            enter(root, queue, ((each.id, each.head) for each in drafts))
    except (OSError, MqError) as error:
        for draft in drafts:
            _given_up(root, draft, error)
        raise


def _rename_all(
    root: Root,
    transition: Transition,
    drafts: Sequence[Draft],
    numbers: Sequence[int],
    ends: list[MessageId | Exception],
) -> list[Flush]:
    """Renames the messages of these numbers, which have no keys. Returns the flushes that make this
    durable. Where settings are unreadable, all of them fail.
    """
    queue, layout, flushes = drafts[0].queue, root.layout, list[Flush]()
    try:
        ids = [drafts[each].id for each in numbers]
        buckets = root.places.targets(transition.target, queue, ids)
    except (OSError, MqError) as error:
        for number in numbers:
            ends[number] = _given_up(root, drafts[number], error)
        return flushes
    new = layout.beginning(transition.source, queue)
    reached: dict[str, str] = {}  # The beginnings of paths, by their buckets.
    for number, bucket in zip(numbers, buckets, strict=True):
        name = drafts[number].id.text
        beginning = reached.get(bucket) or layout.beginning(transition.target, queue, bucket)
        try:
            try:
                root.files.rename(new + name, beginning + name)
                reached[bucket] = beginning
            except OSError as error:
                if not is_gone(error):
                    raise
                flushes.append(_reveal(root, drafts[number]))  # Its bucket may be missing.
        except (OSError, MqError) as error:
            ends[number] = _given_up(root, drafts[number], error)
    flushes += [folders_of(root, transition, (queue, ""), (queue, each)) for each in reached]
    return flushes


def _show_linked(root: Root, draft: Draft, look_again: Check | None) -> Steps[Flush]:
    def show() -> Flush:
        if look_again is not None:
            look_again()
        return _reveal(root, draft)

    return (yield from show_linked(root, draft.queue, draft.id, draft.once, show))


def _reveal(root: Root, draft: Draft) -> Flush:
    """Renames a staged file to its place, and makes a missing bucket. Returns the flush that makes
    this durable. Raises QueueNotFound, SettingsUnreadable, Busy, StagedFileGone, OSError.
    """
    target, transition = "", draft.transition
    try:
        target = root.places.target(transition.target, draft.queue, draft.id)
        return move(root, Move(transition, draft.queue, draft.id, target=target))
    except OSError as error:
        if not is_gone(error):
            raise
        return _after_gone(root, draft, target)


def _after_gone(root: Root, draft: Draft, target: str) -> Flush:
    """Handles ENOENT of a rename: NFS may have done it and lost the answer. Otherwise raises the
    error of the missing part.
    """
    delivered = root.layout.path(draft.transition.target, draft.queue, draft.id, target)
    if root.files.status(delivered) is not None:
        return folders_of(root, draft.transition, (draft.queue, ""), (draft.queue, target))
    _refuse_missing(root, draft.queue)
    raise StagedFileGone("its file in new/ is gone")


def _refuse_missing(root: Root, queue: QueueName) -> None:
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)


def _flush(root: Root, queue: QueueName, flush: Flush) -> Steps[None]:
    """Raises QueueNotFound if the queue was deleted between the renames and the flush; its messages
    went with it.
    """
    try:
        yield flush
    except FileNotFoundError:
        _refuse_missing(root, queue)
        raise  # new/ itself is gone.


def _given_up(root: Root, draft: Draft, error: Exception) -> Exception:
    """Leaves nothing of a failed message, unless its link may name it. Returns the error that it
    ends with.
    """
    if not is_named(root, draft.queue, draft.id, draft.once):
        _drop(root, draft)
    return unavailable(error) if isinstance(error, OSError) else error


def _drop(root: Root, draft: Draft) -> None:
    discard(root, draft)
    drop_if_stale(root, draft.queue, draft.id, draft.head)


def _record(root: Root, published: Sequence[Draft]) -> None:
    """Records the messages in the queue's history, or its totals alone."""
    if not published:
        return
    queue, history = published[0].queue, root.history
    if not history.is_on(queue):
        root.totals.add(queue, Total.PUBLISHED, sum([each.id.items or 1 for each in published]))
        return
    for each in published:
        due_ms = each.due_ms if each.is_scheduled else None
        history.record(queue, Event.PUBLISHED, each.id, 0, due_ms, block=each.head)
