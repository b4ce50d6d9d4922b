"""Leases: a Spark consumer takes many ready messages at a time, and acknowledges or releases them
as a whole.

A lease is a folder, so its end is one rename of the folder, however many messages it has. That
rename also decides a race between the consumer's acknowledgement and mq-mover's release of a lapsed
lease: the process that renames the folder first wins, and the other one finds it gone. After the
rename to remove/ no message can come back. A release renames the folder first as well, and only
then moves messages back, so that a late acknowledgement fails and cannot remove messages that are
ready again (`releasing`). The messages of a lease do not change until it ends, except that one may
be deleted, alone or with its queue.

FORMAT.md, "Leases", has the files, PROTOCOL.md, "lease", the steps.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Self

from mq.model.errors import Busy, ConsumerBusy, LeaseLost, TooManyLeases
from mq.model.history import Event, Told
from mq.model.message import Stamp
from mq.model.names import PACKED, ConsumerName, QueueName, UuidSource, items_of
from mq.model.totals import Total
from mq.store.core.moves import claimed_path, named_status
from mq.store.core.recording import Lines
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.disk.replacing import replace_file
from mq.store.disk.steps import Flush, Steps
from mq.store.format.layout import parse_entry, split_entry
from mq.store.format.pipeline import (
    LeaseFile,
    LeaseName,
    acknowledged_folder,
    lease_path,
    new_manifest,
    owner_lock,
)
from mq.store.format.walk import entries_if_there, named
from mq.store.leases.claiming import Claims, Found, find_ready, recount
from mq.store.leases.manifest import (
    LEASE_S_MAX,
    LEASED_MESSAGES_MAX,
    RENEWALS_PER_LEASE,
    Manifest,
    ManifestState,
    ReadManifest,
    read_manifest,
)
from mq.store.leases.names import lease_names, open_count
from mq.store.operations.remove import is_full
from mq.store.scan.order import STRICT, OrderUntil

# Few leases of a root are open: a lookup of a message by its id searches each.
LEASES_OPEN_MAX: Final = 64


class LeaseState(Enum):
    CLAIMING = "being claimed, by a process that may have died: `finish_claim` ends that"
    CLAIMED = "open"
    RETURNING = "its messages are on their way back to their queues"
    LAPSED = "its messages went back to their queues"
    ACKNOWLEDGED = "its messages are removed"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease by its manifest. `messages` and `size_bytes` (of the files with their headers) are
    known from CLAIMED on. `due_ms`: when it lapses, in milliseconds since the epoch. `folder`: the
    place of its messages while it is open, each a file `{queue}:{id}` that `layout.parse_entry`
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
        """Its number among the consumer's leases, from 1."""
        return self.name.seq

    @property
    def is_open(self) -> bool:
        """Whether it has messages and is not being released."""
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
    """Claims up to `limit` ready messages (LEASED_MESSAGES_MAX at most) in delivery order, from
    several queues in turn, for `lease_s` seconds from the end of the claim. None, and no files,
    when no message is ready. Skips purged messages and missing queues. The lease's number is above
    `after`; with `until`, messages with a later uuid are not taken. For the consumer's owner;
    blocks as long as listing and renaming take.

    Raises ValueError, TooManyLeases, ConsumerBusy when another process makes the same lease,
    LeaseLost when it lapsed under way, Unavailable, OSError: messages claimed by then are in an
    open lease of `leases_of`, or lapse. Durable on return: yes.
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
        due = _Due(root, descriptor, lease_s)
        claims = Claims(root, manifest.lease, due.put_off, order)
        is_won = yield from _fill(claims, manifest, due, limit, found)
    finally:
        root.files.close(descriptor)
    if not is_won:
        return None
    counted = replace(manifest, messages=claims.messages, size_bytes=claims.size_bytes)
    return (yield from _finish(root, counted))


def finish_claim(root: Root, lease: LeaseName) -> Steps[Lease]:
    """Completes the claim of a process that died, with the messages that it had claimed, perhaps
    none. For the consumer's owner. Raises LeaseLost, Busy, Unavailable, OSError. Durable on return:
    yes.
    """
    read = read_manifest(root, lease)
    if read is None:
        raise LeaseLost(lease.text)
    messages, size = recount(root, lease)
    return (yield from _finish(root, replace(read.manifest, messages=messages, size_bytes=size)))


def leases_of(root: Root, consumer: ConsumerName) -> list[Lease]:
    """The consumer's known leases by number: the newest, and those that did not end long ago.
    Raises OSError.
    """
    found = []
    for lease, files in sorted(lease_names(root.layout, root.files).items()):
        if lease.consumer == consumer and (each := _read(root, lease, files)) is not None:
            found.append(each)
    return found


def acknowledge(root: Root, lease: LeaseName) -> Steps[bool]:
    """Removes all messages of the lease, by one rename. False when it was acknowledged before.
    Raises LeaseLost when it was released, or is unknown by now; Unavailable, OSError. Durable on
    return: yes.
    """
    layout, files = root.layout, root.files
    target = acknowledged_folder(layout, lease, UuidSource(root.clock).next())
    held, counted = _held_by(root, lease, _queues_of(root, lease)), _counted(root, lease)
    is_ours = True
    try:
        files.rename(lease_path(layout, lease, LeaseFile.FOLDER), target)
    except OSError as error:
        if not is_gone(error):
            raise
        # NFS may have done the rename and lost the answer: the target's uuid is this call's alone.
        is_ours = files.status(target) is not None
        if not is_ours and not _is_acknowledged(root, lease):
            raise LeaseLost(lease.text) from None
    # Flush even if another process did it: that one may have died before its flush.
    yield Flush(folders=(layout.remove, layout.leases), covered=1 if is_ours else 0)
    if is_ours:
        for queue, count in counted.items():
            root.totals.add(queue, Total.DELETED, count)
        _record_acknowledged(root, lease, held)
    _forget_older(root, lease)
    return is_ours


def renew(root: Root, lease: LeaseName, lease_s: float) -> int:
    """Sets the lease to lapse `lease_s` seconds from now. Returns that time, in milliseconds since
    the epoch. Raises LeaseLost; Busy when another process has the manifest locked: try again;
    OSError. Durable on return: no: after a crash it may lapse sooner.
    """
    with claimed_path(root, lease_path(root.layout, lease, LeaseFile.MANIFEST)) as claim:
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
    """The consumer's leases. Removes the manifest of a claim that died before it made a folder, and
    frees its number: numbers have no gaps, so an unknown one belongs to an ended lease.
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


