"""What Spark says of `format("mq")`, and what it says when it is used wrongly."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import mq.spark
from mq.spark.options import COLUMNS


def read(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("mq").options(path="/r", subscribe="orders", **options).load()


def test_the_schema_is_told_without_a_look_at_the_root(spark: SparkSession) -> None:
    fields = read(spark).schema.fields
    assert {field.name: field.dataType.simpleString() for field in fields} == COLUMNS


def test_a_session_is_the_one_there_is(spark: SparkSession) -> None:
    assert mq.spark.session() is spark


def test_another_session_of_the_process_knows_it_too(spark: SparkSession) -> None:
    other = spark.newSession()
    mq.spark.register(other)
    assert read(other).columns == list(COLUMNS)


@pytest.mark.parametrize("schema", ["queue string", "value string", "id string, queue string"])
def test_another_schema_is_refused(spark: SparkSession, schema: str) -> None:
    reading = spark.read.format("mq").options(path="/r", subscribe="orders").schema(schema)
    with pytest.raises(AnalysisException, match="mq: a message's columns are fixed"):
        reading.load().collect()


def stream(spark: SparkSession, checkpoint: Path) -> None:
    reading = spark.readStream.format("mq").options(path="/r", subscribe="orders", consumr="lake")
    writing = reading.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
    writing.trigger(availableNow=True).start().awaitTermination()


def sink(spark: SparkSession, checkpoint: Path) -> None:
    rows = spark.readStream.format("rate").load().select("value")
    writing = rows.writeStream.format("mq").options(path="/r", consumr="lake")
    writing = writing.option("checkpointLocation", checkpoint)
    writing.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    "use",
    [
        lambda spark, _: read(spark, consumr="lake").collect(),
        stream,
        lambda spark, _: spark.range(1).write.format("mq").mode("append").save("/r", consumr="x"),
        sink,
    ],
    ids=["read", "stream", "write", "sink"],
)
def test_an_option_that_is_mistyped_is_told(
    spark: SparkSession, tmp_path: Path, use: Callable[[SparkSession, Path], None]
) -> None:
    with pytest.raises((AnalysisException, StreamingQueryException), match="no option consumr"):
        use(spark, tmp_path)
