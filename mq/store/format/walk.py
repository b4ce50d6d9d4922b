"""Reading folders: the walk through a folder of messages and the folders below it, the names that
are valid there, and how long a listing stays valid.

A `spot` is the part of a path between such a folder and a message's name: "", or folder names, each
with a slash behind it, written as a `bucket`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeAlias

from mq.model.clock import Clock
from mq.model.errors import BadName
from mq.model.limits import UUID_CHARS
from mq.model.names import QueueName
from mq.store.disk.files import Files, is_gone
from mq.store.disk.steps import T
from mq.store.format.bucket_names import is_deep, parse_bucket
from mq.store.format.layout import is_deleted_folder
from mq.store.format.pipeline import is_acknowledged

Entry: TypeAlias = "os.DirEntry[str]"

# The share of time for scans, and the longest pause between two, however long a scan took: a
# process that was stopped during one scans again by then.
LOOK_SHARE: Final = 0.05
LOOK_PAUSE_S_MAX: Final = 10.0
# A folder's mtime can be trusted only if it is this much older than the listing.
FOLDER_MTIME_TRUST_S: Final = 2.0


class Holds(Enum):
    """The folders of other messages that a folder of messages may hold."""

    REMOVED = "buckets, deleted queues' folders, acknowledged leases: remove/"
    BUCKETS = "buckets: delay/, a queue's folder"
    DEEP = "what the bucket has no room for: a bucket"
    NOTHING = "no folders: one below a bucket, a lease, new/"


class Folder(NamedTuple):
    path: str
    holds: Holds = Holds.BUCKETS
    spot: str = ""

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def below(self, name: str) -> "Folder | None":
        """The folder of messages with this name in this folder; None: the name is not valid for
        one.
        """
        holds = holds_inside(self.holds, name)
        if holds is None:
            return None
        return Folder(f"{self.path}/{name}", holds, f"{self.spot}{name}/")

    def inner(self, entry: Entry) -> "Folder | None":
        """Likewise for an entry of this folder. A symbolic link is not a folder."""
        name = entry.name
        if len(name) >= UUID_CHARS and self.holds is not Holds.REMOVED:
            return None  # The usual case: a message. No bucket's name is as long as an id.
        found = self.below(name)
        return found if found is not None and entry.is_dir(follow_symlinks=False) else None


def holds_inside(holds: Holds, name: str) -> Holds | None:
    """What a folder of this name may hold, inside a folder that `holds` that; None: it holds no
    messages.
    """
    if len(name) < UUID_CHARS:
        if holds is Holds.DEEP:
            return Holds.NOTHING if is_deep(name) else None
        if holds is not Holds.NOTHING and parse_bucket(name) is not None:
            return Holds.DEEP
    if holds is not Holds.REMOVED:
        return None
    if is_acknowledged(name):
        return Holds.NOTHING
    return Holds.BUCKETS if is_deleted_folder(name) else None


def holds_at(spot: str, top: Holds = Holds.BUCKETS) -> Holds:
    """What the folder at a spot below `top` may hold."""
    holds: Holds | None = top
    for name in spot.split("/")[:-1]:
        holds = holds and holds_inside(holds, name)
    return holds or Holds.NOTHING


def _any(folder: Folder) -> bool:
    return True


def walk(
    files: Files,
    top: Folder | str,
    wants: Callable[[Folder], bool] = _any,
    entries: Callable[[str], Iterable[Entry]] | None = None,
) -> Iterator[tuple[Folder, Entry]]:
    """The entries of a folder and of the message folders below it, each with its folder. Leaves out
    these folders themselves, but not other folders. Skips a folder that disappears meanwhile.
    `wants`: which folders to list. `entries`: how to list, by default in no order.

    Raises OSError if `top` cannot be listed.
    """
    folder = Folder(top) if isinstance(top, str) else top
    for entry in files.entries(folder.path) if entries is None else entries(folder.path):
        if (inner := folder.inner(entry)) is None:
            yield folder, entry
        elif wants(inner):
            yield from if_there(walk(files, inner, wants, entries))


def walk_spots(files: Files, top: str, spots: Iterable[str]) -> Iterator[tuple[Folder, Entry]]:
    """Likewise for these folders below one, which hold no other folders, as a lease's."""
    for spot in spots:
        yield from if_there(walk(files, Folder(f"{top}/{spot}"[:-1], Holds.NOTHING, spot)))