def _fill(
    claims: Claims, manifest: Manifest, due: "_Due", limit: int, found: Sequence[Found]
) -> Steps[bool]:
    """Makes the lease's folder and fills it; False: nothing was claimed. Durable on return: no; the
    final manifest, which comes later, makes it so.
    """
    root, lease, files, descriptor = claims.root, claims.lease, claims.root.files, due.descriptor
    folder = lease_path(root.layout, lease, LeaseFile.FOLDER)
    try:
        files.write(descriptor, manifest.written())
        due.stamp()
        with contextlib.suppress(FileExistsError):  # NFS made it, and lost the answer.
            files.mkdir(folder)
        yield Flush(files=(descriptor,))
        try:
            claims.take(manifest.queues, limit, found)
        except OSError as error:
            if not is_full(error) or not claims.messages:
                raise
    finally:
        # Also after a failure. Its messages stay, and are an open lease.
        if not claims.messages:
            _undo(root, lease)
    return claims.messages > 0


@dataclass(slots=True)
class _Due:
    """The due time of a lease during its claim."""

    root: Root
    descriptor: int
    lease_s: float
    _again_ms: int = 0

    def stamp(self) -> None:
        now_ms, lease_ms = self.root.now_ms(), round(self.lease_s * 1000)
        self.root.files.stamp(self.descriptor, Stamp(now_ms + lease_ms).mtime_ns())
        self._again_ms = now_ms + lease_ms // RENEWALS_PER_LEASE

    def put_off(self) -> None:
        """Postpones the due time, so that a long claim does not lapse meanwhile."""
        if self.root.now_ms() >= self._again_ms:
            self.stamp()


def _undo(root: Root, lease: LeaseName) -> None:
    """Removes an empty lease; mq-mover removes what remains."""
    with contextlib.suppress(OSError):
        root.files.rmdir(lease_path(root.layout, lease, LeaseFile.FOLDER))
        unlink_if_there(root.files, lease_path(root.layout, lease, LeaseFile.MANIFEST))


def _finish(root: Root, manifest: Manifest) -> Steps[Lease]:
    """Writes the final manifest, under the lock of the first one, which a release takes as well."""
    layout, lease = root.layout, manifest.lease
    path, folder = (
        lease_path(layout, lease, file) for file in (LeaseFile.MANIFEST, LeaseFile.FOLDER)
    )
    final = replace(manifest, state=ManifestState.CLAIMED)
    with claimed_path(root, path) as claim:
        if root.files.status(folder) is None:
            raise LeaseLost(lease.text)
        if claim is None:
            raise Busy("another process is at the lease")
        due_ms = root.now_ms() + round(final.lease_s * 1000)
        mtime_ns = Stamp(due_ms).mtime_ns()
        written = new_manifest(layout, lease)
        yield from replace_file(root.files, written, path, final.written(), mtime_ns)
    is_of_one = len(final.queues) == 1
    fetched = {final.queues[0]: final.messages} if is_of_one else _counted(root, lease)
    for queue, count in fetched.items():
        root.totals.add(queue, Total.FETCHED, count)
    _record_leased(root, lease, final.queues, due_ms)
    return _lease(root, LeaseState.CLAIMED, final, due_ms)


