"""Checks of bulk publishes, parted packs, items, and files that fsck set aside."""

import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from mq.model.errors import BadName, StorageFailed
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.model.names import Key
from mq.store.audit.findings import Breach, Look, Violation
from mq.store.audit.looks import NOTHING, SWEEPS_LATE, Looker
from mq.store.bulk.journal import read_journal
from mq.store.bulk.spools import LISTING_KEPT_S
from mq.store.bulk.sweep import STAGING_FORGOTTEN_S, is_forgotten_job
from mq.store.core.moves import claimed_path
from mq.store.disk.files import FOLDER_MODE
from mq.store.format.archive import archive_folder
from mq.store.format.entries import index_folders
from mq.store.format.history import history_folder
from mq.store.format.layout import Place, is_unfinished
from mq.store.format.members import Of, leader_path, parse_member_file, refresh_path, root_id_path
from mq.store.format.packs import Try, parse_try, parts
from mq.store.format.pipeline import (
    LEDGER_KEPT_S,
    Attempt,
    JournalFile,
    is_job,
    job_folder,
    listings,
    parse_journal_file,
    staging,
)
from mq.store.format.totals import parse_totals_file
from mq.store.format.trends import parse_trends_file
from mq.store.format.walk import entries_if_there
from mq.store.leases.lapses import ended_leases
from mq.store.members.files import MEMBER_TOLD_KEPT_S, UNFINISHED_KEPT_S

_ENDED_KEPT_S: Final = 1.0
_LEDGER: Final = (JournalFile.DONE, JournalFile.BEGUN)


