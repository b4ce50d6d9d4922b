"""mq-mover's part of leases: when each lapses, and what crashes and time leave of them."""

import contextlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from mq.model.message import Stamp
from mq.model.names import ConsumerName
from mq.store.core.root import Root, sweep_unfinished, unlink_if_there
from mq.store.disk.steps import Flush, Steps
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path
from mq.store.leases.manifest import LEASE_S_DEFAULT, Manifest, ManifestState, read_manifest
from mq.store.leases.names import lease_names

# How long the manifest of a released lease is kept.
LAPSED_KEPT_S: Final = 7 * 24 * 3600

_SAYS_DUE: Final = (LeaseFile.MANIFEST, LeaseFile.LAPSED)


@dataclass(frozen=True, slots=True)
class Lapse:
    """A lease that holds messages, and when it has to be released, in milliseconds since the epoch:
    at once, if its release has begun. `is_orphan`: it has no manifest.
    """

    lease: LeaseName
    due_ms: int
    is_orphan: bool = False


def lapses(root: Root) -> list[Lapse]:
    """The leases of a root that hold messages, or may. Raises OSError."""
    found = []
    for lease, files in lease_names(root.layout, root.files).items():
        if LeaseFile.RELEASED in files:
            found.append(Lapse(lease, 0, is_orphan=files.isdisjoint(_SAYS_DUE)))
        elif LeaseFile.FOLDER in files:
            found.append(_lapse(root, lease, files))
    return found


def _lapse(root: Root, lease: LeaseName, files: Set[LeaseFile]) -> Lapse:
    for file in _SAYS_DUE:
        status = root.files.status(lease_path(root.layout, lease, file)) if file in files else None
        if status is not None:
            return Lapse(lease, Stamp.from_mtime_ns(status.st_mtime_ns).due_ms)
    # By ctime: a process that claims into the lease has a manifest, and renews that.
    folder = root.files.status(lease_path(root.layout, lease, LeaseFile.FOLDER))
    since_ms = root.now_ms() if folder is None else folder.st_ctime_ns // 1_000_000
    return Lapse(lease, since_ms + LEASE_S_DEFAULT * 1000, is_orphan=True)


def late_leases(root: Root, late_ms: int) -> list[tuple[str, int]]:
    """The folders of leases whose release has not begun `late_ms` after their due time, and how
    many milliseconds they are late. Raises OSError.
    """
    return [
        (lease_path(root.layout, lapse.lease, LeaseFile.FOLDER), root.now_ms() - lapse.due_ms)
        for lapse in lapses(root)
        if lapse.due_ms and root.now_ms() - lapse.due_ms > late_ms
    ]


def adopt(root: Root, lease: LeaseName, due_ms: int) -> Steps[None]:
    """Gives a lease without a manifest one with this due time, in milliseconds since the epoch.
    Durable on return: yes.
    """
    path = lease_path(root.layout, lease, LeaseFile.MANIFEST)
    with contextlib.suppress(FileExistsError):
        descriptor = root.files.create(path)
        try:
            root.files.write(descriptor, Manifest(lease).written())
            root.files.stamp(descriptor, Stamp(due_ms).mtime_ns())
            yield Flush(files=(descriptor,), folders=(root.layout.leases,))
        finally:
            root.files.close(descriptor)


def sweep_leases(root: Root) -> int:
    """Unlinks old files: manifests of acknowledged leases, and of leases that lapsed long ago, if
    the consumer has newer ones; manifests of claims that took nothing; unfinished files of
    processes that died. Returns their number. Raises OSError. Durable on return: no; what comes
    back is swept again.
    """
    swept = 0
    for path in ended_leases(root):
        unlink_if_there(root.files, path)
        swept += 1
    return swept + sweep_unfinished(root, root.layout.leases)


def ended_leases(root: Root, late_ms: int = 0) -> Iterator[str]:
    """The files of leases that are not needed any more, and of claims that took nothing. `late_ms`:
    only files that should have been removed this long ago; files of unknown age are left out.
    Raises OSError.
    """
    names = lease_names(root.layout, root.files)
    newest = _newest(root, names)
    for lease, files in names.items():
        if len(files) == 1:
            (file,) = files
            is_old = lease.seq < newest.get(lease.consumer, 0)
            if _is_of_nothing(root, lease, file, late_ms, is_old=is_old):
                yield lease_path(root.layout, lease, file)


def _newest(root: Root, names: Mapping[LeaseName, Set[LeaseFile]]) -> dict[ConsumerName, int]:
    """The number of each consumer's newest lease that the consumer may know."""
    newest: dict[ConsumerName, int] = {}
    for lease, files in names.items():
        if lease.seq > newest.get(lease.consumer, 0) and (
            files != {LeaseFile.MANIFEST} or _is_claimed(root, lease)
        ):
            newest[lease.consumer] = lease.seq
    return newest


def _is_of_nothing(
    root: Root, lease: LeaseName, file: LeaseFile, late_ms: int, *, is_old: bool
) -> bool:
    status = root.files.status(lease_path(root.layout, lease, file))
    if status is None:
        return False
    due_ms = Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
    if file is LeaseFile.LAPSED:
        now_ms = root.aged_ms(LAPSED_KEPT_S) - late_ms
        return is_old and now_ms - due_ms >= LAPSED_KEPT_S * 1000
    if file is not LeaseFile.MANIFEST:
        return False
    if _is_claimed(root, lease):
        return is_old and not late_ms
    # Its folder may be about to be made.
    now_ms = root.aged_ms(LEASE_S_DEFAULT) - late_ms
    lain_ms = now_ms - status.st_ctime_ns // 1_000_000
    return now_ms >= due_ms and lain_ms >= LEASE_S_DEFAULT * 1000


def _is_claimed(root: Root, lease: LeaseName) -> bool:
    read = read_manifest(root, lease)
    return read is not None and read.manifest.state is ManifestState.CLAIMED
