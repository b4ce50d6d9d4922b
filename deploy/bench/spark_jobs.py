"""`python -m deploy.bench.spark_jobs`: publish, read, drain, archive, load, shovel and history of
the same messages, one after the other, each beside the plain loop that does the least of it.

A round has a root of its own: the sink publishes messages of 300 bytes to it, they are read,
drained to Parquet, archived, loaded again and moved to another queue, and the history of all that
is counted. So all figures are of one machine in one interleaved run. Run it in a session of its own
(`setsid`), whose processes' time is what a message costs.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
from pyspark.sql import SparkSession

from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.spark_archive import plain as write_parquet
from deploy.bench.spark_publish import PLAIN_SHARE, publish_plainly, save_frame
from deploy.bench.spark_read import QUEUE, cpu_s, quiet_session
from deploy.bench.spark_read import plain as read_plainly
from deploy.bench.table import Figures, drawn
from mq.model.clock import SystemClock
from mq.spark.jobs.archive import archive
from mq.spark.jobs.drain import drain
from mq.spark.jobs.history import history
from mq.spark.jobs.load import load
from mq.spark.jobs.shovel import shovel
from mq.store.disk.files import Files
from mq.store.opening import open_root

OTHER: Final = "other"
BESIDE: Final = {
    "publish": "write, fsync, rename",
    "read": "open, read",
    "binaryFile": "open, read",
    "drain": "open, read, write Parquet",
    "archive": "open, read, write Parquet",
    "load": "write, fsync, rename",
    "shovel": "rename",
    "history": "open, read",
}
"""What is measured, and the plain loop beside it."""
WARM: Final = 2_000


@click.command("python -m deploy.bench.spark_jobs", context_settings={"show_default": True})
@on_place
@click.option("--messages", type=click.IntRange(100), default=50_000, help="A round.")
@click.option("--minutes", type=click.FloatRange(0), default=8.0, help="No round begins later.")
@rounds_flag(3)
def main(place: Place, messages: int, minutes: float, rounds: int) -> None:
    """Measures messages a second of Spark's jobs, beside plain loops."""
    click.echo(place.heading(f"bodies of {BODY_BYTES} bytes\n"))
    ends_at = time.monotonic() + 60 * minutes
    spark = quiet_session(2)
    figures, used = Figures(), Figures()
    done = 0
    for number in range(rounds + 1):
        if done and time.monotonic() > ends_at:
            break
        click.echo(f"round {number}" if number else "warms up", err=True)
        top = place.path / f"round-{number}"
        count = messages if number else WARM
        for what, rate, cpu_us in _round(spark, top, count):
            if number:
                figures.add({what: rate})
                used.add({what: cpu_us})
        place.clear(top)
        shutil.rmtree(top, ignore_errors=True)
        done = number
    spark.stop()
    click.echo(f"{messages:,} messages; median (min-max) of {done} interleaved rounds\n")
    click.echo(_table(figures, used))


def _table(figures: Figures, used: Figures) -> str:
    rows = [("what", "messages/s", "a plain loop", "its messages/s", "ratio", "CPU us a message")]
    for what, loop in BESIDE.items():
        ratio = figures.median(what) / figures.median(loop)
        cpu_us = f"{used.median(what):.1f}"
        rows.append(
            (what, figures.spread(what), loop, figures.spread(loop), f"{ratio:.2f}", cpu_us)
        )
    return drawn(rows)


def _round(spark: SparkSession, top: Path, messages: int) -> Iterator[tuple[str, float, float]]:
    """What was measured, its messages a second, and microseconds of a core for each."""
    root = open_root(str(top / "root"), Files(), SystemClock())
    path, few = Path(root.layout.root), max(100, messages // PLAIN_SHARE)
    for queue in (QUEUE.text, OTHER):
        os.mkdir(path / "queues" / queue, 0o700)
    ready = path / "queues" / QUEUE.text
    plain_root = open_root(str(top / "plain"), Files(), SystemClock())
    os.mkdir(plain_root.layout.queue(QUEUE), 0o700)

    def of(what: str, count: int, act: Callable[[], int | None]) -> tuple[str, float, float]:
        os.sync()
        begun, used_s = time.perf_counter(), cpu_s()
        found = act()
        took_s, used_s = time.perf_counter() - begun, cpu_s() - used_s
        if found not in (None, count):
            raise BenchError(f"{what}: {found} of {count} messages")
        return what, count / took_s, 1e6 * used_s / count

    yield of("write, fsync, rename", few, lambda: publish_plainly(plain_root, few))
    yield of("publish", messages, lambda: save_frame(spark, root, messages, 2, "syncfs"))
    yield of("open, read", messages, lambda: read_plainly(path, messages))
    yield of("read", messages, lambda: _read(spark, path))
    yield of("binaryFile", messages, lambda: _read_by_spark(spark, ready))
    yield of(
        "open, read, write Parquet", messages, lambda: write_parquet(ready, top / "plain.parquet")
    )
    queues = [QUEUE.text]
    yield of("drain", messages, lambda: drain(spark, path, queues, top / "out").messages)
    yield of("archive", messages, lambda: archive(spark, path, top / "archive").messages)
    yield of("load", messages, lambda: load(spark, path, top / "out").messages)
    yield of("rename", 2 * messages, lambda: _there_and_back(ready, top / "away"))
    yield of("shovel", messages, lambda: shovel(spark, path, QUEUE.text, "true", to=OTHER).moved)
    yield of("history", messages, lambda: _counted(spark, path, top))


def _read(spark: SparkSession, path: Path) -> int:
    rows = spark.read.format("mq").option("path", str(path)).option("subscribe", QUEUE.text).load()
    return int(rows.selectExpr("count(id)", "sum(length(value))").collect()[0][0])


def _read_by_spark(spark: SparkSession, folder: Path) -> int:
    rows = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(folder))
    return int(rows.selectExpr("count(1)", "sum(length(content))").collect()[0][0])


def _there_and_back(folder: Path, away: Path) -> int:
    """Renames each file to another folder, and back."""
    away.mkdir()
    found = [f"{at}/{name}" for at, _, names in os.walk(folder) for name in names]
    for path in found:
        os.rename(path, away / os.path.basename(path))
    for path in found:
        os.rename(away / os.path.basename(path), path)
    return 2 * len(found)


def _counted(spark: SparkSession, path: Path, top: Path) -> None:
    history(spark, path, top / "history", archive=top / "archive")


if __name__ == "__main__":
    main()
