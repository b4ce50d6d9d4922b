"""Drains queues to files: Parquet, JSON lines or CSV. Acknowledges messages once their files are on
stable media.

A loop of leases, each a batch with its own commit in the folder. PIPELINE.md has the guarantees of
a drain. The driver claims, commits and acknowledges; tasks read and write.
"""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, cast
from uuid import uuid4

from pyspark.sql import SparkSession

from mq.model.errors import Busy, ConsumerBusy, DeliveriesPaused, LeaseLost, MqError
from mq.model.lifecycle import State
from mq.model.names import GROUP_BEGINS, ConsumerName, QueueName, UuidSource
from mq.spark.jobs.drained_folder import About, Commit, DrainedFolder, FolderRefused, Standing
from mq.spark.jobs.draining import WRITTEN, Draining, Written
from mq.spark.jobs.folders import lie_in_one_another
from mq.spark.jobs.row_files import ROWS, Format, compression_of, suffix_of
from mq.spark.jobs.row_reading import ids_in
from mq.spark.jobs.tables import DELTA_LOG, NoTable, Table, TableFormat, kind_of, table_of
from mq.spark.jobs.tasks import (
    TaskFailed,
    Unwatched,
    Watcher,
    by_numbers,
    check_queue_exists,
    named_bytes,
    queue_named,
    said_by_task,
)
from mq.spark.leasing import Renewing
from mq.spark.listing import Block, blocks_of, lease_blocks
from mq.spark.opening import attached, opened_root
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, first_names, messages_in, partitions
from mq.store.core.root import Root, unlink_if_there
from mq.store.core.unserved import leases_nothing
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import split_entry
from mq.store.leases.lease import (
    Lease,
    LeaseState,
    acknowledge,
    claim,
    finish_claim,
    forget_consumer,
    leases_of,
    own,
)
from mq.store.leases.manifest import LEASE_S_DEFAULT, LEASED_MESSAGES_MAX
from mq.store.leases.releasing import release

Execute: TypeAlias = Callable[[Draining], Iterable[dict[str, Any]]]

