"""Counts the messages in a root's folders, with a cache: a folder is listed again only when its
mtime shows that names came or went, or is too young to tell.

A folder's mtime shows neither a stamp (a due time that was changed in place) nor a purge mark.
PROTOCOL.md, "count", says what follows from that. Thread-safe.
"""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import QueueNotFound
from mq.model.lifecycle import State
from mq.model.limits import SIDELINE_SUFFIX
from mq.model.names import QueueName
from mq.store.core.room import Held, Load
from mq.store.core.root import Root
from mq.store.core.standing import not_found
from mq.store.core.unserved import PurgeMark, mark_of
from mq.store.disk.files import is_gone
from mq.store.format.packs import parts, tries
from mq.store.format.walk import Folder, Holds, entries_if_there, holds_at, is_settled, look_pause_s
from mq.store.scan.tally import Found, IsFolder, Tally, tally_queue, tally_shared

# The limit of cached folders, queues of shared folders, and buckets: a few hundred bytes each.
CENSUS_ENTRIES_MAX: Final = 100_000
# The share of time for reading messages' times where no name changed, and the longest single
# reading.
TIMES_SHARE: Final = 0.02
TIMES_READ_S: Final = 0.02

_TOP: Final = ""


@dataclass(slots=True)
class Sum:
    """The counts of a queue in all folders of a state. They include all changes up to `as_of_ms`,
    and changes of due times up to `times_ms` (both milliseconds since the epoch).
    """

    as_of_ms: int
    times_ms: int
    messages: int = 0
    in_flight: int = 0
    overdue: int = 0
    foreign: int = 0
    oldest: str = ""
    overdue_since_ms: int | None = None
    """The due time of the message that is overdue longest."""
    bytes: int = 0
    """The bytes of their files, if the census counts them."""

    @property
    def oldest_ms(self) -> int | None:
        """The publish time of the oldest message, in milliseconds since the epoch."""
        return int(self.oldest.replace("-", ""), 16) if self.oldest else None

    def add(self, tally: Tally) -> None:
        self.messages += tally.messages
        self.in_flight += tally.in_flight
        self.overdue += tally.overdue
        self.bytes += tally.bytes
        if tally.oldest and (not self.oldest or tally.oldest < self.oldest):
            self.oldest = tally.oldest
        since_ms = tally.overdue_since_ms
        if since_ms is not None:
            known_ms = self.overdue_since_ms
            self.overdue_since_ms = since_ms if known_ms is None else min(since_ms, known_ms)


@dataclass(slots=True)
class _Folder:
    """A listed folder. `version`: its inode, mtime and ctime before the listing. `as_of_ms`: the
    listing includes all changes up to then. `again_s` (steady): not listed again before.
    """

    version: tuple[int, int, int]
    is_settled: bool
    found: Found
    as_of_ms: int
    times_ms: int
    again_s: float


@dataclass(slots=True)
class _Top:
    """The folder of a state or of a queue, with the folders below it, by their paths behind its
    own.
    """

    path: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    folders: dict[str, _Folder] = field(default_factory=dict)
    times_paid_s: float = 0.0
    """The share of time for reading messages' times is spent until then (steady)."""


