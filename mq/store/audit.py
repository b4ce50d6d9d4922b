"""An auditor: what lies in a root, held against what FORMAT.md says may lie there.

Read-only, and in one pass that remembers no names. On a root that daemons use, a message that
moves while it is looked at is not held against it. Right after a crash, second names and a
tombstone beside its queue are what FORMAT.md allows until somebody comes to them.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Final

from mq.errors import BadName, SettingsUnreadable
from mq.lifecycle import State
from mq.limits import FORGOTTEN_AFTER_S, OVERDUE_AFTER_S, SWEEP_EVERY_S
from mq.message import Stamp
from mq.names import MessageId, QueueName
from mq.store.audit_looks import BesideMessages
from mq.store.breaches import Audit, Breach
from mq.store.bucket_names import IN_COMMON, Shape
from mq.store.files import FILE_MODE, FOLDER_MODE
from mq.store.holders import lives
from mq.store.journal import foreign_in_journal
from mq.store.lapses import late_leases
from mq.store.layout import (
    FORMAT_LINE,
    Keys,
    LinkPlace,
    are_deleted_keys,
    is_deleted_folder,
    parse_entry,
)
from mq.store.moves import queue_exists
from mq.store.orphans import KeyFolder, is_orphan, kept_s, key_folders_of, links
from mq.store.pipeline_layout import (
    is_acknowledged,
    parse_lease_file,
    parse_owner_lock,
)
from mq.store.root import Root
from mq.store.walk import is_bucket, is_deep_folder

# In one folder for all queues; ready messages lie in their queues' own.
_SHARED: Final = (State.NEW, State.DELAYED, State.LEASED, State.REMOVED)
_ALIVE: Final = (State.READY, State.DELAYED, State.LEASED)
_SWEEPS: Final = 2  # So many passes come to a key in a root that is not large.
_LOOKS: Final = 2  # So often two states of one message are seen before they are believed.


def audit(root: Root, overdue_s: float = OVERDUE_AFTER_S) -> Audit:
    """Looks at every name in the root; blocking, and as long as the root is large.

    A message in delay/ is overdue `overdue_s` seconds after its due time. Raises OSError when a
    folder that is there cannot be listed. Changes nothing.
    """
    return _Auditor(root, overdue_s).run()


class _Auditor(BesideMessages):
    def __init__(self, root: Root, overdue_s: float) -> None:
        super().__init__(root)
        self._overdue_ms = round(overdue_s * 1000)

    def run(self) -> Audit:
        self._format()
        standing = [folder for folder in self._layout.folders() if self._top_folder(folder)]
        self._has_queues = self._layout.queues in standing
        for state in _SHARED:
            if self._layout.folder(state) in standing:
                self._leases() if state is State.LEASED else self._shared(state)
        if self._has_queues:
            self._queues()
        self.beside(standing)
        for kind in Keys:
            if self._layout.keys(kind) in standing:
                self._keys(kind)
        for name in foreign_in_journal(self._root):
            self._foreign(name)
        return self.found

    def _format(self) -> None:
        status = self._root.files.status(self._layout.format)
        if status is None or not stat.S_ISREG(status.st_mode):
            self._say(Breach.FORMAT, self._layout.format)
            return
        self._mode(self._layout.format, status, FILE_MODE)
        with open(self._layout.format, "rb") as file:
            if (line := file.read(100)) != FORMAT_LINE.encode("ascii"):
                self._say(Breach.FORMAT, self._layout.format, repr(line))

    def _top_folder(self, folder: str) -> bool:
        status = self._root.files.status(folder)
        if status is None or not stat.S_ISDIR(status.st_mode):
            linked = status is not None and stat.S_ISLNK(status.st_mode)
            self._say(Breach.SYMLINK if linked else Breach.FOLDER, folder)
            return False
        self._mode(folder, status, FOLDER_MODE)
        return True

    def _shared(self, state: State) -> None:
        for bucket, entry, status in self._walk(self._layout.folder(state), state):
            if stat.S_ISDIR(status.st_mode):
                if state is State.REMOVED and not bucket and is_deleted_folder(entry.name):
                    self._mode(entry.path, status, FOLDER_MODE)
                    self._messages_in(entry.path, State.REMOVED)
                elif state is State.REMOVED and not bucket and are_deleted_keys(entry.name):
                    self._mode(entry.path, status, FOLDER_MODE)
                elif state is State.REMOVED and not bucket and is_acknowledged(entry.name):
                    self._mode(entry.path, status, FOLDER_MODE)
                    self._lease(State.REMOVED, entry.path)
                else:
                    self._foreign(entry.name)
                continue
            if (parsed := self._parsed(parse_entry, entry.name)) is None:
                continue
            queue, message_id = parsed
            if self._message(state, message_id, entry.path, status):
                self._place(IN_COMMON, message_id, bucket, entry.path)
                later = (*_SHARED[_SHARED.index(state) + 1 :], State.READY)
                self._other_states(later, queue, message_id, entry.path, status)
                if state is State.DELAYED:
                    self._key_of(queue, message_id, entry.path)
                self._timely(state, queue, entry.path, status)

    def _leases(self) -> None:
        """Each is released when it is due; or it is being released."""
        for entry, status in self._entries(self._layout.leases):
            try:
                _, file = parse_lease_file(entry.name)
            except BadName:
                if self._parsed(parse_owner_lock, entry.name) is not None:
                    self._mode(entry.path, status, FILE_MODE)
                continue
            if stat.S_ISDIR(status.st_mode) is not file.is_folder:
                self._foreign(entry.name)
            elif file.is_folder:
                self._mode(entry.path, status, FOLDER_MODE)
                self._lease(State.LEASED, entry.path)
            else:
                self._mode(entry.path, status, FILE_MODE)
        for path, late_ms in late_leases(self._root, self._overdue_ms):
            self._say(Breach.LAPSED, path, f"for {late_ms / 1000:g} s")

    def _lease(self, state: State, folder: str) -> None:
        """What lies in a lease, or in one that was acknowledged."""
        for entry, status in self._entries(folder):
            if (parsed := self._parsed(parse_entry, entry.name)) is None:
                continue
            queue, message_id = parsed
            if self._message(state, message_id, entry.path, status):
                others = (State.REMOVED, State.READY, State.LEASED)
                if state is State.REMOVED:
                    others = (State.DELAYED, State.READY, State.LEASED)
                self._other_states(others, queue, message_id, entry.path, status)
                if state is State.LEASED:
                    self._key_of(queue, message_id, entry.path)
                    if all(self._is_stray(queue) for _ in range(_LOOKS)):
                        self._say(Breach.STRAY, entry.path)

    def _walk(
        self, top: str, state: State
    ) -> "Iterator[tuple[str, os.DirEntry[str], os.stat_result]]":
        """What may be ours in a folder and its buckets, each with its bucket; new/ has none."""
        for entry, status in self._entries(top):
            if state is State.NEW or not is_bucket(entry):
                yield "", entry, status
                continue
            self._mode(entry.path, status, FOLDER_MODE)
            bucket = f"{entry.name}/"
            for inner, inner_status in self._entries(entry.path):
                if not is_deep_folder(inner):
                    yield bucket, inner, inner_status
                    continue
                self._mode(inner.path, inner_status, FOLDER_MODE)
                for innermost, innermost_status in self._entries(inner.path):
                    yield f"{bucket}{inner.name}/", innermost, innermost_status

    def _place(self, shape: Shape, message_id: MessageId, bucket: str, path: str) -> None:
        if bucket not in ("", shape.bucket(message_id), shape.deep(message_id)):
            self._say(Breach.MISPLACED, path)

    def _queues(self) -> None:
        for entry, status in self._entries(self._layout.queues):
            if self._parsed(QueueName.parse, entry.name) is None:
                continue
            if stat.S_ISDIR(status.st_mode):
                self._mode(entry.path, status, FOLDER_MODE)
                self._messages_in(entry.path, State.READY, QueueName(entry.name))
            else:
                self._foreign(entry.name)

    def _shape(self, queue: QueueName) -> Shape | None:
        try:
            return self._root.places.shape(queue)
        except SettingsUnreadable:
            return None  # Told beside the file.

    def _messages_in(self, folder: str, state: State, queue: QueueName | None = None) -> None:
        """`queue` None: it has gone, and its shape and keys with it."""
        shape = None if queue is None else self._shape(queue)
        for bucket, entry, status in self._walk(folder, state):
            message_id = self._parsed(MessageId.parse, entry.name)
            if message_id is None or not self._message(state, message_id, entry.path, status):
                continue
            if shape is not None:
                self._place(shape, message_id, bucket, entry.path)
            if queue is not None:
                self._key_of(queue, message_id, entry.path)

    def _message(
        self, state: State, message_id: MessageId, path: str, status: os.stat_result
    ) -> bool:
        """What every message's file must be; False for what is no regular file, and foreign."""
        if not stat.S_ISREG(status.st_mode):
            self._foreign(os.path.basename(path))
            return False
        self.found.messages[state] += 1
        self._mode(path, status, FILE_MODE)
        if state in _ALIVE:
            # What lies in new/ may be half written, and go from there to remove/.
            stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
            if stamp.mtime_ns() != status.st_mtime_ns:
                self._say(Breach.MTIME, path, f"{status.st_mtime_ns} ns")
            if status.st_size < message_id.header_bytes:
                self._say(Breach.SHORT, path, f"{status.st_size} bytes")
        if status.st_nlink > 1:
            self._say(Breach.LINKED, path, f"{status.st_nlink} names")
        return True

    def _other_states(
        self,
        others: tuple[State, ...],
        queue: QueueName,
        message_id: MessageId,
        here: str,
        status: os.stat_result,
    ) -> None:
        """Each pair of states is told once, by the one that is first in _SHARED."""
        for other in others:
            # Of a shape that cannot be read the first place is all that is known.
            with contextlib.suppress(SettingsUnreadable):
                for bucket in self._root.places.spots(other, queue, message_id):
                    there = self._layout.path(other, queue, message_id, bucket)
                    if all(self._is_in_both(here, there, status) for _ in range(_LOOKS)):
                        self._say(Breach.TWO_STATES, here, f"and in {there}")

    def _is_in_both(self, here: str, there: str, status: os.stat_result) -> bool:
        if here == there or self._root.files.status(there) is None:
            return False
        again = self._root.files.status(here)
        return again is not None and os.path.samestat(again, status)

    def _timely(self, state: State, queue: QueueName, path: str, status: os.stat_result) -> None:
        if state is State.REMOVED:
            return
        now_ms = self._root.now_ms()
        if state is State.NEW:
            written_ms = status.st_ctime_ns // 1_000_000
            swept_ms = (FORGOTTEN_AFTER_S + SWEEP_EVERY_S) * 1000 + self._overdue_ms
            if now_ms - written_ms > swept_ms:
                self._say(Breach.FORGOTTEN, path, f"for {(now_ms - written_ms) // 1000} s")
            return
        late_ms = now_ms - Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
        lain_ms = now_ms - status.st_ctime_ns // 1_000_000
        if all(self._is_stray(queue) for _ in range(_LOOKS)):
            self._say(Breach.STRAY, path)
        elif late_ms > self._overdue_ms and lain_ms > self._overdue_ms:
            # By ctime too: what has just been claimed is perhaps not stamped yet.
            self._say(Breach.OVERDUE, path, f"for {late_ms / 1000:g} s")

    def _is_stray(self, queue: QueueName) -> bool:
        if not self._has_queues or queue_exists(self._root, queue):
            return False
        return self._root.files.status(self._layout.tombstone(queue)) is None

    def _key_of(self, queue: QueueName, message_id: MessageId, path: str) -> None:
        """Of two living messages with one key, one at most has the link. What was sidelined has
        none.
        """
        if message_id.key is None or queue.is_sideline or self._is_stray(queue):
            return
        place = self._layout.link(Keys.LOOKUP, queue, message_id.key)
        with contextlib.suppress(SettingsUnreadable):
            if all(self._lacks_key(queue, message_id, place) for _ in range(_LOOKS)):
                self._say(Breach.KEY, path, f"it says {self._root.files.linked(place.path)}")

    def _lacks_key(self, queue: QueueName, message_id: MessageId, place: LinkPlace) -> bool:
        says = self._root.files.linked(place.path)
        return says != message_id.text and lives(self._root, queue, message_id)

    def _keys(self, kind: Keys) -> None:
        for entry, status in self._entries(self._layout.keys(kind)):
            if (queue := self._parsed(QueueName.parse, entry.name)) is None:
                continue
            if not stat.S_ISDIR(status.st_mode):
                self._foreign(entry.name)
                continue
            self._mode(entry.path, status, FOLDER_MODE)
            if self._has_queues and not queue_exists(self._root, queue):
                self._say(Breach.KEYS, entry.path)
                continue
            for folder in key_folders_of(self._root, kind, queue):
                for place, target in links(self._root, folder):
                    self._link(folder, place, target)

    def _link(self, folder: KeyFolder, place: LinkPlace, target: str) -> None:
        status = self._root.files.status(place.path)
        if status is None:
            return
        lain_s = (self._root.now_ms() - status.st_mtime_ns // 1_000_000) / 1000
        sweeps_s = _SWEEPS * SWEEP_EVERY_S + self._overdue_ms / 1000
        with contextlib.suppress(SettingsUnreadable):
            swept_s = kept_s(self._root, folder) + sweeps_s
            if lain_s > swept_s and is_orphan(self._root, folder, place, target):
                self._say(Breach.ORPHAN, place.path, f"for {lain_s:g} s")
