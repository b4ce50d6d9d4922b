"""A message's file: sets due times that a file system may not be able to store, and tells whether a
file can be the published one. It cannot when it is shorter than its name says, or when its header
block is not text and has no readable line. A storage error proves nothing about the file.
"""

import errno
from typing import Final

from mq.model.errors import DueTooFar, MessageUnreadable
from mq.model.headers import parse_block
from mq.model.limits import PACK_BYTES_MAX
from mq.model.message import Held, Stamp
from mq.model.names import MessageId
from mq.model.packs import spans_in
from mq.store.core.moves import Claim
from mq.store.core.root import Root

# Up to the beginning of 2038 every file system keeps an mtime.
DUE_MS_KEPT: Final = 2_145_916_800_000

NO_BLOCK: Final = b""
"""The header block of a message without one."""
# The errors of a file system for a time that it cannot store; others truncate the time.
_NO_SUCH_TIME: Final = (errno.EINVAL, errno.EOVERFLOW, errno.ERANGE)


def header_block(
    root: Root, message_id: MessageId, claim: Claim, held: Held | None
) -> bytes | None:
    """The header block of an open file. None: it is in `held` already, or could not be read.
    Blocking.
    """
    size = message_id.header_bytes
    if not size:
        return NO_BLOCK
    if held is not None and held.head_bytes == size:
        return None
    try:
        return root.files.read(claim.descriptor, size, 0)
    except OSError:
        return None  # A read of the message reports it.


def is_unreadable(message_id: MessageId, claim: Claim, block: bytes | None) -> bool:
    """Whether the file cannot be the published one; by its size where its block is unknown."""
    if claim.status.st_size < message_id.header_bytes:
        return True
    return block is not None and block != NO_BLOCK and not is_readable(block)


def is_readable(block: bytes) -> bool:
    """Whether a header block can be the published one. Lines that are damaged or handwritten are
    skipped.
    """
    return bool(parse_block(block)) or _is_text(block)


def holds_pack(root: Root, pack: MessageId, descriptor: int) -> bool:
    """Whether an open file can be the published pack. Blocking. Raises OSError."""
    content = root.files.read(descriptor, PACK_BYTES_MAX + 1, 0)
    try:
        spans_in(content, pack)
    except MessageUnreadable:
        return False
    return not pack.header_bytes or is_readable(content[: pack.header_bytes])


def _is_text(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in block


def stamp_due(root: Root, descriptor: int, stamp: Stamp) -> None:
    """Sets a file's mtime. Raises DueTooFar where its file system cannot store it, and leaves the
    mtime unchanged. Durable on return: no.
    """
    if stamp.due_ms > DUE_MS_KEPT:
        check_due(root, descriptor, stamp)
    root.files.stamp(descriptor, stamp.mtime_ns())


def check_due(root: Root, descriptor: int, stamp: Stamp) -> None:
    """Tests whether a file's mtime could be this. Raises DueTooFar. Leaves the mtime unchanged in
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
