"""The delivery order, and the first ready messages in it, without purged and expired ones.

The order is by priority, then by id. A merge reads the queue's own folder and its buckets. A bucket
holds ids from its own digits on, so it is listed only when the merge reaches them. Names are
compared as text. The same merge finds a queue's messages in a shared folder, by id.
"""

import heapq
import itertools
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mq.model.lifecycle import State
from mq.model.limits import PRIORITY_MAX, UUID_CHARS
from mq.model.names import PACKED, MessageId, QueueName, group_in, items_of
from mq.store.core.root import Root
from mq.store.core.standing import not_found
from mq.store.core.unserved import OWN_TTL, PurgeMark, mark_of, own_expiry, unserved_mark
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import Bucket, dashed, parse_bucket, shard_of
from mq.store.format.layout import entry_prefix
from mq.store.format.walk import Folder, is_settled, walk_spots

# Folders that one scan lists before it returns its results.
FOLDERS_PER_LOOK_MAX: Final = 64

_PRIORITY: Final = slice(UUID_CHARS, UUID_CHARS + 3)
_PRIORITY_BEGINS: Final = ",p="
NO_HEADS: Final[Mapping[str, str]] = {}
RANK_CHARS: Final = 2
NO_RANK: Final = f"{PRIORITY_MAX}0"
# Limits: cached buckets of a queue, and groups of a bucket.
GROUP_FOLDERS_MAX: Final = 20_000
GROUPS_PER_FOLDER_MAX: Final = 16
# Names kept of an overfull folder before late ones are dropped.
KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class Order:
    """Compares messages by `key`, as text. With shards, the shard `start` comes first within each
    priority, then the shards after it.
    """

    shards: int = 1
    start: int = 0

    def key(self, name: str) -> str:
        """The sort key of an id: two digits for priority and shard, then the name. Accepts any
        text, since a candidate's name is parsed only when it is taken.
        """
        if self.shards == 1 and name[_PRIORITY] != _PRIORITY_BEGINS:
            return NO_RANK + name
        try:
            priority = int(name[_PRIORITY.stop]) if name[_PRIORITY] == _PRIORITY_BEGINS else 0
            return f"{PRIORITY_MAX - priority}{self._turn(shard_of(name, self.shards)):x}{name}"
        except (ValueError, IndexError):
            return NO_RANK + name

    def first_key(self, bucket: Bucket, deep: str = "") -> str:
        """A lower bound for the keys of the bucket's messages, also of those below it."""
        known = bucket.shard is not None and bucket.shard < self.shards
        turn = self._turn(bucket.shard or 0) if known else 0
        return f"{PRIORITY_MAX - bucket.priority}{turn:x}{dashed(bucket.digits + deep)}"

    def _turn(self, shard: int) -> int:
        return (shard - self.start) % self.shards


STRICT: Final = Order()


@dataclass(frozen=True, slots=True)
class OrderUntil(Order):
    """Like Order, for messages whose uuid is not after `until`; others are left out."""

    until: str = ""

    def key(self, name: str) -> str:
        """Like Order's; "" for a message that is left out."""
        return "" if name[:UUID_CHARS] > self.until else STRICT.key(name)


@dataclass(frozen=True, slots=True)
class OfQueue:
    """Compares a queue's messages in delay/ or remove/ by id. `prefix`: the beginning of its
    entries' names.
    """

    prefix: str

    def key(self, name: str) -> str:
        """Like Order's; "" for an entry of another queue."""
        return NO_RANK + name[len(self.prefix) :] if name.startswith(self.prefix) else ""

    def first_key(self, bucket: Bucket, deep: str = "") -> str:
        return NO_RANK + dashed(bucket.digits + deep)


class Candidate(NamedTuple):
    """A message that may be ready: its key, its bucket (None: unknown), and its id if that was not
    read from a name.
    """

    key: str
    bucket: str | None
    known_id: MessageId | None = None

    @property
    def name(self) -> str:
        return self.key[RANK_CHARS:]

    @property
    def id(self) -> MessageId:
        return self.known_id or MessageId.parse(self.name)

    @property
    def messages(self) -> int:
        """How many messages the file has: the items of a pack."""
        return items_of(self.name) or 1 if PACKED in self.key else 1


