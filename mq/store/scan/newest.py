"""The newest ready messages of a queue, for followers."""

import contextlib
import heapq
from typing import Final

from mq.model.errors import BadName
from mq.model.limits import UUID_CHARS
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.core.standing import not_found
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.walk import Folder, walk

# The number of time windows whose buckets are listed, from the latest on.
WINDOWS_MAX: Final = 4


def newest(root: Root, queue: QueueName, count: int) -> tuple[list[MessageId], bool]:
    """The `count` newest messages of the queue's own folder and its latest buckets, by id, the
    oldest first; and whether the queue has buckets. Blocking. Raises QueueNotFound, OSError.
    """
    try:
        names, buckets = _own(root, Folder(root.layout.queue(queue)))
    except OSError as error:
        if is_gone(error):
            raise not_found(root, queue) from None
        raise
    names, found = heapq.nlargest(count, names), 0
    for digits in sorted(buckets, reverse=True)[:WINDOWS_MAX]:
        if found < count:
            more = [name for each in buckets[digits] for name in _inside(root, each)]
            found += len(more)
            names = heapq.nlargest(count, [*names, *more])
    ids = []
    for name in reversed(names):
        with contextlib.suppress(BadName):  # A foreign name.
            ids.append(MessageId.parse(name))
    return ids, bool(buckets)


def _own(root: Root, folder: Folder) -> tuple[list[str], dict[str, list[Folder]]]:
    """The names of messages in a queue's own folder, and its buckets by time window."""
    names, buckets = [], dict[str, list[Folder]]()
    for entry in root.files.entries(folder.path):
        inner = None
        if len(entry.name) >= UUID_CHARS:
            names.append(entry.name)
        else:
            inner = folder.inner(entry)
        if inner is not None and (bucket := parse_bucket(inner.name)) is not None:
            buckets.setdefault(bucket.digits, []).append(inner)
    return names, buckets


def _inside(root: Root, bucket: Folder) -> list[str]:
    try:
        return [entry.name for _, entry in walk(root.files, bucket)]
    except OSError as error:
        if not is_gone(error):
            raise
        return []
