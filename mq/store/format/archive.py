"""The names of an archive's files in a root: its mark, its ledgers, and the lines of ledgers.

FORMAT.md, "Archive". A line of a ledger is the path of a removed message below remove/.
"""

import functools
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mq.model.errors import BadName
from mq.model.names import MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.format.bucket_names import is_deep, parse_bucket
from mq.store.format.layout import Layout, is_deleted_folder, new_name, parse_entry, split_entry
from mq.store.format.pipeline import acknowledged_ms

ARCHIVE_SEQ_DIGITS_MAX: Final = 12

_FOLDER: Final = "archive"
_MARK: Final = "enabled.json"
_ENDED: Final = "disabled.json"
_LOCK: Final = ".lock"
_DELETED: Final = ".d"
_NUMBER: Final = rf"[1-9][0-9]{{0,{ARCHIVE_SEQ_DIGITS_MAX - 1}}}"
_LEDGER: Final = re.compile(rf"(?:({_NUMBER})-)?({_NUMBER})(\.names|\.stored)")


class LedgerKind(Enum):
    """The kind of a ledger; the value is the suffix of its name."""

    BEGUN = ".names"
    STORED = ".stored"


@dataclass(frozen=True, slots=True, order=True)
class LedgerName:
    """A ledger by the number of its batch; `first` is lower for a merged ledger of all stored
    batches from `first` on.
    """

    first: int
    seq: int
    kind: LedgerKind

    @property
    def text(self) -> str:
        number = f"{self.seq}" if self.first == self.seq else f"{self.first}-{self.seq}"
        return number + self.kind.value

    def covers(self, other: "LedgerName") -> bool:
        """Whether this ledger contains all of another one."""
        is_within = self.first <= other.first and other.seq <= self.seq
        return self.kind is LedgerKind.STORED and is_within and self != other

    @classmethod
    def parse(cls, text: str) -> "LedgerName":
        """Parses a ledger's name. Raises BadName."""
        match = _LEDGER.fullmatch(text)
        if match is None:
            raise BadName("ledger", "{number}.names or .stored")
        seq, kind = int(match.group(2)), LedgerKind(match.group(3))
        first = seq if match.group(1) is None else int(match.group(1))
        if match.group(1) is not None and (first >= seq or kind is not LedgerKind.STORED):
            raise BadName("ledger", "{first}-{last}.stored")
        return cls(first, seq, kind)


class Removal(Enum):
    """How a message was removed: by itself, with its deleted queue or a purged bucket, or with an
    acknowledged lease.
    """

    MESSAGE = "message"
    QUEUE = "queue"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class RemovedName:
    """The parsed path of a removed message below remove/. `folder_ms`: when its folder was moved
    there as a whole, by the clock of the process that moved it, in milliseconds since the epoch;
    None: the message came by itself, and its ctime counts.
    """

    queue: QueueName
    id: MessageId
    removal: Removal
    folder_ms: int | None = None


def archive_folder(layout: Layout) -> str:
    """The folder of the archive's files; made on first use."""
    return f"{layout.root}/{_FOLDER}"


def mark_path(layout: Layout) -> str:
    """The mark: while it exists, an archive is enabled."""
    return f"{layout.root}/{_FOLDER}/{_MARK}"


def is_marked(files: Files, layout: Layout) -> bool:
    """Whether the archive's mark exists. Raises OSError."""
    return files.status(mark_path(layout)) is not None


def ended_path(layout: Layout) -> str:
    """The file that a disabled archive leaves: the number of its last batch."""
    return f"{layout.root}/{_FOLDER}/{_ENDED}"


def archive_lock(layout: Layout) -> str:
    """The lock file of the archive's owner."""
    return f"{layout.root}/{_FOLDER}/{_LOCK}"


def ledger_path(layout: Layout, ledger: LedgerName) -> str:
    return f"{layout.root}/{_FOLDER}/{ledger.text}"


def new_archive_file(layout: Layout, name: str) -> str:
    """Where this process writes a file of the folder. A dotfile: it means nothing until it is
    renamed.
    """
    return f"{layout.root}/{_FOLDER}/{new_name(name)}"


def place_of(path: str) -> str:
    """The sort key of removed messages' paths: folder by folder, by name."""
    return path.replace("/", "\0")


def folder_of(path: str) -> str:
    """The folder of a removed message below remove/; "" for remove/ itself."""
    return path.rpartition("/")[0]


def parse_removed(path: str) -> RemovedName:
    """Parses a line of a ledger. Raises BadName."""
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
    """`folder_ms` of a line that is known to be valid: fast, for many lines."""
    top, slash, _ = path.partition("/")
    return _folder(top)[2] if slash else None


@functools.lru_cache(maxsize=1024)
def _folder(name: str) -> tuple[Removal, str, int | None]:
    """The kind of a folder in remove/, its queue, and when it came there."""
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
