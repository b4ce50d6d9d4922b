"""Leases a batch of messages for a block of code, and removes them when the block succeeds.

    with mq.spark.lease(spark, "/var/lib/mq", "orders", limit=50_000) as lease:
        lease.df.write.parquet(f"/archive/orders/{lease.name}")

If Spark runs elsewhere, on a cluster or behind Spark Connect, this process must see the root too.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from mq.model.errors import Busy, LeaseLost, MqError, QueueNotFound
from mq.model.names import ConsumerName, QueueName
from mq.spark.opening import opened_root
from mq.spark.options import SCHEMA
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import Lease, acknowledge, claim, forget_consumer, leases_of, own, renew
from mq.store.leases.manifest import LEASE_S_DEFAULT, RENEWALS_PER_LEASE
from mq.store.leases.releasing import release

LEASED_MESSAGES_DEFAULT: Final = 100_000
LEASE_RENEWAL_RETRY_S: Final = 1.0

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log: Final = logging.getLogger("mq.spark")


def renew_open(root: Root, consumer: ConsumerName, lease_s: float) -> bool:
    """Extends each open lease of the consumer to `lease_s` seconds from now. Returns whether all
    could be examined. Leaves a lease alone that lapsed meanwhile: its reader notices.
    """
    complete = True
    try:
        leases = [lease for lease in leases_of(root, consumer) if lease.is_open]
    except (MqError, OSError) as error:
        _log.warning("leases of %s cannot be renewed now: %r", consumer.text, error)
        return False
    for lease in leases:
        try:
            renew(root, lease.name, lease_s)
        except LeaseLost:
            continue
        except Busy:
            complete = False
        except (MqError, OSError) as error:
            _log.warning("lease %s cannot be renewed now: %r", lease.name.text, error)
            complete = False
    return complete


def keep_renewed(
    root: Root, consumer: ConsumerName, lease_s: float, wait: Callable[[float], bool]
) -> None:
    """Renews until `wait`, which sleeps a number of seconds, returns True."""
    every_s = lease_s / RENEWALS_PER_LEASE
    wait_s = every_s
    while not wait(wait_s):
        complete = renew_open(root, consumer, lease_s)
        wait_s = every_s if complete else min(every_s, LEASE_RENEWAL_RETRY_S)


class Renewing:
    """A thread that renews a consumer's open leases until `close`, or until the process dies."""

    def __init__(self, root: Root, consumer: ConsumerName, lease_s: float) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=keep_renewed,
            args=(root, consumer, lease_s, self._over.wait),
            name="mq-renew",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stops renewing; on return nothing is renewed any more."""
        self._over.set()
        self._thread.join()


_PREFIX: Final = "lease-"


@dataclass(frozen=True, slots=True)
class LeasedMessages:
    """The messages leased for a block. `df` can be read repeatedly until the block ends, with the
    same rows. `name` is the lease's, "" if nothing was ready; `messages` is their number, and
    `size_bytes` the size of their files.
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
    """Leases up to `limit` ready messages of each queue for the block.

    At the end of the block they are removed, durably. An exception, KeyboardInterrupt too, returns
    them to their queue at once, with one more delivery each. A thread renews the lease meanwhile;
    if this process dies, the lease lapses after `lease_seconds` and the messages are delivered
    again. `options` are the reader's (includeValue, minPartitions, maxMessagesPerPartition,
    readThreads).

    Raises StartupError, BadName, QueueNotFound, TooManyLeases, OSError; at the end of the block
    LeaseLost if the lease lapsed nevertheless, so that the messages are delivered again.
    """
    names = [queue] if isinstance(queue, str) else queue
    queues = [QueueName.parse(name) for name in names]
    with (
        opened_root(Path(root)) as (opened, flusher),
        held(opened, flusher, queues, limit, lease_seconds) as leased,
    ):
        if leased is None:
            yield LeasedMessages(spark.createDataFrame([], SCHEMA), "", 0, 0)
            return
        reader = spark.read.format("mq").options(**options)
        of_root = reader.option("path", opened.layout.root).option("lease", leased.name.text)
        yield LeasedMessages(of_root.load(), leased.name.text, leased.messages, leased.size_bytes)


@contextmanager
def held(
    root: Root, flusher: Flusher, queues: Sequence[QueueName], limit: int, lease_s: float
) -> Iterator[Lease | None]:
    """The same without Spark: an open lease of a new consumer, for the block; None if nothing is
    ready. Durable: yes, the claim and the acknowledgement.
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
    """Returns the lease's messages; those that cannot be returned now return when the lease
    lapses.
    """
    try:
        run_alone(release(root, leased.name), flusher)
    except (MqError, OSError) as error:
        _log.warning("lease %s is not given back before it lapses: %r", leased.name.text, error)


def _forget(root: Root, flusher: Flusher, consumer: ConsumerName) -> None:
    """Forgets the consumer, whose name is never used again."""
    try:
        run_alone(forget_consumer(root, consumer), flusher)
    except Busy:
        return  # Some messages are still being returned: mq-mover does the rest.
    except (MqError, OSError) as error:
        _log.warning("what %s left in leases/ stays there: %r", consumer.text, error)
