"""Warnings of an archive that is behind: the age of the oldest removed message that it has not
stored, and whether the disk runs low. The reaper unlinks none of these messages.
"""

import os
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mq.model.log import logger
from mq.store.archive.removed_names import LagLook
from mq.store.core.root import Root
from mq.store.format.walk import LOOK_SHARE

# The interval of log lines about a late archive.
ARCHIVE_LATE_SAID_EVERY_S: Final = 600.0
# The disk runs low at this share of free bytes or inodes.
ARCHIVE_LOW_SHARE: Final = 0.1
# The number of names that one step checks, and the interval between scans.
ARCHIVE_LAG_NAMES_PER_PASS: Final = 20_000
ARCHIVE_LAG_EVERY_S: Final = 60.0

_log = logger("mq-reaper")

_LOOKS_PER_LATE: Final = 10


class Said(Enum):
    """A state of an archive to log; the value is the text."""

    BEHIND = "the archive is behind"
    BEHIND_AND_LOW = (
        "the archive is behind and the disk runs low; "
        "messages that it has not stored are kept all the same"
    )
    CAUGHT_UP = "the archive has caught up"


@dataclass(frozen=True, slots=True)
class Free:
    """Free space of a file system: bytes, and the shares of bytes and inodes (None: no fixed number
    of inodes).
    """

    free_bytes: int
    bytes_share: float
    inodes_share: float | None

    @classmethod
    def of(cls, told: os.statvfs_result) -> "Free":
        inodes = told.f_favail / told.f_files if told.f_files else None
        blocks = told.f_bavail / told.f_blocks if told.f_blocks else 0.0
        return cls(told.f_bavail * told.f_frsize, blocks, inodes)

    @property
    def is_low(self) -> bool:
        """Whether less than ARCHIVE_LOW_SHARE of either is left."""
        shares = (self.bytes_share, 1.0 if self.inodes_share is None else self.inodes_share)
        return min(shares) < ARCHIVE_LOW_SHARE


@dataclass(frozen=True, slots=True)
class Behind:
    """How far an archive is behind: the number of removed messages that it has not stored, the
    seconds since the oldest of them was removed, and the limit for a warning.
    """

    messages: int
    oldest_s: float
    late_s: float


class Warnings:
    """Decides what to log and when: once, every ARCHIVE_LATE_SAID_EVERY_S while it lasts, at once
    when the disk begins to run low, and once at the end.
    """

    def __init__(self, late_s: float) -> None:
        self._late_s = late_s
        self._last: Said | None = None
        self._said_s = 0.0

    def say(self, oldest_s: float | None, is_low: bool, now_s: float) -> Said | None:
        """The message to log now; None: nothing. `oldest_s`: seconds since the oldest message that
        is not stored was removed (None: there is none). `now_s`: by a steady clock.
        """
        if oldest_s is None or oldest_s <= self._late_s:
            was_behind, self._last = self._last is not None, None
            return Said.CAUGHT_UP if was_behind else None
        said = Said.BEHIND_AND_LOW if is_low else Said.BEHIND
        is_news = self._last is None or (is_low and self._last is Said.BEHIND)
        if not is_news and now_s - self._said_s < ARCHIVE_LATE_SAID_EVERY_S:
            return None
        self._last, self._said_s = said, now_s
        return said


class LagWatch:
    """Scans remove/ again and again, some names a call, in a small share of the time, and logs
    warnings.
    """

    def __init__(self, root: Root, late_s: float) -> None:
        self._root = root
        self._late_s = late_s
        self._warnings = Warnings(late_s)
        self._seen: tuple[int, int | None] = (0, None)
        """The result of the last complete scan: the number of messages, and when the oldest was
        removed.
        """
        self._every_s = min(ARCHIVE_LAG_EVERY_S, late_s / _LOOKS_PER_LATE)
        self._look: LagLook | None = None
        self._again_s = float("-inf")

    def advance(self) -> None:
        """Does a step if one is due. A failure is logged and does not stop the reaper."""
        began_s = self._root.clock.steady_s()
        if began_s < self._again_s:
            return
        look, self._look = self._look or LagLook(self._root), None
        try:
            goes_on = look.advance(ARCHIVE_LAG_NAMES_PER_PASS)
        except OSError as error:
            self._again_s = began_s + self._every_s
            fields = {"error": repr(error)}
            _log.warning("cannot find out how late the archive is", extra={"fields": fields})
            return
        ended_s = self._root.clock.steady_s()
        self._again_s = ended_s + (ended_s - began_s) / LOOK_SHARE
        if goes_on:
            self._look = look
            return
        self._again_s = max(self._again_s, ended_s + self._every_s)
        self._found(look, ended_s)

    def forget(self) -> None:
        """Forgets the state, when no archive is enabled."""
        self._look = None
        self._seen = (0, None)
        self._warnings.say(None, False, 0.0)

    def behind(self) -> Behind:
        """How far the archive is behind, by the last complete scan. For any thread."""
        messages, oldest_ms = self._seen
        oldest_s = 0.0 if oldest_ms is None else (self._root.now_ms() - oldest_ms) / 1000
        return Behind(messages, max(0.0, oldest_s), self._late_s)

    def _found(self, look: LagLook, now_s: float) -> None:
        self._seen = (look.messages, look.oldest_ms)
        free = Free.of(self._root.files.free(self._root.layout.root))
        oldest_s = None if look.oldest_ms is None else (self._root.now_ms() - look.oldest_ms) / 1000
        said = self._warnings.say(oldest_s, free.is_low, now_s)
        if said is Said.CAUGHT_UP:
            _log.info(said.value)
        elif said is not None:
            fields: dict[str, float] = {"oldest_s": round(oldest_s or 0)}
            fields["messages"] = look.messages
            _log.warning(said.value, extra={"fields": fields | _told(free, said)})


def _told(free: Free, said: Said) -> dict[str, float]:
    if said is not Said.BEHIND_AND_LOW:
        return {}
    told = {"free_bytes": free.free_bytes, "free_percent": _percent(free.bytes_share)}
    if free.inodes_share is not None:
        told["free_inodes_percent"] = _percent(free.inodes_share)
    return told


def _percent(share: float) -> float:
    return round(100 * share, 1)
