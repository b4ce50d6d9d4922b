"""Looks at what is of whole queues: settings, schedules, marks of purges, tombstones, shovels,
histories.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mq.model.errors import ScheduleUnreadable, SettingsUnreadable
from mq.model.limits import FORGOTTEN_AFTER_S, TOMBSTONE_KEPT_S
from mq.model.names import QueueName, ScheduleName
from mq.store.audit.breaches import Breach, Look, Violation
from mq.store.audit.looks import NOTHING, Looker, QueueFolder
from mq.store.disk.files import FOLDER_MODE
from mq.store.disk.steps import T
from mq.store.format.history import history_folder, is_date, is_history_file
from mq.store.format.layout import is_unfinished, parse_settings
from mq.store.format.schedules import is_unfinished_schedule, parse_schedule
from mq.store.format.shovels import parse_shovel_file
from mq.store.schedules.file import read_kept
from mq.store.settings.configure import Configured


class QueueLooker(Looker):
    """Of what queues have beside their messages."""

    def _named(
        self,
        folder: str,
        parse: Callable[[str], T],
        is_being_written: Callable[[str], bool] = is_unfinished,
    ) -> "Iterator[tuple[os.DirEntry[str], T] | Look]":
        """What has a name that means something, and what it says; of what was being written an
        hour ago, that it is there.
        """
        for found in self._listed(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.is_symlink():
                yield partial(self._symlink, found.path)
            elif found.name.startswith("."):
                self.amounts.hidden += 1
                if is_being_written(found.name) and not self._is_narrowed:
                    yield partial(self._leftover, found.path, FORGOTTEN_AFTER_S)
            elif (parsed := self._parsed(parse, found.name)) is not None:
                yield found, parsed

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
            Configured.read(self._root, queue)
        except SettingsUnreadable:
            return (Violation(Breach.SETTINGS, path, "", queue),)
        if self._is_unheard_of(queue):
            return (Violation(Breach.SETTINGS, path, "there is no such queue", queue),)
        return NOTHING

    def _schedules(self) -> Iterator[Look]:
        """Of a queue that was deleted there are none."""
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
