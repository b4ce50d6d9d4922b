"""How many messages lie in a root's folders, remembered by the process: a folder is listed again
only when its mtime says that names came or went, or cannot be believed.

What a folder's mtime does not tell: a stamp (a due time that was changed in place) and a purge's
mark. FORMAT.md, "counting", says what follows from that. Threads share a census.
"""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mq.model.lifecycle import State
from mq.model.limits import CENSUS_ENTRIES_MAX, TIMES_READ_S, TIMES_SHARE
from mq.model.names import QueueName
from mq.store.core.listing import is_settled, look_pause_s
from mq.store.core.purged import PurgeMark, mark_of
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.bucket_names import parse_bucket
from mq.store.format.pipeline import is_acknowledged
from mq.store.format.walk import is_bucket, is_deep_folder
from mq.store.scan.tally import Found, IsFolder, Tally, tally_queue, tally_shared

_TOP: Final = ""


@dataclass(slots=True)
class Sum:
    """What all folders of a state hold of a queue. Whatever was done by `as_of_ms` (since the
    epoch) is in it; of due times, what was done by `times_ms`.
    """

    as_of_ms: int
    times_ms: int
    messages: int = 0
    in_flight: int = 0
    overdue: int = 0
    foreign: int = 0
    oldest: str = ""
    overdue_since_ms: int | None = None
    """When the message was due that is overdue longest."""

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message was published, milliseconds since the epoch."""
        return int(self.oldest.replace("-", ""), 16) if self.oldest else None

    def add(self, tally: Tally) -> None:
        """Adds what one folder holds."""
        self.messages += tally.messages
        self.in_flight += tally.in_flight
        self.overdue += tally.overdue
        if tally.oldest and (not self.oldest or tally.oldest < self.oldest):
            self.oldest = tally.oldest
        since_ms = tally.overdue_since_ms
        if since_ms is not None:
            known_ms = self.overdue_since_ms
            self.overdue_since_ms = since_ms if known_ms is None else min(since_ms, known_ms)


@dataclass(slots=True)
class _Folder:
    """A folder as it was when it was listed. `version`: its inode, mtime and ctime, before it was;
    `as_of_ms`: what was done by then is in it; `again_s` (steady): not listed again before.
    """

    version: tuple[int, int, int]
    is_settled: bool
    found: Found
    as_of_ms: int
    times_ms: int
    again_s: float


@dataclass(slots=True)
class _Top:
    """A state's folder, or a queue's, with those below it, by what follows its path."""

    path: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    folders: dict[str, _Folder] = field(default_factory=dict)
    times_paid_s: float = 0.0
    """Until then (steady) the share of time for messages' times is spent."""


class Census:
    """What a process knows of one root's folders: bounded, what was counted least recently goes."""

    def __init__(self, root: Root, entries_max: int = CENSUS_ENTRIES_MAX) -> None:
        self.root = root
        self._entries_max = entries_max
        self._lock = threading.Lock()
        self._tops: dict[str, _Top] = {}
        self._entries = 0

    @property
    def entries(self) -> int:
        """How much is remembered: folders, queues in those that are shared, names of buckets."""
        return self._entries

    def count(self, state: State, queue: QueueName) -> Sum:
        """Counts the queue's messages of a state; blocking. Purged ones count only where they are
        removed. Raises FileNotFoundError when the state's folder, or the queue's, is gone; OSError.
        """
        top = self._top(self.root.layout.base(state, queue))
        with top.lock:
            return _Count(self, top, state, queue).sum()

    def keep(self, top: _Top, spot: str, folder: _Folder) -> None:
        """Remembers a folder as it is now, where there is room."""
        with self._lock:
            self._forget(top, spot)
            if self._tops.get(top.path) is not top:
                return  # It made room for another meanwhile.
            needed = folder.found.entries
            while self._entries + needed > self._entries_max and self._first() is not top:
                self._forget_all(self._first())
            if self._entries + needed <= self._entries_max:
                top.folders[spot] = folder
                self._entries += needed

    def forget(self, top: _Top, spot: str) -> None:
        """A folder is gone; the top's own: with all below it."""
        with self._lock:
            if spot == _TOP and self._tops.get(top.path) is top:
                self._forget_all(top)
            else:
                self._forget(top, spot)

    def _top(self, path: str) -> _Top:
        with self._lock:
            top = self._tops.pop(path, None) or _Top(path)
            self._tops[path] = top  # The one counted last stands last.
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
    mark: PurgeMark | None = None
    now_ms: int = 0

    def sum(self) -> Sum:
        """What all the folders hold of the queue."""
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
        return total

    def _add(self, total: Sum, folder: _Folder) -> None:
        total.as_of_ms = min(total.as_of_ms, folder.as_of_ms)
        total.foreign += folder.found.foreign
        tally = folder.found.of.get(self.queue.text)
        tally = None if tally is None else tally.under(self.mark)
        if tally is not None:
            total.add(tally)
            total.times_ms = min(total.times_ms, folder.times_ms)

    def _look(self, spot: str) -> tuple[_Folder | None, bool]:
        """The folder as it is, or was a moment ago; None: it is gone. And whether it has not
        changed since it was listed before. Raises FileNotFoundError for the top, OSError.
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
            if self.census.root.clock.steady_s() < known.again_s:
                return known, False
        return self._list(spot, version, is_settled(status, self.now_ms)), False

    def _is_told(self, known: _Folder) -> bool:
        """Whether what is known does for the queue's mark."""
        tally = known.found.of.get(self.queue.text)
        return tally is None or tally.under(self.mark) is not None

    def _list(self, spot: str, version: tuple[int, int, int], settled: bool) -> _Folder | None:
        root = self.census.root
        began_s, now_ms = root.clock.steady_s(), root.now_ms()
        entries, is_folder = root.files.entries(self._path(spot)), self._is_folder(spot)
        try:
            if self.state is State.READY:
                found = tally_queue(entries, is_folder, self.queue.text, self.mark)
            else:
                times_at_ms = now_ms if self.state is State.DELAYED else None
                found = tally_shared(entries, is_folder, self._mark_of, times_at_ms)
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
        return folder

    def _read_times(self, unread: list[tuple[str, _Folder]]) -> Iterator[_Folder]:
        """The folders, listed again for what their messages' times say now as far as the share of
        time for that goes: first where a message is overdue by now, then what was read longest ago.
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
        """What, in such a folder, is one that holds messages too."""
        if spot == _TOP:
            return _is_removed_folder if self.state is State.REMOVED else is_bucket
        return is_deep_folder if parse_bucket(spot[:-1]) is not None else _no_folder

    def _path(self, spot: str) -> str:
        return f"{self.top.path}/{spot[:-1]}" if spot else self.top.path


def _is_removed_folder(entry: "os.DirEntry[str]") -> bool:
    """A bucket, or an acknowledged lease with what was in it."""
    if is_bucket(entry):
        return True
    return is_acknowledged(entry.name) and entry.is_dir(follow_symlinks=False)


def _no_folder(entry: "os.DirEntry[str]") -> bool:
    return False