class BulkLooker(Looker):
    """Checks objects that belong to no queue."""

    # Computed together, since each depends on its consumer's other leases, and cached for a moment.
    _ended: frozenset[str] = frozenset()
    _ended_s = float("-inf")

    def _journal(self) -> Iterator[Look]:
        for found in self._named(self._layout.journal, parse_journal_file):
            if not isinstance(found, tuple):
                yield found
            else:
                yield partial(self._kept_file, found[0].path)
                yield partial(self._journal_file, found[0].path, *found[1])

    def _journal_file(self, path: str, name: Key, file: JournalFile) -> Sequence[Violation]:
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING
        if file in _LEDGER:
            return self._leftover(path, LEDGER_KEPT_S, by_mtime=True)
        try:
            read_journal(self._root, path)
        except StorageFailed as error:
            return (Violation(Breach.JOURNAL, path, str(error)),)
        if not self._is_late(path, 0):
            return NOTHING
        with claimed_path(self._root, path) as claim:
            # If it is locked, a process is rolling it forward.
            return NOTHING if claim is None else (Violation(Breach.JOURNAL, path, name.text),)

    def _partings(self) -> Iterator[Look]:
        top = parts(self._layout)
        if not self._is_folder(top):
            return
        yield partial(self._kept, top, FOLDER_MODE)
        for found in self._named(top, parse_try):
            if not isinstance(found, tuple):
                yield found
                continue
            entry, parting = found
            yield partial(self._kept, entry.path, FOLDER_MODE)
            yield partial(self._parting, parting)
            if self._root.files.is_there(parting.pack_path(self._layout)):
                messages = sum(1 for _ in entries_if_there(self._root.files, entry.path)) - 1
                self.amounts.count(parting.state, parting.queue.text, max(0, messages))

    def _parting(self, parting: Try) -> Sequence[Violation]:
        folder, path = parting.folder(self._layout), parting.pack_path(self._layout)
        if not self._root.files.is_there(path):
            return self._leftover(folder, FORGOTTEN_AFTER_S, parting.queue)
        if not self._is_late(folder, 0):
            return NOTHING
        spot = Place(parting.state, parting.queue, parting.pack)
        return (Violation(Breach.PARTED, path, "", parting.queue, spot),)

    def _staging(self) -> Iterator[Look]:
        top = staging(self._layout)
        if not self._is_folder(top):
            return
        yield partial(self._kept, top, FOLDER_MODE)
        for found in self._listed(top):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.path == listings(self._layout):
                yield partial(self._kept, found.path, FOLDER_MODE)
                for spool in self._entries(found.path):
                    if isinstance(spool, os.DirEntry):
                        yield partial(self._leftover, spool.path, LISTING_KEPT_S, None, True)
            elif not is_job(found.name):
                self._foreign(found.name)
            elif found.is_symlink():
                yield partial(self._symlink, found.path)
            elif not found.is_dir(follow_symlinks=False):
                # The mark of an abandoned job.
                yield partial(self._kept_file, found.path)
                yield partial(self._leftover, found.path, STAGING_FORGOTTEN_S, None, True)
            else:
                yield partial(self._job, found.name)
                yield from self._attempts(found.path)

    def _attempts(self, job: str) -> Iterator[Look]:
        yield partial(self._kept, job, FOLDER_MODE)
        for found in self._entries(job):
            if not isinstance(found, os.DirEntry):
                yield found
            elif self._parsed(Attempt.parse, found.name) is None:
                continue
            elif found.is_dir(follow_symlinks=False):
                yield partial(self._kept, found.path, FOLDER_MODE)
            else:
                yield partial(self._in_the_way, found.path, stat.S_IFDIR)

    def _job(self, job: str) -> Sequence[Violation]:
        late_s = SWEEPS_LATE * SWEEP_EVERY_S + self._overdue_ms / 1000
        path = job_folder(self._layout, job)
        # A committed job is reported by the check of its commit point.
        if self._is_folder(path) and is_forgotten_job(self._root, job, late_s):
            return (Violation(Breach.LEFTOVER, path),)
        return NOTHING

    def _ended_leases(self) -> Iterator[Look]:
        late_ms = round(SWEEPS_LATE * SWEEP_EVERY_S * 1000) + self._overdue_ms
        try:
            for path in ended_leases(self._root, late_ms):
                yield partial(self._ended_lease, path, late_ms)
        except OSError:
            return  # The folder's own check reports it.

    def _ended_lease(self, path: str, late_ms: int) -> Sequence[Violation]:
        now_s = self._root.clock.steady_s()
        if now_s - self._ended_s > _ENDED_KEPT_S:
            self._ended = frozenset(ended_leases(self._root, late_ms))
            self._ended_s = now_s
        is_left = path in self._ended and self._root.files.status(path) is not None
        return (Violation(Breach.LEFTOVER, path),) if is_left else NOTHING

    def _members(self) -> Iterator[Look]:
        layout = self._layout
        ours = (leader_path(layout), refresh_path(layout))
        for found in self._listed(layout.members):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.path == root_id_path(layout):
                if not found.is_symlink():
                    yield partial(self._in_the_way, found.path, stat.S_IFLNK)
            elif found.is_symlink():
                yield partial(self._symlink, found.path)
            elif found.name.startswith("."):
                self.amounts.hidden += 1
                if is_unfinished(found.name):
                    yield partial(self._leftover, found.path, UNFINISHED_KEPT_S, None, True)
            elif found.path in ours:
                yield partial(self._kept_file, found.path)
            elif _is_members(found.name):
                yield partial(self._kept_file, found.path)
                yield partial(self._leftover, found.path, MEMBER_TOLD_KEPT_S, None, True)
            else:
                self._foreign(found.name)

    def _totals(self) -> Iterator[Look]:
        """Checks only names: readers skip lines that they cannot parse."""
        for found in self._named(self._layout.totals, parse_totals_file):
            yield partial(self._kept_file, found[0].path) if isinstance(found, tuple) else found

    def _trends(self) -> Iterator[Look]:
        """As for totals."""
        for found in self._named(self._layout.trends, parse_trends_file):
            yield partial(self._kept_file, found[0].path) if isinstance(found, tuple) else found

    def _lost(self) -> Iterator[Look]:
        """Counts the files; their contents may be anything."""
        for found in self._listed(self._layout.lost):
            if isinstance(found, os.DirEntry):
                self.amounts.lost += 1
            else:
                yield found

    def _beside_folders(self) -> Iterator[Look]:
        """Counts other entries of the root itself."""
        layout = self._layout
        later = (*layout.made_later(), history_folder(layout), archive_folder(layout))
        ours = {layout.format, *later, *index_folders(layout), *layout.folders()}
        for found in self._listed(layout.root):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.name.startswith("."):
                self.amounts.hidden += 1
            elif found.path not in ours:
                self._foreign(found.name)


def _is_members(name: str) -> bool:
    try:
        return isinstance(parse_member_file(name)[1], Of)
    except BadName:
        return False
