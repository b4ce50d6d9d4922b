"""Leases: many ready messages that a consumer takes at a time, to acknowledge or give them back as
a whole.

FORMAT.md, "leases", has what lies where, the steps, and what a crash after each leaves. What a
lease holds does not change until it ends, but for messages that are deleted, or whose queue is:
those are missing then. Whoever renames its folder first decides how it ends; `releasing` has the
other way.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum

from mq.model.bulk_limits import (
    LEASE_S_MAX,
    LEASED_MESSAGES_MAX,
    LEASES_OPEN_MAX,
    RENEWALS_PER_LEASE,
)
from mq.model.errors import Busy, ConsumerBusy, LeaseLost, TooManyLeases
from mq.model.message import Stamp
from mq.model.names import ConsumerName, QueueName, UuidSource
from mq.store.core.moves import claimed
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.lease_names import lease_names, open_count
from mq.store.format.pipeline import (
    LeaseFile,
    LeaseName,
    acknowledged_folder,
    lease_path,
    new_manifest,
)
from mq.store.history.bulk import leased_of_histories, record_acknowledged, record_leased
from mq.store.leases.claiming import Claims, Found, find_ready, recount
from mq.store.leases.manifest import Manifest, ManifestState, ReadManifest, read_manifest
from mq.store.operations.remove import is_full
from mq.store.scan.order import STRICT, Order, OrderUntil


class LeaseState(Enum):
    """How far a lease is."""

    CLAIMING = "being claimed, by a process that may have died: `finish_claim` ends that"
    CLAIMED = "open"
    RETURNING = "its messages are on their way back to their queues"
    LAPSED = "its messages went back to their queues"
    ACKNOWLEDGED = "its messages are removed"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as its manifest says. `messages` and `size_bytes` (of their files, so headers too)
    count from CLAIMED on; `due_ms` is when it lapses, milliseconds since the epoch. `folder` is
    where its messages lie while it is open, each a file `{queue}:{id}` that `layout.parse_entry`
    reads.
    """

    name: LeaseName
    state: LeaseState
    folder: str
    queues: tuple[QueueName, ...]
    lease_s: float
    messages: int
    size_bytes: int
    due_ms: int

    @property
    def seq(self) -> int:
        """Its number, 1 and up, of the consumer's."""
        return self.name.seq

    @property
    def is_open(self) -> bool:
        """Whether it holds messages that nobody gives back yet."""
        return self.state in (LeaseState.CLAIMING, LeaseState.CLAIMED)