_FILE_BYTES: Final = 256 << 20
_HELD_NAMES_MAX: Final = 50_000
"""Above this, the tasks read their parts of a listing from a file of the root."""
_PREFIX: Final = "drain-"
_IS_COPIED: Final = "has a copy already: say another folder"


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain. `folder`: where the files are; `resumed`: how many of the messages an
    earlier run, which had died, had leased or written; `twice`: messages that were delivered again
    after their lease lapsed, and not written again; `damaged`: files shorter than their own header
    block, written as they are; `by_queue` counts the messages, in a dry run all that are there,
    whatever the limit.
    """

    folder: str
    batches: int = 0
    messages: int = 0
    size_bytes: int = 0
    files: int = 0
    resumed: int = 0
    twice: int = 0
    damaged: int = 0
    by_queue: Mapping[str, int] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return named_bytes(asdict(self), "size_bytes")

    def and_batch(self, commit: Commit, *, twice: int = 0, is_resumed: bool = False) -> "Drained":
        return replace(
            self,
            batches=self.batches + bool(commit.parts),
            messages=self.messages + commit.messages,
            size_bytes=self.size_bytes + sum(part.size_bytes for part in commit.parts),
            files=self.files + len(commit.parts),
            resumed=self.resumed + (commit.messages if is_resumed else 0),
            twice=self.twice + twice,
            damaged=self.damaged + commit.damaged,
            by_queue=dict(Counter(self.by_queue) + Counter(commit.by_queue)),
        )


@dataclass(slots=True)
class DrainRun:
    """One run of a drain, or of a copy, in a folder that this process owns. `execute` drains every
    partition of a batch, and returns the report of `drain_partition` for each. `table` gets each
    committed batch before its lease is acknowledged.
    """

    execute: Execute
    root: Root
    flusher: Flusher
    folder: DrainedFolder
    about: About
    file_messages: int
    watcher: Watcher
    held_names_max: int = _HELD_NAMES_MAX
    table: Table = field(default_factory=NoTable)
    commits: list[Commit] = field(default_factory=list)
    done: Drained = field(init=False)
    _written_before: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.commits = self.folder.commits()
        self.done = Drained(self.folder.path)
        self.table.check(ROWS)
        for commit in self.commits:
            self.folder.put_in_place(commit)
        self.folder.sweep(self.commits)

    # A copy.

    def copy(self, queues: Sequence[QueueName], limit: int | None) -> Drained:
        """Copies all messages in one batch, or none if there are none."""
        for commit in self.commits:
            if commit.standing is Standing.OPEN:
                return self._copied(commit, is_resumed=True)
        if self.commits:
            raise FolderRefused(self.folder.path, _IS_COPIED)
        state = State(self.about.state)
        found = blocks_of(self.root, Subscription(tuple(queues)), state)
        draining = self._draining("", state, _limited(found, limit), self.file_messages)
        attempt = self.folder.begin_writing()
        try:
            self.watcher.began(
                f"copies {state.value} messages",
                lambda: _taken(there(self.root, queues, state), limit),
            )
            written = self._written(draining, 1, attempt)
            if written.parts:
                commit = written.commit(1, "")
                self.folder.commit(commit, attempt)
                self._copied(commit)
                self.watcher.advanced(commit.messages)
        finally:
            self._sweep()
        return self.done

    def _copied(self, commit: Commit, *, is_resumed: bool = False) -> Drained:
        """Finishes a committed copy."""
        self.table.add(commit, ROWS)
        settled = self.folder.settle(commit, Standing.DONE)
        self.done = self.done.and_batch(settled, is_resumed=is_resumed)
        return self.done

    # A drain.

    def drain(
        self, queues: Sequence[QueueName], limit: int | None, batch_messages: int, lease_s: float
    ) -> Drained:
        """Drains batch by batch; first what an earlier run left."""
        consumer = ConsumerName.parse(f"{_PREFIX}{self.about.id}")
        try:
            owner = own(self.root, consumer)
        except ConsumerBusy:
            raise FolderRefused(self.folder.path, "has a copy that is being drained to") from None
        with owner, contextlib.closing(Renewing(self.root, consumer, lease_s)):
            self._settle(consumer)
            # Leaves messages published from now on to another run.
            ids = UuidSource(self.root.clock)
            ids.end_moment()
            until = ids.next()
            self.watcher.began("drains", lambda: _taken(waiting(self.root, queues), limit))
            while limit is None or self.done.messages + self.done.twice < limit:
                left = LEASED_MESSAGES_MAX if limit is None else limit - self.done.messages
                taken = min(batch_messages, left, LEASED_MESSAGES_MAX)
                after = max((_seq(commit) for commit in self.commits), default=0)
                operation = claim(
                    self.root, consumer, queues, taken, lease_s, after=after, until=until
                )
                lease = run_alone(operation, self.flusher)
                if lease is None:
                    self._refuse_paused(queues)
                    break
                self._batch(lease)
            self._forget(consumer)
        return self.done

    def _refuse_paused(self, queues: Sequence[QueueName]) -> None:
        """Raises DeliveriesPaused if a queue delivers nothing, since it cannot be drained."""
        for queue in queues:
            settings = self.root.facts.settings(queue)
            if not settings.gives:
                raise DeliveriesPaused(queue.text)
            if settings.is_single:
                raise DeliveriesPaused(queue.text, "active_consumer", "any")

    def _settle(self, consumer: ConsumerName) -> None:
        """Finishes an earlier run: acknowledges its committed leases, and writes the others now."""
        leases = {lease.name.text: lease for lease in leases_of(self.root, consumer)}
        for at, commit in enumerate(self.commits):
            if commit.standing is not Standing.OPEN:
                continue
            lease = leases.pop(commit.lease, None)
            self.folder.renew_commit(commit)
            self.table.add(commit, ROWS)
            self.commits[at] = self._acknowledged(commit, lease)
            self.done = self.done.and_batch(commit, is_resumed=True)
        committed = {commit.lease for commit in self.commits}
        for lease in leases.values():
            if lease.is_open and lease.name.text not in committed:
                if lease.state is LeaseState.CLAIMING:
                    lease = run_alone(finish_claim(self.root, lease.name), self.flusher)  # noqa: PLW2901
                self._batch(lease, is_resumed=True)

    def _batch(self, lease: Lease, *, is_resumed: bool = False) -> None:
        """Writes a lease's messages, commits them, and acknowledges the lease. Messages that cannot
        be committed return to their queues.
        """
        number = 1 + max((commit.number for commit in self.commits), default=0)
        try:
            commit, twice = self._commit(lease, number)
        except BaseException:
            # A commit that may be durable is left to the next run, and so is its lease.
            if not self.folder.is_committed(number):
                self._give_back(lease)
            self._sweep()
            raise
        if commit.parts:
            self.commits.append(commit)
            self.table.add(commit, ROWS)
            self.commits[-1] = self._acknowledged(commit, lease)
        else:
            run_alone(acknowledge(self.root, lease.name), self.flusher)
        self._sweep()
        self.done = self.done.and_batch(commit, twice=twice, is_resumed=is_resumed)
        self.watcher.advanced(commit.messages)

    def _commit(self, lease: Lease, number: int) -> tuple[Commit, int]:
        """Writes the lease's messages to files of the folder, and commits them. Without messages it
        commits nothing.
        """
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
        """Acknowledges a committed batch's lease. Messages of a lease that lapsed are delivered
        again.
        """
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
        """Removes the consumer from the root: it has no lease now, and the folder has its
        number.
        """
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
        """Runs the tasks; returns what they wrote. Raises what `execute` raises."""
        suffix = suffix_of(draining.format, draining.compression)
        count = len(draining.names)
        if not count:
            return Written((), {}, 0, 0)
        try:
            told = list(self.execute(replace(draining, folder=f"{self.folder.own}/{attempt}")))
        finally:
            # Otherwise a long listing's file would stay for a day.
            for spool in {names.spool for names in draining.names if names.spool}:
                with contextlib.suppress(OSError):
                    unlink_if_there(self.root.files, spool)
        return Written.of(told, f"{self.about.prefix}{number:06d}", attempt, suffix)

    def _before(self) -> frozenset[str]:
        """The ids of committed messages whose leases lapsed."""
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


def waiting(root: Root, queues: Sequence[QueueName]) -> Counter[str]:
    """Counts the messages that a lease can take, by queue. Raises QueueNotFound, OSError."""
    found: Counter[str] = Counter()
    given = tuple(queue for queue in queues if not leases_nothing(root, queue))
    for block in blocks_of(root, Subscription(given), State.READY):
        found[block.queue] += messages_in(
            [name for name in block.names if GROUP_BEGINS not in name]
        )
    return found


def there(root: Root, queues: Sequence[QueueName], state: State) -> Counter[str]:
    """Counts all messages of a state, by queue. Raises QueueNotFound, OSError."""
    found: Counter[str] = Counter()
    for block in blocks_of(root, Subscription(tuple(queues)), state):
        if block.queue:
            found[block.queue] += messages_in(block.names)
        else:
            for name in block.names:
                found[split_entry(name)[0]] += messages_in((name,))
    return found


def _taken(found: Counter[str], limit: int | None) -> int:
    return found.total() if limit is None else min(found.total(), limit)


def _limited(blocks: Iterable[Block], limit: int | None) -> Iterator[Block]:
    left = sys.maxsize if limit is None else limit
    for block in blocks:
        if left <= 0:
            return
        names, messages = first_names(block.names, left)
        left -= messages
        yield block._replace(names=names)


BATCH_MESSAGES_DEFAULT: Final = 200_000
FILE_MESSAGES_DEFAULT: Final = 50_000
COPIED: Final = ("ready", "delayed", "removed")
"""The states that can be copied."""


def drain(
    spark: SparkSession,
    root: Path,
    queues: Sequence[str],
    to: Path,
    *,
    format: Format | TableFormat = "parquet",  # noqa: A002 - the option's name.
    table: str | None = None,
    compression: str | None = None,
    copy: bool = False,
    state: str = "ready",
    limit: int | None = None,
    batch_messages: int = BATCH_MESSAGES_DEFAULT,
    file_messages: int = FILE_MESSAGES_DEFAULT,
    lease_seconds: float = LEASE_S_DEFAULT,
    dry_run: bool = False,
    watcher: Watcher | None = None,
) -> Drained:
    """Moves the messages that are ready when it begins, at most `limit`, from the queues to files
    in the folder `to`, and removes them once the files are on stable media. With `copy` it only
    reads messages of a `state`.

    The format `delta` makes the folder a Delta table, or adds to the one that is there; `iceberg`
    adds the folder's files to the `table`, CATALOG.NAMESPACE.TABLE.

    It leases, commits and acknowledges `batch_messages` at a time; a file has at most
    `file_messages`. If a killed drain of this root left the folder, that drain is finished first.
    A dry run counts the messages, and changes nothing; it does not look at the table.

    Raises FolderRefused, TableRefused, BadCompression, BadName, QueueNotFound, StartupError,
    TooManyLeases, LeaseLost, TaskFailed, Unavailable, OSError, ValueError: then uncommitted
    messages are back in their queues. Durable on return: yes.
    """
    if not queues or state not in COPIED or (state != "ready" and not copy):
        raise ValueError("a drain takes a queue's ready messages; a copy is of one state")
    if (limit is not None and limit < 1) or min(batch_messages, file_messages) < 1:
        raise ValueError("a drain takes at least one message at a time")
    kind = kind_of(format, table)
    names = tuple(dict.fromkeys(queue_named(queue) for queue in queues))
    of_files: Format = "parquet" if kind else cast(Format, format)
    wanted = About(
        uuid4().hex,
        os.path.realpath(root),
        of_files,
        compression_of(of_files, compression),
        state if copy else "",
        kind,
    )
    beside = (DELTA_LOG,) if kind == "delta" else ()
    if dry_run:
        looked = attached(root)
        path = _outside(looked, to, names if state != "removed" else ())
        with contextlib.closing(DrainedFolder(path, looked.files)) as folder:
            folder.refuse_others(beside)
            return _counted(looked, folder, wanted, names, limit)
    with opened_root(root) as (opened, flusher):
        path = _outside(opened, to, names if state != "removed" else ())
        with contextlib.closing(DrainedFolder(path, opened.files)) as folder, folder.locked(beside):
            about = folder.claim(wanted)
            run = DrainRun(
                _by(spark),
                opened,
                flusher,
                folder,
                about,
                file_messages,
                watcher or Unwatched(),
                table=table_of(kind, folder.path, about.id, opened.files),
            )
            if copy:
                return run.copy(names, limit)
            return run.drain(names, limit, batch_messages, lease_seconds)


def _counted(
    root: Root, folder: DrainedFolder, wanted: About, queues: Sequence[QueueName], limit: int | None
) -> Drained:
    """What a drain or a copy would do. Changes nothing. Raises FolderRefused, OSError."""
    about = folder.known(wanted) or wanted
    commits = folder.commits()
    left = sum(commit.messages for commit in commits if commit.standing is Standing.OPEN)
    if about.state:
        if commits and not left:
            raise FolderRefused(folder.path, _IS_COPIED)
        found = there(root, queues, State(about.state))
        messages = left or _taken(found, limit)
        return Drained(folder.path, messages=messages, resumed=left, by_queue=dict(found))
    committed = {commit.lease for commit in commits}
    left += sum(
        lease.messages
        for lease in leases_of(root, ConsumerName.parse(f"{_PREFIX}{about.id}"))
        if lease.is_open and lease.name.text not in committed
    )
    found = waiting(root, queues)
    more = _taken(found, None if limit is None else max(0, limit - left))
    return Drained(folder.path, messages=left + more, resumed=left, by_queue=dict(found))


def _outside(root: Root, to: Path, queues: Sequence[QueueName]) -> Path:
    """The folder's real path. Raises FolderRefused if it lies in the root, or around it;
    QueueNotFound unless all these queues exist.
    """
    path = os.path.realpath(to)
    if lie_in_one_another(path, root.layout.root):
        raise FolderRefused(path, "and the root lie in one another")
    for queue in queues:
        check_queue_exists(root, queue)
    return Path(path)


def _by(spark: SparkSession) -> Execute:
    """Runs each partition as a Spark task. Raises TaskFailed."""

    def execute(draining: Draining) -> list[dict[str, Any]]:
        try:
            rows = by_numbers(spark, len(draining.names), draining.task, WRITTEN).collect()
        except Exception as error:
            raise TaskFailed(said_by_task(error)) from error
        return [row.asDict() for row in rows]

    return execute
