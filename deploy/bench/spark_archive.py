"""`python -m deploy.bench.spark_archive`: removed messages archived by Spark, beside a plain loop.

Removed messages of 300 bytes by chance in remove/, in buckets as mq lays them. The plain
loop reads the same files, and writes id, time and body to one Parquet file by pyarrow, which it
fsyncs: it keeps no ledger, makes no commit, hashes nothing. Each round has the loop and the
archive; a run before, of few messages, starts Spark's processes. Run it in a session of its own
(`setsid`), whose processes' time is what a message costs.
"""

import os
import shutil
import time
from pathlib import Path
from typing import Final

import click
import pyarrow as pa
import pyarrow.parquet as pq

from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.spark_read import PLAIN, cpu_s, quiet_session, table
from deploy.bench.table import Figures
from mq.model.clock import SystemClock
from mq.model.names import UuidSource
from mq.spark.jobs.archive import archive
from mq.store.disk.files import Files
from mq.store.opening import open_root

ROW: Final = "mqctl pipeline archive, local[2]"
WARM: Final = 5_000
SCHEMA: Final = pa.schema([("id", pa.string()), ("ctime", pa.int64()), ("value", pa.binary())])
GROUP_ROWS: Final = 100_000


@click.command("python -m deploy.bench.spark_archive", context_settings={"show_default": True})
@on_place
@click.option("--messages", type=click.IntRange(1), default=200_000, help="Removed ones.")
@rounds_flag(3)
def main(place: Place, messages: int, rounds: int) -> None:
    """Measures messages a second of the archive, against a loop that writes Parquet."""
    click.echo(place.heading(f"bodies of {BODY_BYTES} bytes\n"))
    spark = quiet_session(2)
    fill(place.path / "warm", WARM)
    archive(spark, place.path / "warm", place.path / "warm-archive")
    figures, used = Figures(), Figures()
    for number in range(1, rounds + 1):
        click.echo(f"round {number}", err=True)
        top, to = place.path / f"root-{number}", place.path / f"archive-{number}"
        fill(top, messages)
        for what in (PLAIN, ROW):
            begun, used_s = time.perf_counter(), cpu_s()
            if what == PLAIN:
                done = plain(top / "remove", place.path / "plain.parquet")
            else:
                done = archive(spark, top, to).messages
            took_s, used_s = time.perf_counter() - begun, cpu_s() - used_s
            if done != messages:
                raise BenchError(f"{what}: {done} of {messages} messages")
            figures.add({what: messages / took_s})
            used.add({what: 1e6 * used_s / messages})
        shutil.rmtree(top)
        shutil.rmtree(to)
    spark.stop()
    click.echo(f"{messages:,} messages; median (min-max) of {rounds} interleaved rounds\n")
    click.echo(table(figures, used))


def fill(top: Path, messages: int) -> None:
    """A root with this many removed messages, flat up to 10,000 and then in buckets."""
    root = open_root(str(top), Files(), SystemClock())
    uuids = UuidSource(root.clock)
    remove, made = Path(root.layout.remove), set()
    for number in range(messages):
        uuid = uuids.next()
        folder = remove if number < 10_000 else remove / uuid[:8]
        if number >= 20_000:
            folder = folder / uuid[9:11]
        if folder not in made:
            folder.mkdir(parents=True, exist_ok=True)
            made.add(folder)
        (folder / f"bench:{uuid}").write_bytes(os.urandom(BODY_BYTES))
    os.sync()


def plain(folder: Path, to: Path) -> int:
    """What anybody would write."""
    count = 0
    with pq.ParquetWriter(to, SCHEMA, compression="zstd") as writer:
        rows: list[tuple[str, int, bytes]] = []
        for path, _, names in os.walk(folder):
            for name in names:
                with open(os.path.join(path, name), "rb") as file:
                    status = os.fstat(file.fileno())
                    rows.append((name, status.st_ctime_ns, file.read()))
                if len(rows) == GROUP_ROWS:
                    count += _written(writer, rows)
                    rows = []
        count += _written(writer, rows)
    with to.open("rb") as file:
        os.fsync(file.fileno())
    return count


def _written(writer: pq.ParquetWriter, rows: list[tuple[str, int, bytes]]) -> int:
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        writer.write_table(pa.table(columns, schema=SCHEMA))
    return len(rows)


if __name__ == "__main__":
    main()
