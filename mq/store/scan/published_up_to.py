"""A queue's ready messages up to a publish time, and whole buckets of them: for purges and
expiry.
"""

import contextlib
from collections.abc import Iterator

from mq.model.names import MessageId, QueueName, items_of
from mq.store.core.moves import BUCKET_TRIES_MAX
from mq.store.core.recording import record_removed
from mq.store.core.root import Root, rename_folder
from mq.store.core.unserved import PurgeMark
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.walk import Folder, if_there, walk


def ready_up_to(root: Root, queue: QueueName, mark: PurgeMark) -> Iterator[tuple[str, MessageId]]:
    """The queue's ready messages that the mark covers, each with its bucket. Lists no bucket that
    begins after the mark. Blocking. Raises OSError.
    """

    def may_be_covered(folder: Folder) -> bool:
        bucket = parse_bucket(folder.name)
        return bucket is None or not bucket.begins_after(mark.ms)

    for folder, entry in if_there(walk(root.files, root.layout.queue(queue), may_be_covered)):
        if not mark.covers(entry.name) or not MessageId.is_written(entry.name):
            continue
        if entry.is_file(follow_symlinks=False):
            yield folder.spot, MessageId.parse(entry.name)


def goes_whole(root: Root, bucket: Folder, mark: PurgeMark) -> int:
    """The number of messages in a bucket of which the mark covers all; 0: not all. Messages that
    still come to it belong into its window, so they are covered as well.
    """
    of = parse_bucket(bucket.name)
    if of is None or not mark.covers_all(of):
        return 0
    return _covered(root, bucket, mark)


def take_bucket(root: Root, queue: QueueName, bucket: Folder, folder: str) -> bool:
    """Moves a bucket by one rename into a folder of remove/, which it makes; False if the bucket is
    gone. Blocking. Raises OSError. Durable on return: no.
    """
    if not _move_bucket(root, bucket, folder):
        return False
    record_removed(root, queue, bucket._replace(path=f"{folder}/{bucket.name}"))
    return True


def _covered(root: Root, bucket: Folder, mark: PurgeMark) -> int:
    """The number of messages in a bucket and below it; 0 if one of them is not covered, or a file
    is not a message: an operator may have put it there for a reason.
    """
    count = 0
    for _, entry in if_there(walk(root.files, bucket)):
        items = items_of(entry.name)
        if not items or not mark.covers(entry.name):
            return 0
        count += items
    return count


def _move_bucket(root: Root, bucket: Folder, folder: str) -> bool:
    for _ in range(BUCKET_TRIES_MAX):
        with contextlib.suppress(FileExistsError):
            root.files.mkdir(folder)
        try:
            rename_folder(root.files, bucket.path, f"{folder}/{bucket.name}")
        except OSError as error:
            if not is_gone(error):
                raise
            if root.files.status(bucket.path) is None:
                return False  # It was swept, or the queue was deleted.
            continue  # The folder was reaped while it was empty.
        return True
    return False
