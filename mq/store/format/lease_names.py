"""What lies in leases/, by its names: for who looks for a message, and for leases themselves."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import BadName
from mq.model.limits import FOLDER_MTIME_TRUST_S
from mq.store.disk.files import Files, is_gone
from mq.store.format.layout import Layout
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path, parse_lease_file

_HOLDING: Final = (LeaseFile.FOLDER, LeaseFile.RELEASED)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a listing found, and of which mtime the folder was; -1: it may have changed since."""

    mtime_ns: int
    spots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


_NOTHING: Final = _Seen(-1)


class OpenLeases:
    """The leases of a root that hold messages, for one process: a look costs one stat while leases/
    stays as it is. Threads share it, without a lock: each believes only what it has seen itself.
    """

    def __init__(self, layout: Layout, files: Files, clock: Clock) -> None:
        self._layout = layout
        self._files = files
        self._clock = clock
        self._seen = _NOTHING

    def spots(self) -> tuple[str, ...]:
        """The `bucket` of each folder that may hold leased messages, the newest first of each
        consumer. Raises OSError.
        """
        return self._look().spots

    def folders(self) -> tuple[str, ...]:
        """leases/ itself and its folders that hold messages, or may in a moment; to be flushed,
        where they are there, by whoever says of a message that it is in none. None where no lease
        was ever taken. Raises OSError.
        """
        return self._look().folders

    def _look(self) -> _Seen:
        status = self._files.status(self._layout.leases)
        if status is None:
            return _NOTHING
        if (seen := self._seen).mtime_ns == status.st_mtime_ns:
            return seen
        settled_ms = self._clock.now_ms() - FOLDER_MTIME_TRUST_S * 1000
        is_settled = status.st_mtime_ns // 1_000_000 <= settled_ms
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
        mtime_ns = status.st_mtime_ns if is_settled else -1
        seen = self._seen = _Seen(mtime_ns, tuple(spots), (*top, *folders))
        return seen


def lease_names(layout: Layout, files: Files) -> Mapping[LeaseName, Set[LeaseFile]]:
    """What there is of each lease; foreign names are left out. Raises OSError but where leases/ is
    gone.
    """
    found: dict[LeaseName, set[LeaseFile]] = {}
    try:
        for entry in files.entries(layout.leases):
            try:
                lease, file = parse_lease_file(entry.name)
            except BadName:
                continue
            if entry.is_dir(follow_symlinks=False) is file.is_folder:
                found.setdefault(lease, set()).add(file)
    except OSError as error:
        if not is_gone(error):
            raise
    return found


def open_count(names: Iterable[Set[LeaseFile]]) -> int:
    """How many of the leases hold messages, or may."""
    return sum(not files.isdisjoint(_HOLDING) for files in names)
