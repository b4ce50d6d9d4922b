"""Moving one message by one transition of the lifecycle, and the lock on its inode."""

import contextlib
import functools
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mq.model.errors import Busy, SettingsUnreadable
from mq.model.lifecycle import State, Transition
from mq.model.limits import BUCKET_TRIES_MAX
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.core.standing import refuse_gone
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import IN_COMMON, leading, parse_bucket
from mq.store.format.layout import Layout

_ENDS_KEPT: Final = 4096
_LATEST_FIRST: Final = (State.REMOVED, State.DELAYED, State.READY, State.NEW)
_ALL: Final = (State.REMOVED, State.LEASED, *_LATEST_FIRST[1:])


@dataclass(frozen=True, slots=True)
class Claim:
    """A message's file whose inode is locked, and what it was when the lock was taken."""

    descriptor: int
    status: os.stat_result

    @property
    def stamp(self) -> Stamp:
        """What its mtime says."""
        return Stamp.from_mtime_ns(self.status.st_mtime_ns)


@contextlib.contextmanager
def claimed(root: Root, path: str) -> Iterator[Claim | None]:
    """Opens the file and takes its inode's lock, as whatever depends on an mtime does.

    Gives None for a lost race: the name is gone, another has the lock, or the name came to
    mean another file meanwhile; and for what is no regular file. The lock ends with the block.
    """
    try:
        descriptor = root.files.open_claimed(path)
    except OSError as error:
        if not is_gone(error):
            raise
        yield None
        return
    try:
        yield _claim(root, path, descriptor)
    finally:
        root.files.close(descriptor)


def _claim(root: Root, path: str, descriptor: int) -> Claim | None:
    if not root.files.lock(descriptor):
        return None
    status = named_status(root, path, descriptor)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return Claim(descriptor, status)


def named_status(root: Root, path: str, descriptor: int) -> os.stat_result | None:
    """What is under the name, where that is still the file that is open; None where it is not:
    whoever waited for a lock, or has just got it, may have that of a file that is gone.
    """
    status = root.files.status(path)
    if status is None or not os.path.samestat(status, root.files.descriptor_status(descriptor)):
        return None
    return status


def move(
    root: Root,
    transition: Transition,
    queue: QueueName,
    message_id: MessageId,
    links: int = 1,
    source: str = "",
    target: str | None = None,
) -> Flush:
    """Renames the message as the transition says; gives what makes the rename durable.

    `links` is the file's link count before, `source` the bucket that it lies in, `target` the one
    that it goes to (None: as `root.places` judges), which is made where it is missing. Raises
    OSError as rename does: ENOENT or ESTALE is a lost race, or a folder that is gone;
    SettingsUnreadable; Busy when others take the bucket away again and again.
    """
    if target is None:
        target = root.places.target(transition.target, queue, message_id)
    for _ in range(BUCKET_TRIES_MAX):
        try:
            return move_there(root, transition, queue, message_id, links, source, target)
        except OSError as error:
            if not _lacks_bucket(root, error, transition, queue, message_id, source, target):
                raise
        _make_bucket(root, transition, queue, target)
        if transition.target is State.READY and target not in root.places.spots(
            State.READY, queue, message_id
        ):
            # The queue was deleted meanwhile, and made again in another shape.
            target = root.places.target(State.READY, queue, message_id)
    raise Busy("the message's bucket is taken away again and again")


def move_alive(
    root: Root,
    transition: Transition,
    queue: QueueName,
    message_id: MessageId,
    links: int = 1,
    source: str = "",
    target: str | None = None,
    into: QueueName | None = None,
) -> Steps[Flush]:
    """Like `move`, for a message that must not be lost by it: the bucket that it goes to is on
    stable media before it goes there. `into` is the queue that it goes to; None: it stays in its
    own. Raises also what that flush fails with.
    """
    into = into or queue
    if target is None:
        target = root.places.target(transition.target, into, message_id)
    for _ in range(BUCKET_TRIES_MAX):
        if target:
            # Before the flush, and by each: it may be there because another has just made it.
            _make_bucket(root, transition, into, target)
            yield _way_to(root, transition, into, target)
        try:
            return move_there(root, transition, queue, message_id, links, source, target, into)
        except OSError as error:
            if not _lacks_bucket(root, error, transition, queue, message_id, source, target):
                raise
    raise Busy("the message's bucket is taken away again and again")


