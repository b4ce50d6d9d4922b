"""`python -m deploy.bench.spark_audit`: what holding a root of millions of names against the format
takes, of Spark on two cores.

The names are real: empty files with mq's mtimes and modes, in folders as mq lays them; eight in ten
are ready, one delayed, one removed. Each row is a whole audit in a session that is warm: the
folders found, every name listed and parsed, every file's status asked for, all names compared for
one message in two places, and what Spark takes to begin and end its steps. Beside it the same by
listings alone (`--by-name`), and `find -printf`, which asks the same of the disk and decides
nothing. Run it in a session of its own (`setsid`), whose processes' time is what a name costs.
"""

import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from pyspark.sql import SparkSession

from deploy.bench.backlog import Backlog
from deploy.bench.load import BenchError
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.spark_read import cpu_s, quiet_session
from deploy.bench.table import Figures, drawn
from mq.model.clock import SystemClock
from mq.model.names import QueueName
from mq.spark.jobs.audit import audit
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import entry_prefix
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue

FIND: Final = ("find", ".", "-printf", "%p %s %m %T@ %n\\n")
QUEUE: Final = QueueName("orders")
PER_S: Final = 2000
# Of ten names.
_DELAYED, _REMOVED, _OF = 8, 9, 10
_LATER_NS: Final = 86_400 * 10**9
_RANGE: Final = 20_000
_WARM: Final = 2


@click.command("python -m deploy.bench.spark_audit", context_settings={"show_default": True})
@on_place
@click.option("--names", type=click.IntRange(10), multiple=True, default=(2_000_000,))
@click.option("--cores", type=click.IntRange(1), default=2)
@rounds_flag(3)
def main(place: Place, names: tuple[int, ...], cores: int, rounds: int) -> None:
    """Measures names a second of `mqctl pipeline audit` on roots of these sizes."""
    click.echo(place.heading("empty files\n"))
    spark = quiet_session(cores)
    try:
        for count in names:
            top = place.path / f"audit-{count}"
            fill(top, count)
            click.echo(_measured(spark, top, count, rounds))
    finally:
        spark.stop()


def _measured(spark: SparkSession, top: Path, count: int, rounds: int) -> str:
    def audited(*, is_by_name: bool) -> None:
        found = audit(spark, top, is_by_name=is_by_name, again_after_s=0)
        if not found.is_clean or sum(found.amounts.messages.values()) != count:
            raise BenchError(f"{found.kinds} in {found.amounts.messages}")

    measured: dict[str, Callable[[], None]] = {
        "find -printf": lambda: _find(top),
        "audit": lambda: audited(is_by_name=False),
        "audit --by-name": lambda: audited(is_by_name=True),
    }
    for _ in range(_WARM):
        audited(is_by_name=False)
    rates, used, memory = Figures(), Figures(), 0
    for number in range(1, rounds + 1):
        click.echo(f"round {number}", err=True)
        for what, run in measured.items():
            began_s, before_s = time.perf_counter(), cpu_s()
            run()
            rates.add({what: count / (time.perf_counter() - began_s)})
            used.add({what: 1e6 * (cpu_s() - before_s) / count})
        memory = max(memory, *_workers_kib())
    rows = [("what", "names/s", "CPU us a name")]
    rows += [(what, rates.spread(what), f"{used.median(what):.1f}") for what in measured]
    told = f"driver {_peak_kib(os.getpid()) >> 10} MiB, each worker at most {memory >> 10} MiB"
    return f"{count:,} names; median (min-max) of {rounds} rounds; {told}\n\n{drawn(rows)}\n"


def _find(top: Path) -> None:
    subprocess.run(FIND, cwd=top, stdout=subprocess.DEVNULL, check=True)


def _workers_kib() -> list[int]:
    """The peak memory of Python's workers, by the session that the bench runs in."""
    found = [0]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in command and os.getsid(int(entry.name)) == os.getsid(0):
            found.append(_peak_kib(int(entry.name)))
    return found


def _peak_kib(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def fill(top: Path, count: int) -> None:
    """A root of this many messages, as mq lays them."""
    opened = open_root(str(top), Files(), SystemClock())
    run_alone(create_queue(opened, QUEUE), NoFlusher())
    backlog = Backlog.until_now(count, PER_S)
    layout = opened.layout
    tops = (layout.queue(QUEUE), layout.delay, layout.remove)
    tasks = [(tops, backlog, range(at, min(at + _RANGE, count))) for at in range(0, count, _RANGE)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for _ in pool.imap_unordered(_write, tasks):
            pass


def _write(task: tuple[tuple[str, str, str], Backlog, range]) -> None:
    (ready, delay, remove), backlog, numbers = task
    made: set[str] = set()
    for number in numbers:
        name, folder = backlog.id(number), backlog.folder(number)
        mtime_ns = backlog.published_ms(number) * 1_000_000
        top, entry = ready, name
        if number % _OF >= _DELAYED:
            top = delay if number % _OF < _REMOVED else remove
            entry = entry_prefix(QUEUE) + name
            mtime_ns += _LATER_NS if top == delay else 0
        path = f"{top}/{folder}" if folder else top
        if path not in made:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            os.makedirs(path, 0o700, exist_ok=True)
            made.add(path)
        os.mknod(f"{path}/{entry}", 0o100600)
        os.utime(f"{path}/{entry}", ns=(mtime_ns, mtime_ns))


if __name__ == "__main__":
    main()
