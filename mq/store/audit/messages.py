"""Looks at messages: what lies in new/, queues/, delay/, remove/ and leases/."""

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
from mq.store.audit.breaches import Breach, Look, Spot, Violation
from mq.store.audit.looks import NOTHING, Looker
from mq.store.core.root import Root
from mq.store.core.unreadable import is_readable
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.format.bucket_names import IN_COMMON, Shape, is_deep, parse_bucket
from mq.store.format.layout import (
    Keys,
    LinkPlace,
    are_deleted_keys,
    is_deleted_folder,
    parse_entry,
    split_entry,
)
from mq.store.format.pipeline import LeaseFile, is_acknowledged, parse_lease_file, parse_owner_lock
from mq.store.keys.holders import lives
from mq.store.leases.lapses import late_leases

SHARED: Final = (State.NEW, State.DELAYED, State.LEASED, State.REMOVED)
"""In one folder for all queues; ready messages lie in their queues' own."""
ALIVE: Final = (State.READY, State.DELAYED, State.LEASED)
"""What is published, and not over."""
_OTHERS: Final = {
    State.NEW: (State.DELAYED, State.LEASED, State.REMOVED, State.READY),
    State.DELAYED: (State.LEASED, State.REMOVED, State.READY),
    State.LEASED: (State.REMOVED, State.READY, State.LEASED),
    State.REMOVED: (State.READY,),
    State.READY: (),
}
"""Each pair of places is told once, by the one that is looked at first here."""
_OTHERS_OF_ACKNOWLEDGED: Final = (State.DELAYED, State.READY, State.LEASED, State.REMOVED)
_LOOKS: Final = 2
_DEEPS_KEPT: Final = 1024


