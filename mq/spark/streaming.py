"""A stream's decisions: which leases a batch has, and when they are acknowledged. No Spark here.

An offset is the number of a consumer's lease; a batch from one offset to another has the leases
after the first, up to the last. A batch does not change while its leases are open, so reading it
again gives the same messages. `PIPELINE.md` has the guarantees and their limits.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mq.model.errors import ConsumerBusy, LeaseLost, MqError
from mq.model.lifecycle import State
from mq.model.limits import UUID_CHARS
from mq.model.names import ConsumerName, MessageId, QueueName
from mq.runtime.upkeep import Pace
from mq.spark.leasing import renew_open
from mq.spark.listing import Wanted, blocks_of
from mq.spark.options import StreamOptions
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps
from mq.store.format.pipeline import LeaseName
from mq.store.leases.lapses import adopt
from mq.store.leases.lease import (
    LEASES_OPEN_MAX,
    Lease,
    LeaseState,
    Owner,
    acknowledge,
    claim,
    finish_claim,
    leases_of,
    own,
)
from mq.store.leases.manifest import LEASED_MESSAGES_MAX, read_manifest
from mq.store.leases.releasing import release

# How long a query waits for its predecessor with the same consumer name to end.
OWNER_WAIT_S: Final = 5.0
OWNER_RETRY_S: Final = 0.1

_log: Final = logging.getLogger("mq.spark")

_NAMED_MAX: Final = 5
_WENT_BACK: Final = (LeaseState.RETURNING, LeaseState.LAPSED)


@dataclass(eq=False)
class DataLost(MqError):
    """A batch's leases can no longer be read, and did not return to their queues."""

    consumer: str
    seqs: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"mq: {_named(self.consumer, self.seqs)} of the batch cannot be read again: "
            "acknowledged, or not known. Another query, or an older checkpoint, uses the "
            "consumer's name; or the checkpoint was put back. failOnDataLoss=false goes on "
            "without them"
        )


