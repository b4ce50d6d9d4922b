"""The order of delivery, and the first ready messages in it; but for purged and expired ones.

By priority, then by id, merging the queue's own folder with its buckets: a bucket, which holds ids
from its own digits on, is listed when the merge comes to them, and what stands behind it waits.
Names are compared as text. So a queue's messages are found in a folder that others share, by id.
"""

import heapq
import itertools
import os
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mq.model.limits import FOLDERS_PER_LOOK_MAX, PRIORITY_MAX, UUID_CHARS
from mq.model.names import MessageId, QueueName
from mq.store.core.expired import unserved_mark
from mq.store.core.listing import is_settled, not_found
from mq.store.core.purged import PurgeMark
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import Bucket, dashed, parse_bucket, shard_of
from mq.store.format.walk import is_bucket, is_deep_folder

_PRIORITY: Final = slice(UUID_CHARS, UUID_CHARS + 3)
_PRIORITY_BEGINS: Final = ",p="
RANK_CHARS: Final = 2
NO_RANK: Final = f"{PRIORITY_MAX}0"
# Names kept of a folder that has more than it should, before those that come late are dropped.
KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class Order:
    """How messages are compared: by `key`, as text. With shards, those of the shard `start` come
    first of their priority, then those of the next one.
    """

    shards: int = 1
    start: int = 0

    def key(self, name: str) -> str:
        """What an id's name is compared by: two digits for priority and shard, then the name.
        For any text, since a foreign name is told from an id's when it is taken.
        """
        if self.shards == 1 and name[_PRIORITY] != _PRIORITY_BEGINS:
            return NO_RANK + name
        try:
            priority = int(name[_PRIORITY.stop]) if name[_PRIORITY] == _PRIORITY_BEGINS else 0
            return f"{PRIORITY_MAX - priority}{self._turn(shard_of(name, self.shards)):x}{name}"
        except (ValueError, IndexError):
            return NO_RANK + name

    def first_key(self, bucket: Bucket, deep: str = "") -> str:
        """No message of the bucket, or of what lies below it, is before this key."""
        known = bucket.shard is not None and bucket.shard < self.shards
        turn = self._turn(bucket.shard or 0) if known else 0
        return f"{PRIORITY_MAX - bucket.priority}{turn:x}{dashed(bucket.digits + deep)}"

    def _turn(self, shard: int) -> int:
        return (shard - self.start) % self.shards


STRICT: Final = Order()


@dataclass(frozen=True, slots=True)
class OrderUntil(Order):
    """The same of messages whose uuid is not behind this one: others are not there."""

    until: str = ""

    def key(self, name: str) -> str:
        """Like Order's; "" for a message that is left out."""
        return "" if name[:UUID_CHARS] > self.until else STRICT.key(name)


@dataclass(frozen=True, slots=True)
class OfQueue:
    """How a queue's messages in delay/ or remove/ are compared: by id. `prefix` is how the names
    of its entries begin.
    """

    prefix: str

    def key(self, name: str) -> str:
        """Like Order's; "" for an entry of another queue."""
        return NO_RANK + name[len(self.prefix) :] if name.startswith(self.prefix) else ""

    def first_key(self, bucket: Bucket, deep: str = "") -> str:
        """Like Order's."""
        return NO_RANK + dashed(bucket.digits + deep)


class Candidate(NamedTuple):
    """A message that may be ready: its key, its bucket (None: not known), and its id where that
    was not read from a name.
    """

    key: str
    bucket: str | None
    known_id: MessageId | None = None

    @property
    def name(self) -> str:
        """The id as text."""
        return self.key[RANK_CHARS:]

    @property
    def id(self) -> MessageId:
        """The message's id."""
        return self.known_id or MessageId.parse(self.name)


@dataclass(frozen=True, slots=True)
class FolderMark:
    """When the folders that a look listed last changed; believed only when all are old enough,
    since a change soon after another may leave the same mtime.
    """

    mtimes_ns: tuple[tuple[str, int], ...]
    trusted: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The first ready messages of a queue in delivery order; `complete` when they are all. `empty`
    are buckets in which nothing lies.
    """

    candidates: list[Candidate]
    complete: bool
    mark: FolderMark
    order: Order = STRICT
    empty: tuple[str, ...] = ()

    @property
    def ids(self) -> list[MessageId]:
        """The messages' ids."""
        return [candidate.id for candidate in self.candidates]


def list_ready(
    root: Root,
    queue: QueueName,
    limit: int,
    known: FolderMark | None = None,
    order: Order = STRICT,
) -> Listing | None:
    """The queue's first `limit` ready messages, or None when nothing changed since `known`.

    Blocking, and as long as its folder and its first buckets are large. Raises QueueNotFound.
    """
    folder = root.layout.queue(queue)
    status = root.files.status(folder)
    if status is None:
        raise not_found(root, queue)
    if known is not None and is_unchanged(root, known):
        return None
    look = Look(root, folder, limit, order, unserved_mark(root, queue))
    try:
        look.open(folder, "", None)
    except OSError as error:
        if is_gone(error):
            raise not_found(root, queue) from None
        raise
    has_buckets = any(isinstance(each, Unlisted) for _, _, each in look.waiting)
    root.places.saw(folder, look.flat_files, has_buckets or look.passed_over)
    complete = look.merge()
    look.found.sort()
    mark = FolderMark(tuple(look.mtimes_ns), look.settled)
    return Listing(look.found, complete, mark, order, tuple(look.empty))


def covers_nothing(name: str) -> bool:
    """Where nothing was purged."""
    return False


