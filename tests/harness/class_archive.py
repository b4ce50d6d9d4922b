"""`python -m harness.class_archive`: a Spark session that does a little of what the tests do, so
that a JVM that is told to (`-XX:ArchiveClassesAtExit`) leaves an archive of the classes it loads.
"""

import tempfile

from pyspark import SparkContext

import mq.spark


def main() -> None:
    """A batch and a stream through Python, and a look at mq's format; no root is needed for it."""
    spark = mq.spark.session(
        "classes", master="local[2]", **{"spark.driver.memory": "1g", "spark.log.level": "ERROR"}
    )
    assert spark.read.format("mq").options(path="/nowhere", subscribe="q").load().columns
    with tempfile.TemporaryDirectory(prefix="mq-classes-") as folder:
        rows = spark.range(4).mapInArrow(lambda batches: batches, "id long")
        rows.write.parquet(f"{folder}/in")
        query = (
            spark.readStream.schema("id long")
            .parquet(f"{folder}/in")
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .option("path", f"{folder}/out")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert spark.read.parquet(f"{folder}/out").agg({"id": "sum"}).first()
    spark.stop()
    _end_of_java()


def _end_of_java() -> None:
    """The archive is written when the JVM ends, which it does once nobody holds its input."""
    # PySpark ends its JVM only as Python ends, and waits for nothing then.
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
