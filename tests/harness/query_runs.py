"""A query of one consumer on Spark, as often as it is started."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = {"availableNow": True}


class StreamRun:
    """Starts the query again and again, with its checkpoint; whatever still runs ends with it."""

    def __init__(self, spark: SparkSession, root: Path, checkpoint: Path) -> None:
        self.spark = spark
        self.root = root
        self.checkpoint = checkpoint
        self._queries: list[StreamingQuery] = []

    def start(
        self,
        sink: Callable[[Any], Any],
        trigger: dict[str, Any] | None = None,
        **options: str | float | bool,
    ) -> StreamingQuery:
        """Begins a run; `sink` says where to."""
        reader = self.spark.readStream.format("mq").option("path", str(self.root))
        reader = reader.option("subscribe", "q").option("consumer", "c").options(**options)
        writer = sink(reader.load().writeStream)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query: StreamingQuery = writer.trigger(**(trigger or AVAILABLE_NOW)).start()
        self._queries.append(query)
        return query

    def each(
        self,
        function: Callable[[DataFrame, int], None],
        trigger: dict[str, Any] | None = None,
        **options: str | float | bool,
    ) -> StreamingQuery:
        """Begins a run that calls the function with each batch and its number."""
        return self.start(lambda writer: writer.foreachBatch(function), trigger, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for query in self._queries:
            query.stop()
