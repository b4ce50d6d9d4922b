"""How Spark finds `format("mq")`, and what it says of it."""

from pathlib import Path

from pyspark.sql import SparkSession


def test_the_schema_is_told_without_a_look_at_the_root(spark: SparkSession, tmp_path: Path) -> None:
    read = spark.read.format("mq").option("path", str(tmp_path)).option("subscribe", "orders")
    names = read.load().schema.fieldNames()
    assert names == [
        "queue", "id", "key", "value", "headers", "priority",
        "published", "due", "receives", "size", "state",
    ]  # fmt: skip
