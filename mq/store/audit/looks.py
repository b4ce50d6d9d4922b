"""The base of auditors: it lists names once, and yields checks (Look) that can be repeated."""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from mq.model.errors import BadName
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.model.names import QueueName
from mq.store.audit.findings import Amounts, Breach, Look, Violation
from mq.store.core.root import Root
from mq.store.core.standing import bits_left, queue_exists
from mq.store.core.trust import owner_of
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.disk.steps import T
from mq.store.format.layout import KEYS_FOLDERS, is_unfinished

NOTHING: Final[Sequence[Violation]] = ()
SWEEPS_LATE: Final = 2
"""The number of passes in which mq-mover reaches every object of a root."""
_LOOKS: Final = 2
"""How often a change that another process may be making is checked before it is reported."""


class QueueFolder(NamedTuple):
    """A queue's folder in a folder with one for each queue."""

    queue: QueueName
    path: str


class Looker:
    """Lists names and changes nothing; `amounts` has its counts. `queues`: only these are checked;
    None: everything, also objects without a queue.
    """

    def __init__(
        self, root: Root, overdue_s: float, queues: Collection[QueueName] | None = None
    ) -> None:
        self.amounts = Amounts()
        self._root = root
        self._layout = root.layout
        self._queues = None if queues is None else frozenset(queues)
        self._overdue_ms = round(overdue_s * 1000)
        self._has_queues = self._is_folder(self._layout.queues)
        self._owner = owner_of(root)

    @property
    def _is_narrowed(self) -> bool:
        """Whether objects without a queue are left out."""
        return self._queues is not None

    def _wants(self, queue: QueueName) -> bool:
        return self._queues is None or queue in self._queues

    def _entries(self, folder: str) -> "Iterator[os.DirEntry[str] | Look]":
        """The names that may be mq's. Yields a check for symbolic links, and counts dotfiles."""
        for found in self._listed(folder):
            if not isinstance(found, os.DirEntry):
                yield found
            elif found.is_symlink():
                yield partial(self._symlink, found.path)
            elif found.name.startswith("."):
                self.amounts.hidden += found.name not in KEYS_FOLDERS
            else:
                yield found

    def _named(
        self,
        folder: str,
        parse: Callable[[str], T],
        is_being_written: Callable[[str], bool] = is_unfinished,
    ) -> "Iterator[tuple[os.DirEntry[str], T] | Look]":
        """The entries with valid names, and their parsed names. Yields a check for unfinished
        files, which are leftovers after an hour.
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

    def _listed(self, folder: str) -> "Iterator[os.DirEntry[str] | Look]":
        """All entries. A missing folder is empty; a folder that cannot be listed yields a check
        that reports it.
        """
        try:
            yield from self._root.files.entries(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if not is_gone(error):
                yield partial(self._unlisted, folder)

    def _unlisted(self, folder: str) -> Sequence[Violation]:
        try:
            for _ in self._root.files.entries(folder):
                break
        except FileNotFoundError:
            return NOTHING
        except OSError as error:
            if not is_gone(error):
                return (Violation(Breach.STORAGE, folder, os.strerror(error.errno or 0)),)
        return NOTHING

    def _symlink(self, path: str) -> Sequence[Violation]:
        if self._root.files.linked(path) is None:
            return NOTHING
        return (Violation(Breach.SYMLINK, path),)

    def _of_queues(self, folder: str) -> "Iterator[Look | QueueFolder]":
        """The folders of wanted queues, each after its own check, and the checks of other
        entries.
        """
        for found in self._entries(folder):
            if not isinstance(found, os.DirEntry):
                yield found
                continue
            queue = self._parsed(QueueName.parse, found.name)
            if queue is None or not self._wants(queue):
                continue
            if not found.is_dir(follow_symlinks=False):
                yield partial(self._in_the_way, found.path, stat.S_IFDIR, queue)
                continue
            yield partial(self._kept, found.path, FOLDER_MODE, queue)
            yield QueueFolder(queue, found.path)

    def _kept(self, path: str, mode: int, queue: QueueName | None = None) -> Sequence[Violation]:
        """Checks the mode and owner of a folder or auxiliary file; nothing if the name has another
        kind by now.
        """
        status = self._root.files.status(path)
        if status is None or stat.S_ISDIR(status.st_mode) != (mode == FOLDER_MODE):
            return NOTHING
        return self._modes(path, status, mode, queue)

    def _kept_file(self, path: str, queue: QueueName | None = None) -> Sequence[Violation]:
        """Likewise, for a path that must be a file."""
        status = self._root.files.status(path)
        if status is None:
            return NOTHING
        if not stat.S_ISREG(status.st_mode):
            return self._in_the_way(path, stat.S_IFREG, queue)
        return self._modes(path, status, FILE_MODE, queue)

    def _modes(
        self, path: str, status: os.stat_result, mode: int, queue: QueueName | None = None
    ) -> Sequence[Violation]:
        """The setgid bit is valid if the root's folder has it: folders below inherit it."""
        found = stat.S_IMODE(status.st_mode)
        kept = found & ~bits_left(self._root) if mode == FOLDER_MODE else found
        if kept == mode and status.st_uid == self._owner:
            return NOTHING
        told = []
        if status.st_uid != self._owner:
            told.append(Violation(Breach.OWNER, path, f"user {status.st_uid}", queue))
        if kept != mode:
            told.append(Violation(Breach.MODE, path, f"{found:04o}", queue))
        return told

    def _in_the_way(
        self, path: str, kind: int, queue: QueueName | None = None
    ) -> Sequence[Violation]:
        """Reports an entry of another kind than `kind` (as in a mode), where mq uses the name."""
        status = self._root.files.status(path)
        if status is None or stat.S_IFMT(status.st_mode) == kind:
            return NOTHING
        if stat.S_ISLNK(status.st_mode):
            return self._symlink(path)
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "no folder"
        return (Violation(Breach.IN_THE_WAY, path, what, queue),)

    def _foreign(self, name: str) -> None:
        self.amounts.foreign += 1
        self.amounts.foreign_name = name

    def _parsed(self, parse: Callable[[str], T], name: str) -> T | None:
        """The parsed name; None for a foreign name, which is counted."""
        try:
            return parse(name)
        except BadName:
            self._foreign(name)
            return None

    def _is_folder(self, path: str) -> bool:
        status = self._root.files.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _is_unheard_of(self, queue: QueueName) -> bool:
        """Whether the queue does not exist, as far as that can be seen."""
        return self._has_queues and not queue_exists(self._root, queue)

    def _is_stray(self, queue: QueueName) -> bool:
        """Whether the queue neither exists nor was deleted."""
        return all(
            self._is_unheard_of(queue)
            and self._root.files.status(self._layout.tombstone(queue)) is None
            for _ in range(_LOOKS)
        )

    def _is_late(self, path: str, kept_s: float, *, by_mtime: bool = False) -> bool:
        """Whether a file is older than `kept_s` seconds (by its ctime), plus some passes of
        mq-mover, which should have removed it.
        """
        status = self._root.files.status(path)
        if status is None:
            return False
        age_ms = self._age_ms(status)
        if by_mtime:
            age_ms = self._root.now_ms() - status.st_mtime_ns // 1_000_000
        return age_ms > (kept_s + SWEEPS_LATE * SWEEP_EVERY_S) * 1000 + self._overdue_ms

    def _leftover(
        self, path: str, kept_s: float, queue: QueueName | None = None, by_mtime: bool = False
    ) -> Sequence[Violation]:
        if self._is_late(path, kept_s, by_mtime=by_mtime):
            return (Violation(Breach.LEFTOVER, path, "", queue),)
        return NOTHING

    def _age_ms(self, status: os.stat_result) -> int:
        """Milliseconds since the last write or move."""
        return self._root.now_ms() - status.st_ctime_ns // 1_000_000
