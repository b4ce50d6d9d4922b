"""Folds: staged folders that move to their places as a whole, each by one rename.

PROTOCOL.md, "bulk publishes", has the steps and what a crash after each leaves.
"""

import contextlib
import errno
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mq.model.errors import BadName
from mq.model.lifecycle import DELIVER, State
from mq.model.names import MessageId, QueueName
from mq.model.totals import Total
from mq.store.bulk.staged import staged_entries
from mq.store.core.moves import make_buckets
from mq.store.core.recording import record_published
from mq.store.core.root import Root, rmdir_if_empty
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import mark_of
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import Attempt, Fold, fold_folder, staged_path
from mq.store.format.settings import DEFAULT_SHAPE
from mq.store.format.walk import entries_if_there, named

# The errors of a folder's rename to a place that is taken.
_TAKEN: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def staged_folds(root: Root, job: str, attempt: Attempt) -> list[Fold]:
    """The folds of an attempt. Raises OSError."""
    return _parsed(staged_entries(root, job, attempt).folders)


def move_folds(
    root: Root, job: str, attempt: Attempt, folders: "Iterable[os.DirEntry[str]]"
) -> int:
    """Moves folds to their places, and unpacks those that cannot go whole into the attempt's own
    folder. Returns the number of messages. Raises OSError. Durable on return: no.
    """
    moved = 0
    of_queues: dict[QueueName, list[Fold]] = defaultdict(list)
    for fold in _parsed(folders):
        of_queues[fold.queue].append(fold)
    for queue, folds in of_queues.items():
        # Over a network a deleted queue's folder may have the name.
        if not root.over_network and queue_exists(root, queue):
            moved += _move_whole(root, job, attempt, queue, folds)
        for fold in folds:
            unfold(root, job, attempt, fold)
    return moved


def unfold(root: Root, job: str, attempt: Attempt, fold: Fold) -> None:
    """Moves the rest of a fold into the attempt's own folder, and removes the fold. Raises OSError.
    Durable on return: no.
    """
    folder = fold_folder(root.layout, job, attempt, fold)
    for entry in list(entries_if_there(root.files, folder)):
        with contextlib.suppress(BadName):
            message_id = MessageId.parse(entry.name)
            target = staged_path(root.layout, job, attempt, fold.queue, message_id)
            try:
                root.files.rename(entry.path, target)
            except OSError as error:
                if not is_gone(error):
                    raise  # If it is there after all, the next try moves it.
    rmdir_if_empty(root.files, folder)


def _move_whole(
    root: Root, job: str, attempt: Attempt, queue: QueueName, folds: Sequence[Fold]
) -> int:
    """Renames the folds that can move as a whole. Returns the number of messages."""
    layout = root.layout
    mark = mark_of(root, queue)
    found = [fold for fold in folds if mark is None or mark.ms < fold.first_ms]
    if not found or root.facts.shape_now(queue) != DEFAULT_SHAPE:
        return 0
    make_buckets(root, DELIVER, ((queue, bucket) for bucket in _buckets(found)))
    moved = list[str]()
    for fold in found:
        folder = fold_folder(layout, job, attempt, fold)
        names = [entry.name for entry in entries_if_there(root.files, folder)]
        if names and _rename(root, job, attempt, fold):
            moved += names
    root.totals.add(queue, Total.PUBLISHED, len(moved))
    record_published(root, queue, _messages(moved), State.READY)
    return len(moved)


def _messages(names: Iterable[str]) -> Iterator[MessageId]:
    for name in names:
        with contextlib.suppress(BadName):
            yield MessageId.parse(name)


def _rename(root: Root, job: str, attempt: Attempt, fold: Fold) -> bool:
    """Whether the fold was moved: not if its place is taken, or its bucket is gone or no folder."""
    layout = root.layout
    status = root.files.status(layout.parent(State.READY, fold.queue, fold.bucket))
    if status is None or not stat.S_ISDIR(status.st_mode):
        return False
    place = layout.parent(State.READY, fold.queue, fold.deep)
    try:
        root.files.rename(fold_folder(layout, job, attempt, fold), place)
    except OSError as error:
        if error.errno in _TAKEN or is_gone(error):
            return False
        raise
    return True


def _buckets(folds: Iterable[Fold]) -> list[str]:
    return sorted({fold.bucket for fold in folds})


def _parsed(folders: "Iterable[os.DirEntry[str]]") -> list[Fold]:
    return [fold for _, fold in named(folders, Fold.parse)]
