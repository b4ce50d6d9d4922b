"""Taking empty buckets away. What lay in them has moved on, and its moves are flushed before: a
bucket that is gone could not take back what a power cut undoes.

FORMAT.md, "buckets", has the steps and what a crash after each leaves.
"""

import errno
import os
from collections.abc import Iterable
from typing import Final

from mq.store.files import is_gone
from mq.store.layout import parse_bucket
from mq.store.listing import is_settled
from mq.store.root import Root
from mq.store.steps import Flush, Steps
from mq.store.walk import folders

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
    """
    found = [path for _, path in folders(root.files, folder)]
    dropped = yield from drop_buckets(root, (path for path in found if _is_empty(root, path)))
    return dropped == len(found)


def _is_empty(root: Root, path: str) -> bool:
    try:
        return next(root.files.entries(path), None) is None
    except OSError as error:
        if is_gone(error):
            return False
        raise


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