def move_there(
    root: Root,
    transition: Transition,
    queue: QueueName,
    message_id: MessageId,
    links: int,
    source: str,
    target: str,
    into: QueueName | None = None,
) -> Flush:
    """Like `move_alive`, once; what makes the rename durable. ENOENT also where the bucket that it
    goes to is not there, or a queue that it goes to, or lives on from.
    """
    layout = root.layout
    if root.over_network:
        ends = ((transition.target, into or queue), (transition.source, queue))
        if transition.target is not State.REMOVED:
            refuse_gone(root, *(of for state, of in ends if state is State.READY))
    root.files.rename(
        layout.path(transition.source, queue, message_id, source),
        layout.path(transition.target, into or queue, message_id, target),
    )
    return arrived(root, transition, queue, message_id, links, source, target, into)


def arrived(
    root: Root,
    transition: Transition,
    queue: QueueName,
    message_id: MessageId,
    links: int,
    source: str,
    target: str,
    into: QueueName | None = None,
) -> Flush:
    """What makes a rename durable that was made, of a message that had so many names."""
    flush = folders_of(root, transition, queue, source, target, into)
    root.places.went(flush.folders[-1])
    if links > 1:
        return keep_one_name(root, transition.target, into or queue, message_id, target)
    if transition.source is State.READY and (others := crossed_from(root, queue)):
        return flush._replace(beside=rows_across(root, others, message_id))
    return flush


def crossed_from(root: Root, queue: QueueName) -> tuple[QueueName, ...]:
    """The queues that a message which is ready in this one may have come from, by one who died
    before its own flush: its sideline, or, of a sideline, its queue, and those that a shovel moves
    messages between. Whoever moves it on flushes what it left there (`rows_across`).
    """
    if others := root.places.crossings.of(queue):
        return others
    is_one = queue.is_sideline or root.files.is_there(_sideline_folder(root.layout, queue))
    return (queue.counterpart(),) if is_one else ()


def others_of(root: Root, queue: QueueName) -> tuple[QueueName, ...]:
    """The queues in which a message of this one may have its other name, or be by now: those of
    `crossed_from`, whether they are there or not.
    """
    return root.places.crossings.of(queue) or (queue.counterpart(),)


@functools.lru_cache(_ENDS_KEPT)
def _sideline_folder(layout: Layout, queue: QueueName) -> str:
    # With the slash, a file that somebody has left under the name is none.
    return f"{layout.queue(queue.sideline())}/"


def _lacks_bucket(
    root: Root,
    error: OSError,
    transition: Transition,
    queue: QueueName,
    message_id: MessageId,
    source: str,
    target: str,
) -> bool:
    """Whether a rename has failed only because the bucket is not there."""
    if not target or not is_gone(error):
        return False
    path = root.layout.path(transition.source, queue, message_id, source)
    return root.files.status(path) is not None


def _make_bucket(root: Root, transition: Transition, queue: QueueName, bucket: str) -> None:
    """Makes what is missing of a bucket; never the folder that it belongs in, nor below a link."""
    made = leading(root.layout.base(transition.target, queue), bucket)
    for folder in itertools.takewhile(lambda each: not root.files.is_link(each), made):
        with contextlib.suppress(FileExistsError):
            root.files.mkdir(folder)


def keep_one_name(
    root: Root, kept: State, queue: QueueName, message_id: MessageId, bucket: str = ""
) -> Flush:
    """Takes a file's other names away, those among the places of the queues too that it may
    have crossed from or to (`others_of`); gives what makes that durable.

    A crash between the flushes of a rename's two folders can leave both names (btrfs), and
    rename(2) between two names of one inode does nothing.
    """
    layout, others_of_it = root.layout, others_of(root, queue)
    kept_path = layout.path(kept, queue, message_id, bucket)
    inode = root.files.status(kept_path)
    for of, state in itertools.product((queue, *others_of_it), _ALL):
        for spot in root.places.spots(state, of, message_id):
            path = layout.path(state, of, message_id, spot)
            other = None if path == kept_path else root.files.status(path)
            if other is not None and inode is not None and os.path.samestat(other, inode):
                with contextlib.suppress(FileNotFoundError):
                    root.files.unlink(path)
    base, others = layout.base(kept, queue), (layout.base(each, queue) for each in _LATEST_FIRST)
    ways = dict.fromkeys((base, *leading(base, bucket), *others))
    removed = root.layout.parent(State.REMOVED, queue, IN_COMMON.deep(message_id))
    buckets = root.places.buckets(queue, message_id)
    leased = ((folder,) for folder in root.places.leases.folders())
    across = rows_across(root, others_of_it, message_id)
    beside = ((os.path.dirname(removed), removed), *buckets, *leased, *across)
    return Flush(folders=tuple(ways), beside=beside)