def claim(
    root: Root,
    consumer: ConsumerName,
    queues: Sequence[QueueName],
    limit: int,
    lease_s: float,
    *,
    after: int = 0,
    until: str | None = None,
) -> Steps[Lease | None]:
    """Takes up to `limit` ready messages (LEASED_MESSAGES_MAX at most), in the order of fetches, of
    several queues as many of each in turn; they are the consumer's for `lease_s` seconds from the
    end of the claim on. None: nothing was ready, nothing is left behind. What was purged, and a
    queue that is not there, is passed over. The lease's number is over `after`; with `until`, no
    message is taken whose uuid is behind this one. For the consumer's owner; blocking for as long
    as listing and renaming take.

    Raises ValueError, TooManyLeases, ConsumerBusy when another makes the same lease, LeaseLost when
    it lapsed under way, Unavailable, OSError: what was won by then is an open lease of `leases_of`,
    or lapses. Durable on return: yes.
    """
    if not 0 < lease_s <= LEASE_S_MAX or limit <= 0 or not queues:
        raise ValueError("a claim takes some messages, of a queue, for some time")
    limit = min(limit, LEASED_MESSAGES_MAX)
    queues = tuple(dict.fromkeys(queues))
    order = STRICT if until is None else OrderUntil(until=until)
    found = [find_ready(root, queue, -(-limit // len(queues)), order) for queue in queues]
    if not any(each.candidates for each in found):
        return None
    names = lease_names(root.layout, root.files)
    if (count := open_count(names.values())) >= LEASES_OPEN_MAX:
        raise TooManyLeases(count)
    seq = 1 + max((after, *(each.seq for each in _begun(root, consumer, names))))
    manifest = Manifest(LeaseName(consumer, seq), queues, lease_s)
    descriptor = _create_manifest(root, manifest.lease)
    try:
        claims = yield from _claim(root, manifest, descriptor, limit, order, found)
    finally:
        root.files.close(descriptor)
    if claims is None:
        return None
    counted = replace(manifest, messages=claims.messages, size_bytes=claims.size_bytes)
    return (yield from _finish(root, counted))


def finish_claim(root: Root, lease: LeaseName) -> Steps[Lease]:
    """Has a lease that a process died over be CLAIMED, with what it won: it may hold nothing. For
    the consumer's owner. Raises LeaseLost, Busy, Unavailable, OSError. Durable on return: yes.
    """
    read = read_manifest(root, lease)
    if read is None:
        raise LeaseLost(lease.text)
    messages, size, flush = recount(root, lease, read.manifest.queues)
    with contextlib.suppress(FileNotFoundError):  # A queue that was deleted.
        yield flush
    return (yield from _finish(root, replace(read.manifest, messages=messages, size_bytes=size)))


def leases_of(root: Root, consumer: ConsumerName) -> list[Lease]:
    """What is known of the consumer's leases, by their numbers. What ended long ago is not, but the
    newest always is. Raises OSError.
    """
    found = []
    for lease, files in sorted(lease_names(root.layout, root.files).items()):
        if lease.consumer == consumer and (each := _read(root, lease, files)) is not None:
            found.append(each)
    return found


def acknowledge(root: Root, lease: LeaseName) -> Steps[bool]:
    """Removes what the lease holds, by one rename; False when that was done before. Raises
    LeaseLost when it was released, or is not known (any more); Unavailable, OSError. Durable on
    return: yes.
    """
    layout, files = root.layout, root.files
    target = acknowledged_folder(layout, lease, UuidSource(root.clock).next())
    held = leased_of_histories(root, lease)
    is_ours = True
    try:
        files.rename(lease_path(layout, lease, LeaseFile.FOLDER), target)
    except OSError as error:
        if not is_gone(error):
            raise
        # Or NFS has done it and lost the answer: the uuid is this call's alone.
        is_ours = files.status(target) is not None
        if not is_ours and not _is_acknowledged(root, lease):
            raise LeaseLost(lease.text) from None
    # Also where another did it, who may have died before its own flush.
    yield Flush(folders=(layout.remove, layout.leases), covered=1 if is_ours else 0)
    if is_ours:
        record_acknowledged(root, lease, held)
    _forget_older(root, lease)
    return is_ours


def renew(root: Root, lease: LeaseName, lease_s: float) -> int:
    """Has the lease lapse `lease_s` seconds from now; when that is, milliseconds since the epoch.
    Raises LeaseLost; Busy when another process is at the manifest in this moment: try again;
    OSError. Durable on return: no, and it need not be: at worst it lapses sooner.
    """
    with claimed(root, lease_path(root.layout, lease, LeaseFile.MANIFEST)) as claim:
        if root.files.status(lease_path(root.layout, lease, LeaseFile.FOLDER)) is None:
            raise LeaseLost(lease.text)
        if claim is None:
            raise Busy("another process is at the lease")
        due_ms = root.now_ms() + round(lease_s * 1000)
        root.files.stamp(claim.descriptor, Stamp(due_ms).mtime_ns())
    return due_ms


def _begun(
    root: Root, consumer: ConsumerName, names: Mapping[LeaseName, Set[LeaseFile]]
) -> Iterator[LeaseName]:
    """The consumer's leases. The manifest of a claim that died before it made a folder goes, and
    its number is free: no number is left out, so one that is not known is one that ended.
    """
    for lease, files in names.items():
        if lease.consumer != consumer:
            continue
        if files == {LeaseFile.MANIFEST} and _read(root, lease, files) is None:
            unlink_if_there(root.files, lease_path(root.layout, lease, LeaseFile.MANIFEST))
        else:
            yield lease


def _create_manifest(root: Root, lease: LeaseName) -> int:
    try:
        return root.files.create(lease_path(root.layout, lease, LeaseFile.MANIFEST))
    except FileExistsError:
        raise ConsumerBusy(lease.consumer.text) from None


def _claim(
    root: Root,
    manifest: Manifest,
    descriptor: int,
    limit: int,
    order: Order,
    found: Sequence[Found],
) -> Steps[Claims | None]:
    """Makes the lease and fills it; `descriptor` is its manifest's. None: nothing was won."""
    lease, files = manifest.lease, root.files
    folder = lease_path(root.layout, lease, LeaseFile.FOLDER)
    due = _Due(root, descriptor, manifest.lease_s)
    claims = Claims(root, lease, due.put_off, order)
    try:
        files.write(descriptor, manifest.written())
        due.stamp()
        with contextlib.suppress(FileExistsError):  # NFS made it, and lost the answer.
            files.mkdir(folder)
        yield Flush(files=(descriptor,), folders=(root.layout.leases,))
        try:
            claims.take(manifest.queues, limit, found)
        except OSError as error:
            if not is_full(error) or not claims.messages:
                raise
    finally:
        # Also when it failed. What is in it stays, and is an open lease.
        if not claims.messages:
            _undo(root, lease)
    if not claims.messages:
        return None
    with contextlib.suppress(FileNotFoundError):  # A queue that was deleted, an emptied bucket.
        yield claims.flush()
    return claims


@dataclass(slots=True)
class _Due:
    """The due time of a lease that is being claimed."""

    root: Root
    descriptor: int
    lease_s: float
    _again_ms: int = 0

    def stamp(self) -> None:
        now_ms, lease_ms = self.root.now_ms(), round(self.lease_s * 1000)
        self.root.files.stamp(self.descriptor, Stamp(now_ms + lease_ms).mtime_ns())
        self._again_ms = now_ms + lease_ms // RENEWALS_PER_LEASE

    def put_off(self) -> None:
        """However long the claim takes, it does not lapse meanwhile."""
        if self.root.now_ms() >= self._again_ms:
            self.stamp()


def _undo(root: Root, lease: LeaseName) -> None:
    """Takes a lease away that holds nothing; what cannot be is mq-mover's."""
    with contextlib.suppress(OSError):
        root.files.rmdir(lease_path(root.layout, lease, LeaseFile.FOLDER))
        unlink_if_there(root.files, lease_path(root.layout, lease, LeaseFile.MANIFEST))


def _finish(root: Root, manifest: Manifest) -> Steps[Lease]:
    """Writes the manifest's final form, under the lock of the first, which a release takes too."""
    layout, lease = root.layout, manifest.lease
    path, folder = (
        lease_path(layout, lease, file) for file in (LeaseFile.MANIFEST, LeaseFile.FOLDER)
    )
    final = replace(manifest, state=ManifestState.CLAIMED)
    with claimed(root, path) as claim:
        if root.files.status(folder) is None:
            raise LeaseLost(lease.text)
        if claim is None:
            raise Busy("another process is at the lease")
        due_ms = root.now_ms() + round(final.lease_s * 1000)
        mtime_ns = Stamp(due_ms).mtime_ns()
        written = new_manifest(layout, lease)
        yield from replace_file(root.files, written, path, final.written(), mtime_ns)
    record_leased(root, lease, final.queues, due_ms)
    return _lease(root, LeaseState.CLAIMED, final, due_ms)


def _read(root: Root, lease: LeaseName, files: Set[LeaseFile]) -> Lease | None:
    """What a lease of these files is. None: nothing, since a claim that took nothing left them."""
    if LeaseFile.RELEASED in files:
        state = LeaseState.RETURNING
    elif LeaseFile.FOLDER not in files and LeaseFile.LAPSED in files:
        state = LeaseState.LAPSED
    else:
        state = LeaseState.CLAIMED
    kind = LeaseFile.MANIFEST if LeaseFile.MANIFEST in files else LeaseFile.LAPSED
    read = read_manifest(root, lease, kind) or ReadManifest(Manifest(lease), 0)
    if state is LeaseState.CLAIMED:
        is_claimed = read.manifest.state is ManifestState.CLAIMED
        if LeaseFile.FOLDER not in files:
            if not is_claimed:
                return None
            state = LeaseState.ACKNOWLEDGED
        elif not is_claimed:
            state = LeaseState.CLAIMING
    return _lease(root, state, read.manifest, read.due_ms)


def _lease(root: Root, state: LeaseState, manifest: Manifest, due_ms: int) -> Lease:
    return Lease(
        manifest.lease,
        state,
        lease_path(root.layout, manifest.lease, LeaseFile.FOLDER),
        manifest.queues,
        manifest.lease_s,
        manifest.messages,
        manifest.size_bytes,
        due_ms,
    )


def _is_acknowledged(root: Root, lease: LeaseName) -> bool:
    files = lease_names(root.layout, root.files).get(lease, frozenset())
    found = _read(root, lease, files) if files else None
    return found is not None and found.state is LeaseState.ACKNOWLEDGED


def _forget_older(root: Root, lease: LeaseName) -> None:
    """Unlinks the manifests of the consumer's acknowledged leases before this one."""
    for other, files in lease_names(root.layout, root.files).items():
        is_older = other.consumer == lease.consumer and other.seq < lease.seq
        if is_older and files == {LeaseFile.MANIFEST}:
            unlink_if_there(root.files, lease_path(root.layout, other, LeaseFile.MANIFEST))