class Census:
    """One process's counts of a root. Bounded: drops the least recently counted folders.
    `with_bytes`: also counts file sizes, which needs a stat of each file.
    """

    def __init__(
        self, root: Root, entries_max: int = CENSUS_ENTRIES_MAX, with_bytes: bool = False
    ) -> None:
        self.root = root
        self.with_bytes = with_bytes
        self._has_packs: bool | None = None
        self._entries_max = entries_max
        self._lock = threading.Lock()
        self._tops: dict[str, _Top] = {}
        self._entries = 0

    @property
    def entries(self) -> int:
        """The number of cached entries: folders, queues in shared folders, and buckets."""
        return self._entries

    def count(self, state: State, queue: QueueName, now: bool = False) -> Sum:
        """Counts the queue's messages of a state. Purged messages count only as removed. `now`:
        current counts, however soon after the last count. Blocking. Raises FileNotFoundError if the
        state's or the queue's folder is gone; OSError.
        """
        top = self._top(self.root.layout.base(state, queue))
        with top.lock:
            return _Count(self, top, state, queue, now).sum()

    def has_packs(self) -> bool:
        """Whether the root has packs, or had some, as far as this process has seen."""
        if self._has_packs is None:
            self._has_packs = self.root.files.is_there(parts(self.root.layout))
        return self._has_packs

    def saw_packs(self) -> None:
        self._has_packs = True

    def keep(self, top: _Top, spot: str, folder: _Folder) -> None:
        """Caches a folder, if there is room."""
        with self._lock:
            self._forget(top, spot)
            if self._tops.get(top.path) is not top:
                return  # Another folder got the room meanwhile.
            needed = folder.found.entries
            while self._entries + needed > self._entries_max and self._first() is not top:
                self._forget_all(self._first())
            if self._entries + needed <= self._entries_max:
                top.folders[spot] = folder
                self._entries += needed

    def forget(self, top: _Top, spot: str) -> None:
        """Forgets a folder that is gone; the top folder with all folders below it."""
        with self._lock:
            if spot == _TOP and self._tops.get(top.path) is top:
                self._forget_all(top)
            else:
                self._forget(top, spot)

    def _top(self, path: str) -> _Top:
        with self._lock:
            top = self._tops.pop(path, None) or _Top(path)
            self._tops[path] = top  # The latest count stands last.
            return top

    def _first(self) -> _Top:
        return next(iter(self._tops.values()))

    def _forget_all(self, top: _Top) -> None:
        for spot in tuple(top.folders):
            self._forget(top, spot)
        del self._tops[top.path]

    def _forget(self, top: _Top, spot: str) -> None:
        if (folder := top.folders.pop(spot, None)) is not None:
            self._entries -= folder.found.entries


