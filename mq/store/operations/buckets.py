"""Taking empty buckets away. What lay in them has moved on, and its moves are flushed before: a
bucket that is gone could not take back what a power cut undoes.

FORMAT.md, "buckets", has the steps and what a crash after each leaves.
"""

import errno
import os
from collections.abc import Iterable
from typing import Final

from mq.store.core.listing import is_settled
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush, Steps
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.walk import buckets, entries_if_there, is_deep_folder

_NOT_EMPTY: Final = (errno.ENOTEMPTY, errno.EEXIST)


def drop_buckets(root: Root, empty: Iterable[str]) -> Steps[int]:
    """Takes these folders away where nothing lies in them, a bucket's inner ones before it; how
    many. Those stay that may be written now, or were a moment ago. Raises OSError.

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
    rows = tuple((path,) for path in mtimes_ns)
    yield Flush(folders=(layout.remove, layout.delay), beside=rows)
    dropped = 0
    for path, mtime_ns in mtimes_ns.items():
        status = root.files.status(path)
        # What came and went meanwhile has perhaps not been flushed.
        if status is not None and status.st_mtime_ns == mtime_ns:
            dropped += _rmdir(root, path)
    return dropped


def sweep_buckets(root: Root, folder: str) -> Steps[bool]:
    """Takes away what is empty of all buckets of a folder; whether none are left. Raises OSError.
    Durable on return: no.

    Nothing of the backlog is listed: of a bucket in which a message lies only what comes before
    that is looked at, and what is empty below it waits until it has none of its own.
    """
    found = [path for _, path in buckets(root.files, folder)]
    empty = [inner for path in found for inner in _empty_folders(root, path)]
    dropped = yield from drop_buckets(root, empty)
    return dropped == len(empty) and set(found) <= set(empty)


def _empty_folders(root: Root, path: str) -> list[str]:
    """The bucket when nothing lies in it; what is empty below it when all lies there."""
    inner = []
    for entry in entries_if_there(root.files, path):
        if not is_deep_folder(entry):
            return []
        inner.append(entry.path)
    if not inner:
        return [path]
    return [each for each in inner if _is_empty(root, each)]


def _is_empty(root: Root, path: str) -> bool:
    return next(entries_if_there(root.files, path), None) is None


def _is_past(root: Root, path: str) -> bool:
    bucket = parse_bucket(os.path.basename(path)) or parse_bucket(
        os.path.basename(os.path.dirname(path))
    )
    return bucket is not None and not bucket.may_be_written(root.now_ms())


def _rmdir(root: Root, path: str) -> bool:
    try:
        root.files.rmdir(path)
    except OSError as error:
        if error.errno in _NOT_EMPTY or is_gone(error):
            return False
        raise
    return True
