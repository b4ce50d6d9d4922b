"""A run of a drain: leases, the commits of its folder, and what an earlier run has left. No Spark.

Each step is durable before the next: the files, the commit, the files under their names, the
acknowledgement. So whatever dies, and whenever, the next run of the folder knows how far it was.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from mq.model.bulk_limits import LEASED_MESSAGES_MAX
from mq.model.errors import Busy, ConsumerBusy, LeaseLost, MqError
from mq.model.lifecycle import State
from mq.model.names import ConsumerName, QueueName, UuidSource
from mq.spark.jobs.drained_folder import About, Commit, DrainedFolder, FolderRefused, Standing
from mq.spark.jobs.draining import Draining, Written
from mq.spark.jobs.row_files import suffix_of
from mq.spark.jobs.row_reading import ids_in
from mq.spark.jobs.watching import Watcher
from mq.spark.listing import Block, blocks_of, lease_blocks
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, partitions
from mq.spark.renewing import Renewing
from mq.store.core.root import Root, unlink_if_there
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import Lease, LeaseState, acknowledge, claim, finish_claim, leases_of
from mq.store.leases.owning import forget_consumer, own
from mq.store.leases.releasing import release

Execute: TypeAlias = Callable[[Draining], Iterable[dict[str, Any]]]

_FILE_BYTES: Final = 256 << 20
_HELD_NAMES_MAX: Final = 50_000
"""Of a longer listing the tasks read their parts in a file of the root."""
_PREFIX: Final = "drain-"


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain did. `folder`: where the files are; `resumed`: messages of them that an earlier
    run, which had died, had leased or written; `twice`: messages that came again after their lease
    had lapsed, and were not written again; `damaged`: files shorter than their own header block,
    written with all that they have.
    """

    folder: str
    batches: int = 0
    messages: int = 0
    size_bytes: int = 0
    files: int = 0
    resumed: int = 0
    twice: int = 0
    damaged: int = 0

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "folder": self.folder, "batches": self.batches, "messages": self.messages,
            "bytes": self.size_bytes, "files": self.files, "resumed": self.resumed,
            "twice": self.twice, "damaged": self.damaged,
        }  # fmt: skip

    def and_batch(self, commit: Commit, *, twice: int = 0, is_resumed: bool = False) -> "Drained":
        """With one batch more."""
        return replace(
            self,
            batches=self.batches + bool(commit.parts),
            messages=self.messages + commit.messages,
            size_bytes=self.size_bytes + sum(part.size_bytes for part in commit.parts),
            files=self.files + len(commit.parts),
            resumed=self.resumed + (commit.messages if is_resumed else 0),
            twice=self.twice + twice,
            damaged=self.damaged + commit.damaged,
        )


