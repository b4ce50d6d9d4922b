"""Checks of the files of queues: settings, schedules, purge marks, tombstones, shovels,
histories.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial

from mq.model.errors import ScheduleUnreadable, SettingsUnreadable
from mq.model.names import QueueName, ScheduleName
from mq.store.audit.findings import Breach, Look, Violation
from mq.store.audit.looks import NOTHING, Looker, QueueFolder
from mq.store.disk.files import FOLDER_MODE
from mq.store.format.history import history_folder, is_date, is_history_file
from mq.store.format.layout import parse_settings, parse_turn
from mq.store.format.schedules import is_unfinished_schedule, parse_schedule
from mq.store.format.shovels import parse_shovel_file
from mq.store.operations.queues import TOMBSTONE_KEPT_S
from mq.store.schedules.file import read_kept


class QueueLooker(Looker):
    """Checks the files that queues have beside their messages."""

    def _settings(self) -> Iterator[Look]:
        for found in self._named(self._layout.settings, parse_settings):
            if not isinstance(found, tuple):
                yield found
            elif self._wants(found[1]):
                yield partial(self._kept_file, found[0].path, found[1])
                yield partial(self._setting, found[0].path, found[1])

    def _setting(self, path: str, queue: QueueName) -> Sequence[Violation]:
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING
        try:
            self._root.facts.configured(queue)
        except SettingsUnreadable:
            return (Violation(Breach.SETTINGS, path, "", queue),)
        if self._is_unheard_of(queue):
            return (Violation(Breach.SETTINGS, path, "there is no such queue", queue),)
        return NOTHING

    def _schedules(self) -> Iterator[Look]:
        """A deleted queue must have no schedules."""
        entries = self._named(self._layout.schedules, parse_schedule, is_unfinished_schedule)
        for found in entries:
            if not isinstance(found, tuple):
                yield found
            elif self._wants(found[1][0]):
                yield partial(self._kept_file, found[0].path, found[1][0])
                yield partial(self._schedule, found[0].path, *found[1])

    def _schedule(self, path: str, queue: QueueName, name: ScheduleName) -> Sequence[Violation]:
        told = []
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return NOTHING
        try:
            kept = read_kept(self._root, queue, name)
            if kept is not None:
                kept.armed()
        except ScheduleUnreadable as error:
            told.append(Violation(Breach.SCHEDULE, path, str(error), queue))
        if self._is_unheard_of(queue):
            told.append(Violation(Breach.SCHEDULE, path, "there is no such queue", queue))
        return told

    def _marks(self) -> Iterator[Look]:
        for found in self._named(self._layout.purged, QueueName.parse):
            if not isinstance(found, tuple):
                yield found
            elif self._wants(found[1]):
                yield partial(self._kept_file, found[0].path, found[1])
                yield partial(self._mark, found[0].path, found[1])

    def _mark(self, path: str, queue: QueueName) -> Sequence[Violation]:
        if self._root.files.status(path) is not None and self._is_unheard_of(queue):
            return (Violation(Breach.PURGED, path, "", queue),)
        return NOTHING

    def _tombstones(self) -> Iterator[Look]:
        for found in self._named(self._layout.tombstones, QueueName.parse):
            if not isinstance(found, tuple):
                yield found
            elif self._wants(found[1]):
                yield partial(self._kept_file, found[0].path, found[1])
                yield partial(self._tombstone, found[0].path, found[1])

    def _tombstone(self, path: str, queue: QueueName) -> Sequence[Violation]:
        status = self._root.files.status(path)
        if status is None or not stat.S_ISREG(status.st_mode) or not self._has_queues:
            return NOTHING
        if not self._is_unheard_of(queue):
            return (Violation(Breach.TOMBSTONE, path, "", queue),)
        return self._leftover(path, TOMBSTONE_KEPT_S, queue, by_mtime=True)

    def _shovels(self) -> Iterator[Look]:
        for found in self._named(self._layout.shovels, parse_shovel_file):
            if not isinstance(found, tuple):
                yield found
            elif self._wants(found[1]):
                yield partial(self._kept_file, found[0].path, found[1])
                yield partial(self._shovel, found[0].path, found[1])

    def _active(self) -> Iterator[Look]:
        for found in self._named(self._layout.active, parse_turn):
            if not isinstance(found, tuple):
                yield found
            elif self._wants(found[1]):
                yield partial(self._kept_file, found[0].path, found[1])
                yield partial(self._shovel, found[0].path, found[1])

    def _shovel(self, path: str, queue: QueueName) -> Sequence[Violation]:
        return self._leftover(path, 0, queue) if self._is_unheard_of(queue) else NOTHING

    def _histories(self) -> Iterator[Look]:
        for found in self._of_queues(history_folder(self._layout)):
            if not isinstance(found, QueueFolder):
                yield found
                continue
            for day in self._entries(found.path):
                yield from self._day(day, found.queue)

    def _day(self, found: "os.DirEntry[str] | Look", queue: QueueName) -> Iterator[Look]:
        if not isinstance(found, os.DirEntry):
            yield found
        elif not is_date(found.name):
            self._foreign(found.name)
        elif not found.is_dir(follow_symlinks=False):
            yield partial(self._in_the_way, found.path, stat.S_IFDIR, queue)
        else:
            yield partial(self._kept, found.path, FOLDER_MODE, queue)
            for file in self._entries(found.path):
                if not isinstance(file, os.DirEntry):
                    yield file
                elif is_history_file(file.name):
                    yield partial(self._kept_file, file.path, queue)
                else:
                    self._foreign(file.name)
