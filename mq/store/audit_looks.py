"""What an audit of a root is made of: looking at names, and telling what is broken."""

import os
import stat
from collections.abc import Callable, Iterator

from mq.errors import BadName, ScheduleUnreadable, SettingsUnreadable
from mq.lifecycle import State
from mq.names import QueueName
from mq.settings import QueueSettings
from mq.store.breaches import Audit, Breach, Violation
from mq.store.configure import Configured
from mq.store.files import FILE_MODE
from mq.store.layout import parse_settings
from mq.store.moves import queue_exists
from mq.store.root import Root
from mq.store.schedule_file import read_kept
from mq.store.schedule_layout import parse_schedule
from mq.store.steps import T


class Looker:
    """Looks at names, changes nothing; `found` is what it has to tell."""

    def __init__(self, root: Root) -> None:
        self.found = Audit(messages={state: 0 for state in State if state is not State.ABSENT})
        self._root = root
        self._layout = root.layout
        self._has_queues = True

    def _say(self, breach: Breach, path: str, detail: str = "") -> None:
        self.found.violations.append(Violation(breach, path, detail))

    def _mode(self, path: str, status: os.stat_result, mode: int) -> None:
        if stat.S_IMODE(status.st_mode) != mode:
            self._say(Breach.MODE, path, f"{stat.S_IMODE(status.st_mode):04o}")

    def _entries(self, folder: str) -> "Iterator[tuple[os.DirEntry[str], os.stat_result]]":
        """What may be ours: symbolic links are told of, dotfiles counted, what is gone is gone."""
        try:
            for entry in self._root.files.entries(folder):
                if entry.is_symlink():
                    self._say(Breach.SYMLINK, entry.path)
                elif entry.name.startswith("."):
                    self.found.hidden += 1
                elif (status := self._root.files.status(entry.path)) is not None:
                    yield entry, status
        except FileNotFoundError:
            return  # The folder went meanwhile: a queue was deleted, or reaped.

    def _foreign(self, name: str) -> None:
        self.found.foreign += 1
        self.found.foreign_name = name

    def _parsed(self, parse: Callable[[str], T], name: str) -> T | None:
        """What the name says; None for a foreign one, which is counted."""
        try:
            return parse(name)
        except BadName:
            self._foreign(name)
            return None


class BesideMessages(Looker):
    """Looks at what is of whole queues: settings, schedules, marks of purges, tombstones."""

    def beside(self, standing: list[str]) -> None:
        """Those of the folders that are there."""
        layout = self._layout
        for folder, look in (
            (layout.tombstones, self._tombstones),
            (layout.settings, self._settings),
            (layout.schedules, self._schedules),
            (layout.purged, self._marks),
        ):
            if folder in standing:
                look()

    def _settings(self) -> None:
        for entry, status in self._entries(self._layout.settings):
            if (queue := self._parsed(parse_settings, entry.name)) is None:
                continue
            if not stat.S_ISREG(status.st_mode):
                self._foreign(entry.name)
                continue
            self._mode(entry.path, status, FILE_MODE)
            if not self._is_understood(queue):
                self._say(Breach.SETTINGS, entry.path)
            elif self._has_queues and not queue_exists(self._root, queue):
                self._say(Breach.SETTINGS, entry.path, "there is no such queue")

    def _is_understood(self, queue: QueueName) -> bool:
        try:
            Configured.read(self._root, queue, QueueSettings())
        except SettingsUnreadable:
            return False
        return True

    def _schedules(self) -> None:
        """Of a queue that was deleted there are none."""
        for entry, status in self._entries(self._layout.schedules):
            if (parsed := self._parsed(parse_schedule, entry.name)) is None:
                continue
            if not stat.S_ISREG(status.st_mode):
                self._foreign(entry.name)
                continue
            self._mode(entry.path, status, FILE_MODE)
            try:
                kept = read_kept(self._root, *parsed)
                if kept is not None:
                    kept.armed()
            except ScheduleUnreadable as error:
                self._say(Breach.SCHEDULE, entry.path, str(error))
            if self._has_queues and not queue_exists(self._root, parsed[0]):
                self._say(Breach.SCHEDULE, entry.path, "there is no such queue")

    def _marks(self) -> None:
        for entry, status in self._entries(self._layout.purged):
            if (queue := self._parsed(QueueName.parse, entry.name)) is None:
                continue
            if not stat.S_ISREG(status.st_mode):
                self._foreign(entry.name)
                continue
            self._mode(entry.path, status, FILE_MODE)
            if self._has_queues and not queue_exists(self._root, queue):
                self._say(Breach.PURGED, entry.path)

    def _tombstones(self) -> None:
        for entry, status in self._entries(self._layout.tombstones):
            if (queue := self._parsed(QueueName.parse, entry.name)) is None:
                continue
            if stat.S_ISREG(status.st_mode):
                self._mode(entry.path, status, FILE_MODE)
                if self._has_queues and queue_exists(self._root, queue):
                    self._say(Breach.TOMBSTONE, entry.path)
            else:
                self._foreign(entry.name)
