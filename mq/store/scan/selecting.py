"""The first ready messages of a queue that are of a selection, in delivery order.

Like `order`'s look, but for what it passes over: buckets of other priorities, folders of which
`Barren` remembers that nothing in them is of the selection, and names that are not. Where a name
leaves it open, the message's header block is read when the merge comes to it. So a look after the
first costs a stat a folder, and a listing of what has changed.

It goes on in hops of bounded work until it has found something or has come to the end: what is
not of the selection, however much it is, hides nothing that is.
"""

import errno
import heapq
from bisect import bisect_left
from dataclasses import dataclass, field

from mq.model.errors import BadName
from mq.model.headers import parse_block
from mq.model.limits import (
    FOLDERS_PER_LOOK_MAX,
    SELECT_NAMES_PER_BLOCK,
    SELECT_NAMES_PER_FOLDER,
    SELECT_NAMES_PER_HOP,
    UUID_CHARS,
)
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.store.core.expired import unserved_mark
from mq.store.core.listing import is_settled, not_found
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import Bucket, parse_bucket
from mq.store.scan.barren import Barren
from mq.store.scan.order import (
    KEPT,
    RANK_CHARS,
    STRICT,
    Candidate,
    FolderMark,
    Listing,
    Look,
    Order,
    Run,
    Unlisted,
    first_ids,
    is_bucket_below,
)

# A file that cannot be opened for good cannot be fetched: it hides no other.
_UNREADABLE = frozenset({errno.ELOOP, errno.EACCES, errno.EPERM})


class SelectedLook:
    """One look for a selection's messages; `go_on` until it has come to its end."""

    def __init__(
        self,
        root: Root,
        queue: QueueName,
        limit: int,
        selection: Selection,
        barren: Barren,
        order: Order = STRICT,
        names_per_hop: int = SELECT_NAMES_PER_HOP,
    ) -> None:
        self._root = root
        self._queue = queue
        self._order = order
        self._barren = barren
        folder = root.layout.queue(queue)
        self._look = _Look(
            root,
            folder,
            limit,
            order,
            unserved_mark(root, queue),
            selection=selection,
            barren=barren,
            work_max=names_per_hop,
        )
        self._began = False

    def go_on(self) -> Listing | None:
        """One hop: what was found, which is nothing only where there is nothing; or None: nothing
        yet, and there is more to look through.

        Blocking. Raises QueueNotFound, OSError.
        """
        look, root = self._look, self._root
        if root.files.status(look.folder) is None:
            raise not_found(root, self._queue)
        look.work = 0
        if not self._began:
            self._begin()
        if not look.go_on():
            return None
        complete = not look.waiting
        self._barren.look_ended(complete)
        look.found.sort()
        # With more folders than that, what is remembered of each tells as much.
        few = len(look.mtimes_ns) <= FOLDERS_PER_LOOK_MAX
        mark = FolderMark(tuple(look.mtimes_ns) if few else (), look.settled and few)
        return Listing(look.found, complete, mark, self._order, tuple(look.empty))

    def _begin(self) -> None:
        look, root = self._look, self._root
        self._began = True
        self._barren.look_began()
        try:
            look.open(look.folder, "", None)
        except OSError as error:
            if is_gone(error):
                raise not_found(root, self._queue) from None
            raise


@dataclass(slots=True)
class _Folder:
    """A folder that the look lists: its mtime (None: too young to be worth anything), the folders
    below it, and whether any message in it is of the selection.
    """

    path: str
    bucket: str
    of: Bucket | None
    mtime_ns: int | None
    below: list[str] = field(default_factory=list)
    has_any: bool = False


@dataclass(slots=True)
class _FolderRun(Run):
    """Keys of a folder that may be of the selection."""

    folder: _Folder = field(kw_only=True)


@dataclass(slots=True)
class _Keys:
    """The first keys of a folder, so many and not twice as many more; `is_cut`: there are others
    behind them.
    """

    kept: int
    is_cut: bool = False
    _keys: list[str] = field(default_factory=list)

    def add(self, key: str) -> None:
        self._keys.append(key)
        if len(self._keys) > 2 * self.kept:
            self._cut()

    def first(self) -> list[str]:
        """Them, sorted."""
        if self.is_cut:
            self._cut()  # Behind those that were kept, others were dropped.
        self._keys.sort()
        return self._keys

    def _cut(self) -> None:
        self._keys, was_cut = first_ids(self._keys, self.kept)
        self.is_cut = self.is_cut or was_cut


