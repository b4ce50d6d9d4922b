"""Checks of messages in new/, queues/, delay/, remove/ and leases/."""

import contextlib
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Final

from mq.model.errors import BadName, SettingsUnreadable
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.audit.findings import Breach, Look, Violation
from mq.store.audit.looks import NOTHING, Looker
from mq.store.core.find import lives
from mq.store.core.message_file import holds_pack, is_readable
from mq.store.core.root import Root
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.format.bucket_names import IN_COMMON, Shape
from mq.store.format.layout import (
    Keys,
    LinkPlace,
    Place,
    are_deleted_entries,
    is_deleted_folder,
    parse_entry,
    split_entry,
)
from mq.store.format.pipeline import LeaseFile, is_acknowledged, parse_lease_file, parse_owner_lock
from mq.store.format.walk import Folder, Holds
from mq.store.keys.entries import is_entered
from mq.store.leases.lapses import late_leases

SHARED: Final = (State.NEW, State.DELAYED, State.LEASED, State.REMOVED)
"""States with one folder for all queues; ready messages lie in folders of their queues."""
ALIVE: Final = (State.READY, State.DELAYED, State.LEASED)
"""The states of published messages that are not removed."""
_OTHERS: Final = {
    State.NEW: (State.DELAYED, State.LEASED, State.REMOVED, State.READY),
    State.DELAYED: (State.LEASED, State.REMOVED, State.READY),
    State.LEASED: (State.REMOVED, State.READY, State.LEASED),
    State.REMOVED: (State.READY,),
    State.READY: (),
}
"""Reports each pair of places once, by the state that stands first here."""
_OTHERS_OF_ACKNOWLEDGED: Final = (State.DELAYED, State.READY, State.LEASED, State.REMOVED)
_LOOKS: Final = 2
_NS_PER_S: Final = 1_000_000_000
_DEEPS_KEPT: Final = 1024