@dataclass(eq=False)
class ForeignCheckpoint(MqError):
    """The checkpoint is ahead of the consumer's leases: it belongs to another root or consumer."""

    consumer: str
    start: int
    last: int

    def __str__(self) -> str:
        return (
            f"mq: the checkpoint is at lease {self.start} of {self.consumer}, whose last lease is "
            f"{self.last}: it is of another root or another consumer. Give the query a checkpoint "
            "of its own; failOnDataLoss=false goes on behind the checkpoint"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with the leases after an offset, in this order. `adopt`: open leases of no
    committed batch, left by a process that died or by a lost checkpoint.
    """

    acknowledge: tuple[Lease, ...]
    adopt: tuple[Lease, ...]


def plan(leases: Sequence[Lease], start: int) -> Plan:
    """The leases to acknowledge and to adopt when all up to `start` is processed."""
    still_open = [lease for lease in leases if lease.is_open]
    return Plan(
        tuple(lease for lease in still_open if lease.seq <= start),
        tuple(lease for lease in still_open if lease.seq > start),
    )


def initial_seq(leases: Sequence[Lease]) -> int:
    """The offset of a stream without a checkpoint: before the first open lease, which may not have
    been processed; without one, the last lease.
    """
    first_open = min((lease.seq for lease in leases if lease.is_open), default=None)
    return last_seq(leases) if first_open is None else first_open - 1


def last_seq(leases: Sequence[Lease]) -> int:
    """The number of the consumer's last lease; 0 before the first one."""
    return max((lease.seq for lease in leases), default=0)


@dataclass(frozen=True, slots=True)
class Contents:
    """A batch's contents: its open leases, in order; those whose messages returned to their queues,
    where they are delivered again; and those that cannot be read (if many, some of them).
    """

    readable: tuple[Lease, ...]
    returned: tuple[int, ...]
    lost: tuple[int, ...]


def contents(leases: Sequence[Lease], start: int, end: int) -> Contents:
    """The leases after `start` up to `end`. A missing lease that held nothing is no loss. If the
    start is after the end, because all leases since have ended, it asks for the last one.
    """
    if start == end:
        return Contents((), (), ())
    seqs = range(min(start, end - 1) + 1, end + 1)
    known = {lease.seq: lease for lease in leases if lease.seq in seqs}
    unknown = itertools.islice((seq for seq in seqs if seq not in known), _NAMED_MAX + 1)
    ended = [lease for lease in known.values() if not lease.is_open]
    went_back = [lease.seq for lease in ended if lease.state in _WENT_BACK]
    acknowledged = [
        lease.seq for lease in ended if lease.state not in _WENT_BACK and lease.messages > 0
    ]
    return Contents(
        tuple(lease for lease in known.values() if lease.is_open),
        tuple(went_back),
        tuple(sorted([*acknowledged, *unknown])),
    )


def acknowledge_all(root: Root, flusher: Flusher, leases: Sequence[Lease]) -> int:
    """Acknowledges the leases; returns how many messages. Logs a lease that lapsed. Raises
    Unavailable, OSError. Durable on return: yes.
    """
    done = 0
    for lease in leases:
        try:
            done += run_alone(acknowledge(root, lease.name), flusher)
        except LeaseLost:
            _log.warning(
                "lease %s lapsed before it was acknowledged: its messages come again",
                lease.name.text,
            )
    return done


def take_name(root: Root, consumer: ConsumerName, wait: Callable[[float], object]) -> Owner:
    """Makes this process the only user of the consumer's name. Waits for a predecessor that is
    ending. Raises ConsumerBusy if it does not end; OSError.
    """
    for _ in range(round(OWNER_WAIT_S / OWNER_RETRY_S)):
        try:
            return own(root, consumer)
        except ConsumerBusy:
            wait(OWNER_RETRY_S)
    return own(root, consumer)


@dataclass(slots=True)
class LeaseStream:
    """One run of a query, in its source's process. Durable on return of each method: yes.

    `wait` sleeps a number of seconds. `on_owned` is called once, when this process owns the
    consumer's name: from then on open leases must be renewed.
    """

    root: Root
    options: StreamOptions
    flusher: Flusher
    wait: Callable[[float], object]
    on_owned: Callable[[ConsumerName], None] = lambda consumer: None
    pace: Pace = field(default_factory=Pace)
    _owner: Owner | None = None
    _until: str | None = None
    """The greatest uuid to take; None: any."""
    _idle_s: float = 0.0
    _are_queues_checked: bool = False

    @property
    def consumer(self) -> ConsumerName:
        return ConsumerName.parse(self.options.consumer)

    def initial_seq(self) -> int:
        """The offset of a stream without a checkpoint. Changes nothing."""
        return initial_seq(self._leases())

    def only_what_is_ready(self) -> None:
        """Takes, from now on, only messages with ids up to the last one that is ready now. Raises
        QueueNotFound, OSError.
        """
        names = (
            name[:UUID_CHARS]
            for block in blocks_of(self.root, self.options.subscription, State.READY)
            for name in block.names
        )
        self._until = max(filter(MessageId.is_written, names), default="")

    def latest_seq(self, start: int, limit: int | None) -> int:
        """Acknowledges all up to `start`, leases the next messages, and returns the end of the next
        batch: `start` if nothing is ready. `limit`: how many messages it may have; None: all that
        are ready, within what the open leases may hold.

        Raises ConsumerBusy, QueueNotFound, ForeignCheckpoint, TooManyLeases, Unavailable, OSError.
        """
        self._take_name()
        if self._idle_s:
            self.wait(self._idle_s)
        leases = self._leases()
        self._check_history(leases, start)
        self._acknowledge(leases, start)
        adopted = plan(leases, start).adopt
        if adopted:
            self._finish(adopted)
            end = adopted[-1].seq
        else:
            end = self._claim(start, limit)
        self._idle_s = 0.0 if end > start else self.pace.next_wait_s(worked=False)
        if end > start:
            self.pace.next_wait_s(worked=True)
        return end

    def batch(self, start: int, end: int) -> tuple[LeaseName, ...]:
        """The leases that hold the batch's messages. Raises DataLost, ConsumerBusy, OSError."""
        self._take_name()
        leases = self._leases()
        found = contents(leases, start, end)
        if found.returned:
            _log.warning(
                "%s lapsed; the messages went back to their queues, and come again",
                _named(self.options.consumer, found.returned),
            )
        if found.lost:
            lost = DataLost(self.options.consumer, found.lost)
            if self.options.fail_on_data_loss:
                raise lost
            _log.warning("%s", lost)
        self._finish(found.readable)
        return tuple(lease.name for lease in found.readable)

    def commit(self, end: int) -> None:
        """Acknowledges all up to `end`. Raises Unavailable, OSError."""
        self._take_name()
        self._acknowledge(self._leases(), end)

    def close(self) -> None:
        """Releases the consumer's name. Open leases stay: another run continues with them."""
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def _leases(self) -> list[Lease]:
        return leases_of(self.root, self.consumer)

    def _take_name(self) -> None:
        if self._owner is None:
            self._owner = take_name(self.root, self.consumer, self.wait)
            renew_open(self.root, self.consumer, self.options.lease_s)
            self.on_owned(self.consumer)

    def _check_history(self, leases: Sequence[Lease], start: int) -> None:
        """Raises ForeignCheckpoint if the offset is ahead of all leases; with failOnDataLoss=false
        it releases the open ones, which were not processed.
        """
        last = last_seq(leases)
        if start <= last:
            return
        foreign = ForeignCheckpoint(self.options.consumer, start, last)
        if self.options.fail_on_data_loss:
            raise foreign
        _log.warning("%s", foreign)
        for lease in leases:
            if lease.is_open:
                run_alone(release(self.root, lease.name), self.flusher)

    def _acknowledge(self, leases: Sequence[Lease], seq: int) -> None:
        acknowledge_all(self.root, self.flusher, plan(leases, seq).acknowledge)

    def _finish(self, leases: Sequence[Lease]) -> None:
        """Completes claims that a dead process left unfinished, as they are."""
        for lease in leases:
            if lease.state is not LeaseState.CLAIMING:
                continue
            try:
                if read_manifest(self.root, lease.name) is None:  # Lost in a power cut.
                    due_ms = self.root.now_ms() + self.options.lease_s * 1000
                    run_alone(adopt(self.root, lease.name, due_ms), self.flusher)
                run_alone(finish_claim(self.root, lease.name), self.flusher)
            except LeaseLost:
                _log.warning("lease %s lapsed: its messages come again", lease.name.text)

    def _claim(self, start: int, limit: int | None) -> int:
        """Leases ready messages; returns the last lease's number, or `start`."""
        queues = self._queues()
        end, left, leases = start, limit, 0
        while queues and (left is None or left > 0) and leases < LEASES_OPEN_MAX:
            wanted = LEASED_MESSAGES_MAX if left is None else min(left, LEASED_MESSAGES_MAX)
            lease = run_alone(self._one_claim(queues, wanted, start), self.flusher)
            if lease is None:
                break
            end, leases = lease.seq, leases + 1
            left = None if left is None else left - lease.messages
            if lease.messages < wanted:
                break
        return end

    def _one_claim(
        self, queues: Sequence[QueueName], limit: int, after: int
    ) -> Steps[Lease | None]:
        return claim(
            self.root,
            self.consumer,
            queues,
            limit,
            self.options.lease_s,
            after=after,
            until=self._until,
        )

    def _queues(self) -> Sequence[QueueName]:
        """The subscription's queues; skips a named one that was deleted while the query runs."""
        if self._are_queues_checked and self.options.subscription.pattern is None:
            return self.options.subscription.queues
        queues = Wanted(self.root, self.options.subscription, State.READY).queues()
        self._are_queues_checked = True
        return queues


def _named(consumer: str, seqs: Sequence[int]) -> str:
    names = ", ".join(f"{consumer}.{seq}" for seq in seqs[:_NAMED_MAX])
    return f"lease {names}" + (" and more" if len(seqs) > _NAMED_MAX else "")
