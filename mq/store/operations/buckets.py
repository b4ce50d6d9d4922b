"""Removes empty buckets.

PROTOCOL.md, "Buckets", has the steps and what a crash after each leaves.
"""

import os
from collections.abc import Iterable

from mq.store.core.root import Root, rmdir_if_empty
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.walk import Folder, buckets, entries_if_there, is_settled


def drop_buckets(root: Root, empty: Iterable[str]) -> int:
    """Removes the empty folders among these, inner ones first. Returns their number. Keeps buckets
    that may be written to now, or were a moment ago. Blocking. Raises OSError.

    Durable on return: no; a folder that a crash brings back is empty.
    """
    # Before the first goes: a folder's removal changes the one above it.
    old = [path for path in empty if _is_settled(root, path)]
    return sum(rmdir_if_empty(root.files, path) for path in old)


def sweep_buckets(root: Root, folder: str) -> bool:
    """Removes the empty buckets of a folder. Returns whether none are left. Blocking. Raises
    OSError. Durable on return: no.

    Does not list the backlog: it stops listing a bucket at the first message, and empty folders
    below a bucket wait until the bucket has no messages of its own.
    """
    found = list(buckets(root.files, folder))
    empty = [path for bucket in found for path in _empty_folders(root, bucket)]
    dropped = drop_buckets(root, empty)
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


def _is_settled(root: Root, path: str) -> bool:
    status = root.files.status(path)
    return status is not None and is_settled(status, root.now_ms()) and _is_past(root, path)


def _is_past(root: Root, path: str) -> bool:
    bucket = parse_bucket(os.path.basename(path)) or parse_bucket(
        os.path.basename(os.path.dirname(path))
    )
    return bucket is not None and not bucket.may_be_written(root.now_ms())