class MessageLooker(Looker):
    """Checks messages in all places."""

    def __init__(
        self, root: Root, overdue_s: float, queues: Collection[QueueName] | None = None
    ) -> None:
        super().__init__(root, overdue_s, queues)
        self._deeps: dict[str, bool] = {}

    def _shared(self, state: State) -> Iterator[Look]:
        holds = Holds.NOTHING if state is State.NEW else Holds.BUCKETS
        for bucket, found in self._walk(Folder(self._layout.folder(state), holds)):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.is_dir(follow_symlinks=False):
                yield from self._folder_in(state, bucket, found)
            elif (parsed := self._parsed(parse_entry, found.name)) is not None:
                yield from self._counted(Place(state, *parsed, bucket), found)

    def _folder_in(self, state: State, bucket: str, entry: "os.DirEntry[str]") -> Iterator[Look]:
        """Checks the folders of deleted queues and acknowledged leases in remove/; others are
        foreign.
        """
        name = entry.name
        of = split_entry(name)[0]
        if state is not State.REMOVED or bucket:
            self._foreign(name)
        elif is_acknowledged(name):
            yield partial(self._kept, entry.path, FOLDER_MODE)
            yield from self._lease(State.REMOVED, entry.path)
        elif is_deleted_folder(name) or are_deleted_entries(name):
            if self._wants(QueueName(of)):
                yield partial(self._kept, entry.path, FOLDER_MODE)
                if is_deleted_folder(name):
                    yield from self._queue(entry.path, State.REMOVED, QueueName(of))
        else:
            self._foreign(name)

    def _leases(self) -> Iterator[Look]:
        """Checks that each lease is released when due."""
        for found in self._entries(self._layout.leases):
            if not isinstance(found, os.DirEntry):
                yield found
                continue
            try:
                _, file = parse_lease_file(found.name)
            except BadName:
                if self._parsed(parse_owner_lock, found.name) is not None:
                    yield partial(self._kept_file, found.path)
                continue
            if not file.is_folder:
                yield partial(self._kept_file, found.path)
            elif found.is_dir(follow_symlinks=False):
                yield partial(self._kept, found.path, FOLDER_MODE)
                yield from self._lease(State.LEASED, found.path)
                is_open = file is LeaseFile.FOLDER
                yield partial(self._lapsed if is_open else self._half_released, found.path)
            else:
                yield partial(self._in_the_way, found.path, stat.S_IFDIR)

    def _lapsed(self, folder: str) -> Sequence[Violation]:
        return [
            Violation(Breach.LAPSED, path, f"for {late_ms / 1000:g} s")
            for path, late_ms in late_leases(self._root, self._overdue_ms)
            if path == folder
        ]

    def _half_released(self, folder: str) -> Sequence[Violation]:
        if self._is_folder(folder) and self._is_late(folder, 0):
            return (Violation(Breach.LAPSED, folder, "begun, and not ended"),)
        return NOTHING

    def _lease(self, state: State, folder: str) -> Iterator[Look]:
        """Checks the messages of a lease, open or acknowledged."""
        bucket = f"{os.path.basename(folder)}/"
        for found in self._entries(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif (parsed := self._parsed(parse_entry, found.name)) is not None:
                yield from self._counted(Place(state, *parsed, bucket), found)

    def _walk(self, folder: Folder) -> "Iterator[tuple[str, os.DirEntry[str] | Look]]":
        """The entries of a folder and of the message folders below it, each with its bucket."""
        for found in self._entries(folder.path):
            inner = folder.below(found.name) if isinstance(found, os.DirEntry) else None
            if inner is None or not isinstance(found, os.DirEntry):
                yield folder.spot, found
            elif not found.is_dir(follow_symlinks=False):
                yield folder.spot, partial(self._in_the_way, found.path, stat.S_IFDIR)
            else:
                if inner.holds is Holds.DEEP:
                    self._deeps.clear()
                yield inner.spot, partial(self._kept, found.path, FOLDER_MODE)
                yield from self._walk(inner)

    def _queue_folders(self) -> Iterator[Look]:
        for found in self._entries(self._layout.queues):
            if not isinstance(found, os.DirEntry):
                yield found
                continue
            queue = self._parsed(QueueName.parse, found.name)
            if queue is None or not self._wants(queue):
                continue
            if not found.is_dir(follow_symlinks=False):
                if self._is_spoken_of(queue):
                    yield partial(self._in_the_way, found.path, stat.S_IFDIR, queue)
                else:
                    self._foreign(found.name)
                continue
            yield partial(self._kept, found.path, FOLDER_MODE, queue)
            yield from self._queue(found.path, State.READY, queue)

    def _is_spoken_of(self, queue: QueueName) -> bool:
        """Whether settings refer to the queue, or it is a queue's sideline."""
        is_there = self._root.files.is_there
        if queue.is_sideline and self._is_folder(self._layout.queue(queue.counterpart())):
            return True
        return is_there(self._layout.settings_of(queue))

    def _queue(self, folder: str, state: State, queue: QueueName) -> Iterator[Look]:
        """Checks the folder of a queue. A missing queue has neither shape nor keys."""
        shape = None
        with contextlib.suppress(SettingsUnreadable):  # Reported by the check of the file.
            shape = self._root.facts.shape_now(queue)
        for bucket, found in self._walk(Folder(folder)):
            if not isinstance(found, os.DirEntry):
                yield found
            elif (message_id := self._parsed(MessageId.parse, found.name)) is not None:
                if not found.is_file(follow_symlinks=False):
                    self._foreign(found.name)
                    continue
                self.amounts.count(state, queue.text, message_id.items or 1)
                spot = Place(state, queue, message_id, bucket)
                if state is State.REMOVED:
                    yield partial(self._file, spot, found.path)
                else:
                    yield partial(self._message, spot, found.path, shape)

    def _counted(self, spot: Place, entry: "os.DirEntry[str]") -> Iterator[Look]:
        if not self._wants(spot.queue):
            return
        if not entry.is_file(follow_symlinks=False):
            self._foreign(entry.name)
            return
        self.amounts.count(spot.state, spot.queue.text, spot.id.items or 1)
        is_placed = spot.state in (State.DELAYED, State.REMOVED) and not is_acknowledged(
            spot.bucket[:-1]
        )
        yield partial(self._message, spot, entry.path, IN_COMMON if is_placed else None)

    def _message(self, spot: Place, path: str, shape: Shape | None) -> Sequence[Violation]:
        """All checks of a message. `shape`: determines its place by its id; None: it has no fixed
        place.
        """
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING
        told = list(self._of_file(spot, path, status))
        if shape is not None and not belongs(spot, shape):
            told.append(self._say(Breach.MISPLACED, spot, path))
        told += self._other_places(spot, path, status, shape)
        if spot.state is not State.READY:
            told += self._timely(spot, path, status)
        if spot.id.key is not None and spot.state in ALIVE:
            told += self._key_of(spot, path)
        if spot.id.is_entered and spot.state in ALIVE:
            told += self._entry_of(spot, path)
        if spot.id.pack_size and spot.state in ALIVE and self._has_pack(spot):
            told.append(self._say(Breach.ITEM, spot, path))
        return told if not told or self._root.files.status(path) is not None else NOTHING

    def _file(self, spot: Place, path: str) -> Sequence[Violation]:
        """Checks of every message's file."""
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING
        return self._of_file(spot, path, status)

    def _of_file(self, spot: Place, path: str, status: os.stat_result) -> Sequence[Violation]:
        told = list(self._modes(path, status, FILE_MODE, spot.queue))
        if spot.state in ALIVE:
            # A file in new/ may be half written, and go from there to remove/.
            stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
            self.amounts.stamps += 1
            self.amounts.whole_seconds += not status.st_mtime_ns % _NS_PER_S
            if stamp.mtime_ns() != status.st_mtime_ns:
                told.append(self._say(Breach.MTIME, spot, path, f"{status.st_mtime_ns} ns"))
            if spot.id.items and not spot.queue.is_sideline:
                told += self._contents(spot, path)
            elif spot.id.header_bytes and not spot.queue.is_sideline:
                told += self._head(spot, path, status)
        if status.st_nlink > 1:
            told.append(self._say(Breach.LINKED, spot, path, f"{status.st_nlink} names"))
        return told

    @staticmethod
    def _say(
        breach: Breach, spot: Place, path: str, detail: str = "", other: Place | None = None
    ) -> Violation:
        return Violation(breach, path, detail, spot.queue, spot, other)

    def _head(self, spot: Place, path: str, status: os.stat_result) -> Iterator[Violation]:
        """Checks the header block. In a sideline unreadable messages are valid."""
        size = spot.id.header_bytes
        if status.st_size < size:
            yield self._say(Breach.SHORT, spot, path, f"{status.st_size} bytes")
            return
        try:
            block = self._root.files.read_file(path, size)
        except OSError as error:
            if not is_gone(error):
                yield self._say(Breach.STORAGE, spot, path, os.strerror(error.errno or 0))
            return
        if not is_readable(block):
            yield self._say(Breach.UNREADABLE, spot, path)

    def _contents(self, spot: Place, path: str) -> Iterator[Violation]:
        """Checks what a pack holds. In a sideline unreadable ones are valid."""
        try:
            is_pack = self._holds_pack(spot.id, path)
        except OSError as error:
            if not is_gone(error):
                yield self._say(Breach.STORAGE, spot, path, os.strerror(error.errno or 0))
            return
        if not is_pack:
            yield self._say(Breach.PACK, spot, path)

    def _holds_pack(self, pack: MessageId, path: str) -> bool:
        descriptor = self._root.files.open_read(path)
        try:
            return holds_pack(self._root, pack, descriptor)
        finally:
            self._root.files.close(descriptor)

    def _has_pack(self, spot: Place) -> bool:
        """Whether the pack of an item lives, in two looks."""
        pack = spot.id.pack()
        return all(self._is_pack_there(spot.queue, pack) for _ in range(_LOOKS))

    def _is_pack_there(self, queue: QueueName, pack: MessageId) -> bool:
        return any(
            self._root.files.is_there(self._layout.path(state, queue, pack, bucket))
            for state in ALIVE
            for bucket in self._spots(state, queue, pack)
        )

    def _other_places(
        self, spot: Place, here: str, status: os.stat_result, shape: Shape | None
    ) -> Iterator[Violation]:
        """Reports other places of the message; of a sideline's message also in its queue."""
        for other in self._others(spot, shape):
            there = other.path(self._layout)
            if all(self._is_in_both(here, there, status) for _ in range(_LOOKS)):
                yield self._say(Breach.TWO_STATES, spot, here, f"and in {there}", other)

    def _others(self, spot: Place, shape: Shape | None) -> Iterator[Place]:
        queue, message_id = spot.queue, spot.id
        is_acknowledged = spot.state is State.REMOVED and shape is None
        for state in _OTHERS_OF_ACKNOWLEDGED if is_acknowledged else _OTHERS[spot.state]:
            for bucket in self._spots(state, queue, message_id):
                # Two places of one state are reported once.
                if state is not spot.state or bucket > spot.bucket or is_acknowledged:
                    yield Place(state, queue, message_id, bucket)
        if shape is not None:
            for bucket in self._other_buckets(spot, shape):
                yield Place(spot.state, queue, message_id, bucket)
        if spot.state is State.READY and queue.is_sideline:
            for across in self._root.facts.others(queue):
                for state in (State.READY, State.DELAYED):
                    for bucket in self._spots(state, across, message_id):
                        yield Place(state, across, message_id, bucket)

    def _spots(self, state: State, queue: QueueName, message_id: MessageId) -> Iterator[str]:
        # If the shape is unreadable, only the first place is known.
        with contextlib.suppress(SettingsUnreadable):
            yield from self._root.places.spots(state, queue, message_id)

    def _other_buckets(self, spot: Place, shape: Shape) -> Iterator[str]:
        """Other buckets of the same state that may hold the message: a deeper one; for a message in
        a wrong bucket, all of them.
        """
        deep = shape.deep(spot.id)
        bucket = deep[: deep.index("/") + 1]
        if not spot.bucket:
            yield from (bucket, deep)
        elif spot.bucket == bucket:
            if self._has_deep(f"{self._layout.base(spot.state, spot.queue)}/{deep}"):
                yield deep
        elif spot.bucket != deep:
            yield from ("", bucket, deep)

    def _has_deep(self, folder: str) -> bool:
        """Whether a bucket has this folder below it. Cached while the bucket is walked."""
        known = self._deeps.get(folder)
        if known is None:
            if len(self._deeps) >= _DEEPS_KEPT:
                self._deeps.clear()
            known = self._deeps[folder] = self._root.files.is_there(folder)
        return known

    def _is_in_both(self, here: str, there: str, status: os.stat_result) -> bool:
        if here == there or self._root.files.status(there) is None:
            return False
        again = self._root.files.status(here)
        return again is not None and os.path.samestat(again, status)

    def _timely(self, spot: Place, path: str, status: os.stat_result) -> Iterator[Violation]:
        if spot.state is State.NEW:
            swept_ms = (FORGOTTEN_AFTER_S + SWEEP_EVERY_S) * 1000 + self._overdue_ms
            if (age_ms := self._age_ms(status)) > swept_ms:
                yield self._say(Breach.FORGOTTEN, spot, path, f"for {age_ms // 1000} s")
        elif spot.state is not State.REMOVED and self._is_stray(spot.queue):
            yield self._say(Breach.STRAY, spot, path)
        elif spot.state is State.DELAYED:
            late_ms = self._root.now_ms() - Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
            # The ctime counts too: a message that was just claimed may not be stamped yet.
            if late_ms > self._overdue_ms and self._age_ms(status) > self._overdue_ms:
                yield self._say(Breach.OVERDUE, spot, path, f"for {late_ms / 1000:g} s")

    def _key_of(self, spot: Place, path: str) -> Iterator[Violation]:
        """Checks that the key's link names the message. Only one of two living messages with a key
        can have the link; a sidelined message has none.
        """
        queue, message_id = spot.queue, spot.id
        if message_id.key is None or queue.is_sideline or self._is_stray(queue):
            return
        place = self._layout.link(Keys.LOOKUP, queue, message_id.key)
        with contextlib.suppress(SettingsUnreadable):
            if all(self._lacks_key(queue, message_id, place) for _ in range(_LOOKS)):
                says = self._root.files.linked(place.path)
                yield self._say(Breach.KEY, spot, path, f"it says {says}")

    def _entry_of(self, spot: Place, path: str) -> Iterator[Violation]:
        queue, message_id = spot.queue, spot.id
        with contextlib.suppress(SettingsUnreadable):
            if not self._is_stray(queue) and all(
                not is_entered(self._root, queue, message_id, path)
                and lives(self._root, queue, message_id)
                for _ in range(_LOOKS)
            ):
                yield self._say(Breach.ENTRY, spot, path)

    def _lacks_key(self, queue: QueueName, message_id: MessageId, place: LinkPlace) -> bool:
        says = self._root.files.linked(place.path)
        return says != message_id.text and lives(self._root, queue, message_id)


def belongs(spot: Place, shape: Shape) -> bool:
    """Whether the message lies in a bucket that its id allows, in a queue of this shape."""
    return not spot.bucket or spot.bucket in (shape.bucket(spot.id), shape.deep(spot.id))
