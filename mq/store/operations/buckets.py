"""Removes empty buckets. Moves out of a bucket are flushed first: a power cut could not undo them
into a missing bucket.

PROTOCOL.md, "Buckets", has the steps and what a crash after each leaves.
"""

import os
from collections.abc import Iterable

from mq.store.core.root import Root, rmdir_if_empty
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.walk import Folder, buckets, entries_if_there, is_settled


def drop_buckets(root: Root, empty: Iterable[str]) -> Steps[int]:
    """Removes the empty folders among these, inner ones first. Returns their number. Keeps buckets
    that may be written to now, or were a moment ago. Raises OSError.

    Durable on return: no; a folder that a crash brings back is empty.
    """
    mtimes_ns = {}
    for path in empty:
        status = root.files.status(path)
        if status is not None and is_settled(status, root.now_ms()) and _is_past(root, path):
            mtimes_ns[path] = status.st_mtime_ns
    if not mtimes_ns:
        return 0
    layout = root.layout
    yield Flush(folders=(layout.remove, layout.delay, *mtimes_ns))
    dropped = 0
    for path, mtime_ns in mtimes_ns.items():
        status = root.files.status(path)
        # A message that came and left meanwhile may not be flushed.
        if status is not None and status.st_mtime_ns == mtime_ns:
            dropped += rmdir_if_empty(root.files, path)
    return dropped


def sweep_buckets(root: Root, folder: str) -> Steps[bool]:
    """Removes the empty buckets of a folder. Returns whether none are left. Raises OSError. Durable
    on return: no.

    Does not list the backlog: it stops listing a bucket at the first message, and empty folders
    below a bucket wait until the bucket has no messages of its own.
    """
    found = list(buckets(root.files, folder))
    empty = [path for bucket in found for path in _empty_folders(root, bucket)]
    dropped = yield from drop_buckets(root, empty)
    return dropped == len(empty) and {bucket.path for bucket in found} <= set(empty)


def _empty_folders(root: Root, bucket: Folder) -> list[str]:
    """The bucket if it is empty; its empty inner folders if it has no messages of its own."""
    inner = []
    for entry in entries_if_there(root.files, bucket.path):
        if bucket.inner(entry) is None:
            return []
        inner.append(entry.path)
    if not inner:
        return [bucket.path]
    return [each for each in inner if _is_empty(root, each)]


def _is_empty(root: Root, path: str) -> bool:
    return next(entries_if_there(root.files, path), None) is None


def _is_past(root: Root, path: str) -> bool:
    bucket = parse_bucket(os.path.basename(path)) or parse_bucket(
        os.path.basename(os.path.dirname(path))
    )
    return bucket is not None and not bucket.may_be_written(root.now_ms())
