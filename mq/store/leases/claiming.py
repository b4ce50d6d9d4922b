"""Taking many ready messages into a lease: a rename each, in the order of fetches.

Nothing is locked but where a crash has left a message two names: the rename alone decides who has
it. FORMAT.md, "leases", has the steps.
"""

import contextlib
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mq.model.bulk_limits import LEASE_LOOK_MESSAGES_MAX, LEASE_RENAMES_PER_LOOK
from mq.model.errors import BadName, Busy, QueueNotFound
from mq.model.lifecycle import LEASE, State
from mq.model.names import MessageId, QueueName
from mq.store.core.expired import queue_expired, unserved_mark
from mq.store.core.moves import (
    claimed,
    crossed_from,
    keep_one_name,
    message_status,
    others_of,
    rows_across,
)
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.files import is_gone
from mq.store.disk.steps import Flush
from mq.store.format.layout import parse_entry
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path
from mq.store.format.walk import folders, rows_of
from mq.store.scan.order import STRICT, Candidate, Order, list_ready


@dataclass(frozen=True, slots=True)
class Found:
    """The first ready messages of a queue; `complete` when they are all."""

    queue: QueueName
    candidates: Sequence[Candidate]
    complete: bool


def find_ready(root: Root, queue: QueueName, limit: int, order: Order = STRICT) -> Found:
    """The queue's first ready messages, no more than `limit` nor than a look finds; none where
    there is no such queue, or it has expired. Blocking. Raises OSError.
    """
    if queue_expired(root, queue):
        return Found(queue, (), complete=True)
    try:
        listing = list_ready(root, queue, min(limit, LEASE_LOOK_MESSAGES_MAX), order=order)
    except QueueNotFound:
        listing = None
    if listing is None:
        return Found(queue, (), complete=True)
    return Found(queue, listing.candidates, listing.complete)


def recount(root: Root, lease: LeaseName, queues: Sequence[QueueName]) -> tuple[int, int, Flush]:
    """How many messages, and bytes of their files, a claim has won that a process died over; and
    what makes that durable. Of messages of several names, which a crash has left, it keeps the
    lease's. Raises OSError, Busy when another process is at one.
    """
    layout, files = root.layout, root.files
    folder = lease_path(layout, lease, LeaseFile.FOLDER)
    messages = size = 0
    of = dict.fromkeys(queues)
    for entry in files.entries(folder):
        try:
            queue, message_id = parse_entry(entry.name)
        except BadName:
            continue
        status = message_status(root, entry.path)
        if status is None:
            continue
        if status.st_nlink > 1:
            with claimed(root, entry.path) as claim:
                if claim is None:
                    raise Busy("another process is at a message of the lease")
                keep_one_name(root, LEASE.target, queue, message_id, lease.spot)
        messages += 1
        size += status.st_size
        of[queue] = None
    left = [layout.folder(State.DELAYED), layout.folder(State.NEW)]
    beside: list[tuple[str, ...]] = []
    for queue in of:
        left.append(layout.queue(queue))
        with contextlib.suppress(FileNotFoundError):
            left += [path for _, path in folders(files, layout.queue(queue))]
        for other in others_of(root, queue):
            beside += rows_of(files, layout.queue(other))
    return messages, size, Flush(folders=(folder, *left), beside=tuple(beside))


