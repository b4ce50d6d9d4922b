"""A negative cache of selective scans: folders without matching messages.

An entry is valid while its folder's mtime stays. Bounded, and only a hint: an unknown folder is
listed or read again.
"""

import threading
from dataclasses import dataclass, field
from typing import Final

# Limits of a process for all selections: folders without a match, and messages elsewhere that do
# not match. A few hundred bytes each.
BARREN_FOLDERS_MAX: Final = 50_000
BARREN_NAMES_MAX: Final = 50_000
# A folder that this many scans did not reach is forgotten.
LOOKS_FORGET: Final = 16


class Allowance:
    """A shared budget of entries. A holder gets no more entries than are left, so some remain for
    each. For any thread.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        return self._left

    def take(self, has: int) -> bool:
        """Grants one more entry to a holder with `has` entries, if the budget allows it."""
        with self._lock:
            if self._left == 0 or has > self._left:
                return False
            self._left -= 1
            return True

    def give(self, count: int) -> None:
        with self._lock:
            self._left += count


@dataclass(frozen=True, slots=True)
class Allowances:
    """The budgets of a process for all selections of all its queues."""

    folders: Allowance = field(default_factory=lambda: Allowance(BARREN_FOLDERS_MAX))
    names: Allowance = field(default_factory=lambda: Allowance(BARREN_NAMES_MAX))


@dataclass(slots=True)
class _Folder:
    """A listed folder: its mtime (None: the entry is invalid), the folders below it, the messages
    in it whose header blocks do not match, the last scan that reached it, and whether it has
    changed since its first listing.
    """

    mtime_ns: int | None
    below: tuple[str, ...]
    refused: set[str]
    look: int
    changes: bool = False


class Barren:
    """The negative cache of one selection in one queue. For one scan at a time."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances
        self._folders: dict[str, _Folder] = {}
        self._names = 0
        """The number of remembered names."""
        self._look = 0

    def __len__(self) -> int:
        return len(self._folders)

    def look_began(self) -> None:
        """Begins another scan."""
        self._look += 1

    def look_ended(self, complete: bool) -> None:
        """Forgets folders that a complete scan did not reach, and folders that none of the last
        scans reached.
        """
        oldest = self._look if complete else self._look - LOOKS_FORGET
        for path in [path for path, each in self._folders.items() if each.look < oldest]:
            self._drop(path)

    def below(self, path: str, mtime_ns: int) -> tuple[str, ...] | None:
        """The names of the folders below, if the folder has no matching message at this mtime;
        None: it must be listed.
        """
        known = self._folders.get(path)
        if known is None:
            return None
        known.look = self._look
        return known.below if known.mtime_ns == mtime_ns else None

    def refused(self, path: str) -> set[str]:
        """The names of the folder's messages whose header blocks do not match."""
        known = self._folders.get(path)
        return set() if known is None else known.refused

    def was_listed(self, path: str, refused: set[str]) -> None:
        """Invalidates the folder's entry, except for these names, which are still there."""
        known = self._folders.get(path)
        if known is not None:
            self._give_names(len(known.refused) - len(refused))
            known.mtime_ns, known.below, known.refused = None, (), refused
            known.changes = True

    def refuse(self, path: str, name: str) -> None:
        """Remembers that the message's header block does not match, so that it is not read
        again.
        """
        known = self._known(path)
        if known is not None and self._allowances.names.take(self._names):
            self._names += 1
            known.refused.add(name)

    def is_barren(self, path: str, mtime_ns: int, below: tuple[str, ...]) -> None:
        """Remembers that the folder has no matching message at this mtime, which must be
        settled.
        """
        known = self._known(path)
        if known is not None:
            known.mtime_ns, known.below = mtime_ns, below
            if not known.changes:  # The usual case, with too many names.
                self._give_names(len(known.refused))
                known.refused = set()

    def forget(self) -> None:
        """Empties the cache."""
        for path in list(self._folders):
            self._drop(path)

    def _known(self, path: str) -> _Folder | None:
        """The folder's entry, new if necessary; None: the budget is spent."""
        known = self._folders.get(path)
        if known is None and self._allowances.folders.take(len(self._folders)):
            known = self._folders[path] = _Folder(None, (), set(), self._look)
        return known

    def _drop(self, path: str) -> None:
        self._give_names(len(self._folders.pop(path).refused))
        self._allowances.folders.give(1)

    def _give_names(self, count: int) -> None:
        self._names -= count
        self._allowances.names.give(count)
