"""The names in leases/: for lookups of messages, and for leases themselves."""

import os
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from mq.model.clock import Clock
from mq.store.disk.files import Files
from mq.store.format.layout import Layout
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path, parse_lease_file
from mq.store.format.walk import Remembered, entries_if_there, named

_HOLDING: Final = (LeaseFile.FOLDER, LeaseFile.RELEASED)


class _Holding(NamedTuple):
    spots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


class OpenLeases(Remembered[_Holding]):
    """The leases of a root that hold messages, cached for one process."""

    def __init__(self, layout: Layout, files: Files, clock: Clock) -> None:
        super().__init__(files, clock, layout.leases, self._holding, _Holding())
        self._layout = layout

    def spots(self) -> tuple[str, ...]:
        """The buckets of all folders that may hold leased messages, the newest first for each
        consumer. Raises OSError.
        """
        return self.now().spots

    def folders(self) -> tuple[str, ...]:
        """leases/ and its folders that hold messages or may soon. An operation that reports a
        message as leased flushes those that exist. Empty if no lease was ever taken. Raises
        OSError.
        """
        return self.now().folders

    def _holding(self, status: os.stat_result) -> _Holding:
        found = lease_names(self._layout, self._files)
        holding = sorted(lease for lease in found if not found[lease].isdisjoint(_HOLDING))
        spots = [
            lease.spot if file is LeaseFile.FOLDER else lease.released_spot
            for lease in reversed(holding)
            for file in _HOLDING
            if file in found[lease]
        ]
        folders = (lease_path(self._layout, lease, file) for lease in holding for file in _HOLDING)
        top = (self._layout.leases,) if found else ()
        return _Holding(tuple(spots), (*top, *folders))


def lease_names(layout: Layout, files: Files) -> Mapping[LeaseName, Set[LeaseFile]]:
    """The files of each lease, without foreign names. A missing leases/ is empty. Raises
    OSError.
    """
    found: dict[LeaseName, set[LeaseFile]] = {}
    entries = entries_if_there(files, layout.leases)
    for entry, (lease, file) in named(entries, parse_lease_file):
        if entry.is_dir(follow_symlinks=False) is file.is_folder:
            found.setdefault(lease, set()).add(file)
    return found


def open_count(names: Iterable[Set[LeaseFile]]) -> int:
    """The number of leases that hold messages, or may."""
    return sum(not files.isdisjoint(_HOLDING) for files in names)
