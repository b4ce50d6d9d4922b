"""Setting the due time that a client asked for, which a file system may not be able to keep."""

from mq.errors import DueTooFar
from mq.limits import DUE_MS_KEPT
from mq.message import Stamp
from mq.store.root import Root


def stamp_due(root: Root, descriptor: int, stamp: Stamp) -> None:
    """Sets a file's mtime. Raises DueTooFar where its file system cannot keep it, the mtime being
    as it was. Durable on return: no.
    """
    if stamp.due_ms <= DUE_MS_KEPT:
        root.files.stamp(descriptor, stamp.mtime_ns())
        return
    before_ns = root.files.descriptor_status(descriptor).st_mtime_ns
    try:
        root.files.stamp(descriptor, stamp.mtime_ns())
    except OverflowError:
        raise DueTooFar from None
    if root.files.descriptor_status(descriptor).st_mtime_ns != stamp.mtime_ns():
        root.files.stamp(descriptor, before_ns)
        raise DueTooFar
