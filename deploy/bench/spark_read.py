"""`python -m deploy.bench.spark_read`: a queue read by Spark, beside a plain loop and Spark's own.

One queue of messages of 300 bytes, in buckets as mq lays them. Each row reads every body and sums
the lengths: a plain Python loop over the files; `format("mq")` on two cores and on one; Spark's
`binaryFile` and `text`. Run it in a session of its own (`setsid`), whose processes' time is what a
message costs. With `--names` instead: what listing this many names takes of the planner's memory,
which is the driver's; the files are empty then.
"""

import json
import os
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import click
from pyspark.sql import SparkSession

import mq.spark
from deploy.bench.backlog import Backlog, write_backlog
from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.table import Figures, drawn
from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.limits import FOLDER_FILES_MAX
from mq.model.names import QueueName
from mq.spark.listing import blocks_of
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, partitions
from mq.store.disk.files import Files
from mq.store.opening import attach_root, open_root

_Rates: TypeAlias = tuple[float, float]
"""Messages a second, and microseconds of a core for each."""

# Of /proc/*/stat, behind the command's name.
_SESSION: Final = 3
_TIMES: Final = slice(11, 15)

QUEUE: Final = QueueName("bench")
PER_S: Final = 2000
PLAIN: Final = "plain Python loop"
READ: Final = "mq, local[2]"
ROWS: Final = {
    READ: (2, {}),
    "mq, local[2], includeValue=false": (2, {"includeValue": "false"}),
    "mq, local[2], readThreads=4": (2, {"readThreads": "4"}),
    "mq, local[1]": (1, {}),
}
OTHERS: Final = {
    "Spark's binaryFile, local[2]": ("binaryFile", "sum(length(content))"),
    "Spark's text, local[2]": ("text", "sum(length(value))"),
}


# Its processes are started then, and Java has compiled what it runs often.
WARM_READS = 5


@click.command("python -m deploy.bench.spark_read", context_settings={"show_default": True})
@on_place
@click.option("--messages", type=click.IntRange(1), default=200_000, help="In the queue.")
@click.option("--without-others", is_flag=True, help="Leave binaryFile and text out.")
@click.option("--cold", is_flag=True, help="Drop the page cache before each; as root.")
@click.option("--names", type=click.IntRange(1), multiple=True, help="Measure listing alone.")
@rounds_flag(3)
def main(
    place: Place,
    messages: int,
    without_others: bool,
    cold: bool,
    names: tuple[int, ...],
    rounds: int,
) -> None:
    """Measures messages a second of a batch read, or the memory that listing names takes."""
    click.echo(place.heading(f"bodies of {BODY_BYTES} bytes\n"))
    if names:
        click.echo(_listings(place.path, names))
        return
    top = place.path / "root"
    fill(top, messages)
    figures, used = Figures(), Figures()
    for number in range(1, rounds + 1):
        click.echo(f"round {number}", err=True)
        for what, (rate, cpu_us) in _round(top, messages, without_others, cold):
            figures.add({what: rate})
            used.add({what: cpu_us})
    click.echo(f"{messages:,} messages; median (min-max) of {rounds} interleaved rounds\n")
    click.echo(table(figures, used))