def is_unchanged(root: Root, known: FolderMark) -> bool:
    """Whether no folder that a look listed has changed since, as far as its mark says. Blocking."""
    if not known.trusted:
        return False
    for folder, mtime_ns in known.mtimes_ns:
        status = root.files.status(folder)
        if status is None or status.st_mtime_ns != mtime_ns:
            return False
    return True


@dataclass(slots=True)
class Run:
    """A folder's keys, sorted, of which those from `at` on are not found yet."""

    bucket: str
    keys: list[str]
    is_cut: bool
    at: int = 0


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A folder that the merge has not come to."""

    path: str
    bucket: str
    of: Bucket


@dataclass(slots=True)
class Look:
    """One merge of what is behind a key. `waiting` is a heap: the first key that a folder may have,
    and the folder.
    """

    root: Root
    folder: str
    limit: int
    order: Order | OfQueue
    purged: PurgeMark | None
    behind: str = ""
    passed_over: bool = False
    """Whether there are buckets that hold nothing but what is purged."""
    waiting: list[tuple[str, int, Run | Unlisted]] = field(default_factory=list)
    found: list[Candidate] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    mtimes_ns: list[tuple[str, int]] = field(default_factory=list)
    settled: bool = True
    flat_files: int = 0
    _numbers: int = 0

    def merge(self) -> bool:
        """Finds what it may; whether that is all."""
        listed = 0
        while self.waiting and len(self.found) < self.limit:
            _, _, first = heapq.heappop(self.waiting)
            if isinstance(first, Unlisted):
                if self.found and listed >= FOLDERS_PER_LOOK_MAX:
                    return False
                listed += 1
                self.open_bucket(first)
            elif not self._take(first):
                return False
        return not self.waiting

    def open(self, path: str, bucket: str, of: Bucket | None) -> bool:
        """Lists a folder; False when nothing lies in it. Raises OSError."""
        status = self.root.files.status(path)
        if status is not None:
            self.mtimes_ns.append((path, status.st_mtime_ns))
            self.settled = self.settled and is_settled(status, self.root.now_ms())
        key_of, behind, kept = self.order.key, self.behind, KEPT * self.limit
        is_purged = covers_nothing if self.purged is None else self.purged.covers
        keys: list[str] = []
        files = 0
        is_cut = anything = False
        for entry in self.root.files.entries(path):
            anything = True
            name = entry.name
            if len(name) < UUID_CHARS:
                self._wait_for_folder(entry, bucket, of)
            elif name[0] != "." and entry.is_file(follow_symlinks=False):
                files += 1
                if (key := key_of(name)) <= behind or is_purged(key[RANK_CHARS:]):
                    continue
                keys.append(key)
                if len(keys) > 2 * kept:
                    keys, was_cut = first_ids(keys, kept)
                    is_cut = is_cut or was_cut
        if of is None:
            self.flat_files = files
        if keys:
            keys.sort()
            self.wait(keys[0], Run(bucket, keys, is_cut))
        return anything

    def _wait_for_folder(self, entry: "os.DirEntry[str]", bucket: str, of: Bucket | None) -> None:
        if is_bucket_below(entry, bucket, of):
            self.wait_below(entry.name, entry.path, bucket, of)

    def wait_below(self, name: str, path: str, bucket: str, of: Bucket | None) -> None:
        """Waits for a bucket's folder, or, in a bucket, for one of what that could not hold."""
        below = f"{bucket}{name}/"
        if of is not None:
            if self.purged is None or not self.purged.covers_all(of, name):
                self._wait_behind(self.order.first_key(of, name), Unlisted(path, below, of))
        elif (inner := parse_bucket(name)) is not None:
            if self.purged is not None and self.purged.covers_all(inner):
                self.passed_over = True
                return
            self._wait_behind(self.order.first_key(inner), Unlisted(path, below, inner))

    def _wait_behind(self, first: str, folder: Unlisted) -> None:
        """Waits for a folder whose keys all begin so, unless they are all before what is wanted."""
        if first > self.behind or self.behind.startswith(first):
            self.wait(first, folder)

    def open_bucket(self, bucket: Unlisted) -> None:
        """Lists a folder that the merge has come to."""
        try:
            anything = self.open(bucket.path, bucket.bucket, bucket.of)
        except OSError as error:
            if not is_gone(error):
                raise
            self.settled = False
            return
        if not anything:
            self.empty.append(bucket.path)

    def _take(self, run: Run) -> bool:
        """Finds what of the run stands before all that waits. False when no more is known of it:
        nothing behind that may be found.
        """
        end = len(run.keys)
        if self.waiting:
            end = max(run.at + 1, bisect_left(run.keys, self.waiting[0][0], run.at))
        end = min(end, run.at + self.limit - len(self.found))
        for key in run.keys[run.at : end]:
            if MessageId.is_written(key[RANK_CHARS:]):
                self.found.append(Candidate(key, run.bucket))
        run.at = end
        if end < len(run.keys):
            self.wait(run.keys[end], run)
            return True
        return not run.is_cut

    def wait(self, key: str, what: Run | Unlisted) -> None:
        """Has what waits come when the merge is at this key."""
        self._numbers += 1  # No two are alike: what waits is never compared.
        heapq.heappush(self.waiting, (key, self._numbers, what))


def is_bucket_below(entry: "os.DirEntry[str]", bucket: str, of: Bucket | None) -> bool:
    """Whether what was met in the queue's folder, or in a bucket, is a folder of messages."""
    return is_bucket(entry) if of is None else bucket.count("/") == 1 and is_deep_folder(entry)


def first_ids(keys: list[str], count: int) -> tuple[list[str], bool]:
    """The first keys that are ids', so that foreign names push none out; whether others were."""
    keys.sort()
    ids = (key for key in keys if MessageId.is_written(key[RANK_CHARS:]))
    first = list(itertools.islice(ids, count))
    return first, next(ids, None) is not None