class MessageLooker(Looker):
    """Of messages, wherever they lie."""

    def __init__(
        self, root: Root, overdue_s: float, queues: Collection[QueueName] | None = None
    ) -> None:
        super().__init__(root, overdue_s, queues)
        self._deeps: dict[str, bool] = {}

    def _shared(self, state: State) -> Iterator[Look]:
        """new/, delay/ or remove/."""
        top = self._layout.folder(state)
        for bucket, found in self._walk(top, state):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.is_dir(follow_symlinks=False):
                yield from self._folder_in(state, bucket, found)
            elif (parsed := self._parsed(parse_entry, found.name)) is not None:
                yield from self._counted(Spot(state, *parsed, bucket), found)

    def _folder_in(self, state: State, bucket: str, entry: "os.DirEntry[str]") -> Iterator[Look]:
        """What of deleted queues and of acknowledged leases lies in remove/; else it is foreign."""
        name = entry.name
        of = split_entry(name)[0]
        if state is not State.REMOVED or bucket:
            self._foreign(name)
        elif is_acknowledged(name):
            yield partial(self._kept, entry.path, FOLDER_MODE)
            yield from self._lease(State.REMOVED, entry.path)
        elif is_deleted_folder(name) or are_deleted_keys(name):
            if self._wants(QueueName(of)):
                yield partial(self._kept, entry.path, FOLDER_MODE)
                if is_deleted_folder(name):
                    yield from self._queue(entry.path, State.REMOVED, QueueName(of))
        else:
            self._foreign(name)

    def _leases(self) -> Iterator[Look]:
        """Each is released when it is due; or it is being released."""
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
        """What lies in a lease, or in one that was acknowledged."""
        bucket = f"{os.path.basename(folder)}/"
        for found in self._entries(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif (parsed := self._parsed(parse_entry, found.name)) is not None:
                yield from self._counted(Spot(state, *parsed, bucket), found)

    def _walk(self, top: str, state: State) -> "Iterator[tuple[str, os.DirEntry[str] | Look]]":
        """What lies in a folder and its buckets, each with its bucket; new/ has none."""
        for found in self._entries(top):
            if (
                not isinstance(found, os.DirEntry)
                or state is State.NEW
                or parse_bucket(found.name) is None
            ):
                yield "", found
            elif not found.is_dir(follow_symlinks=False):
                yield "", partial(self._in_the_way, found.path, stat.S_IFDIR)
            else:
                bucket = f"{found.name}/"
                self._deeps.clear()
                yield bucket, partial(self._kept, found.path, FOLDER_MODE)
                yield from self._below(found.path, bucket)

    def _below(self, folder: str, bucket: str) -> "Iterator[tuple[str, os.DirEntry[str] | Look]]":
        for found in self._entries(folder):
            if not isinstance(found, os.DirEntry) or not is_deep(found.name):
                yield bucket, found
            elif not found.is_dir(follow_symlinks=False):
                yield bucket, partial(self._in_the_way, found.path, stat.S_IFDIR)
            else:
                deep = f"{bucket}{found.name}/"
                yield deep, partial(self._kept, found.path, FOLDER_MODE)
                for inner in self._entries(found.path):
                    yield deep, inner

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
        """Whether anything says that there should be such a queue."""
        is_there = self._root.files.is_there
        if queue.is_sideline and self._is_folder(self._layout.queue(queue.counterpart())):
            return True
        return is_there(self._layout.settings_of(queue)) or any(
            is_there(self._layout.keys_of(kind, queue)) for kind in Keys
        )

    def _queue(self, folder: str, state: State, queue: QueueName) -> Iterator[Look]:
        """A queue's folder; of one that has gone its shape and its keys have too."""
        shape = None
        with contextlib.suppress(SettingsUnreadable):  # Told beside the file.
            shape = self._root.places.shape(queue)
        for bucket, found in self._walk(folder, state):
            if not isinstance(found, os.DirEntry):
                yield found
            elif (message_id := self._parsed(MessageId.parse, found.name)) is not None:
                if not found.is_file(follow_symlinks=False):
                    self._foreign(found.name)
                    continue
                self.amounts.count(state, queue.text)
                spot = Spot(state, queue, message_id, bucket)
                if state is State.REMOVED:
                    yield partial(self._file, spot, found.path)
                else:
                    yield partial(self._message, spot, found.path, shape)

    def _counted(self, spot: Spot, entry: "os.DirEntry[str]") -> Iterator[Look]:
        if not self._wants(spot.queue):
            return
        if not entry.is_file(follow_symlinks=False):
            self._foreign(entry.name)
            return
        self.amounts.count(spot.state, spot.queue.text)
        is_placed = spot.state in (State.DELAYED, State.REMOVED) and not is_acknowledged(
            spot.bucket[:-1]
        )
        yield partial(self._message, spot, entry.path, IN_COMMON if is_placed else None)

    def _message(self, spot: Spot, path: str, shape: Shape | None) -> Sequence[Violation]:
        """All that is to be said of a message. `shape`: by which its place follows from its id;
        None: it does not.
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
        return told if not told or self._root.files.status(path) is not None else NOTHING

    def _file(self, spot: Spot, path: str) -> Sequence[Violation]:
        """What every message's file must be."""
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING
        return self._of_file(spot, path, status)

    def _of_file(self, spot: Spot, path: str, status: os.stat_result) -> Sequence[Violation]:
        told = list(self._modes(path, status, FILE_MODE, spot.queue))
        if spot.state in ALIVE:
            # What lies in new/ may be half written, and go from there to remove/.
            stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
            if stamp.mtime_ns() != status.st_mtime_ns:
                told.append(self._say(Breach.MTIME, spot, path, f"{status.st_mtime_ns} ns"))
            if spot.id.header_bytes and not spot.queue.is_sideline:
                told += self._head(spot, path, status)
        if status.st_nlink > 1:
            told.append(self._say(Breach.LINKED, spot, path, f"{status.st_nlink} names"))
        return told

    @staticmethod
    def _say(
        breach: Breach, spot: Spot, path: str, detail: str = "", other: Spot | None = None
    ) -> Violation:
        return Violation(breach, path, detail, spot.queue, spot, other)

    def _head(self, spot: Spot, path: str, status: os.stat_result) -> Iterator[Violation]:
        """Of a message that has a header block. In a sideline what is unreadable stays."""
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

    def _other_places(
        self, spot: Spot, here: str, status: os.stat_result, shape: Shape | None
    ) -> Iterator[Violation]:
        """The same message elsewhere; of a sideline's, in its queue too."""
        for other in self._others(spot, shape):
            there = other.path(self._layout)
            if all(self._is_in_both(here, there, status) for _ in range(_LOOKS)):
                yield self._say(Breach.TWO_STATES, spot, here, f"and in {there}", other)

    def _others(self, spot: Spot, shape: Shape | None) -> Iterator[Spot]:
        queue, message_id = spot.queue, spot.id
        is_acknowledged = spot.state is State.REMOVED and shape is None
        for state in _OTHERS_OF_ACKNOWLEDGED if is_acknowledged else _OTHERS[spot.state]:
            for bucket in self._spots(state, queue, message_id):
                # Of two of one state one tells.
                if state is not spot.state or bucket > spot.bucket or is_acknowledged:
                    yield Spot(state, queue, message_id, bucket)
        if shape is not None:
            for bucket in self._other_buckets(spot, shape):
                yield Spot(spot.state, queue, message_id, bucket)
        if spot.state is State.READY and queue.is_sideline:
            across = queue.counterpart()
            for state in (State.READY, State.DELAYED):
                for bucket in self._spots(state, across, message_id):
                    yield Spot(state, across, message_id, bucket)

    def _spots(self, state: State, queue: QueueName, message_id: MessageId) -> Iterator[str]:
        # Of a shape that cannot be read the first place is all that is known.
        with contextlib.suppress(SettingsUnreadable):
            yield from self._root.places.spots(state, queue, message_id)

    def _other_buckets(self, spot: Spot, shape: Shape) -> Iterator[str]:
        """Where else a message may lie in the same state: deeper; of one in a bucket that is not
        its own, anywhere.
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
        """Whether a bucket has this folder below it: remembered while the bucket is walked."""
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

    def _timely(self, spot: Spot, path: str, status: os.stat_result) -> Iterator[Violation]:
        if spot.state is State.NEW:
            swept_ms = (FORGOTTEN_AFTER_S + SWEEP_EVERY_S) * 1000 + self._overdue_ms
            if (age_ms := self._age_ms(status)) > swept_ms:
                yield self._say(Breach.FORGOTTEN, spot, path, f"for {age_ms // 1000} s")
        elif spot.state is not State.REMOVED and self._is_stray(spot.queue):
            yield self._say(Breach.STRAY, spot, path)
        elif spot.state is State.DELAYED:
            late_ms = self._root.now_ms() - Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
            # By ctime too: what has just been claimed is perhaps not stamped yet.
            if late_ms > self._overdue_ms and self._age_ms(status) > self._overdue_ms:
                yield self._say(Breach.OVERDUE, spot, path, f"for {late_ms / 1000:g} s")

    def _key_of(self, spot: Spot, path: str) -> Iterator[Violation]:
        """Of two living messages with one key, one at most has the link. What was sidelined has
        none.
        """
        queue, message_id = spot.queue, spot.id
        if message_id.key is None or queue.is_sideline or self._is_stray(queue):
            return
        place = self._layout.link(Keys.LOOKUP, queue, message_id.key)
        with contextlib.suppress(SettingsUnreadable):
            if all(self._lacks_key(queue, message_id, place) for _ in range(_LOOKS)):
                says = self._root.files.linked(place.path)
                yield self._say(Breach.KEY, spot, path, f"it says {says}")

    def _lacks_key(self, queue: QueueName, message_id: MessageId, place: LinkPlace) -> bool:
        says = self._root.files.linked(place.path)
        return says != message_id.text and lives(self._root, queue, message_id)


def belongs(spot: Spot, shape: Shape) -> bool:
    """Whether a message lies where its id says, in a queue of this shape."""
    return not spot.bucket or spot.bucket in (shape.bucket(spot.id), shape.deep(spot.id))
