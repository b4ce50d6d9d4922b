"""The first ready messages of a queue that match a selection, in delivery order.

A merge like that of `order`, which skips buckets of other priorities, folders that `Barren` knows
to have no match, and names that do not match. If a name does not decide, the message's header block
is read when the merge reaches it. So later scans cost a stat for each folder, and a listing of
changed ones.

A scan works in hops of bounded work until it has found a match or reached the end: any number of
non-matching messages hides no match.
"""

import errno
import heapq
import os
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import BadName
from mq.model.headers import parse_block
from mq.model.limits import UUID_CHARS
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.store.core.root import Root
from mq.store.core.standing import not_found
from mq.store.core.unserved import OWN_TTL, own_expiry, unserved_mark
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import Bucket, parse_bucket
from mq.store.format.walk import Folder, is_settled
from mq.store.scan.barren import Barren
from mq.store.scan.order import (
    FOLDERS_PER_LOOK_MAX,
    KEPT,
    NO_HEADS,
    RANK_CHARS,
    STRICT,
    Candidate,
    FolderMark,
    GroupFolders,
    HeldGroups,
    Listing,
    Look,
    Order,
    Run,
    Unlisted,
    first_ids,
)

# The work of a hop in names, and the cost of a header block and of a folder listing in names.
SELECT_NAMES_PER_HOP: Final = 50_000
SELECT_NAMES_PER_BLOCK: Final = 50
SELECT_NAMES_PER_FOLDER: Final = 10

# A file that can never be opened cannot be fetched either; it must not hide others.
_UNREADABLE = frozenset({errno.ELOOP, errno.EACCES, errno.EPERM})