@dataclass(slots=True)
class _Look(Look):
    """The merge. `work` is what the hop has done, in names."""

    selection: Selection = field(kw_only=True)
    barren: Barren = field(kw_only=True)
    work_max: int = field(kw_only=True)
    work: int = 0
    has_buckets: bool = False

    def go_on(self) -> bool:
        """Finds what it may in one hop; whether that is all of this look."""
        while self.waiting and len(self.found) < self.limit:
            if self.work >= self.work_max:
                return bool(self.found)
            _, _, first = heapq.heappop(self.waiting)
            if isinstance(first, Unlisted):
                self.open_bucket(first)
            elif isinstance(first, _FolderRun):
                self._take_some(first)
        return True

    def wait_below(self, name: str, path: str, bucket: str, of: Bucket | None) -> None:
        """Like Look's, but for buckets of other priorities than are wanted."""
        if of is None and (inner := parse_bucket(name)) is not None:
            self.has_buckets = True
            lowest, highest = self.selection.priorities
            if not lowest <= inner.priority <= highest:
                return
        Look.wait_below(self, name, path, bucket, of)

    def open(self, path: str, bucket: str, of: Bucket | None) -> bool:
        """Lists a folder, where it is not known what that would tell. False when nothing lies in
        it. Raises OSError.
        """
        self.work += SELECT_NAMES_PER_FOLDER
        status = self.root.files.status(path)
        folder = _Folder(path, bucket, of, None)
        if status is not None:
            self.mtimes_ns.append((path, status.st_mtime_ns))
            if is_settled(status, self.root.now_ms()):
                folder.mtime_ns = status.st_mtime_ns
            else:
                self.settled = False
            below = self.barren.below(path, status.st_mtime_ns)
            if below is not None:
                for name in below:
                    self.wait_below(name, f"{path}/{name}", bucket, of)
                return True
        anything, files = self._list(folder)
        for name in folder.below:
            self.wait_below(name, f"{path}/{name}", bucket, of)
        if of is None:
            self.root.places.saw(path, files, self.has_buckets)
        return anything

    def _list(self, folder: _Folder, behind: str = "") -> tuple[bool, int]:
        """Has the folder's names behind a key wait that may be of the selection. Whether anything
        lies in it, and how many files.
        """
        refused, still_refused = self.barren.refused(folder.path), set[str]()
        keys = _Keys(KEPT * self.limit)
        files, anything = 0, False
        for entry in self.root.files.entries(folder.path):
            anything = True
            name = entry.name
            if len(name) < UUID_CHARS:
                if not behind and is_bucket_below(entry, folder.bucket, folder.of):
                    folder.below.append(name)
            elif name[0] != "." and entry.is_file(follow_symlinks=False):
                files += 1
                if name in refused:
                    still_refused.add(name)
                elif (key := self._key(name)) > behind:
                    keys.add(key)
        self.work += files
        self.barren.was_listed(folder.path, still_refused)
        if first := keys.first():
            self.wait(first[0], _FolderRun(folder.bucket, first, keys.is_cut, folder=folder))
        elif anything:
            self._has_ended(folder)
        return anything, files

    def _key(self, name: str) -> str:
        """What a name is compared by; "" where the message is served no more or not wanted."""
        if self.selection.matches_name(name) is False:
            return ""
        if self.purged is not None and self.purged.covers(name):
            return ""
        return self.order.key(name)

    def _take_some(self, run: _FolderRun) -> None:
        """Finds what of the run stands before all that waits, as far as this hop goes."""
        end = len(run.keys)
        if self.waiting:
            end = max(run.at + 1, bisect_left(run.keys, self.waiting[0][0], run.at))
        while run.at < end and len(self.found) < self.limit and self.work < self.work_max:
            key = run.keys[run.at]
            run.at += 1
            if self._is_selected(run, key[RANK_CHARS:]):
                run.folder.has_any = True
                self.found.append(Candidate(key, run.bucket))
        if run.at < len(run.keys):
            self.wait(run.keys[run.at], run)
        elif run.is_cut:
            self._list(run.folder, behind=run.keys[-1])  # It has more than is kept at once.
        else:
            self._has_ended(run.folder)

    def _has_ended(self, folder: _Folder) -> None:
        """All that may be of the selection in the folder was looked at."""
        if folder.mtime_ns is not None and not folder.has_any:
            self.barren.is_barren(folder.path, folder.mtime_ns, tuple(folder.below))

    def _is_selected(self, run: _FolderRun, name: str) -> bool:
        """Whether a name is an id's, and the message, whose name leaves it open, is wanted."""
        if self.selection.matches_name(name):
            return MessageId.is_written(name)
        self.work += SELECT_NAMES_PER_BLOCK
        folder = run.folder
        try:
            size = MessageId.parse(name).header_bytes
        except BadName:
            return False
        try:
            block = self.root.files.read_file(f"{folder.path}/{name}", size)
        except OSError as error:
            if is_gone(error):
                return False
            if error.errno not in _UNREADABLE:
                raise
            folder.mtime_ns = None  # Others may be let read it.
            return False
        if self.selection.matches_headers(name, parse_block(block)):
            return True
        self.barren.refuse(folder.path, name)
        return False
