"""`format("mq")`: which module answers for which of Spark's ways in.

Spark imports this at the start of every session that has mq installed, in a process of its own:
what a way in needs is imported when it is taken.
"""

from importlib import import_module
from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from mq.spark.options import ReadOptions, StreamOptions, WriteOptions
from mq.spark.schema import SCHEMA, check_schema


class MqDataSource(DataSource):
    """The data source `mq`. Made several times, in several processes, by Spark: does nothing."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` calls it."""
        return "mq"

    def schema(self) -> str:
        """One row a message; the same for a batch and a stream."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read: browses."""
        check_schema(_columns(schema))
        options = ReadOptions.parse(self.options)
        return cast(DataSourceReader, _made("batch", "BatchReader", options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream: leases and acknowledges."""
        check_schema(_columns(schema))
        options = StreamOptions.parse(self.options)
        return cast(DataSourceStreamReader, _made("stream", "StreamReader", options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch publish."""
        options = WriteOptions.parse(self.options)
        return cast(DataSourceWriter, _made("sink", "BatchWriter", options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A stream's publishes, one commit a batch."""
        options = WriteOptions.parse(self.options)
        return cast(
            DataSourceStreamWriter, _made("sink", "StreamWriter", options, schema, overwrite)
        )


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(column.name, column.dataType.simpleString()) for column in schema.fields]


def _made(module: str, name: str, *facts: object) -> object:
    """The class is got only now, when it is needed."""
    made: object = getattr(import_module(f"mq.spark.{module}"), name)(*facts)
    return made
