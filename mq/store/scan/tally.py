"""What one folder holds, by queue: how many messages of which kind, as a listing finds them."""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import BadName
from mq.model.limits import OVERDUE_AFTER_S, UUID_CHARS
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.purged import TIME_CHARS, PurgeMark
from mq.store.disk.files import is_gone
from mq.store.format.layout import split_entry

IsFolder = Callable[["os.DirEntry[str]"], bool]
"""Whether an entry is a folder that messages lie in too."""

_NS_PER_MS: Final = 1_000_000
_OVERDUE_AFTER_MS: Final = round(OVERDUE_AFTER_S * 1000)


@dataclass(slots=True)
class Tally:
    """A queue's messages in a folder: those behind its purge mark, and how many are `hidden`
    by it. `in_flight` and `overdue` are among the `messages`; `overdue_since_ms`: when the one was
    due that is overdue longest. `oldest` and `newest` is what of an id's text tells its time; ""
    where there are no messages.
    """

    mark: PurgeMark | None
    messages: int = 0
    in_flight: int = 0
    overdue: int = 0
    hidden: int = 0
    oldest: str = ""
    newest: str = ""
    overdue_since_ms: int | None = None

    def add(self, name: str) -> bool:
        """Counts the message of this id, as text; whether it is not hidden."""
        if self.mark is not None and self.mark.covers(name):
            self.hidden += 1
            return False
        self.messages += 1
        if not self.oldest or name < self.oldest:
            self.oldest = name[:TIME_CHARS]
        if name > self.newest:
            self.newest = name[:TIME_CHARS]
        return True

    def under(self, mark: PurgeMark | None) -> "Tally | None":
        """What a listing would have found with this mark; None: only a listing can tell."""
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
    """What a listing of a folder found. `below` are folders that hold messages too, `foreign`
    counts names that are none's. `is_stamped`: no message is there whose stamp may still be under
    way. `overdue_from_ms`: when the next message is overdue that is not yet; None: none will be.
    """

    of: dict[str, Tally] = field(default_factory=dict)
    below: tuple[str, ...] = ()
    foreign: int = 0
    is_stamped: bool = True
    overdue_from_ms: int | None = None

    @property
    def entries(self) -> int:
        """How much there is to remember."""
        return 1 + len(self.of) + len(self.below)

    def see(self, tally: Tally, status: os.stat_result, now_ms: int) -> None:
        """Counts what a message's times say, of those in delay/."""
        stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
        tally.in_flight += stamp.receives > 0
        from_ms = stamp.due_ms + _OVERDUE_AFTER_MS
        if from_ms < now_ms:
            tally.overdue += 1
            since_ms = tally.overdue_since_ms
            if since_ms is None or stamp.due_ms < since_ms:
                tally.overdue_since_ms = stamp.due_ms
        elif self.overdue_from_ms is None or from_ms < self.overdue_from_ms:
            self.overdue_from_ms = from_ms
        # A claim is a rename and then its stamp, which no folder's mtime tells of.
        if stamp.due_ms <= status.st_ctime_ns // _NS_PER_MS:
            self.is_stamped = False


def tally_queue(
    entries: "Iterable[os.DirEntry[str]]", is_folder: IsFolder, queue: str, mark: PurgeMark | None
) -> Found:
    """What a folder of a queue's own holds. Raises what `entries` does."""
    tally = Tally(mark)
    found = Found({queue: tally})
    below = []
    for entry in entries:
        name = entry.name
        if len(name) < UUID_CHARS and is_folder(entry):
            below.append(name)
        elif not MessageId.is_written(name) or not entry.is_file(follow_symlinks=False):
            found.foreign += 1
        else:
            tally.add(name)
    found.below = tuple(below)
    return found


def tally_shared(
    entries: "Iterable[os.DirEntry[str]]",
    is_folder: IsFolder,
    mark_of: Callable[[QueueName], PurgeMark | None],
    stamps_at_ms: int | None = None,
) -> Found:
    """What a folder holds that queues share; foreign names are left out. `stamps_at_ms`: what the
    messages' times say then is counted too, for a look at each. Raises what `entries` does,
    OSError.
    """
    found = Found()
    below = []
    for entry in entries:
        name = entry.name
        queue, message_id = split_entry(name)
        if not MessageId.is_written(message_id):
            if is_folder(entry):
                below.append(name)
            continue
        if not entry.is_file(follow_symlinks=False):
            continue
        status = None if stamps_at_ms is None else _status(entry)
        if stamps_at_ms is not None and status is None:
            continue  # It went meanwhile.
        tally = found.of.get(queue)
        if tally is None:
            try:
                tally = Tally(mark_of(QueueName.parse(queue)))
            except BadName:
                continue
            found.of[sys.intern(queue)] = tally
        if tally.add(message_id) and status is not None and stamps_at_ms is not None:
            found.see(tally, status, stamps_at_ms)
    found.below = tuple(below)
    return found


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        if is_gone(error):
            return None
        raise
