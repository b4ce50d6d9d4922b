"""What the looks for one selection remember of a queue's folders: those in which nothing is of it.

What is remembered of a folder is worth what its mtime is. A hint in memory, and bounded: what is
not remembered is listed, or read, again.
"""

import threading
from dataclasses import dataclass, field

from mq.model.limits import BARREN_FOLDERS_MAX, BARREN_NAMES_MAX, LOOKS_FORGET


class Allowance:
    """So many of something that all of a process may have together. For any thread."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many more there may be."""
        return self._left

    def take(self) -> bool:
        """One more, where there may be one."""
        with self._lock:
            if self._left == 0:
                return False
            self._left -= 1
            return True

    def give(self, count: int) -> None:
        """So many are no more."""
        with self._lock:
            self._left += count


@dataclass(frozen=True, slots=True)
class Allowances:
    """What a process may remember of all selections of all its queues."""

    folders: Allowance = field(default_factory=lambda: Allowance(BARREN_FOLDERS_MAX))
    names: Allowance = field(default_factory=lambda: Allowance(BARREN_NAMES_MAX))


@dataclass(slots=True)
class _Folder:
    """A folder that was listed: when it last changed (None: nothing is to be believed of it), the
    folders below it, the messages in it whose header blocks said no, which look last came to it,
    and whether it has changed since it was first listed.
    """

    mtime_ns: int | None
    below: tuple[str, ...]
    refused: set[str]
    look: int
    changes: bool = False


class Barren:
    """What the looks for one selection into one queue remember. One look at a time."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances
        self._folders: dict[str, _Folder] = {}
        self._look = 0

    def __len__(self) -> int:
        return len(self._folders)

    def look_began(self) -> None:
        """From here on it is another look."""
        self._look += 1

    def look_ended(self, complete: bool) -> None:
        """Forgets the folders that this look did not come to, where it came to all there are, and
        those that none of the last ones did.
        """
        oldest = self._look if complete else self._look - LOOKS_FORGET
        for path in [path for path, each in self._folders.items() if each.look < oldest]:
            self._drop(path)

    def below(self, path: str, mtime_ns: int) -> tuple[str, ...] | None:
        """The names of the folders below this one, where no message in it is of the selection, as
        of this mtime; None: it must be listed.
        """
        known = self._folders.get(path)
        if known is None:
            return None
        known.look = self._look
        return known.below if known.mtime_ns == mtime_ns else None

    def refused(self, path: str) -> set[str]:
        """The messages of a folder, by their names, whose header blocks said no."""
        known = self._folders.get(path)
        return set() if known is None else known.refused

    def was_listed(self, path: str, refused: set[str]) -> None:
        """What was remembered of a folder is old, but for these, which are still there."""
        known = self._folders.get(path)
        if known is not None:
            self._allowances.names.give(len(known.refused) - len(refused))
            known.mtime_ns, known.below, known.refused = None, (), refused
            known.changes = True

    def refuse(self, path: str, name: str) -> None:
        """A message's header block says no: it is not read again."""
        if not self._allowances.names.take():
            return
        known = self._known(path)
        if known is None:
            self._allowances.names.give(1)
        else:
            known.refused.add(name)

    def is_barren(self, path: str, mtime_ns: int, below: tuple[str, ...]) -> None:
        """No message in the folder is of the selection, as of this mtime, which is old enough."""
        known = self._known(path)
        if known is not None:
            known.mtime_ns, known.below = mtime_ns, below
            if not known.changes:  # As nearly always: there are too many to remember.
                self._allowances.names.give(len(known.refused))
                known.refused = set()

    def forget(self) -> None:
        """Nothing is remembered any more."""
        for path in list(self._folders):
            self._drop(path)

    def _known(self, path: str) -> _Folder | None:
        """What is remembered of a folder from here on; None: it may not be."""
        known = self._folders.get(path)
        if known is None and self._allowances.folders.take():
            known = self._folders[path] = _Folder(None, (), set(), self._look)
        return known

    def _drop(self, path: str) -> None:
        self._allowances.names.give(len(self._folders.pop(path).refused))
        self._allowances.folders.give(1)