def _read(root: Root, lease: LeaseName, files: Set[LeaseFile]) -> Lease | None:
    """The lease with these files. None: a claim that took nothing left them."""
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


def _queues_of(root: Root, lease: LeaseName) -> tuple[QueueName, ...]:
    """The queues that the lease's manifest names; none if it is unreadable."""
    with contextlib.suppress(OSError):
        if (read := read_manifest(root, lease)) is not None:
            return read.manifest.queues
    return ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The exclusive use of a consumer's name by this process, until `close` or its death."""

    consumer: ConsumerName
    _root: Root
    _descriptor: int

    def close(self) -> None:
        self._root.files.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def own(root: Root, consumer: ConsumerName) -> Owner:
    """Takes the consumer's name for this process. Raises ConsumerBusy if another process, or
    another Owner of this one, has it; OSError.
    """
    path = owner_lock(root.layout, consumer)
    descriptor = root.files.open_kept(path)
    try:
        # Its former process may have forgotten the consumer and removed the file.
        if root.files.lock(descriptor) and named_status(root, path, descriptor) is not None:
            return Owner(consumer, root, descriptor)
    except BaseException:
        root.files.close(descriptor)
        raise
    root.files.close(descriptor)
    raise ConsumerBusy(consumer.text)


def forget_consumer(root: Root, consumer: ConsumerName) -> Steps[None]:
    """Removes the files of a consumer that has no open lease and does not come back: its next lease
    would be number 1 again. For its owner. Raises Busy if it has open leases; OSError. Durable on
    return: yes.
    """
    names = lease_names(root.layout, root.files)
    ours = {lease: files for lease, files in names.items() if lease.consumer == consumer}
    if open_count(ours.values()):
        raise Busy("the consumer has open leases")
    for lease, files in ours.items():
        for file in files:
            unlink_if_there(root.files, lease_path(root.layout, lease, file))
    unlink_if_there(root.files, owner_lock(root.layout, consumer))
    yield Flush(folders=(root.layout.leases,))


def _record_leased(root: Root, lease: LeaseName, queues: Sequence[QueueName], due_ms: int) -> None:
    """Records that the messages in the lease's folder are leased until `due_ms`. Blocking."""
    if any(root.history.is_on(queue) for queue in queues):
        lines = Lines(root, Event.LEASED, lease.text)
        for queue, message_id, receives in _in_lease(root, lease):
            lines.add(queue, Told(message_id, receives, due_ms))
        lines.write()


def _held_by(
    root: Root, lease: LeaseName, queues: Sequence[QueueName]
) -> list[tuple[QueueName, str, int]]:
    """The messages of an open lease in queues with histories, with their receives. Read before the
    acknowledgement, since mq-reaper may be fast. Blocking.
    """
    if any(root.history.is_on(queue) for queue in queues):
        return [each for each in _in_lease(root, lease) if root.history.is_on(each[0])]
    return []


def _record_acknowledged(
    root: Root, lease: LeaseName, messages: Iterable[tuple[QueueName, str, int]]
) -> None:
    """Records that the lease's messages are removed. Blocking."""
    lines = Lines(root, Event.REMOVED, lease.text)
    for queue, message_id, receives in messages:
        lines.add(queue, Told(message_id, receives))
    lines.write()


def _counted(root: Root, lease: LeaseName) -> dict[QueueName, int]:
    """The number of messages of each queue in a lease. Lists names, and parses only ids of packs.
    Blocking.
    """
    folder = lease_path(root.layout, lease, LeaseFile.FOLDER)
    counted = Counter[str]()
    with contextlib.suppress(OSError):
        for entry in entries_if_there(root.files, folder):
            queue, message_id = split_entry(entry.name)
            counted[queue] += items_of(message_id) if PACKED in message_id else 1
    return {QueueName(queue): count for queue, count in counted.items() if queue}


def _in_lease(root: Root, lease: LeaseName) -> Iterator[tuple[QueueName, str, int]]:
    folder = lease_path(root.layout, lease, LeaseFile.FOLDER)
    with contextlib.suppress(OSError):
        for entry, (queue, message_id) in named(entries_if_there(root.files, folder), parse_entry):
            with contextlib.suppress(FileNotFoundError):
                mtime_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                stamp = Stamp.from_mtime_ns(mtime_ns).received(0)
                yield queue, message_id.text, stamp.receives
