"""Takes many ready messages into a lease: one rename each, in delivery order.

No locks: the rename alone decides which process gets a message. PROTOCOL.md, "lease", has the
steps.
"""

import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mq.model.errors import QueueNotFound
from mq.model.lifecycle import LEASE
from mq.model.names import PACKED, QueueName
from mq.store.core.moves import claimed, message_status
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import OWN_TTL, leases_nothing, own_expiry, unserved_mark
from mq.store.disk.files import is_gone
from mq.store.format.layout import Place, parse_entry
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path
from mq.store.format.walk import named
from mq.store.scan.order import STRICT, Candidate, Order, list_ready

# Limits: ready messages that a claim lists at a time, and those that it takes before it checks for
# a purge again.
LEASE_LOOK_MESSAGES_MAX: Final = 50_000
LEASE_RENAMES_PER_LOOK: Final = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """The first ready messages of a queue; `complete`: there are no others."""

    queue: QueueName
    candidates: Sequence[Candidate]
    complete: bool


def find_ready(root: Root, queue: QueueName, limit: int, order: Order = STRICT) -> Found:
    """The queue's first ready messages, at most `limit`. None if the queue does not exist, has
    expired, is paused, or has a single active consumer. Leaves out messages of groups, since a
    lease has no order. Blocking. Raises OSError.
    """
    if leases_nothing(root, queue):
        return Found(queue, (), complete=True)
    try:
        limit = min(limit, LEASE_LOOK_MESSAGES_MAX)
        listing = list_ready(root, queue, limit, order=order, heads=None)
    except QueueNotFound:
        listing = None
    if listing is None:
        return Found(queue, (), complete=True)
    return Found(queue, listing.candidates, listing.complete)


def recount(root: Root, lease: LeaseName) -> tuple[int, int]:
    """The numbers of messages and bytes in the lease of a claim whose process died. Raises
    OSError.
    """
    folder = lease_path(root.layout, lease, LeaseFile.FOLDER)
    messages = size = 0
    for entry, (_, message_id) in named(root.files.entries(folder), parse_entry):
        if (status := message_status(root, entry.path)) is not None:
            messages += message_id.items or 1
            size += status.st_size
    return messages, size


@dataclass(slots=True)
class Claims:
    """The renames of a claim into its lease's folder, and the claimed messages, of a pack its
    items. The last pack may exceed the limit.
    """

    root: Root
    lease: LeaseName
    on_turn: Callable[[], None]
    """Called between two runs of renames: a long claim renews its due time."""
    order: Order = STRICT
    messages: int = 0
    size_bytes: int = 0

    def take(self, queues: Sequence[QueueName], limit: int, found: Iterable[Found] = ()) -> None:
        """Renames up to `limit` messages, in equal shares from several queues. `found`: earlier
        listings. Raises OSError; messages claimed by then stay claimed.
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
                won = self._take(queue, _first(each.candidates, wanted))
                if not is_old and (not won or (each.complete and won == len(each.candidates))):
                    active.remove(queue)

    def _take(self, queue: QueueName, candidates: Sequence[Candidate]) -> int:
        before = self.messages
        for start in range(0, len(candidates), LEASE_RENAMES_PER_LOOK):
            self.on_turn()
            mark = unserved_mark(self.root, queue)
            run = candidates[start : start + LEASE_RENAMES_PER_LOOK]
            is_over = own_expiry(self.root, queue)
            run = [each for each in run if OWN_TTL not in each.name or not is_over(each.name)]
            if mark is not None:
                run = [each for each in run if not mark.covers(each.name)]
            if self.root.over_network and not queue_exists(self.root, queue):
                break
            self._rename(queue, run)
        return self.messages - before

    def _rename(self, queue: QueueName, candidates: Sequence[Candidate]) -> None:
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
                with claimed(self.root, Place(LEASE.source, queue, candidate.id, bucket)) as claim:
                    if claim is None:
                        continue
            try:
                files.rename(source, target + name)
            except OSError as error:
                if not is_gone(error):
                    raise
                continue
            went(folder)
            self.messages += candidate.id.items or 1
            self.size_bytes += status.st_size


def _first(candidates: Sequence[Candidate], limit: int) -> Sequence[Candidate]:
    """The first candidates that together have at least `limit` messages, or all."""
    found, messages = candidates[:limit], 0
    if not any(PACKED in each.key for each in found):
        return found
    for at, each in enumerate(found):
        messages += each.messages
        if messages >= limit:
            return found[: at + 1]
    return found
