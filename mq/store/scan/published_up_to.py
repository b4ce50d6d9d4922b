"""What is ready of a queue and was published up to a time, and whole buckets of that: for purges,
and for messages that have expired.
"""

import contextlib
import os
from collections.abc import Iterator

from mq.model.limits import BUCKET_TRIES_MAX
from mq.model.names import MessageId, QueueName
from mq.store.core.purged import PurgeMark
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import is_deep, parse_bucket
from mq.store.format.walk import entries_if_there, is_bucket, is_deep_folder
from mq.store.history.bulk import record_removed


def ready_up_to(root: Root, queue: QueueName, mark: PurgeMark) -> Iterator[tuple[str, MessageId]]:
    """The queue's ready messages that the mark covers, each with its bucket. What begins after the
    mark is not listed. Blocking. Raises OSError.
    """
    for entry in entries_if_there(root.files, root.layout.queue(queue)):
        if not is_bucket(entry):
            yield from _covered("", entry, mark)
        elif (of := parse_bucket(entry.name)) is not None and not of.begins_after(mark.ms):
            yield from _covered_in(root, entry, f"{entry.name}/", mark)


def goes_whole(root: Root, bucket: "os.DirEntry[str]", mark: PurgeMark) -> bool:
    """Whether a bucket has only what the mark covers, and something at all. What belongs there and
    comes meanwhile is covered too.
    """
    of = parse_bucket(bucket.name)
    return of is not None and mark.covers_all(of) and _covered_files(root, bucket.path, mark) > 0


def take_bucket(root: Root, queue: QueueName, bucket: "os.DirEntry[str]", folder: str) -> bool:
    """Moves a bucket by one rename into a folder of remove/, which is made; False when it is gone.
    Blocking. Raises OSError. Durable on return: no.
    """
    if not _move_bucket(root, bucket, folder):
        return False
    record_removed(root, queue, f"{folder}/{bucket.name}")
    return True


def _covered_in(
    root: Root, folder: "os.DirEntry[str]", bucket: str, mark: PurgeMark
) -> Iterator[tuple[str, MessageId]]:
    for entry in entries_if_there(root.files, folder.path):
        if bucket.count("/") == 1 and is_deep_folder(entry):
            yield from _covered_in(root, entry, f"{bucket}{entry.name}/", mark)
        else:
            yield from _covered(bucket, entry, mark)


def _covered(
    bucket: str, entry: "os.DirEntry[str]", mark: PurgeMark
) -> Iterator[tuple[str, MessageId]]:
    if not mark.covers(entry.name) or not MessageId.is_written(entry.name):
        return
    if entry.is_file(follow_symlinks=False):
        yield bucket, MessageId.parse(entry.name)


def _covered_files(root: Root, folder: str, mark: PurgeMark) -> int:
    """How many files lie in a bucket, and below it; 0 when one of them is not covered, or is no
    message's: whoever put it there by hand may mean something by it.
    """
    count = 0
    for entry in entries_if_there(root.files, folder):
        if is_deep(entry.name) and entry.is_dir(follow_symlinks=False):
            below = _covered_files(root, entry.path, mark)
            if not below and next(entries_if_there(root.files, entry.path), None) is not None:
                return 0
            count += below
        elif MessageId.is_written(entry.name) and mark.covers(entry.name):
            count += 1
        else:
            return 0
    return count


def _move_bucket(root: Root, bucket: "os.DirEntry[str]", folder: str) -> bool:
    for _ in range(BUCKET_TRIES_MAX):
        with contextlib.suppress(FileExistsError):
            root.files.mkdir(folder)
        try:
            root.files.rename(bucket.path, f"{folder}/{bucket.name}")
        except OSError as error:
            if not is_gone(error):
                raise
            if root.files.status(bucket.path) is None:
                return False  # Swept, or the queue was deleted.
            continue  # The folder was reaped before anything lay in it.
        return True
    return False
