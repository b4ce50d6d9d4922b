"""Moves one message by one transition of the lifecycle, and locks its inode.

A rename over NFS may be done and its answer lost: the client repeats the request, and the server
answers ENOENT. So ENOENT never means "not done" here. A caller treats it as a lost race where that
is safe, since the message is in a state from which it comes back (a fetch). Elsewhere it looks at
the target: a name that only this operation could have made proves that the rename was its own.
"""

import contextlib
import functools
import itertools
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from mq.model.errors import Busy
from mq.model.lifecycle import State, Transition
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.core.standing import refuse_gone
from mq.store.core.two_names import leave_latest
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush
from mq.store.format.bucket_names import leading
from mq.store.format.layout import Layout, Place

# Retries of a rename into a bucket that others remove concurrently.
BUCKET_TRIES_MAX: Final = 5

_ENDS_KEPT: Final = 4096

Side = tuple[QueueName, str]
"""An end of a move: the queue, and the bucket."""


class Claim(NamedTuple):
    """A message's file whose inode is locked, and its status when the lock was taken."""

    descriptor: int
    status: os.stat_result

    @property
    def stamp(self) -> Stamp:
        return Stamp.from_mtime_ns(self.status.st_mtime_ns)


def claimed(root: Root, place: Place) -> AbstractContextManager[Claim | None]:
    """Opens a message's file and takes its inode's lock. Every operation that depends on the mtime
    does this.

    Yields None for a lost race: the name is gone, another process has the lock, or the name means
    another file by now; also for anything but a regular file, and for the earlier of two names,
    which it unlinks. The lock ends with the block.
    """
    return _claimed(root, place.path(root.layout), place)


def claimed_path(
    root: Root, path: str, *, wait: bool = False
) -> AbstractContextManager[Claim | None]:
    """Likewise, for any file. `wait`: waits while another process has the lock."""
    return _claimed(root, path, None, wait)


@contextlib.contextmanager
def _claimed(
    root: Root, path: str, place: Place | None, wait: bool = False
) -> Iterator[Claim | None]:
    try:
        descriptor = root.files.open_claimed(path)
    except OSError as error:
        if not is_gone(error):
            raise
        yield None
        return
    try:
        claim = _claim(root, path, descriptor, wait)
        if claim is not None and place is not None and claim.status.st_nlink > 1:
            claim = claim if leave_latest(root, place, claim.status) else None
        yield claim
    finally:
        root.files.close(descriptor)


def _claim(root: Root, path: str, descriptor: int, wait: bool) -> Claim | None:
    if wait:
        root.files.wait_for_lock(descriptor)
    elif not root.files.lock(descriptor):
        return None
    status = named_status(root, path, descriptor)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return Claim(descriptor, status)


def named_status(root: Root, path: str, descriptor: int) -> os.stat_result | None:
    """The status of the file under the name, if it is still the open file; else None. A process
    that waited for a lock may have got the lock of a file that is gone.
    """
    status = root.files.status(path)
    if status is None or not os.path.samestat(status, root.files.descriptor_status(descriptor)):
        return None
    return status


class Move(NamedTuple):
    """A transition of one message: `source` is the bucket that it lies in, `target` the one that it
    goes to (None: as `root.places` judges), `into` the queue (None: it stays in its own).
    """

    transition: Transition
    queue: QueueName
    id: MessageId
    source: str = ""
    target: str | None = None
    into: QueueName | None = None

    @property
    def to_queue(self) -> QueueName:
        return self.into or self.queue

    @property
    def bucket(self) -> str:
        """The bucket that it goes to, for a move with a target."""
        return self.target or ""

    def source_path(self, layout: Layout) -> str:
        """The message's path before the move."""
        return layout.path(self.transition.source, self.queue, self.id, self.source)


def aimed(root: Root, act: Move) -> Move:
    """The move with the bucket that it goes to. Raises SettingsUnreadable, OSError."""
    if act.target is not None:
        return act
    target = root.places.target(act.transition.target, act.to_queue, act.id)
    return Move(act.transition, act.queue, act.id, act.source, target, act.into)


