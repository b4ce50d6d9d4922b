"""An auditor: what lies in a root, held against what FORMAT.md says may lie there.

Read-only, and in one pass that remembers no names. On a root that daemons use, a message that
moves while it is looked at is not held against it. Right after a crash, second names and a
tombstone beside its queue are what FORMAT.md allows until somebody comes to them.
"""

import stat
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from mq.model.lifecycle import State
from mq.store.audit.archive import ArchiveLooker
from mq.store.audit.breaches import Breach, Look, Violation
from mq.store.audit.bulk import BulkLooker
from mq.store.audit.keys import KeyLooker
from mq.store.audit.messages import SHARED, MessageLooker
from mq.store.audit.queues import QueueLooker
from mq.store.disk.files import FILE_MODE, FOLDER_MODE
from mq.store.format.archive import archive_folder, archive_lock
from mq.store.format.history import history_folder
from mq.store.format.layout import FORMAT_LINE, Keys, Layout
from mq.store.format.members import members_lock
from mq.store.format.pipeline import journal_lock
from mq.store.format.schedules import schedules_lock
from mq.store.format.shovels import turns_lock

_LINE_BYTES_MAX: Final = 100


class Auditor(MessageLooker, QueueLooker, KeyLooker, BulkLooker, ArchiveLooker):
    """All looks that there are, one after another, and what was counted on the way."""

    def looks(self) -> Iterator[Look]:
        """A look at each thing in the root; memory does not grow with their number."""
        for _, looks in self.parts():
            yield from looks

    def parts(self) -> Sequence[tuple[str, Iterator[Look]]]:
        """The same by the folder of the root that they are in; "" for the root itself. A folder
        that is not there is told as that.
        """
        layout = self._layout
        parts: list[tuple[str, Iterator[Look]]] = [("", self._top())]
        for state in SHARED:
            looks = self._leases() if state is State.LEASED else self._shared(state)
            parts.append((layout.folder(state), looks))
        parts.append((layout.queues, self._queue_folders()))
        parts += [
            (layout.tombstones, self._tombstones()),
            (layout.settings, self._settings()),
            (layout.schedules, self._schedules()),
            (layout.purged, self._marks()),
            (layout.shovels, self._shovels()),
        ]
        parts += [(layout.keys(kind), self._keys(kind)) for kind in Keys]
        parts.append((history_folder(layout), self._histories()))
        if not self._is_narrowed:
            parts += [
                (layout.leases, self._ended_leases()),
                (layout.journal, chain(self._journal(), self._staging())),
                (layout.members, self._members()),
                (layout.lost, self._lost()),
                (archive_folder(layout), self._archive()),
            ]
        return [(folder, self._standing(folder, looks)) for folder, looks in parts]

    def _standing(self, folder: str, looks: Iterator[Look]) -> Iterator[Look]:
        """None where the folder is not there, or is something else: that is told by itself. What
        it is a symbolic link to is none of the root's.
        """
        if not folder or self._is_folder(folder):
            yield from looks

    def _top(self) -> Iterator[Look]:
        yield self._format
        yield from (partial(self._top_folder, folder) for folder in self._layout.folders())
        for made_later in (
            history_folder(self._layout),
            archive_folder(self._layout),
            *self._layout.made_later(),
        ):
            yield partial(self._in_the_way, made_later, stat.S_IFDIR)
            yield partial(self._kept, made_later, FOLDER_MODE)
        yield from (partial(self._kept_file, lock) for lock in _locks(self._layout))
        yield from self._beside_folders()

    def _format(self) -> Sequence[Violation]:
        path = self._layout.format
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return (Violation(Breach.FORMAT, path),)
        told = list(self._modes(path, status, FILE_MODE))
        line = self._root.files.read_file(path, _LINE_BYTES_MAX)
        if line != FORMAT_LINE.encode("ascii"):
            told.append(Violation(Breach.FORMAT, path, repr(line)))
        return told

    def _top_folder(self, folder: str) -> Sequence[Violation]:
        status = self._root.files.status(folder)
        if status is not None and stat.S_ISDIR(status.st_mode):
            return self._modes(folder, status, FOLDER_MODE)
        is_linked = status is not None and stat.S_ISLNK(status.st_mode)
        return (Violation(Breach.SYMLINK if is_linked else Breach.FOLDER, folder),)


def _locks(layout: Layout) -> tuple[str, ...]:
    """Dotfiles that every daemon opens for writing."""
    of_queues = (layout.queues_lock, schedules_lock(layout), turns_lock(layout))
    return (*of_queues, members_lock(layout), journal_lock(layout), archive_lock(layout))