@dataclass(slots=True)
class _Count:
    """One count of a queue's messages below one top, which is locked."""

    census: Census
    top: _Top
    state: State
    queue: QueueName
    is_now: bool = False
    mark: PurgeMark | None = None
    now_ms: int = 0

    def sum(self) -> Sum:
        """The queue's counts in all folders."""
        root, top = self.census.root, self.top
        self.now_ms = root.now_ms()
        self.mark = self._mark_of(self.queue)
        total = Sum(self.now_ms, self.now_ms)
        waiting = [_TOP]
        if self.state is State.LEASED:
            waiting = list(root.places.leases.spots())
        seen: set[str] = set()
        unread: list[tuple[str, _Folder]] = []
        while waiting:
            spot = waiting.pop()
            folder, is_old = self._look(spot)
            if folder is None:
                continue
            if spot in top.folders:
                seen.add(spot)
            waiting += [f"{spot}{name}/" for name in folder.found.below]
            if is_old and self.state is State.DELAYED and self.queue.text in folder.found.of:
                unread.append((spot, folder))
            else:
                self._add(total, folder)
        for spot in top.folders.keys() - seen:
            self.census.forget(top, spot)
        for folder in self._read_times(unread):
            self._add(total, folder)
        if self.state in (State.READY, State.DELAYED) and self.census.has_packs():
            self._add_parted(total)
        return total

    def _add_parted(self, total: Sum) -> None:
        """Counts the messages of packs that were parted in this state, and that are not in their
        places yet.
        """
        root = self.census.root
        for parted in tries(root.layout, root.files):
            if (parted.queue, parted.state) != (self.queue, self.state):
                continue
            entries = list(entries_if_there(root.files, parted.folder(root.layout)))
            pack = os.path.basename(parted.pack_path(root.layout))
            rest = [entry for entry in entries if entry.name != pack]
            if len(rest) < len(entries):
                found = self._tally_shared(rest, lambda _: False)
                for tally in found.of.values():
                    total.add(tally)

    def _add(self, total: Sum, folder: _Folder) -> None:
        total.as_of_ms = min(total.as_of_ms, folder.as_of_ms)
        total.foreign += folder.found.foreign
        tally = folder.found.of.get(self.queue.text)
        tally = None if tally is None else tally.under(self.mark)
        if tally is not None:
            total.add(tally)
            total.times_ms = min(total.times_ms, folder.times_ms)

    def _look(self, spot: str) -> tuple[_Folder | None, bool]:
        """The folder as of now or a moment ago (None: it is gone), and whether it is unchanged
        since its listing. Raises FileNotFoundError for the top, OSError.
        """
        path, known = self._path(spot), self.top.folders.get(spot)
        status = self.census.root.files.status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            self.census.forget(self.top, spot)
            if spot == _TOP:
                raise FileNotFoundError(errno.ENOENT, "the folder is gone", path)
            return None, False
        version = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        if known is not None and known.version[0] == version[0] and self._is_told(known):
            if known.is_settled and known.version == version:
                known.as_of_ms = self.now_ms
                return known, True
            if not self.is_now and self.census.root.clock.steady_s() < known.again_s:
                return known, False
        return self._list(spot, version, is_settled(status, self.now_ms)), False

    def _is_told(self, known: _Folder) -> bool:
        """Whether the cached counts are valid for the queue's current purge mark."""
        tally = known.found.of.get(self.queue.text)
        return tally is None or tally.under(self.mark) is not None

    def _list(self, spot: str, version: tuple[int, int, int], settled: bool) -> _Folder | None:
        root = self.census.root
        began_s, now_ms = root.clock.steady_s(), root.now_ms()
        entries, is_folder = root.files.entries(self._path(spot)), self._is_folder(spot)
        try:
            if self.state is State.READY:
                found = tally_queue(
                    entries, is_folder, self.queue.text, self.mark, self.census.with_bytes
                )
            else:
                found = self._tally_shared(entries, is_folder)
        except OSError as error:
            self.census.forget(self.top, spot)
            if spot != _TOP and is_gone(error):
                return None
            raise
        ended_s = root.clock.steady_s()
        again_s = ended_s + look_pause_s(ended_s - began_s)
        settled = settled and found.is_stamped
        folder = _Folder(version, settled, found, now_ms, now_ms, again_s)
        self.census.keep(self.top, spot, folder)
        if found.has_packs:
            self.census.saw_packs()
        return folder

    def _tally_shared(self, entries: "Iterable[os.DirEntry[str]]", is_folder: IsFolder) -> Found:
        at_ms = self.census.root.now_ms() if self.state is State.DELAYED else None
        return tally_shared(entries, is_folder, self._mark_of, at_ms, self.census.with_bytes)

    def _read_times(self, unread: list[tuple[str, _Folder]]) -> Iterator[_Folder]:
        """Lists folders again for their messages' current times, as far as the share of time
        allows: first folders with a message that is overdue by now, then the one that was read
        longest ago.
        """
        root, top = self.census.root, self.top
        unread.sort(key=lambda each: (not self._is_awaited(each[1]), each[1].times_ms))
        for spot, folder in unread:
            began_s = root.clock.steady_s()
            if top.times_paid_s > began_s + TIMES_READ_S / TIMES_SHARE:
                yield folder
                continue
            yield self._list(spot, folder.version, settled=True) or folder
            cost_s = root.clock.steady_s() - began_s
            top.times_paid_s = max(top.times_paid_s, began_s) + cost_s / TIMES_SHARE

    def _is_awaited(self, folder: _Folder) -> bool:
        from_ms = folder.found.overdue_from_ms
        return from_ms is not None and from_ms < self.now_ms

    def _mark_of(self, queue: QueueName) -> PurgeMark | None:
        return None if self.state is State.REMOVED else mark_of(self.census.root, queue)

    def _is_folder(self, spot: str) -> IsFolder:
        """A predicate on entries of such a folder: whether it is a folder that also holds
        messages.
        """
        top = Holds.REMOVED if self.state is State.REMOVED else Holds.BUCKETS
        inner = Folder(self._path(spot), holds_at(spot, top), spot).inner
        # Not a deleted queue's folder: names there do not contain their queue.
        return lambda entry: (each := inner(entry)) is not None and each.holds is not Holds.BUCKETS

    def _path(self, spot: str) -> str:
        return f"{self.top.path}/{spot[:-1]}" if spot else self.top.path


