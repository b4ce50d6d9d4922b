"""The names in leases/: for lookups of messages, and for leases themselves."""

import os
from collections.abc import Iterable, Mapping, Set
from typing import Final

from mq.model.clock import Clock
from mq.store.disk.files import Files
from mq.store.format.layout import Layout
from mq.store.format.pipeline import LeaseFile, LeaseName, parse_lease_file
from mq.store.format.walk import Remembered, entries_if_there, named

_HOLDING: Final = (LeaseFile.FOLDER, LeaseFile.RELEASED)


class OpenLeases(Remembered[tuple[str, ...]]):
    """The leases of a root that hold messages, cached for one process."""

    def __init__(self, layout: Layout, files: Files, clock: Clock) -> None:
        super().__init__(files, clock, layout.leases, self._spots, ())
        self._layout = layout

    def spots(self) -> tuple[str, ...]:
        """The buckets of all folders that may hold leased messages, the newest first for each
        consumer. Raises OSError.
        """
        return self.now()

    def _spots(self, status: os.stat_result) -> tuple[str, ...]:
        found = lease_names(self._layout, self._files)
        holding = sorted(lease for lease in found if not found[lease].isdisjoint(_HOLDING))
        return tuple(
            lease.spot if file is LeaseFile.FOLDER else lease.released_spot
            for lease in reversed(holding)
            for file in _HOLDING
            if file in found[lease]
        )


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