def rows_across(
    root: Root, queues: Iterable[QueueName], message_id: MessageId
) -> tuple[tuple[str, ...], ...]:
    """`ready_rows` of several."""
    rows = (ready_rows(root, queue, message_id) for queue in queues)
    return tuple(itertools.chain.from_iterable(rows))


def ready_rows(root: Root, queue: QueueName, message_id: MessageId) -> tuple[tuple[str, ...], ...]:
    """Where a message of a sideline was ready, or may have been, in the queue itself, or the other
    way round: to be flushed where it is there, by whoever moves it on. Its buckets are left out
    where the queue's settings cannot be read: what moves does not hang on those.
    """
    folder = (root.layout.queue(queue),)
    try:
        return ((*folder, *root.places.buckets(queue, message_id)[1]),)
    except SettingsUnreadable:
        return (folder,)


def folders_of(
    root: Root,
    transition: Transition,
    queue: QueueName,
    source: str = "",
    target: str = "",
    into: QueueName | None = None,
) -> Flush:
    """The folders that a rename by this transition changes, the destination first, and those that
    lead to it before that.
    """
    into = into or queue
    flush = _ends(root.layout, transition, queue, source, target, into)
    if not target:
        return flush
    base = root.layout.base(transition.target, into)
    made = leading(base, target)
    if _is_kept(root, made[0]):
        return flush._replace(entries=(*flush.entries, *made))
    return flush._replace(folders=(base, *made[:-1], *flush.folders))


@functools.lru_cache(_ENDS_KEPT)
def _ends(
    layout: Layout,
    transition: Transition,
    queue: QueueName,
    source: str,
    target: str,
    into: QueueName,
) -> Flush:
    """Kept for the next: what is moved at a time is moved between few folders."""
    ends = (
        layout.parent(transition.target, into, target),
        layout.parent(transition.source, queue, source),
    )
    entries: dict[str, None] = {}
    for state, of in ((transition.target, into), (transition.source, queue)):
        if state is State.READY:
            entries[layout.queue(of)] = None
    return Flush(folders=ends, entries=tuple(entries), covered=1)


def _way_to(root: Root, transition: Transition, queue: QueueName, bucket: str) -> Flush:
    """What makes durable that a bucket is there, where it is."""
    base = root.layout.base(transition.target, queue)
    made = leading(base, bucket)
    if _is_kept(root, made[0]):
        return Flush(entries=made)
    return Flush(folders=(base,), beside=(made[:-1],))


def make_ways(
    root: Root, transition: Transition, targets: Iterable[tuple[QueueName, str]]
) -> Flush:
    """Makes what is missing of the buckets that messages of these queues go to; what makes durable
    that they are there. Raises OSError.
    """
    flushes = []
    for queue, bucket in targets:
        if bucket:
            _make_bucket(root, transition, queue, bucket)
            flushes.append(_way_to(root, transition, queue, bucket))
    folders = dict.fromkeys(itertools.chain(*(flush.folders for flush in flushes)))
    entries = dict.fromkeys(itertools.chain(*(flush.entries for flush in flushes)))
    beside = dict.fromkeys(itertools.chain(*(flush.beside for flush in flushes)))
    return Flush(folders=tuple(folders), entries=tuple(entries), beside=tuple(beside))


def together(flushes: Iterable[Flush]) -> Flush:
    """All of them as one: the folders that messages went to, those that lead there before, and
    then those that they left.
    """
    targets: dict[str, None] = {}
    entries: dict[str, None] = {}
    left: dict[str, None] = {}
    beside: dict[tuple[str, ...], None] = {}
    covers = True
    for flush in flushes:
        end = len(flush.folders) - flush.covered
        targets |= dict.fromkeys(flush.folders[:end])
        left |= dict.fromkeys(flush.folders[end:])
        entries |= dict.fromkeys(flush.entries)
        beside |= dict.fromkeys(flush.beside)
        covers = covers and (flush.covered > 0 or not flush.beside)
    last = tuple(folder for folder in left if folder not in targets)
    covered = len(last) if covers else 0
    return Flush((), (*targets, *last), tuple(entries), tuple(beside), covered)


def _is_kept(root: Root, folder: str) -> bool:
    """Whether nobody takes the bucket away now, though it is empty. Else it may have been made anew
    by others, with the same inode: what this process has flushed of it before says nothing.
    """
    bucket = parse_bucket(os.path.basename(folder))
    return bucket is not None and bucket.may_be_written(root.now_ms())


def message_status(root: Root, path: str) -> os.stat_result | None:
    """The regular file that has the name; None where nothing has it, or what is foreign."""
    status = root.files.status(path)
    return status if status is not None and stat.S_ISREG(status.st_mode) else None
