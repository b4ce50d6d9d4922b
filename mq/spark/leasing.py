"""Consuming a batch: messages leased for a block of code, removed when it ends well.

    with mq.spark.lease(spark, "/var/lib/mq", "orders", limit=50_000) as lease:
        lease.df.write.parquet(f"/archive/orders/{lease.name}")

Where Spark runs elsewhere, on a cluster or behind Spark Connect, this process sees the root too.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from mq.model.bulk_limits import LEASE_S_DEFAULT, LEASED_MESSAGES_DEFAULT
from mq.model.errors import Busy, MqError, QueueNotFound
from mq.model.names import ConsumerName, QueueName
from mq.spark.opening import open_for_leases
from mq.spark.renewing import Renewing
from mq.spark.schema import SCHEMA
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import Lease, acknowledge, claim
from mq.store.leases.owning import forget_consumer, own
from mq.store.leases.releasing import release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log: Final = logging.getLogger("mq.spark")

_PREFIX: Final = "lease-"


@dataclass(frozen=True, slots=True)
class LeasedMessages:
    """What a block has leased. `df` can be read until the block ends, as often as it is wanted,
    with the same rows; `name` is the lease's own, "" where nothing was ready; `messages` counts,
    and `size_bytes` is of their files.
    """

    df: "DataFrame"
    name: str
    messages: int
    size_bytes: int


@contextmanager
def lease(
    spark: "SparkSession",
    root: str | Path,
    queue: str | Sequence[str],
    *,
    limit: int = LEASED_MESSAGES_DEFAULT,
    lease_seconds: float = LEASE_S_DEFAULT,
    **options: str | float | bool,
) -> Iterator[LeasedMessages]:
    """Leases up to `limit` ready messages of a queue, of several as many of each, for the block.

    At its end they are acknowledged, durably; an exception (KeyboardInterrupt too) gives them back
    to their queue at once, where each has been received once more. The lease is renewed meanwhile;
    when this process dies it lapses `lease_seconds` later, and they come again. `options` are the
    reader's (includeValue, minPartitions, maxMessagesPerPartition, readThreads).

    Raises StartupError, BadName, QueueNotFound, TooManyLeases, OSError; at the end of the block
    LeaseLost when the lease lapsed all the same, so that the messages come again.
    """
    names = [queue] if isinstance(queue, str) else queue
    queues = [QueueName.parse(name) for name in names]
    opened, flusher = open_for_leases(Path(root))
    try:
        with held(opened, flusher, queues, limit, lease_seconds) as leased:
            if leased is None:
                yield LeasedMessages(spark.createDataFrame([], SCHEMA), "", 0, 0)
                return
            reader = spark.read.format("mq").options(**options)
            of_root = reader.option("path", opened.layout.root).option("lease", leased.name.text)
            yield LeasedMessages(
                of_root.load(), leased.name.text, leased.messages, leased.size_bytes
            )
    finally:
        flusher.close()


@contextmanager
def held(
    root: Root, flusher: Flusher, queues: Sequence[QueueName], limit: int, lease_s: float
) -> Iterator[Lease | None]:
    """A lease that is open in the block, of a consumer of its own; None where nothing is ready.
    The same without Spark. Durable: yes, as with the operations that it takes.
    """
    for queue in queues:
        if not queue_exists(root, queue):
            raise QueueNotFound(queue.text)
    consumer = ConsumerName.parse(f"{_PREFIX}{uuid4().hex}")
    with own(root, consumer):
        try:
            leased = run_alone(claim(root, consumer, queues, limit, lease_s), flusher)
            if leased is None:
                yield None
            else:
                yield from _until_end(root, flusher, leased)
        finally:
            _forget(root, flusher, consumer)


def _until_end(root: Root, flusher: Flusher, leased: Lease) -> Iterator[Lease]:
    renewing = Renewing(root, leased.name.consumer, leased.lease_s)
    try:
        yield leased
    except BaseException:
        renewing.close()
        _give_back(root, flusher, leased)
        raise
    renewing.close()
    run_alone(acknowledge(root, leased.name), flusher)


def _give_back(root: Root, flusher: Flusher, leased: Lease) -> None:
    """What cannot be given back now goes back when the lease lapses."""
    try:
        run_alone(release(root, leased.name), flusher)
    except (MqError, OSError) as error:
        _log.warning("lease %s is not given back before it lapses: %r", leased.name.text, error)


def _forget(root: Root, flusher: Flusher, consumer: ConsumerName) -> None:
    """The name is never used again."""
    try:
        run_alone(forget_consumer(root, consumer), flusher)
    except Busy:
        return  # Some messages are still on their way back: mq-mover has the rest.
    except (MqError, OSError) as error:
        _log.warning("what %s left in leases/ stays there: %r", consumer.text, error)