@dataclass(frozen=True, slots=True)
class FolderMark:
    """The mtimes of the listed folders. Trusted only if all are settled: a change soon after
    another may leave the same mtime.
    """

    mtimes_ns: tuple[tuple[str, int], ...]
    trusted: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The first ready messages of a queue in delivery order; `complete`: there are no others.
    `empty`: empty buckets.
    """

    candidates: list[Candidate]
    complete: bool
    mark: FolderMark
    order: Order = STRICT
    empty: tuple[str, ...] = ()
    passed: frozenset[str] = frozenset()
    """The groups with skipped messages."""

    @property
    def ids(self) -> list[MessageId]:
        return [candidate.id for candidate in self.candidates]


def list_ready(
    root: Root,
    queue: QueueName,
    limit: int,
    known: FolderMark | None = None,
    order: Order = STRICT,
    heads: Mapping[str, str] | None = NO_HEADS,
    folders: "GroupFolders | None" = None,
) -> Listing | None:
    """The queue's first `limit` ready messages, or None if nothing changed since `known`. Of the
    groups in `heads` only the heads are listed; `heads` None: no message of a group.

    Blocking; takes time in proportion to the queue's folder and its first buckets. Raises
    QueueNotFound.
    """
    folder = root.layout.queue(queue)
    status = root.files.status(folder)
    if status is None:
        raise not_found(root, queue)
    if known is not None and is_unchanged(root, known):
        return None
    look = Look(root, folder, limit, order, unserved_mark(root, queue))
    look.is_over = own_expiry(root, queue)
    look.held = HeldGroups(heads, folders or GroupFolders()) if heads or heads is None else None
    try:
        look.open(Folder(folder), None, status)
    except OSError as error:
        if is_gone(error):
            raise not_found(root, queue) from None
        raise
    has_buckets = any(isinstance(each, Unlisted) for _, _, each in look.waiting)
    root.places.saw(folder, look.flat_files, has_buckets or look.passed_over)
    complete = look.merge()
    look.found.sort()
    mark = FolderMark(tuple(look.mtimes_ns), look.settled)
    return Listing(look.found, complete, mark, order, tuple(look.empty), look.passed)


def covers_nothing(name: str) -> bool:
    return False


def is_unchanged(root: Root, known: FolderMark) -> bool:
    """Whether the listed folders are certainly unchanged. Blocking."""
    if not known.trusted:
        return False
    for folder, mtime_ns in known.mtimes_ns:
        status = root.files.status(folder)
        if status is None or status.st_mtime_ns != mtime_ns:
            return False
    return True


class GroupFolders:
    """A bounded cache of buckets that hold messages of a few groups only, by mtime. A bucket whose
    groups all wait need not be listed again.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, frozenset[str]]] = {}

    def groups(self, path: str, mtime_ns: int) -> frozenset[str]:
        """The groups of a bucket; empty if unknown."""
        known = self._known.get(path)
        return known[1] if known is not None and known[0] == mtime_ns else frozenset()

    def remember(self, path: str, mtime_ns: int, groups: frozenset[str]) -> None:
        """Records that the bucket has only messages of these groups."""
        if len(self._known) >= GROUP_FOLDERS_MAX:
            self._known.clear()
        self._known[path] = mtime_ns, groups


