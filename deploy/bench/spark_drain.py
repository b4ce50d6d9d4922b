"""`python -m deploy.bench.spark_drain`: drain to Parquet and load, beside a stream and a loop.

The plain loop reads every file of the same queue and drains nothing; the stream leases, writes
Parquet, flushes nothing of it, and acknowledges. The drain flushes what it wrote before it
acknowledges; the load publishes what was drained. Each round has a new root; Spark is started, and
has drained and loaded a small queue, before.
"""

import shutil
import time
from pathlib import Path

import click

from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.machine import heading
from deploy.bench.places import chosen, place_flags
from deploy.bench.running import rounds_flag, running
from deploy.bench.spark_read import PLAIN, QUEUE, SparkReads, fill, plain
from deploy.bench.spark_stream import drained_s as stream
from deploy.bench.table import Figures, drawn
from mq.spark.jobs.drain import drain
from mq.spark.jobs.load import load

_WARMING = 2_000
_CORES = 2


@click.command("python -m deploy.bench.spark_drain", context_settings={"show_default": True})
@place_flags
@click.option("--messages", type=click.IntRange(1), default=200_000, help="In the queue.")
@rounds_flag(3)
def main(root: Path | None, where: str | None, messages: int, rounds: int) -> None:
    """Measures messages a second of drain and load."""
    with running(), chosen(root, where) as place:
        click.echo(heading(place.path, "syncfs or fsync", place.about, f"{BODY_BYTES} bytes\n"))
        figures = Figures()
        for number in range(1, rounds + 1):
            click.echo(f"round {number}", err=True)
            for what, rate in _round(place.path, messages).items():
                figures.add({what: rate})
        click.echo(f"{messages:,} messages; median (min-max) of {rounds} interleaved rounds\n")
        rows = [("what", "messages/s", "to the plain loop")]
        for what in figures.rounds:
            ratio = figures.median(what) / figures.median(PLAIN)
            rows.append((what, figures.spread(what), f"{ratio:.2f}"))
        click.echo(drawn(rows))


def _round(where: Path, messages: int) -> dict[str, float]:
    """Messages a second of each row."""
    top = where / "root"
    with SparkReads(_CORES, top, messages) as spark:
        fill(top, _WARMING)
        _both(spark, where, _WARMING)
        shutil.rmtree(top)
        fill(top, messages)
        begun = time.perf_counter()
        plain(top, messages)
        plain_s = time.perf_counter() - begun
        drained_s, loaded_s = _both(spark, where, messages)
        shutil.rmtree(top)
        fill(top, messages)
        streamed_s = stream(spark, where, messages, messages)
        shutil.rmtree(top)
    on = f"local[{_CORES}]"
    return {
        PLAIN: messages / plain_s,
        f"stream to Parquet, {on}": messages / streamed_s,
        f"drain to Parquet, {on}": messages / drained_s,
        f"load from Parquet, {on}": messages / loaded_s,
    }


def _both(spark: SparkReads, where: Path, messages: int) -> tuple[float, float]:
    """Seconds of a drain, and of a load of what it wrote."""
    out = where / "drained"
    begun = time.perf_counter()
    drained = drain(spark.session, where / "root", [QUEUE.text], out)
    drained_s = time.perf_counter() - begun
    begun = time.perf_counter()
    loaded = load(spark.session, where / "root", out)
    loaded_s = time.perf_counter() - begun
    shutil.rmtree(out)
    if (drained.messages, loaded.messages) != (messages, messages):
        raise BenchError(f"{drained.messages} drained and {loaded.messages} loaded of {messages}")
    return drained_s, loaded_s


if __name__ == "__main__":
    main()
