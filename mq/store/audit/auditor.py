"""An auditor compares the contents of a root with FORMAT.md.

Read-only, in one pass that remembers no names. On a root in use, a message that moves during its
check is not reported. Right after a crash, second names and a tombstone beside its queue are valid
until mq-mover comes to them.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from mq.model.errors import ArchiveUnreadable
from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.store.archive.archiving import archive_mark, last_of_disabled
from mq.store.archive.ledger import OpenLedger
from mq.store.audit.bulk import BulkLooker
from mq.store.audit.findings import Breach, Look, Violation
from mq.store.audit.keys import KeyLooker
from mq.store.audit.looks import NOTHING, Looker
from mq.store.audit.messages import SHARED, MessageLooker
from mq.store.audit.queues import QueueLooker
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.format.archive import LedgerName, archive_folder, archive_lock, ended_path, mark_path
from mq.store.format.entries import Index, index_folder, index_folders
from mq.store.format.history import history_folder
from mq.store.format.layout import FORMAT_LINE, Layout
from mq.store.format.members import members_lock
from mq.store.format.pipeline import journal_lock
from mq.store.format.schedules import schedules_lock
from mq.store.format.shovels import turns_lock
from mq.store.format.totals import totals_lock
from mq.store.format.trends import trends_turn

_LINE_BYTES_MAX: Final = 100


class ArchiveLooker(Looker):
    """Checks archive/. A ledger that names a missing file is no breach; the ledger's reader detects
    that.
    """

    def _archive(self) -> Iterator[Look]:
        folder = archive_folder(self._layout)
        yield partial(self._kept, folder, FOLDER_MODE)
        read: dict[str, Callable[[], object]] = {
            mark_path(self._layout): lambda: archive_mark(self._root),
            ended_path(self._layout): lambda: last_of_disabled(self._root),
        }
        for found in self._entries(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.path in read:
                yield partial(self._kept_file, found.path)
                yield partial(self._said, found.path, read[found.path])
            elif (name := self._parsed(LedgerName.parse, found.name)) is not None:
                yield partial(self._kept_file, found.path)
                yield partial(self._said, found.path, partial(self._ledger, name))

    def _said(self, path: str, read: Callable[[], object]) -> Sequence[Violation]:
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING  # Reported by its own check.
        try:
            read()
        except ArchiveUnreadable as error:
            return (Violation(Breach.ARCHIVE, path, error.why),)
        except OSError as error:
            if not is_gone(error):
                raise
        return NOTHING

    def _ledger(self, name: LedgerName) -> None:
        with OpenLedger(self._root, name):
            return


class Auditor(MessageLooker, QueueLooker, KeyLooker, BulkLooker, ArchiveLooker):
    """All checks of a root, one after another, and their counts."""

    def looks(self) -> Iterator[Look]:
        """One check for each object of the root, in constant memory."""
        for _, looks in self.parts():
            yield from looks

    def parts(self) -> Sequence[tuple[str, Iterator[Look]]]:
        """The same checks by the folder that they are in; "" for the root itself. A missing folder
        is reported.
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
            (layout.active, self._active()),
        ]
        parts += [(index_folder(layout, index), self._entries_of(index)) for index in Index]
        parts.append((history_folder(layout), self._histories()))
        if not self._is_narrowed:
            parts += [
                (layout.leases, self._ended_leases()),
                (layout.journal, chain(self._journal(), self._staging(), self._partings())),
                (layout.members, self._members()),
                (layout.lost, self._lost()),
                (layout.totals, self._totals()),
                (layout.trends, self._trends()),
                (archive_folder(layout), self._archive()),
            ]
        return [(folder, self._standing(folder, looks)) for folder, looks in parts]

    def _queue(self, folder: str, state: State, queue: QueueName) -> Iterator[Look]:
        yield from super()._queue(folder, state, queue)
        if state is State.READY:
            yield from self._keys(queue)

    def _standing(self, folder: str, looks: Iterator[Look]) -> Iterator[Look]:
        """The checks of a folder; none if it is missing or something else, which its own check
        reports. A symbolic link is not followed.
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
            *index_folders(self._layout),
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
        if line.decode("ascii", "replace") != FORMAT_LINE:
            told.append(Violation(Breach.FORMAT, path, repr(line)))
        return told

    def _top_folder(self, folder: str) -> Sequence[Violation]:
        status = self._root.files.status(folder)
        if status is not None and stat.S_ISDIR(status.st_mode):
            return self._modes(folder, status, FOLDER_MODE)
        is_linked = status is not None and stat.S_ISLNK(status.st_mode)
        return (Violation(Breach.SYMLINK if is_linked else Breach.FOLDER, folder),)


def _locks(layout: Layout) -> tuple[str, ...]:
    """Lock files, which every daemon opens for writing."""
    of_queues = (layout.queues_lock, schedules_lock(layout), turns_lock(layout))
    return (
        *of_queues,
        members_lock(layout),
        journal_lock(layout),
        archive_lock(layout),
        layout.active_lock,
        totals_lock(layout),
        *trends_turn(layout),
    )
