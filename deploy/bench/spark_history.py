"""`python -m deploy.bench.spark_history`: a history of an archive of millions of messages.

The archive is made by Spark, of ten queues over thirty days, with latencies from milliseconds to
hours; `--lines` of them have their histories' lines beside them (published, fetched, removed). Each
round is one whole history, from reading Parquet to tables on stable media, on so many cores; Spark
is warm from the second one on. Run it in a session of its own (`setsid`), whose processes' time is
what it uses of the CPU.
"""

import time
from pathlib import Path
from typing import Final

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import mq.spark
from deploy.bench.load import BenchError
from deploy.bench.machine import heading
from deploy.bench.places import chosen, place_flags
from deploy.bench.running import rounds_flag, running
from deploy.bench.spark_read import cpu_s
from deploy.bench.table import Figures, drawn
from mq.model.clock import SystemClock
from mq.spark.jobs.archive_schema import ARCHIVE
from mq.spark.jobs.history import history
from mq.store.core.root import open_root
from mq.store.disk.files import Files

QUEUES: Final = 10
DAYS: Final = 30
_MADE: Final = {
    "id": "concat(substr(hex, 1, 8), '-', substr(hex, 9, 4), '-7000-8000-', "
    "lower(lpad(hex(id), 12, '0')), if(id % 4 = 0, ',p=5', ''))",
    "priority": "if(id % 4 = 0, 5, 0)",
    "published": "timestamp_millis(ms)",
    "removed": "timestamp_millis(ms + lasted)",
    "removal": "'message'",
    "receives": "1 + CAST(id % 7 = 0 AS int)",
    "size": "50 + CAST(exp(8 * rand(3)) AS long)",
    "damaged": "false",
    "events": "if(id % 100 < {lines}, transform(array('published', 'fetched', 'removed'), "
    "(event, n) -> named_struct('time', timestamp_millis(ms + lasted * n DIV 2), 'event', event, "
    "'receives', if(n > 0, 1, 0))), NULL)",
    "queue": "concat('queue-', id % {queues})",
    "day": "CAST(timestamp_millis(ms + lasted) AS date)",
}


@click.command("python -m deploy.bench.spark_history", context_settings={"show_default": True})
@place_flags
@click.option("--messages", type=click.IntRange(1), default=2_000_000, help="In the archive.")
@click.option("--lines", type=click.IntRange(0, 100), default=0, help="Percent that have lines.")
@click.option("--cores", type=click.IntRange(1), default=2, help="Of Spark's.")
@rounds_flag(3)
def main(
    root: Path | None, where: str | None, messages: int, lines: int, cores: int, rounds: int
) -> None:
    """Measures messages a second of a history of an archive."""
    with running(), chosen(root, where) as place:
        click.echo(heading(place.path, "none", place.about, f"{messages:,} messages\n"))
        spark = mq.spark.session(
            "mq bench",
            master=f"local[{cores}]",
            **{"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"},
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            click.echo(_measured(spark, place.path, messages, lines, rounds))
        finally:
            spark.stop()


def _measured(spark: SparkSession, where: Path, messages: int, lines: int, rounds: int) -> str:
    top, archive = where / "root", where / "archive"
    open_root(str(top), Files(), SystemClock())
    _fill(spark, archive, messages, lines)
    figures = Figures()
    for number in range(1, rounds + 1):
        begun, used_s = time.perf_counter(), cpu_s()
        rows = spark.read.schema(ARCHIVE).parquet(str(archive))
        done = history(spark, top, where / "history", archive=rows)
        took_s, used_s = time.perf_counter() - begun, cpu_s() - used_s
        if done.messages != messages:
            raise BenchError(f"{done.messages} messages were counted")
        click.echo(
            f"round {number}: {took_s:.1f} s, {used_s:.1f} s of CPU, rows {dict(done.rows)}",
            err=True,
        )
        figures.add({"s": took_s, "messages/s": messages / took_s, "CPU s": used_s})
    return drawn(
        [("what", "median (min-max)"), *((what, figures.spread(what)) for what in figures.rounds)]
    )


def _fill(spark: SparkSession, archive: Path, messages: int, lines: int) -> None:
    span_ms = DAYS * 86_400_000
    since_ms = SystemClock().now_ms() - span_ms - 7_200_000
    of_time = spark.range(messages).select(
        "id",
        F.expr(f"CAST({since_ms} + {span_ms} * rand(1) AS long)").alias("ms"),
        F.expr("CAST(exp(15 * rand(2)) AS long)").alias("lasted"),
    )
    hexed = of_time.withColumn("hex", F.expr("lower(lpad(hex(ms), 12, '0'))"))
    columns = [
        F.expr(text.format(lines=lines, queues=QUEUES)).alias(name) for name, text in _MADE.items()
    ]
    hexed.select(*columns).write.partitionBy("queue").parquet(str(archive))


if __name__ == "__main__":
    main()
