"""Ids that a bulk publish makes again when it is tried again: UUIDv7s out of its name and the rows.

Floor 0. Of one publish id, all are different; rows of one partition have ids in their order.
"""

import hashlib
from typing import Final

from mq.bulk_limits import PARTITION_BITS, ROWS_PER_MS
from mq.names import Key

_HASH_BITS: Final = 62 - PARTITION_BITS
_HIGH_BITS: Final = 7
_HASH_MASK: Final = (1 << _HASH_BITS) - 1


class RepeatableIds:
    """The UUIDs of one partition of a publish that began at `begun_ms` (since the epoch)."""

    __slots__ = ("_begun_ms", "_hash", "_partition")

    def __init__(self, publish_id: Key, begun_ms: int, partition: int) -> None:
        self._begun_ms = begun_ms
        self._partition = (partition & ((1 << PARTITION_BITS) - 1)) << _HASH_BITS
        # What comes first has an end that no key has in it.
        self._hash = hashlib.sha256(f"{publish_id.written()}\n{partition}\n".encode("ascii"))

    def uuid(self, row: int) -> str:
        """That of the partition's row, 0 and up, in its usual text."""
        digest = self._hash.copy()
        digest.update(b"%d" % row)
        bits = int.from_bytes(digest.digest()[:8], "big")
        ms = self._begun_ms + row // ROWS_PER_MS
        count = (row % ROWS_PER_MS) << _HIGH_BITS | bits >> (64 - _HIGH_BITS)
        tail = (0b10 << 62) | self._partition | (bits & _HASH_MASK)
        return (
            f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{count:03x}-"
            f"{tail >> 48:04x}-{tail & 0xFFFFFFFFFFFF:012x}"
        )
