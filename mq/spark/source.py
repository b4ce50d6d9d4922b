"""`format("mq")`: imports the module for each of Spark's ways to read and write.

Spark imports this at the start of every session that has mq installed, in a process of its own, so
it imports each module only when it is used.
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

from mq.spark.options import SCHEMA, ReadOptions, StreamOptions, WriteOptions, check_schema


class MqDataSource(DataSource):
    """The data source `mq`. Spark makes it several times, in several processes: making it does
    nothing.
    """

    @classmethod
    def name(cls) -> str:
        return "mq"

    def schema(self) -> str:
        """The columns of a message's row, the same for batches and streams."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(_columns(schema))
        options = ReadOptions.parse(self.options)
        return cast(DataSourceReader, _made("batch", "BatchReader", options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream's reads: leases and acknowledges."""
        check_schema(_columns(schema))
        options = StreamOptions.parse(self.options)
        return cast(DataSourceStreamReader, _made("stream", "StreamReader", options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = WriteOptions.parse(self.options)
        return cast(DataSourceWriter, _made("sink", "BatchWriter", options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A stream's publishes: one commit per batch."""
        options = WriteOptions.parse(self.options)
        return cast(
            DataSourceStreamWriter, _made("sink", "StreamWriter", options, schema, overwrite)
        )


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(column.name, column.dataType.simpleString()) for column in schema.fields]


def _made(module: str, name: str, *facts: object) -> object:
    """Imports the class now, when it is needed."""
    made: object = getattr(import_module(f"mq.spark.{module}"), name)(*facts)
    return made
