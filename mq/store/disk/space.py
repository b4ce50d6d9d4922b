"""The reserve of free bytes and inodes: publishing stops before the disk is full.

Fetch and delete write nothing that grows, but need a block or an inode now and then, such as a
folder's next block. The reserve is for them.
"""

import os
from dataclasses import dataclass
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import NoInodes, NoSpace
from mq.model.limits import MIB
from mq.store.disk.files import Files

# Space held back from publishers, so that fetch and delete still work on a full disk.
RESERVE_BYTES_MAX: Final = 64 * MIB
RESERVE_INODES_MAX: Final = 1000
RESERVE_SHARE: Final = 0.05
SPACE_AGE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Room:
    """The size of a file system, its free part for this user, and the part of that which publishers
    leave: bytes and inodes. Without `total_inodes` it makes those as it needs them.
    """

    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    total_inodes: int
    free_inodes: int
    reserve_inodes: int

    @classmethod
    def of(cls, told: os.statvfs_result, reserve_bytes: int | None) -> "Room":
        """As the file system tells it; `reserve_bytes` as Space has it."""
        total_bytes = told.f_blocks * told.f_frsize
        if reserve_bytes is None:
            reserve_bytes = min(RESERVE_BYTES_MAX, int(total_bytes * RESERVE_SHARE))
        return cls(
            total_bytes,
            told.f_bavail * told.f_frsize,
            reserve_bytes,
            told.f_files,
            told.f_favail,
            min(RESERVE_INODES_MAX, int(told.f_files * RESERVE_SHARE)),
        )

    @property
    def bytes_left(self) -> int:
        return self.free_bytes - self.reserve_bytes

    @property
    def inodes_left(self) -> int | None:
        """Inodes that they may use; None: as many as they like."""
        return self.free_inodes - self.reserve_inodes if self.total_inodes else None

    @property
    def is_low(self) -> bool:
        return self.bytes_left < 1 or (self.inodes_left is not None and self.inodes_left < 1)


class Space:
    """Free bytes and inodes above the reserve, read from the file system now and then.

    `reserve_bytes` None: a twentieth of the file system, at most 64 MiB. Threads share it. The
    figures are hints: a write that exceeds them fails with the disk's own error.
    """

    def __init__(
        self, files: Files, clock: Clock, root: str, reserve_bytes: int | None = None
    ) -> None:
        self._files = files
        self._clock = clock
        self._root = root
        self._reserve_bytes = reserve_bytes
        self._asked_s = float("-inf")
        self._bytes_left = 0
        self._inodes_left: int | None = None

    def is_low(self) -> bool:
        """Whether publishers are refused now. Raises OSError when the file system won't say."""
        self._ask(self._clock.steady_s())
        return self._bytes_left < 1 or (self._inodes_left is not None and self._inodes_left < 1)

    def room(self) -> Room:
        """What there is now. Raises OSError when the file system won't say."""
        return Room.of(self._files.free(self._root), self._reserve_bytes)

    def has_no_inode(self) -> bool:
        """Whether it is inodes that lack, of all that ENOSPC may mean."""
        return self._files.lacks_inodes(self._root)

    def claim(self, size: int, inodes: int = 1) -> None:
        """Counts on `size` bytes and `inodes` inodes. Raises NoSpace or NoInodes below the
        reserve.
        """
        now_s = self._clock.steady_s()
        if now_s - self._asked_s > SPACE_AGE_S:
            self._ask(now_s)
        if size > self._bytes_left:
            raise NoSpace("below the reserve of bytes")
        if inodes and self._inodes_left is not None and inodes > self._inodes_left:
            raise NoInodes("below the reserve of inodes")
        self._bytes_left -= size
        if self._inodes_left is not None:
            self._inodes_left -= inodes

    def _ask(self, now_s: float) -> None:
        room = self.room()
        # A file system that makes inodes as it needs them (btrfs) tells of none.
        self._bytes_left, self._inodes_left = room.bytes_left, room.inodes_left
        self._asked_s = now_s
