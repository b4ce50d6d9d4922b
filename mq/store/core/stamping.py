"""Setting the due time that a client asked for, which a file system may not be able to keep."""

import errno
from typing import Final

from mq.model.errors import DueTooFar
from mq.model.limits import DUE_MS_KEPT
from mq.model.message import Stamp
from mq.store.core.root import Root

# What a file system says of a time that it has no room for, where it does not cut it.
_NO_SUCH_TIME: Final = (errno.EINVAL, errno.EOVERFLOW, errno.ERANGE)


def stamp_due(root: Root, descriptor: int, stamp: Stamp) -> None:
    """Sets a file's mtime. Raises DueTooFar where its file system cannot keep it, the mtime being
    as it was. Durable on return: no.
    """
    check_due(root, descriptor, stamp)
    root.files.stamp(descriptor, stamp.mtime_ns())


def check_due(root: Root, descriptor: int, stamp: Stamp) -> None:
    """Tries whether a file's mtime could be that. Raises DueTooFar; its mtime is as it was, in
    either case. Durable on return: no.
    """
    if stamp.due_ms <= DUE_MS_KEPT:
        return
    before_ns = root.files.descriptor_status(descriptor).st_mtime_ns
    try:
        root.files.stamp(descriptor, stamp.mtime_ns())
    except OverflowError:
        raise DueTooFar from None
    except OSError as error:
        if error.errno in _NO_SUCH_TIME:
            raise DueTooFar from None
        raise
    is_kept = root.files.descriptor_status(descriptor).st_mtime_ns == stamp.mtime_ns()
    root.files.stamp(descriptor, before_ns)
    if not is_kept:
        raise DueTooFar