def folders(files: Files, top: str) -> list[Folder]:
    """The buckets of a folder and the folders below them, the inner ones first."""
    found: list[Folder] = []
    for bucket in buckets(files, top):
        found += filter(None, map(bucket.inner, entries_if_there(files, bucket.path)))
        found.append(bucket)
    return found


def buckets(files: Files, top: str) -> Iterator[Folder]:
    """The buckets of a folder without the folders below them. Raises OSError if it cannot be
    listed.
    """
    return filter(None, map(Folder(top).inner, files.entries(top)))


def is_bucket(entry: Entry) -> bool:
    """Whether the entry is a bucket's folder. A symbolic link is not."""
    return parse_bucket(entry.name) is not None and entry.is_dir(follow_symlinks=False)


def is_deep_folder(entry: Entry) -> bool:
    """Whether the entry of a bucket is a folder for its overflow."""
    return is_deep(entry.name) and entry.is_dir(follow_symlinks=False)


def named(entries: Iterable[Entry], parse: Callable[[str], T]) -> Iterator[tuple[Entry, T]]:
    """The entries with valid names, and their parsed names; foreign ones are left out."""
    for entry in entries:
        try:
            found = parse(entry.name)
        except BadName:
            continue
        yield entry, found


def queue_folders(files: Files, top: str) -> Iterator[tuple[QueueName, Entry]]:
    """The queues' folders in a folder with one for each; none if it is gone."""
    for entry, queue in named(entries_if_there(files, top), QueueName.parse):
        if entry.is_dir(follow_symlinks=False):
            yield queue, entry


def entries_if_there(files: Files, folder: str) -> Iterator[Entry]:
    """The folder's entries; none if it is gone."""
    return if_there(files.entries(folder))


def if_there(found: Iterator[T]) -> Iterator[T]:
    """The items of a listing; ends when the folder is gone."""
    try:
        yield from found
    except OSError as error:
        if not is_gone(error):
            raise


def look_pause_s(cost_s: float) -> float:
    """The pause after a scan that took `cost_s` seconds: scans get a small share of the time, and a
    process that was stopped during one scans again soon.
    """
    return min(cost_s / LOOK_SHARE, LOOK_PAUSE_S_MAX)


def is_settled(folder: os.stat_result, now_ms: int) -> bool:
    """Whether a folder's mtime is so old that every later change will change it."""
    return now_ms - folder.st_mtime_ns // 1_000_000 >= FOLDER_MTIME_TRUST_S * 1000


class Remembered(Generic[T]):
    """A cache of a folder's parsed names for one process. A lookup costs one stat while the folder
    is unchanged; `nothing` is the result for a missing folder. Thread-safe without a lock: each
    thread trusts only its own listing.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        folder: str,
        read: Callable[[os.stat_result], T],
        nothing: T,
    ) -> None:
        self._files = files
        self._clock = clock
        self._folder = folder
        self._read = read
        self._nothing = nothing
        # The folder's mtime at the listing (-1: it may have changed since), and the result.
        self._seen = (-1, nothing)

    def now(self) -> T:
        """The current result. Raises OSError."""
        status = self._files.status(self._folder)
        if status is None:
            return self._nothing
        mtime_ns, found = self._seen
        if mtime_ns == status.st_mtime_ns:
            return found
        mtime_ns = status.st_mtime_ns if is_settled(status, self._clock.now_ms()) else -1
        found = self._read(status)
        self._seen = (mtime_ns, found)
        return found
