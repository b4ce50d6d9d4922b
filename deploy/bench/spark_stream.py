"""`python -m deploy.bench.spark_stream`: a stream drains a queue to Parquet, beside a plain loop.

The plain loop reads every file of the same queue, and drains nothing. The stream leases, reads,
writes Parquet and acknowledges, micro-batch by micro-batch, until the queue is empty; what was
written is counted. Each round has a new root; Spark is started, and has drained a small queue,
before.
"""

import shutil
import time
from pathlib import Path

import click

from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.spark_read import PLAIN, QUEUE, SparkReads, fill, plain
from deploy.bench.table import Figures

_WARMING = 2_000


@click.command("python -m deploy.bench.spark_stream", context_settings={"show_default": True})
@on_place
@click.option("--messages", type=click.IntRange(1), default=200_000, help="In the queue.")
@click.option("--batch", type=click.IntRange(1), default=50_000, help="In a micro-batch.")
@rounds_flag(3)
def main(place: Place, messages: int, batch: int, rounds: int) -> None:
    """Measures messages a second of a stream's drain to Parquet."""
    click.echo(place.heading(f"{BODY_BYTES} bytes\n"))
    figures = Figures()
    for number in range(1, rounds + 1):
        click.echo(f"round {number}", err=True)
        for cores in (2, 1):
            for what, rate in _round(place.path, messages, batch, cores).items():
                figures.add({what: rate})
    click.echo(f"{messages:,} messages; median (min-max) of {rounds} interleaved rounds\n")
    click.echo(figures.compared(PLAIN, "to the plain loop"))


def _round(where: Path, messages: int, batch: int, cores: int) -> dict[str, float]:
    """Messages a second of each row. The plain loop comes first, with as warm a cache."""
    top = where / "root"
    with SparkReads(cores, top, messages) as spark:
        fill(top, _WARMING)
        drained_s(spark, where, _WARMING, batch)
        shutil.rmtree(top)
        fill(top, messages)
        begun = time.perf_counter()
        plain(top, messages)
        plain_s = time.perf_counter() - begun
        stream_s = drained_s(spark, where, messages, batch)
        shutil.rmtree(top)
    return {PLAIN: messages / plain_s, f"drain, local[{cores}]": messages / stream_s}


def drained_s(spark: SparkReads, where: Path, messages: int, batch: int) -> float:
    """Seconds until the queue is empty and the query has ended."""
    out, checkpoint = where / "parquet", where / "checkpoint"
    reading = spark.session.readStream.format("mq").option("path", str(where / "root"))
    frame = reading.options(
        subscribe=QUEUE.text, consumer="bench", maxMessagesPerTrigger=str(batch)
    ).load()
    begun = time.perf_counter()
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took_s = time.perf_counter() - begun
    found = spark.session.read.parquet(str(out)).selectExpr("count(distinct id)").collect()
    if found[0][0] != messages:
        raise BenchError(f"{found[0][0]} of {messages} messages were drained")
    for folder in (out, checkpoint):
        shutil.rmtree(folder)
    return took_s


if __name__ == "__main__":
    main()