def move(root: Root, act: Move) -> Flush:
    """Renames the message. Makes a missing bucket. Returns the flush that makes the rename durable.

    Raises OSError as rename does: ENOENT or ESTALE is a lost race, or a folder that is gone;
    SettingsUnreadable; Busy when others remove the bucket again and again.
    """
    if act.target is None:
        act = aimed(root, act)
    for _ in range(BUCKET_TRIES_MAX):
        try:
            return move_there(root, act)
        except OSError as error:
            if not _lacks_bucket(root, error, act):
                raise
        _make_bucket(root, act.transition, act.to_queue, act.bucket)
        if act.transition.target is State.READY:
            # The queue may have been deleted, and made again in another shape.
            root.facts.shape_now(act.to_queue)
            if act.bucket not in root.places.spots(State.READY, act.to_queue, act.id):
                act = aimed(root, act._replace(target=None))
    raise Busy("other processes remove the message's bucket again and again")


def move_there(root: Root, act: Move) -> Flush:
    """Tries `move` once, for a move with a target. Returns the flush that makes the rename durable.
    Raises ENOENT also where the target's bucket or queue is missing, or the source's queue.
    """
    if root.over_network:
        ends = ((act.transition.target, act.to_queue), (act.transition.source, act.queue))
        if act.transition.target is not State.REMOVED:
            refuse_gone(root, *(of for state, of in ends if state is State.READY))
    path, (transition, queue, message_id, source, target, into) = root.layout.path, act
    root.files.rename(
        path(transition.source, queue, message_id, source),
        path(transition.target, into or queue, message_id, target or ""),
    )
    return arrived(root, act)


def arrived(root: Root, act: Move) -> Flush:
    """The flush that makes a finished rename durable."""
    source, target = (act.queue, act.source), (act.into or act.queue, act.target or "")
    flush = folders_of(root, act.transition, source, target)
    root.places.went(flush.folders[-1])
    return flush


def _lacks_bucket(root: Root, error: OSError, act: Move) -> bool:
    """Whether a rename failed only because the bucket is missing."""
    if not act.target or not is_gone(error):
        return False
    return root.files.status(act.source_path(root.layout)) is not None


def _make_bucket(root: Root, transition: Transition, queue: QueueName, bucket: str) -> None:
    """Makes the missing folders of a bucket; never the folder that it belongs in, nor below a
    link.
    """
    made = leading(root.layout.base(transition.target, queue), bucket)
    for folder in itertools.takewhile(lambda each: not root.files.is_link(each), made):
        with contextlib.suppress(FileExistsError):
            root.files.mkdir(folder)


def folders_of(root: Root, transition: Transition, source: Side, target: Side) -> Flush:
    """The folders that a rename by this transition changes, the destination first."""
    (of, spot), (into, bucket) = source, target
    return _ends(root.layout, transition, (of.text, spot), (into.text, bucket))


@functools.lru_cache(_ENDS_KEPT)
def _ends(
    layout: Layout, transition: Transition, source: tuple[str, str], target: tuple[str, str]
) -> Flush:
    """Kept for the next, by the queues' names: moves at one time are between few folders."""
    into, of = QueueName(target[0]), QueueName(source[0])
    ends = (
        layout.parent(transition.target, into, target[1]),
        layout.parent(transition.source, of, source[1]),
    )
    return Flush(folders=ends, covered=1)


def make_buckets(
    root: Root, transition: Transition, targets: Iterable[tuple[QueueName, str]]
) -> None:
    """Makes the missing bucket folders for messages of these queues. Raises OSError."""
    for queue, bucket in targets:
        if bucket:
            _make_bucket(root, transition, queue, bucket)


def together(flushes: Collection[Flush]) -> Flush:
    """Merges flushes: first the target folders and those above them, then the source folders. What
    was changed last is known where all have moved to one folder.
    """
    if len(flushes) == 1:
        return next(iter(flushes))
    targets: dict[str, None] = {}
    left: dict[str, None] = {}
    moved_to: set[str] = set()
    for flush in flushes:
        end = len(flush.folders) - flush.covered
        targets |= dict.fromkeys(flush.folders[:end])
        left |= dict.fromkeys(flush.folders[end:])
        moved_to.add(flush.folders[end - 1] if flush.covered else "")
    last = tuple(folder for folder in left if folder not in targets)
    covered = len(last) if moved_to == {next(reversed(targets), "")} else 0
    return Flush(folders=(*targets, *last), covered=covered)


def message_status(root: Root, path: str) -> os.stat_result | None:
    """The status of the regular file at the path; None if there is none."""
    status = root.files.status(path)
    return status if status is not None and stat.S_ISREG(status.st_mode) else None