@dataclass(slots=True)
class HeldGroups:
    """Groups of which a scan lists only the message in `heads`, by its id's text (None: no message
    of any group). `passed`: the groups with skipped messages. `count` and `groups`: the skipped
    messages of the current folder.
    """

    heads: Mapping[str, str] | None
    folders: GroupFolders
    passed: set[str] = field(default_factory=set)
    count: int = 0
    groups: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Begins another folder."""
        self.count, self.groups = 0, set()

    def waits_in(self, root: Root, path: str, mtime_ns: int) -> bool:
        """Whether the bucket can be skipped: all its groups are held by messages outside it."""
        groups = self.folders.groups(path, mtime_ns)
        if not groups:
            return False
        if self.heads is not None:
            for group in groups:
                head = self.heads.get(group)
                if head is None or root.files.status(f"{path}/{head}") is not None:
                    return False
        self.passed |= groups
        return True

    def covers(self, name: str) -> bool:
        """Whether the message with this id is skipped."""
        group = group_in(name)
        if not group or (self.heads is not None and self.heads.get(group, name) == name):
            return False
        self.passed.add(group)
        self.groups.add(group)
        self.count += 1
        return True


@dataclass(slots=True)
class Run:
    """A folder's sorted keys; those from `at` on are not merged yet."""

    bucket: str
    keys: list[str]
    is_cut: bool
    at: int = 0


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A folder that the merge has not reached: the bucket `of`, or a folder below it."""

    folder: Folder
    of: Bucket


@dataclass(slots=True)
class Look:
    """One merge of the messages after a key. `waiting` is a heap of first possible keys and their
    folders.
    """

    root: Root
    folder: str
    limit: int
    order: Order | OfQueue
    purged: PurgeMark | None
    behind: str = ""
    is_over: Callable[[str], bool] = covers_nothing
    """Whether a message's own time to live has ended."""
    passed_over: bool = False
    """Whether there are buckets with only purged messages."""
    waiting: list[tuple[str, int, Run | Unlisted]] = field(default_factory=list)
    found: list[Candidate] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    mtimes_ns: list[tuple[str, int]] = field(default_factory=list)
    settled: bool = True
    flat_files: int = 0
    files: int = 0
    others: int = 0
    """The numbers of files and of other entries in the last listed folder."""
    held: HeldGroups | None = None
    _numbers: int = 0

    @property
    def passed(self) -> frozenset[str]:
        """The groups with skipped messages."""
        return frozenset() if self.held is None else frozenset(self.held.passed)

    def _passes_over(self) -> Callable[[str], bool]:
        """A predicate on ids: whether the scan skips the message."""
        purged, held = self.purged, self.held
        if held is None:
            return covers_nothing if purged is None else purged.covers
        if purged is None:
            return held.covers
        return lambda name: purged.covers(name) or held.covers(name)

    def merge(self) -> bool:
        """Merges up to the limit. Returns whether that was everything."""
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

    def open(self, folder: Folder, of: Bucket | None, status: os.stat_result | None = None) -> bool:
        """Lists a folder; `status`: its status, if known. False if it is empty. Raises OSError."""
        path = folder.path
        status = status or self.root.files.status(path)
        if status is not None:
            self.mtimes_ns.append((path, status.st_mtime_ns))
            self.settled = self.settled and is_settled(status, self.root.now_ms())
        key_of, behind, kept = self.order.key, self.behind, KEPT * self.limit
        is_passed_over = self._passes_over()
        keys: list[str] = []
        files = entries = 0
        is_cut = False
        for entry in self.root.files.entries(path):
            entries += 1
            name = entry.name
            if len(name) < UUID_CHARS:
                if (inner := folder.inner(entry)) is not None:
                    self.wait_below(inner, of)
            elif name[0] != "." and entry.is_file(follow_symlinks=False):
                files += 1
                if (
                    (key := key_of(name)) <= behind
                    or is_passed_over(key[RANK_CHARS:])
                    or (OWN_TTL in name and self.is_over(key[RANK_CHARS:]))
                ):
                    continue
                keys.append(key)
                if len(keys) > 2 * kept:
                    keys, was_cut = first_ids(keys, kept)
                    is_cut = is_cut or was_cut
        if of is None:
            self.flat_files = files
        if keys:
            keys.sort()
            self.wait(keys[0], Run(folder.spot, keys, is_cut))
        self.others = entries - files
        self.files = files
        return entries > 0

    def wait_below(self, folder: Folder, of: Bucket | None) -> None:
        """Adds a bucket's folder, or one below the bucket `of`, to the heap, unless all its
        messages are purged or before the first wanted key.
        """
        deep = folder.name if of is not None else ""
        bucket = of or parse_bucket(folder.name)
        if bucket is None:
            return
        if self.purged is not None and self.purged.covers_all(bucket, deep):
            self.passed_over = self.passed_over or not deep
            return
        first = self.order.first_key(bucket, deep)
        if first > self.behind or self.behind.startswith(first):
            self.wait(first, Unlisted(folder, bucket))

    def open_bucket(self, bucket: Unlisted) -> None:
        """Lists a folder that the merge has reached, unless nothing in it can be found."""
        path, status = bucket.folder.path, None
        if self.held is not None and (status := self.root.files.status(path)) is not None:
            if self.held.waits_in(self.root, path, status.st_mtime_ns):
                self.mtimes_ns.append((path, status.st_mtime_ns))
                return
            self.held.begin()
        try:
            anything = self.open(bucket.folder, bucket.of, status)
        except OSError as error:
            if not is_gone(error):
                raise
            self.settled = False
            return
        if not anything:
            self.empty.append(path)
        elif status is not None:
            self._remember(path, status)

    def _remember(self, path: str, status: os.stat_result) -> None:
        held = self.held
        if held is None or self.others or not 0 < held.count == self.files:
            return
        if len(held.groups) <= GROUPS_PER_FOLDER_MAX and is_settled(status, self.root.now_ms()):
            held.folders.remember(path, status.st_mtime_ns, frozenset(held.groups))

    def _take(self, run: Run) -> bool:
        """Takes the run's keys up to the next waiting one. False: nothing further can be found."""
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
        """Adds a run or a folder to the heap, at this key."""
        self._numbers += 1  # A unique number: heap entries are never compared by content.
        heapq.heappush(self.waiting, (key, self._numbers, what))


