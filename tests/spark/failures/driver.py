"""`python -m spark.failures.driver FOLDER MASTER`: a Spark driver that takes jobs (see `drivers`).

A job is a function below, and its facts are the function's arguments. A message's body is its
number in decimal digits, so that whoever gets it knows which it is.
"""

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness.points import pass_by
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import mq.spark
from mq.store.disk.files import Files

CHECKS_S = 0.05
# JVMs that do little, and not for long.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Driver:
    """The jobs, on one session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def be_active(self) -> None:
        """In this thread: Spark's writers look their format up in the thread's active session."""
        # PySpark has no public call that makes a session a thread's active one.
        jvm = self._spark.sparkContext._jvm  # noqa: SLF001
        # Nor one that gives Java's session, which this needs.
        jvm.SparkSession.setActiveSession(self._spark._jsparkSession)  # noqa: SLF001

    def publish(
        self, root: str, queue: str, first: int, end: int, partitions: int = 2, **options: str
    ) -> dict[str, Any]:
        """Numbers from `first` to before `end`. Each task passes the point "staging" half way."""
        rows = self._spark.range(first, end, 1, partitions).selectExpr(
            "cast(cast(id as string) as binary) as value"
        )
        (
            rows.mapInArrow(_passing("staging"), "value binary")
            .write.format("mq")
            .mode("append")
            .option("path", root)
            .option("queue", queue)
            .options(**options)
            .save()
        )
        return {}

    def drain(self, out: str, checkpoint: str, **options: str) -> dict[str, Any]:
        """A stream of all that is there into Parquet, each task past the point "drain"."""
        query = (
            self._read(options)
            .mapInArrow(_passing("drain"), "number long, id string, receives int")
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .option("path", out)
            .trigger(availableNow=True)
            .start()
        )
        return _ended(query)

    def follow(self, out: str, checkpoint: str, until: str, **options: str) -> dict[str, Any]:
        """A stream that goes on until the file `until` is there; then it ends as a user ends it."""
        query = (
            self._read(options)
            .mapInArrow(_passing("drain"), "number long, id string, receives int")
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .option("path", out)
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        while query.isActive and not os.path.exists(until):
            query.awaitTermination(CHECKS_S)
        query.stop()
        return _ended(query)

    def forward(self, checkpoint: str, to: str, to_queue: str, **options: str) -> dict[str, Any]:
        """A stream of all that is there into another queue."""
        query = (
            self._spark.readStream.format("mq")
            .options(**options)
            .load()
            .select("value")
            .mapInArrow(_passing("forward"), "value binary")
            .writeStream.format("mq")
            .option("checkpointLocation", checkpoint)
            .option("path", to)
            .option("queue", to_queue)
            .trigger(availableNow=True)
            .start()
        )
        return _ended(query)

    def lease(self, root: str, queue: str, out: str, lease_s: float) -> dict[str, Any]:
        """A batch that is consumed: written to Parquet inside the block, then past the point
        "block".
        """
        with mq.spark.lease(self._spark, root, queue, lease_seconds=lease_s) as lease:
            _numbered(lease.df).write.parquet(out)
            pass_by("block")
        return {"messages": lease.messages}

    def rows(self, *outs: str) -> dict[str, Any]:
        """What is in Parquet folders, as Spark reads them: the numbers."""
        numbers = [row.number for out in outs for row in self._spark.read.parquet(out).collect()]
        return {"numbers": numbers}

    def calls(self, paths: list[str]) -> dict[str, Any]:
        """No mq at all: each task makes a folder through Files. It tries this harness out."""
        made = self._spark.createDataFrame([(path,) for path in paths], "path string")
        made = made.repartition(len(paths)).mapInArrow(_making, "path string")
        return {"made": sorted(row.path for row in made.collect())}

    def _read(self, options: dict[str, str]) -> DataFrame:
        return _numbered(self._spark.readStream.format("mq").options(**options).load())


def _numbered(read: DataFrame) -> DataFrame:
    return read.selectExpr("cast(cast(value as string) as long) as number", "id", "receives")


def _passing(point: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Every task passes the point once it has a row in hand."""

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                pass_by(point)
            yield batch

    return passing


def _making(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path in batch.column(0).to_pylist():
            if not os.path.isdir(path):
                Files().mkdir(path)
        yield batch


def _ended(query: StreamingQuery) -> dict[str, Any]:
    """Waits for its end. Raises what it died of."""
    query.awaitTermination()
    return {"batches": len(query.recentProgress)}


def _say(folder: Path, number: int, kind: str, said: dict[str, Any]) -> None:
    """Whole, or not at all."""
    written = folder / f"saying.{number}"
    written.write_text(json.dumps({"ended": kind} | said))
    written.rename(folder / f"result.{number}")


def _do(driver: Driver, folder: Path, facts: dict[str, Any]) -> None:
    number, kind = facts.pop("number"), facts.pop("kind")
    try:
        driver.be_active()
        said = getattr(driver, kind)(*facts.pop("args", ()), **facts)
    except Exception:
        said = {"error": traceback.format_exc()}
    _say(folder, number, kind, said)


def main() -> None:
    folder, master = Path(sys.argv[1]), sys.argv[2]
    spark = mq.spark.session(
        "mq failures",
        master=master,
        **{
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    driver = Driver(spark, folder)
    for line in sys.stdin:
        threading.Thread(target=_do, args=(driver, folder, json.loads(line)), daemon=True).start()
    spark.stop()


if __name__ == "__main__":
    main()
