"""Counts of one folder's messages, by queue, as a listing finds them."""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import BadName
from mq.model.limits import UUID_CHARS
from mq.model.message import Stamp
from mq.model.names import QueueName, items_of
from mq.store.core.unserved import TIME_CHARS, PurgeMark
from mq.store.disk.files import is_gone
from mq.store.format.layout import KEYS_FOLDERS, split_entry

# A message in delay/ that is due for longer is overdue: no mover handles it.
OVERDUE_AFTER_S: Final = 5.0

IsFolder = Callable[["os.DirEntry[str]"], bool]
"""A predicate on entries: whether it is a folder that also holds messages."""

_NS_PER_MS: Final = 1_000_000
_OVERDUE_AFTER_MS: Final = round(OVERDUE_AFTER_S * 1000)


@dataclass(slots=True)
class Tally:
    """A queue's messages in a folder that its purge mark does not cover, and the number `hidden` by
    it; of a pack its items. `in_flight` and `overdue` are among the `messages`.
    `overdue_since_ms`: the earliest due time of the overdue ones. `oldest` and `newest`: the
    beginnings of their ids with the time; "" without messages.
    """

    mark: PurgeMark | None
    messages: int = 0
    in_flight: int = 0
    overdue: int = 0
    hidden: int = 0
    oldest: str = ""
    newest: str = ""
    overdue_since_ms: int | None = None
    bytes: int = 0
    """The bytes of the messages' files, if the listing looked at each."""
    has_packs: bool = False

    def add(self, name: str, items: int = 1) -> bool:
        """Counts the message with this id, as text, or the items of a pack. Returns false if the
        purge mark hides it.
        """
        if self.mark is not None and self.mark.covers(name):
            self.hidden += items
            return False
        self.messages += items
        if items > 1:
            self.has_packs = True
        if not self.oldest or name < self.oldest:
            self.oldest = name[:TIME_CHARS]
        if name > self.newest:
            self.newest = name[:TIME_CHARS]
        return True

    def under(self, mark: PurgeMark | None) -> "Tally | None":
        """The counts under another purge mark; None: only a listing can tell."""
        if mark == self.mark:
            return self
        if self.hidden and (mark is None or self.mark is None or mark.ms < self.mark.ms):
            return None
        if mark is None or not self.messages or not mark.covers(self.oldest):
            return self
        if mark.covers(self.newest):
            return Tally(mark, hidden=self.hidden + self.messages)
        return None


@dataclass(slots=True)
class Found:
    """The result of listing a folder. `below`: folders that also hold messages. `foreign`: the
    number of foreign names. `is_stamped`: no message's stamp may still be in progress.
    `overdue_from_ms`: the next time at which a message becomes overdue; None: never.
    """

    of: dict[str, Tally] = field(default_factory=dict)
    below: tuple[str, ...] = ()
    foreign: int = 0
    is_stamped: bool = True
    overdue_from_ms: int | None = None

    @property
    def entries(self) -> int:
        """The number of entries to remember."""
        return 1 + len(self.of) + len(self.below)

    @property
    def has_packs(self) -> bool:
        return any(tally.has_packs for tally in self.of.values())

    def see(self, tally: Tally, status: os.stat_result, now_ms: int, items: int = 1) -> None:
        """Counts a message of delay/, or the items of a pack, by its times."""
        stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
        tally.in_flight += items if stamp.receives > 0 else 0
        from_ms = stamp.due_ms + _OVERDUE_AFTER_MS
        if from_ms < now_ms:
            tally.overdue += items
            since_ms = tally.overdue_since_ms
            if since_ms is None or stamp.due_ms < since_ms:
                tally.overdue_since_ms = stamp.due_ms
        elif self.overdue_from_ms is None or from_ms < self.overdue_from_ms:
            self.overdue_from_ms = from_ms
        # A claim renames first and stamps then, and the stamp does not change the folder's mtime.
        if stamp.due_ms <= status.st_ctime_ns // _NS_PER_MS:
            self.is_stamped = False


def tally_queue(
    entries: "Iterable[os.DirEntry[str]]",
    is_folder: IsFolder,
    queue: str,
    mark: PurgeMark | None,
    with_bytes: bool = False,
) -> Found:
    """Counts the messages in a folder of one queue. `with_bytes`: with their sizes, by a stat of
    each. Raises what `entries` raises, OSError.
    """
    tally = Tally(mark)
    found = Found({queue: tally})
    below = []
    for entry in entries:
        name = entry.name
        if len(name) < UUID_CHARS and is_folder(entry):
            below.append(name)
            continue
        items = items_of(name)
        if not items or not entry.is_file(follow_symlinks=False):
            found.foreign += name not in KEYS_FOLDERS
            continue
        if not with_bytes:
            tally.add(name, items)
        elif (status := _status(entry)) is not None and tally.add(name, items):
            tally.bytes += status.st_size
    found.below = tuple(below)
    return found


def tally_shared(
    entries: "Iterable[os.DirEntry[str]]",
    is_folder: IsFolder,
    mark_of: Callable[[QueueName], PurgeMark | None],
    stamps_at_ms: int | None = None,
    with_bytes: bool = False,
) -> Found:
    """Counts the messages in a shared folder by queue, without foreign names. `stamps_at_ms`: also
    by their stamps at that time; this, and `with_bytes`, needs a stat of each message. Raises what
    `entries` raises, OSError.
    """
    looks = with_bytes or stamps_at_ms is not None
    found = Found()
    below = []
    for entry in entries:
        name = entry.name
        queue, message_id = split_entry(name)
        items = items_of(message_id)
        if not items:
            if is_folder(entry):
                below.append(name)
            continue
        if not entry.is_file(follow_symlinks=False):
            continue
        status = _status(entry) if looks else None
        if looks and status is None:
            continue  # It is gone.
        tally = found.of.get(queue)
        if tally is None:
            try:
                tally = Tally(mark_of(QueueName.parse(queue)))
            except BadName:
                continue
            found.of[sys.intern(queue)] = tally
        if tally.add(message_id, items) and status is not None:
            tally.bytes += status.st_size
            if stamps_at_ms is not None:
                found.see(tally, status, stamps_at_ms, items)
    found.below = tuple(below)
    return found


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        if is_gone(error):
            return None
        raise
