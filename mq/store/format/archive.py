"""Names of an archive in a root: its mark, its ledgers, and what the lines of these say.

FORMAT.md, "Archive", has them. A line of a ledger is the path of a removed message below remove/.
"""

import functools
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mq.model.bulk_limits import ARCHIVE_SEQ_DIGITS_MAX
from mq.model.errors import BadName
from mq.model.names import MessageId, QueueName
from mq.store.format.bucket_names import is_deep, parse_bucket
from mq.store.format.layout import Layout, is_deleted_folder, new_name, parse_entry, split_entry
from mq.store.format.pipeline import acknowledged_ms

_FOLDER: Final = "archive"
_MARK: Final = "enabled.json"
_ENDED: Final = "disabled.json"
_LOCK: Final = ".lock"
_DELETED: Final = ".d"
_NUMBER: Final = rf"[1-9][0-9]{{0,{ARCHIVE_SEQ_DIGITS_MAX - 1}}}"
_LEDGER: Final = re.compile(rf"(?:({_NUMBER})-)?({_NUMBER})(\.names|\.stored)")


class LedgerKind(Enum):
    """What a ledger says of its names; the value is how its own name ends."""

    BEGUN = ".names"
    STORED = ".stored"


@dataclass(frozen=True, slots=True, order=True)
class LedgerName:
    """A ledger by the number of its batch; `first` is lower where it is of several batches that
    were stored, this one and all before it from `first` on.
    """

    first: int
    seq: int
    kind: LedgerKind

    @property
    def text(self) -> str:
        """As the file is called."""
        number = f"{self.seq}" if self.first == self.seq else f"{self.first}-{self.seq}"
        return number + self.kind.value

    def covers(self, other: "LedgerName") -> bool:
        """Whether all that the other one, not itself, has is in this one."""
        is_within = self.first <= other.first and other.seq <= self.seq
        return self.kind is LedgerKind.STORED and is_within and self != other

    @classmethod
    def parse(cls, text: str) -> "LedgerName":
        """Raises BadName when no ledger is called so."""
        match = _LEDGER.fullmatch(text)
        if match is None:
            raise BadName("ledger", "{number}.names or .stored")
        seq, kind = int(match.group(2)), LedgerKind(match.group(3))
        first = seq if match.group(1) is None else int(match.group(1))
        if match.group(1) is not None and (first >= seq or kind is not LedgerKind.STORED):
            raise BadName("ledger", "{first}-{last}.stored")
        return cls(first, seq, kind)


class Removal(Enum):
    """How a message was removed: by itself, with its deleted queue or a purged bucket, or with the
    lease that was acknowledged.
    """

    MESSAGE = "message"
    QUEUE = "queue"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class RemovedName:
    """What the path of a removed message below remove/ says. `folder_ms`: when it came there, where
    it did with a whole folder, by the clock of whoever moved that, in milliseconds since the epoch;
    None: its file's ctime says so.
    """

    queue: QueueName
    id: MessageId
    removal: Removal
    folder_ms: int | None = None


def archive_folder(layout: Layout) -> str:
    """The folder of what a root says of its archive; there from the first time on."""
    return f"{layout.root}/{_FOLDER}"


def mark_path(layout: Layout) -> str:
    """The mark: an archive is enabled while it is there."""
    return f"{layout.root}/{_FOLDER}/{_MARK}"


def ended_path(layout: Layout) -> str:
    """What stays of an archive that was disabled: the number of its last batch."""
    return f"{layout.root}/{_FOLDER}/{_ENDED}"


def archive_lock(layout: Layout) -> str:
    """What the one process has locked that archives."""
    return f"{layout.root}/{_FOLDER}/{_LOCK}"


def ledger_path(layout: Layout, ledger: LedgerName) -> str:
    """Where a ledger is."""
    return f"{layout.root}/{_FOLDER}/{ledger.text}"


def new_archive_file(layout: Layout, name: str) -> str:
    """Where this process writes a file of the folder. A dotfile: it means nothing until it is
    renamed.
    """
    return f"{layout.root}/{_FOLDER}/{new_name(name)}"


def place_of(path: str) -> str:
    """What the paths of removed messages are in the order of: folder by folder, by their names."""
    return path.replace("/", "\0")


def folder_of(path: str) -> str:
    """The folder below remove/ that a removed message lies in; "" for remove/ itself."""
    return path.rpartition("/")[0]


def parse_removed(path: str) -> RemovedName:
    """Reads a line of a ledger. Raises BadName."""
    top, slash, rest = path.partition("/")
    if not slash:
        return RemovedName(*parse_entry(path), Removal.MESSAGE)
    removal, queue, folder_ms = _folder(top)
    *buckets, name = rest.split("/")
    if removal is Removal.MESSAGE:
        buckets.insert(0, top)
    _check_buckets(buckets, 0 if removal is Removal.LEASE else 2)
    if removal is not Removal.QUEUE:
        return RemovedName(*parse_entry(name), removal, folder_ms)
    return RemovedName(QueueName.parse(queue), MessageId.parse(name), removal, folder_ms)


def removed_with_folder_ms(path: str) -> int | None:
    """`folder_ms` of a line that is known to be a removed message's: for many at once."""
    top, slash, _ = path.partition("/")
    return _folder(top)[2] if slash else None


@functools.lru_cache(maxsize=1024)
def _folder(name: str) -> tuple[Removal, str, int | None]:
    """What a folder in remove/ holds, whose it is, and when it came there."""
    came_ms = acknowledged_ms(name)
    if came_ms is not None:
        return Removal.LEASE, "", came_ms
    if is_deleted_folder(name):
        queue, _ = split_entry(name)
        return Removal.QUEUE, queue, parse_entry(name.removesuffix(_DELETED))[1].published_ms
    return Removal.MESSAGE, "", None


def _check_buckets(buckets: list[str], most: int) -> None:
    fits = len(buckets) <= most
    fits = fits and (not buckets or parse_bucket(buckets[0]) is not None)
    if not fits or not all(map(is_deep, buckets[1:])):
        raise BadName("removed", "a removed message's path below remove/")