class SelectedLook:
    """One scan for a selection's messages; call `go_on` until it ends."""

    def __init__(
        self,
        root: Root,
        queue: QueueName,
        limit: int,
        selection: Selection,
        barren: Barren,
        order: Order = STRICT,
        names_per_hop: int = SELECT_NAMES_PER_HOP,
        heads: Mapping[str, str] = NO_HEADS,
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
            is_over=own_expiry(root, queue),
            selection=selection,
            barren=barren,
            work_max=names_per_hop,
            held=HeldGroups(heads, GroupFolders()) if heads else None,
        )
        self._began = False

    def go_on(self) -> Listing | None:
        """One hop. Returns the messages found (empty: there is none), or None: nothing found yet,
        and more remains.

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
        # With more folders than that, the memory of each folder serves as well.
        few = len(look.mtimes_ns) <= FOLDERS_PER_LOOK_MAX
        mark = FolderMark(tuple(look.mtimes_ns) if few else (), look.settled and few)
        return Listing(look.found, complete, mark, self._order, tuple(look.empty), look.passed)

    def _begin(self) -> None:
        look, root = self._look, self._root
        self._began = True
        self._barren.look_began()
        try:
            look.open(Folder(look.folder), None)
        except OSError as error:
            if is_gone(error):
                raise not_found(root, self._queue) from None
            raise


@dataclass(slots=True)
class _Listed:
    """A folder that the scan lists: its mtime (None: too young to trust), the folders below it, and
    whether it has any match.
    """

    folder: Folder
    mtime_ns: int | None = None
    below: list[Folder] = field(default_factory=list)
    has_any: bool = False


@dataclass(slots=True)
class _FolderRun(Run):
    """Keys of a folder that may match."""

    listed: _Listed = field(kw_only=True)


@dataclass(slots=True)
class _Keys:
    """The first keys of a folder, `kept` to three times as many. `is_cut`: later keys were
    dropped.
    """

    kept: int
    is_cut: bool = False
    _keys: list[str] = field(default_factory=list)

    def add(self, key: str) -> None:
        self._keys.append(key)
        if len(self._keys) > 2 * self.kept:
            self._cut()

    def first(self) -> list[str]:
        """The keys, sorted."""
        if self.is_cut:
            self._cut()  # Keys behind the kept ones were dropped.
        self._keys.sort()
        return self._keys

    def _cut(self) -> None:
        self._keys, was_cut = first_ids(self._keys, self.kept)
        self.is_cut = self.is_cut or was_cut


@dataclass(slots=True)
class _Look(Look):
    """The merge. `work`: the work of this hop, in names."""

    selection: Selection = field(kw_only=True)
    barren: Barren = field(kw_only=True)
    work_max: int = field(kw_only=True)
    work: int = 0
    has_buckets: bool = False

    def go_on(self) -> bool:
        """Merges for one hop. Returns whether the scan is complete."""
        while self.waiting and len(self.found) < self.limit:
            if self.work >= self.work_max:
                return bool(self.found)
            _, _, first = heapq.heappop(self.waiting)
            if isinstance(first, Unlisted):
                self.open_bucket(first)
            elif isinstance(first, _FolderRun):
                self._take_some(first)
        return True

    def wait_below(self, folder: Folder, of: Bucket | None) -> None:
        """Like Look's, without buckets of other priorities."""
        if of is None and (inner := parse_bucket(folder.name)) is not None:
            self.has_buckets = True
            lowest, highest = self.selection.priorities
            if not lowest <= inner.priority <= highest:
                return
        Look.wait_below(self, folder, of)

    def open(self, folder: Folder, of: Bucket | None, status: os.stat_result | None = None) -> bool:
        """Lists a folder, unless its contents are known. False if it is empty. Raises OSError."""
        self.work += SELECT_NAMES_PER_FOLDER
        path = folder.path
        status = status or self.root.files.status(path)
        listed = _Listed(folder)
        if status is not None:
            self.mtimes_ns.append((path, status.st_mtime_ns))
            if is_settled(status, self.root.now_ms()):
                listed.mtime_ns = status.st_mtime_ns
            else:
                self.settled = False
            below = self.barren.below(path, status.st_mtime_ns)
            if below is not None:
                for inner in filter(None, map(folder.below, below)):
                    self.wait_below(inner, of)
                return True
        anything, files = self._list(listed)
        for inner in listed.below:
            self.wait_below(inner, of)
        if of is None:
            self.root.places.saw(path, files, self.has_buckets)
        return anything

    def _list(self, listed: _Listed, behind: str = "") -> tuple[bool, int]:
        """Adds the folder's keys that may match, after `behind`, to the heap. Returns whether the
        folder has any entry, and its number of files.
        """
        folder = listed.folder
        refused, still_refused = self.barren.refused(folder.path), set[str]()
        keys = _Keys(KEPT * self.limit)
        files, anything = 0, False
        for entry in self.root.files.entries(folder.path):
            anything = True
            name = entry.name
            if len(name) < UUID_CHARS:
                if not behind and (inner := folder.inner(entry)) is not None:
                    listed.below.append(inner)
            elif name[0] != "." and entry.is_file(follow_symlinks=False):
                files += 1
                if self.held is not None and self.held.covers(name):
                    listed.has_any = True  # Its group may proceed before the folder changes.
                elif name in refused:
                    still_refused.add(name)
                elif (key := self._key(name)) > behind:
                    keys.add(key)
        self.work += files
        self.barren.was_listed(folder.path, still_refused)
        if first := keys.first():
            self.wait(first[0], _FolderRun(folder.spot, first, keys.is_cut, listed=listed))
        elif anything:
            self._has_ended(listed)
        return anything, files

    def _key(self, name: str) -> str:
        """The sort key of a name; "" if the message is not served any more, or does not match."""
        if self.selection.matches_name(name) is False:
            return ""
        if self.purged is not None and self.purged.covers(name):
            return ""
        if OWN_TTL in name and self.is_over(name):
            return ""
        return self.order.key(name)

    def _take_some(self, run: _FolderRun) -> None:
        """Takes the run's keys up to the next waiting one, as far as this hop allows."""
        end = len(run.keys)
        if self.waiting:
            end = max(run.at + 1, bisect_left(run.keys, self.waiting[0][0], run.at))
        while run.at < end and len(self.found) < self.limit and self.work < self.work_max:
            key = run.keys[run.at]
            run.at += 1
            if self._is_selected(run, key[RANK_CHARS:]):
                run.listed.has_any = True
                self.found.append(Candidate(key, run.bucket))
        if run.at < len(run.keys):
            self.wait(run.keys[run.at], run)
        elif run.is_cut:
            self._list(run.listed, behind=run.keys[-1])  # More than are kept at once.
        else:
            self._has_ended(run.listed)

    def _has_ended(self, listed: _Listed) -> None:
        """Ends a folder: all its candidates were checked."""
        if listed.mtime_ns is not None and not listed.has_any:
            below = tuple(each.name for each in listed.below)
            self.barren.is_barren(listed.folder.path, listed.mtime_ns, below)

    def _is_selected(self, run: _FolderRun, name: str) -> bool:
        """Whether a name is an id and its message matches, by its header block if necessary."""
        if self.selection.matches_name(name):
            return MessageId.is_written(name)
        self.work += SELECT_NAMES_PER_BLOCK
        path = run.listed.folder.path
        try:
            size = MessageId.parse(name).header_bytes
        except BadName:
            return False
        try:
            block = self.root.files.read_file(f"{path}/{name}", size)
        except OSError as error:
            if is_gone(error):
                return False
            if error.errno not in _UNREADABLE:
                raise
            run.listed.mtime_ns = None  # Permissions may change.
            return False
        if self.selection.matches_headers(name, parse_block(block)):
            return True
        self.barren.refuse(path, name)
        return False
