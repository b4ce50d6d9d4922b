"""Spark's batch read of `format("mq")`: a browse, which changes nothing.

Filters are not taken over: a reader that does so fails where Spark's switch for it is off, as it is
by default. Nor does Spark say which columns are used: that is what `includeValue` is for.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mq.model.clock import SystemClock
from mq.model.errors import LeaseLost
from mq.model.lifecycle import State
from mq.spark.listing import Block, blocks_of, is_leased, lease_blocks
from mq.spark.options import ReadOptions, Subscription
from mq.spark.partitions import Cut, Names, partitions
from mq.spark.reading import Manner, batches, leased_batches
from mq.store.core.root import Root, attach_root
from mq.store.disk.files import Files
from mq.store.format.pipeline import LeaseName

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchReader(DataSourceReader):
    """One read. Pickled with every task: it holds its options and nothing more."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._lease = LeaseName.parse(options.lease) if options.lease is not None else None

    def partitions(self) -> list[InputPartition]:
        """Lists the messages; in the planner's process. Raises StartupError, QueueNotFound,
        LeaseLost, OSError.
        """
        root = self._root()
        cut = Cut(self._options.messages_per_partition_max, self._options.partitions_min)
        return [InputPartition(names) for names in partitions(root, self._blocks(root), cut)]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The partition's rows; in a task. Spark makes a partition of None of an empty list."""
        if not isinstance(partition.value, Names):
            return iter(())
        if self._lease is not None:
            return leased_batches(self._root(), self._lease, partition.value, self._manner())
        return batches(self._root(), partition.value, self._manner())

    def _blocks(self, root: Root) -> Iterator[Block]:
        if self._lease is not None:
            if not is_leased(root, self._lease):
                raise LeaseLost(self._lease.text)
            return lease_blocks(root, self._lease)
        subscription = self._options.subscription or Subscription()
        return blocks_of(root, subscription, State(self._options.state))

    def _root(self) -> Root:
        return attach_root(os.fspath(self._options.path), Files(), SystemClock())

    def _manner(self) -> Manner:
        options = self._options
        if self._lease is not None:
            return Manner(State.LEASED, options.include_value, options.read_threads, receives=1)
        return Manner(State(options.state), options.include_value, options.read_threads)
