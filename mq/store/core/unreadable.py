"""Messages whose files cannot be what was published: shorter than their names say, or with a header
block that is no text, and has not one line that can be read.

An error of the storage is no such thing: then nothing is known of the file.
"""

from typing import Final

from mq.model.headers import parse_block
from mq.model.message import Held
from mq.model.names import MessageId
from mq.store.core.moves import Claim
from mq.store.core.root import Root

NO_BLOCK: Final = b""
"""That of a message that has none."""


def header_block(
    root: Root, message_id: MessageId, claim: Claim, held: Held | None
) -> bytes | None:
    """The header block of a file that is open; None: it is `held` already, or could not be read.
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
        return None  # Whoever reads the message hears of it.


def is_unreadable(message_id: MessageId, claim: Claim, block: bytes | None) -> bool:
    """Whether the file cannot be what was published; where its block is not known, by its size."""
    if claim.status.st_size < message_id.header_bytes:
        return True
    return block is not None and block != NO_BLOCK and not is_readable(block)


def is_readable(block: bytes) -> bool:
    """Whether a header block can be what was published. Lines that are damaged, or written by hand
    in their own way, are passed over.
    """
    return bool(parse_block(block)) or _is_text(block)


def _is_text(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in block
