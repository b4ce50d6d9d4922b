"""Spark's micro-batches of `format("mq")`: `streaming` decides, this module talks to Spark.

Spark runs everything but `read` in one process per run of a query, a child of the JVM, which it
kills (SIGTERM) when the run ends: it calls `stop` only when the JVM itself has died. After a
restart the first call may be `partitions`, for the batch that was not committed.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mq.model.errors import LeaseLost
from mq.model.lifecycle import State
from mq.model.names import ConsumerName
from mq.spark.leasing import Renewing
from mq.spark.listener import report
from mq.spark.listing import is_leased, lease_blocks
from mq.spark.opening import attached, open_for_leases
from mq.spark.options import StreamOptions
from mq.spark.partitions import Cut, partitions
from mq.spark.reading import Manner, batches, leased_batches
from mq.spark.streaming import LeaseStream
from mq.store.totals.writing import write_totals

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source. Pickled with every task before it has done anything."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._stream: LeaseStream | None = None
        self._renewing: Renewing | None = None
        self._initial_seq: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset of a query without a checkpoint. Spark asks twice, and gets the same."""
        if self._initial_seq is None:
            self._initial_seq = self._of_root().initial_seq()
        return {"seq": self._initial_seq}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.messages_per_trigger_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Leaves messages published from now on to another run."""
        self._of_root().only_what_is_ready()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Acknowledges the processed batch and leases the next one. Spark calls this once the batch
        up to `start` is committed.
        """
        stream = self._of_root()
        seq = stream.latest_seq(start["seq"], self._limit(limit))
        write_totals(stream.root)
        return {"seq": seq}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Adds the consumer and root of the offsets to the query's progress, for the listener."""
        return report(self._options.path, self._options.consumer)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions of a batch's leases. Raises DataLost, LeaseLost."""
        stream = self._of_root()
        leases = stream.batch(start["seq"], end["seq"])
        found = []
        for lease in leases:
            wanted = self._options.partitions_min
            partitions_min = None if wanted is None else -(-wanted // len(leases))
            cut = Cut(self._options.messages_per_partition_max, partitions_min)
            parts = partitions(stream.root, lease_blocks(stream.root, lease), cut)
            if not is_leased(stream.root, lease) and self._options.fail_on_data_loss:
                raise LeaseLost(lease.text)
            found += [InputPartition((lease, names)) for names in parts]
        return found

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """A partition's rows; in a task. Raises LeaseLost; with failOnDataLoss=false, skips
        messages that returned to their queue.
        """
        if partition.value is None:
            return iter(())
        lease, names = partition.value
        options = self._options
        root = attached(options.path)
        manner = Manner(State.LEASED, options.include_value, options.read_threads, receives=1)
        if options.fail_on_data_loss:
            return leased_batches(root, lease, names, manner)
        return batches(root, names, manner)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledges the processed batch; Spark calls this when the next one begins."""
        self._of_root().commit(end["seq"])

    def stop(self) -> None:
        """The JVM has died: leases stay as they are."""
        if self._renewing is not None:
            self._renewing.close()
            self._renewing = None
        if self._stream is not None:
            write_totals(self._stream.root, at_end=True)
            self._stream.close()
            self._stream = None

    def _limit(self, limit: ReadLimit) -> int | None:
        if isinstance(limit, ReadAllAvailable):
            return None
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows
        return self._options.messages_per_trigger_max

    def _of_root(self) -> LeaseStream:
        if self._stream is None:
            root, flusher = open_for_leases(self._options.path)
            wait = threading.Event().wait
            self._stream = LeaseStream(root, self._options, flusher, wait, self._renew)
        return self._stream

    def _renew(self, consumer: ConsumerName) -> None:
        if self._stream is not None:
            self._renewing = Renewing(self._stream.root, consumer, self._options.lease_s)