@dataclass(frozen=True, slots=True)
class AsOf:
    """The times of counts, in milliseconds since the epoch: each count includes all changes up to
    then.
    """

    ready_ms: int
    delayed_ms: int
    overdue_ms: int
    leased_ms: int
    removed_ms: int
    sidelined_ms: int


FIGURES: Final = {
    "ready": "ready_ms",
    "delayed": "delayed_ms",
    "in_flight": "delayed_ms",
    "leased": "leased_ms",
    "overdue": "overdue_ms",
    "removed": "removed_ms",
    "sidelined": "sidelined_ms",
    "foreign": "ready_ms",
    "oldest_ready_age_s": "ready_ms",
}
"""The time that applies to each figure of a description."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The messages of a queue by state, and its oldest ready message's publish time. Purged
    messages count only as removed.

    `overdue` counts those of `delayed` and `in_flight` that a mover should have returned.
    `oldest_overdue_ms` is the due time of the one that has waited longest.
    """

    ready: int
    delayed: int
    in_flight: int
    leased: int
    overdue: int
    removed: int
    sidelined: int
    foreign: int
    oldest_ready_ms: int | None
    oldest_overdue_ms: int | None
    as_of: AsOf


def count(census: Census, queue: QueueName) -> Counts:
    """Counts the queue's files; lists only folders that changed. A message that moves meanwhile may
    count twice, or not at all. Blocking. Raises QueueNotFound, OSError.
    """
    ready = _ready(census, queue)
    delayed = census.count(State.DELAYED, queue)
    leased = census.count(State.LEASED, queue)
    removed = census.count(State.REMOVED, queue)
    sidelined, sidelined_ms = _sidelined(census, queue)
    return Counts(
        ready=ready.messages,
        delayed=delayed.messages - delayed.in_flight,
        in_flight=delayed.in_flight,
        leased=leased.messages,
        overdue=delayed.overdue,
        removed=removed.messages,
        sidelined=sidelined,
        foreign=ready.foreign,
        oldest_ready_ms=ready.oldest_ms,
        oldest_overdue_ms=delayed.overdue_since_ms,
        as_of=AsOf(
            ready_ms=ready.as_of_ms,
            delayed_ms=delayed.as_of_ms,
            overdue_ms=min(delayed.as_of_ms, delayed.times_ms),
            leased_ms=leased.as_of_ms,
            removed_ms=removed.as_of_ms,
            sidelined_ms=sidelined_ms,
        ),
    )


def _ready(census: Census, queue: QueueName, now: bool = False) -> Sum:
    try:
        return census.count(State.READY, queue, now)
    except OSError as error:
        if is_gone(error):
            raise not_found(census.root, queue) from None
        raise


def _sidelined(census: Census, queue: QueueName) -> tuple[int, int]:
    """The number of ready messages in its sideline (0 if there is none), and the time of that
    count.
    """
    now_ms = census.root.now_ms()
    if queue.text.endswith(SIDELINE_SUFFIX):
        return 0, now_ms
    try:
        sidelined = _ready(census, queue.sideline())
    except QueueNotFound:
        return 0, now_ms
    return sidelined.messages, sidelined.as_of_ms


class Holding:
    """Counts the contents of queues with limits; queues without one cost nothing."""

    def __init__(self, root: Callable[[], Root]) -> None:
        self._root = root
        self._censuses: dict[bool, Census] = {}

    def count(self, queue: QueueName, with_bytes: bool) -> Held:
        """The current contents; purged messages do not count. A message that is fetched meanwhile
        may be missed, but does not count twice. For one thread at a time. Blocking. Raises
        QueueNotFound, OSError.
        """
        if (census := self._censuses.get(with_bytes)) is None:
            census = self._censuses[with_bytes] = Census(self._root(), with_bytes=with_bytes)
        leased = census.count(State.LEASED, queue, now=True)
        delayed = census.count(State.DELAYED, queue, now=True)
        ready = _ready(census, queue, now=True)
        return Held(
            Load(ready.messages, ready.bytes),
            Load(delayed.messages + leased.messages, delayed.bytes + leased.bytes),
        )