@dataclass(slots=True)
class Claims:
    """The renames into one lease's folder, and what they have won."""

    root: Root
    lease: LeaseName
    on_turn: Callable[[], None]
    """Called between two runs of renames: what is under way a long time must say so."""
    order: Order = STRICT
    messages: int = 0
    size_bytes: int = 0
    _left: dict[str, None] = field(default_factory=dict)
    _queues: dict[str, None] = field(default_factory=dict)
    _beside: dict[tuple[str, ...], None] = field(default_factory=dict)
    _came_from: dict[tuple[str, ...], None] = field(default_factory=dict)
    """Where messages came from that went to a sideline, or came back from it, by whoever may not
    have flushed that.
    """

    def take(self, queues: Sequence[QueueName], limit: int, found: Iterable[Found] = ()) -> None:
        """Renames up to `limit` messages, of several queues as many of each in turn. `found` is
        what was found of some before. Raises OSError; what was won until then stays won.
        """
        known = {each.queue: each for each in found}
        active = list(dict.fromkeys(queues))
        while active and self.messages < limit:
            share = -((self.messages - limit) // len(active))
            for queue in tuple(active):
                wanted = min(share, limit - self.messages)
                if wanted <= 0:
                    return
                is_old = queue in known
                each = known.pop(queue, None) or find_ready(self.root, queue, wanted, self.order)
                won = self._take(queue, each.candidates[:wanted])
                if not is_old and (not won or (each.complete and won == len(each.candidates))):
                    active.remove(queue)

    def flush(self) -> Flush:
        """What makes the renames durable: the lease's folder, then what the messages left."""
        folder = lease_path(self.root.layout, self.lease, LeaseFile.FOLDER)
        return Flush(
            folders=(folder, *self._left),
            entries=tuple(self._queues),
            beside=tuple(self._beside | self._came_from),
            covered=0 if self._beside else len(self._left),
        )

    def _take(self, queue: QueueName, candidates: Sequence[Candidate]) -> int:
        before = self.messages
        for start in range(0, len(candidates), LEASE_RENAMES_PER_LOOK):
            self.on_turn()
            mark = unserved_mark(self.root, queue)
            run = candidates[start : start + LEASE_RENAMES_PER_LOOK]
            if mark is not None:
                run = [each for each in run if not mark.covers(each.name)]
            won: list[MessageId] = []
            if self.root.over_network and not queue_exists(self.root, queue):
                break
            try:
                self._rename(queue, run, won)
            finally:
                self._crossed(queue, won)
        return self.messages - before

    def _crossed(self, queue: QueueName, won: Sequence[MessageId]) -> None:
        """Asked once for all, behind them: a sideline that they came from was there before."""
        if won and (others := crossed_from(self.root, queue)):
            for message_id in won:
                self._came_from |= dict.fromkeys(rows_across(self.root, others, message_id))

    def _rename(
        self, queue: QueueName, candidates: Sequence[Candidate], won: list[MessageId]
    ) -> None:
        layout, files, went = self.root.layout, self.root.files, self.root.places.went
        target = layout.beginning(LEASE.target, queue, self.lease.spot)
        beginnings: dict[str, tuple[str, str]] = {}
        for candidate in candidates:
            bucket, name = candidate.bucket or "", candidate.name
            known = beginnings.get(bucket)
            if known is None:
                known = beginnings[bucket] = (
                    layout.beginning(LEASE.source, queue, bucket),
                    layout.parent(LEASE.source, queue, bucket),
                )
            beginning, folder = known
            source = beginning + name
            status = files.status(source)
            if status is None or not stat.S_ISREG(status.st_mode):
                continue
            if status.st_nlink > 1:
                if not self._take_locked(queue, candidate.id, bucket):
                    continue
            else:
                try:
                    files.rename(source, target + name)
                except OSError as error:
                    if not is_gone(error):
                        raise
                    continue
                went(folder)
            won.append(candidate.id)
            self._left[folder] = None
            self._queues[layout.queue(queue)] = None
            self.messages += 1
            self.size_bytes += status.st_size

    def _take_locked(self, queue: QueueName, message_id: MessageId, bucket: str) -> bool:
        """Claims a message of several names: without the lock, another could take this one away."""
        root, source = self.root, self.root.layout.path(LEASE.source, queue, message_id, bucket)
        with claimed(root, source) as claim:
            if claim is None:
                return False
            target = root.layout.path(LEASE.target, queue, message_id, self.lease.spot)
            try:
                root.files.rename(source, target)
            except OSError as error:
                if not is_gone(error):
                    raise
                return False
            flush = keep_one_name(root, LEASE.target, queue, message_id, self.lease.spot)
        self._left |= dict.fromkeys(flush.folders)
        self._beside |= dict.fromkeys(flush.beside)
        return True