def quiet_session(cores: int) -> SparkSession:
    """A Spark session on `cores` cores of this machine, which prints errors alone."""
    session = mq.spark.session(
        "mq bench",
        master=f"local[{cores}]",
        **{
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def table(figures: Figures, used: Figures) -> str:
    """A row for each, in their order."""
    rows = [("what", "messages/s", "to the plain loop", "CPU us a message")]
    for what in figures.rounds:
        ratio = figures.median(what) / figures.median(PLAIN)
        rows.append((what, figures.spread(what), f"{ratio:.2f}", f"{used.median(what):.1f}"))
    return drawn(rows)


def cpu_s() -> float:
    """What all processes of the bench's session have used, those that ended among them: Java and
    Spark's workers too. Where others use the machine it tells more than the time does.
    """
    ticks = 0
    session = os.getsid(0)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended, and is its parent's now.
        if int(fields[_SESSION]) == session:
            ticks += sum(map(int, fields[_TIMES]))
    return ticks / os.sysconf("SC_CLK_TCK")


def fill(top: Path, messages: int) -> None:
    """A root whose one queue has this many ready messages, in buckets."""
    root = open_root(str(top), Files(), SystemClock())
    os.mkdir(root.layout.queue(QUEUE))
    write_backlog(Path(root.layout.queue(QUEUE)), Backlog.until_now(messages, PER_S), 1)


def _round(
    top: Path, messages: int, without_others: bool, cold: bool
) -> Iterator[tuple[str, _Rates]]:
    def rate(read: Callable[[], int]) -> _Rates:
        if cold:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
        begun, used_s = time.perf_counter(), cpu_s()
        read()
        took_s, used_s = time.perf_counter() - begun, cpu_s() - used_s
        return messages / took_s, 1e6 * used_s / messages

    yield PLAIN, rate(lambda: plain(top, messages))
    for cores in (2, 1):
        with SparkReads(cores, top, messages) as spark:
            for _ in range(WARM_READS):
                spark.read({})
            for what, (on, options) in ROWS.items():
                if on == cores:
                    yield what, rate(lambda options=options: spark.read(options))  # type: ignore[misc]
            for what, (form, summed) in OTHERS.items() if cores == 2 else ():
                if not without_others:
                    yield what, rate(lambda form=form, summed=summed: spark.other(form, summed))  # type: ignore[misc]


def plain(top: Path, messages: int) -> int:
    """What anybody would write: every file of the queue's folders, opened and read."""
    count = total = 0
    for folder, _, files in os.walk(top / "queues" / QUEUE.text):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                total += len(file.read())
            count += 1
    return _checked(count, total, messages)


def _checked(count: int, total: int, messages: int) -> int:
    if (count, total) not in ((messages, messages * BODY_BYTES), (messages, 0)):
        raise BenchError(f"{count} messages of {total} bytes in all were read")
    return count


class SparkReads:
    """A Spark session on `cores` cores, and its reads."""

    def __init__(self, cores: int, top: Path, messages: int) -> None:
        self._top, self._messages = top, messages
        self._session = quiet_session(cores)

    @property
    def session(self) -> SparkSession:
        """Spark's own."""
        return self._session

    def __enter__(self) -> "SparkReads":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()

    def read(self, options: dict[str, str]) -> int:
        """Every message through `format("mq")`."""
        reading = self._session.read.format("mq").option("path", str(self._top))
        frame = reading.option("subscribe", QUEUE.text).options(**options).load()
        (row,) = frame.selectExpr("count(id)", "sum(length(value))", "sum(size)").collect()
        return _checked(row[0], row[1] or 0, self._messages)

    def other(self, form: str, summed: str) -> int:
        """Every file through one of Spark's own."""
        reading = self._session.read.format(form).option("recursiveFileLookup", "true")
        frame = reading.load(str(self._top / "queues" / QUEUE.text))
        (row,) = frame.selectExpr("count(1)", summed).collect()
        return _checked(row[0], row[1] or 0, self._messages)


def _listings(where: Path, counts: tuple[int, ...]) -> str:
    rows = [("names", "planner's peak MB", "s", "partitions", "bytes of all partitions")]
    top = where / "root"
    root = open_root(str(top), Files(), SystemClock())
    queue = Path(root.layout.queue(QUEUE))
    os.mkdir(queue)
    backlog, made = Backlog.until_now(max(counts), PER_S), 0
    for count in sorted(counts):
        for number in range(made, count):
            folder = queue / backlog.folder(number)
            if number % FOLDER_FILES_MAX == 0 or not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
            os.close(os.open(f"{folder}/{backlog.id(number)}", os.O_CREAT | os.O_WRONLY, 0o600))
        made = count
        command = (sys.executable, "-m", "deploy.bench.spark_read", "--plan", str(top))
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peak_mb, took_s, parts, size = json.loads(done.stdout)
        click.echo(f"{count:,} names: {peak_mb:.0f} MB, {took_s:.1f} s", err=True)
        rows.append((f"{count:,}", f"{peak_mb:,.0f}", f"{took_s:.1f}", str(parts), f"{size:,}"))
    return drawn(rows)


def plan(top: str) -> tuple[float, float, int, int]:
    """Lists a root's queue as Spark's planner does: the process's peak in MB, seconds, how many
    partitions, and the bytes that they are when they are pickled.
    """
    begun = time.perf_counter()
    root = attach_root(top, Files(), SystemClock())
    found = partitions(root, blocks_of(root, Subscription((QUEUE,)), State.READY), Cut())
    size = sum(len(pickle.dumps(names)) for names in found)
    took_s = time.perf_counter() - begun
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_kb / 1024, took_s, len(found), size


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:  # One listing in a process of its own, for --names.
        print(json.dumps(plan(sys.argv[2])))
    else:
        main()