def first_ids(keys: list[str], count: int) -> tuple[list[str], bool]:
    """The first keys of valid ids, so that foreign names displace none; and whether there were
    foreign ones.
    """
    keys.sort()
    ids = (key for key in keys if MessageId.is_written(key[RANK_CHARS:]))
    first = list(itertools.islice(ids, count))
    return first, next(ids, None) is not None


def list_after(
    root: Root,
    state: State,
    queue: QueueName,
    limit: int,
    after: MessageId | None = None,
    ready: Order = STRICT,
) -> tuple[list[Candidate], bool]:
    """The queue's first messages of a state after the id, up to `limit` or fewer, and whether there
    are no more. Ready messages in this order, which has no shards; others by id.

    Lists no folder that is wholly before the id or behind the last message found. Blocking. Raises
    QueueNotFound, OSError.
    """
    behind = "" if after is None else _key(state, after)
    return _list_behind(root, state, queue, limit, behind, ready)


def listed(root: Root, state: State, queue: QueueName, message_id: MessageId) -> Candidate | None:
    """The message as a scan of the state finds it; None: it does not. Blocking. Raises
    QueueNotFound, OSError.
    """
    # The beginning of a key sorts just before it.
    behind = _key(state, message_id)[:-1]
    for found in _list_behind(root, state, queue, 1, behind, STRICT)[0]:
        if found.name == message_id.text:
            return found
    return None


def _key(state: State, message_id: MessageId) -> str:
    return STRICT.key(message_id.text) if state is State.READY else NO_RANK + message_id.text


def _list_behind(
    root: Root, state: State, queue: QueueName, limit: int, behind: str, ready: Order
) -> tuple[list[Candidate], bool]:
    if state is State.LEASED:
        return _list_leased(root, queue, limit, behind)
    folder = root.layout.base(state, queue)
    order = ready if state is State.READY else OfQueue(entry_prefix(queue))
    purged = None if state is State.REMOVED else mark_of(root, queue)
    look = Look(root, folder, limit, order, purged, behind)
    try:
        look.open(Folder(folder), None)
    except OSError as error:
        if is_gone(error) and state is State.READY:
            raise not_found(root, queue) from None
        raise
    complete = look.merge()
    look.found.sort()
    return look.found, complete


def _list_leased(
    root: Root, queue: QueueName, limit: int, behind: str
) -> tuple[list[Candidate], bool]:
    """`list_after` for leased messages."""
    order, mark = OfQueue(entry_prefix(queue)), mark_of(root, queue)
    is_purged = covers_nothing if mark is None else mark.covers
    leased = walk_spots(root.files, root.layout.leases, root.places.leases.spots())
    found = heapq.nsmallest(
        limit + 1,
        (
            Candidate(key, lease.spot)
            for lease, entry in leased
            if (key := order.key(entry.name)) > behind
            and MessageId.is_written(key[RANK_CHARS:])
            and not is_purged(key[RANK_CHARS:])
        ),
    )
    return found[:limit], len(found) <= limit
