"""Spark's batch read of `format("mq")`: a browse, which changes nothing.

The reader takes over no filters of Spark's: see `narrowing`, which has the option `where` for that.
Spark does not say which columns a query uses either; use `includeValue` for that.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mq.spark.browsing import manner_of, names_of
from mq.spark.opening import attached
from mq.spark.options import ReadOptions
from mq.spark.partitions import Cut, Names, partitions
from mq.spark.reading import batches, leased_batches
from mq.store.core.root import Root
from mq.store.format.pipeline import LeaseName

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchReader(DataSourceReader):
    """One read. Pickled with every task, so it holds only its options."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._lease = LeaseName.parse(options.lease) if options.lease is not None else None

    def partitions(self) -> list[InputPartition]:
        """Lists the messages; in the planner's process. Raises StartupError, QueueNotFound,
        LeaseLost, OSError.
        """
        root = self._root()
        cut = Cut(self._options.messages_per_partition_max, self._options.partitions_min)
        found = partitions(root, names_of(root, self._options), cut)
        return [InputPartition(names) for names in found]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The partition's rows; in a task. For an empty list Spark makes one partition, None."""
        if not isinstance(partition.value, Names):
            return iter(())
        if self._lease is not None:
            return leased_batches(
                self._root(), self._lease, partition.value, manner_of(self._options)
            )
        return batches(self._root(), partition.value, manner_of(self._options))

    def _root(self) -> Root:
        return attached(self._options.path)