@dataclass(slots=True)
class DrainRun:
    """One run of a drain, or of a copy, in a folder that is this process's. `execute` has every
    partition of a batch drained, and gives what `drain_partition` told of each.
    """

    execute: Execute
    root: Root
    flusher: Flusher
    folder: DrainedFolder
    about: About
    file_messages: int
    watcher: Watcher
    held_names_max: int = _HELD_NAMES_MAX
    commits: list[Commit] = field(default_factory=list)
    done: Drained = field(init=False)
    _written_before: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.commits = self.folder.commits()
        self.done = Drained(self.folder.path)
        for commit in self.commits:
            self.folder.put_in_place(commit)
        self.folder.sweep(self.commits)

    # A copy.

    def copy(self, queues: Sequence[QueueName], limit: int | None) -> Drained:
        """One batch, of what is there; none where there is nothing."""
        if self.commits:
            raise FolderRefused(self.folder.path, "has a copy already: say another folder")
        state = State(self.about.state)
        found = blocks_of(self.root, Subscription(tuple(queues)), state)
        draining = self._draining("", state, _limited(found, limit), self.file_messages)
        attempt = self.folder.begin_writing()
        try:
            self.watcher.began(f"copies {state.value} messages")
            written = self._written(draining, 1, attempt)
            if written.parts:
                commit = written.commit(1, "")
                self.folder.commit(commit, attempt)
                self.done = self.done.and_batch(self.folder.settle(commit, Standing.DONE))
                self.watcher.advanced(commit.messages)
        finally:
            self._sweep()
        return self.done

    # A drain.

    def drain(
        self, queues: Sequence[QueueName], limit: int | None, batch_messages: int, lease_s: float
    ) -> Drained:
        """Batch by batch, first what an earlier run has left."""
        consumer = ConsumerName.parse(f"{_PREFIX}{self.about.id}")
        try:
            owner = own(self.root, consumer)
        except ConsumerBusy:
            raise FolderRefused(self.folder.path, "has a copy that is being drained to") from None
        with owner, contextlib.closing(Renewing(self.root, consumer, lease_s)):
            self._settle(consumer)
            # What is published from now on is for another run, but for this very millisecond.
            ids = UuidSource(self.root.clock)
            ids.end_moment()
            until = ids.next()
            self.watcher.began("drains", limit)
            while limit is None or self.done.messages + self.done.twice < limit:
                left = LEASED_MESSAGES_MAX if limit is None else limit - self.done.messages
                taken = min(batch_messages, left, LEASED_MESSAGES_MAX)
                after = max((_seq(commit) for commit in self.commits), default=0)
                operation = claim(
                    self.root, consumer, queues, taken, lease_s, after=after, until=until
                )
                lease = run_alone(operation, self.flusher)
                if lease is None:
                    break
                self._batch(lease)
            self._forget(consumer)
        return self.done

    def _settle(self, consumer: ConsumerName) -> None:
        """Ends what an earlier run has left: what is committed is acknowledged, what is not is
        written now.
        """
        leases = {lease.name.text: lease for lease in leases_of(self.root, consumer)}
        for at, commit in enumerate(self.commits):
            if commit.standing is not Standing.OPEN:
                continue
            lease = leases.pop(commit.lease, None)
            self.folder.renew_commit(commit)
            self.commits[at] = self._acknowledged(commit, lease)
            self.done = self.done.and_batch(commit, is_resumed=True)
        committed = {commit.lease for commit in self.commits}
        for lease in leases.values():
            if lease.is_open and lease.name.text not in committed:
                if lease.state is LeaseState.CLAIMING:
                    lease = run_alone(finish_claim(self.root, lease.name), self.flusher)  # noqa: PLW2901
                self._batch(lease, is_resumed=True)

    def _batch(self, lease: Lease, *, is_resumed: bool = False) -> None:
        """Writes a lease's messages, commits them, and acknowledges the lease. What cannot be
        committed goes back to its queues.
        """
        number = 1 + max((commit.number for commit in self.commits), default=0)
        try:
            commit, twice = self._commit(lease, number)
        except BaseException:
            # A commit that may or may not be durable is for the next run, and so is its lease.
            if not self.folder.is_committed(number):
                self._give_back(lease)
            self._sweep()
            raise
        if commit.parts:
            self.commits.append(commit)
            self.commits[-1] = self._acknowledged(commit, lease)
        else:
            run_alone(acknowledge(self.root, lease.name), self.flusher)
        self._sweep()
        self.done = self.done.and_batch(commit, twice=twice, is_resumed=is_resumed)
        self.watcher.advanced(commit.messages)

    def _commit(self, lease: Lease, number: int) -> tuple[Commit, int]:
        """The lease's messages in files of the folder; without any, nothing is committed."""
        average = lease.size_bytes // max(1, lease.messages)
        of_bytes = max(1, _FILE_BYTES // max(1, average))
        draining = self._draining(
            lease.name.text,
            State.LEASED,
            lease_blocks(self.root, lease.name),
            min(self.file_messages, of_bytes),
        )
        attempt = self.folder.begin_writing()
        written = self._written(draining, number, attempt)
        commit = written.commit(number, lease.name.text)
        if commit.parts:
            self.folder.commit(commit, attempt)
        return commit, written.twice

    def _acknowledged(self, commit: Commit, lease: Lease | None) -> Commit:
        """Acknowledges a committed batch's lease. One that lapsed has its messages come again."""
        try:
            if lease is None or lease.state in (LeaseState.RETURNING, LeaseState.LAPSED):
                raise LeaseLost(commit.lease)
            run_alone(acknowledge(self.root, lease.name), self.flusher)
        except LeaseLost:
            self._written_before = None
            lapsed = self.folder.settle(commit, Standing.LAPSED)
            said = f"the lease of batch {commit.number} lapsed: others may have got its messages"
            self.watcher.noted(f"{said}; those that come again are not written twice")
            return lapsed
        return self.folder.settle(commit, Standing.DONE)

    def _give_back(self, lease: Lease) -> None:
        try:
            run_alone(release(self.root, lease.name), self.flusher)
        except (MqError, OSError) as error:
            said = f"lease {lease.name.text} is not given back before it lapses"
            self.watcher.noted(f"{said}: {error!r}")

    def _forget(self, consumer: ConsumerName) -> None:
        """The root forgets the consumer, which has no lease now; the folder knows its number."""
        with contextlib.suppress(Busy):
            run_alone(forget_consumer(self.root, consumer), self.flusher)

    # Both.

    def _draining(
        self, lease: str, state: State, blocks: Iterable[Block], names_max: int
    ) -> Draining:
        cut = Cut(names_max, held_max=self.held_names_max)
        return Draining(
            self.root.layout.root,
            lease,
            state,
            "",
            self.about.format,
            self.about.compression,
            tuple(partitions(self.root, blocks, cut)),
            self._before() if lease else frozenset(),
        )

    def _written(self, draining: Draining, number: int, attempt: str) -> Written:
        """What the tasks have written. Raises what `execute` does."""
        suffix = suffix_of(draining.format, draining.compression)
        count = len(draining.names)
        if not count:
            return Written((), {}, 0, 0)
        try:
            told = list(self.execute(replace(draining, folder=f"{self.folder.own}/{attempt}")))
        finally:
            # A long listing would else stay for a day.
            for spool in {names.spool for names in draining.names if names.spool}:
                with contextlib.suppress(OSError):
                    unlink_if_there(self.root.files, spool)
        return Written.of(told, number, attempt, suffix)

    def _before(self) -> frozenset[str]:
        """The ids of what is committed of leases that lapsed."""
        if self._written_before is None:
            lapsed = [each for each in self.commits if each.standing is Standing.LAPSED]
            self._written_before = frozenset(
                each
                for commit in lapsed
                for part in commit.parts
                for each in ids_in(Path(self.folder.path, part.name))
            )
        return self._written_before

    def _sweep(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.sweep(self.folder.commits())


def _seq(commit: Commit) -> int:
    """The number of a batch's lease."""
    seq = commit.lease.rpartition(".")[2]
    return int(seq) if seq.isdigit() else 0


def _limited(blocks: Iterable[Block], limit: int | None) -> Iterator[Block]:
    """The first so many names."""
    left = math.inf if limit is None else limit
    for block in blocks:
        if left <= 0:
            return
        names = block.names if len(block.names) <= left else block.names[: int(left)]
        left -= len(names)
        yield replace(block, names=names)
