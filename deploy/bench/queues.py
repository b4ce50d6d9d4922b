"""`python -m deploy.bench.queues`: what ten thousand queues in a root cost users of one of them.

Two roots on one ext4, with one queue and with many, each with one message. A round takes one after
the other: it starts mq and mq-mover and waits for the first fetch, lets both be idle for a while
and reads the CPU that they used, then publishes, fetches and deletes on one queue.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click

from deploy.bench.backlog import Backlog, write_backlog
from deploy.bench.ceiling import Commit
from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, CONNECTIONS, compiled, load
from deploy.bench.machine import cpu_s, resident_mib
from deploy.bench.places import Place, commit_flag, loop_ext4, rounds_flag, running, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE, make_queue
from deploy.bench.table import Comparison, interleaved
from tests.harness.processes import processes

MANY: Final = 10_000


@click.command("python -m deploy.bench.queues", context_settings={"show_default": True})
@click.option("--queues", "many", type=click.IntRange(2), default=MANY, help="Of the second root.")
@click.option("--idle", "idle_s", type=click.IntRange(1), default=10, help="Seconds.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
@seconds_flag(3)
@rounds_flag(3)
@commit_flag
def main(
    many: int, idle_s: int, connections: int, seconds: int, rounds: int, commit: Commit | None
) -> None:
    """Measures start-up, idle CPU, memory, publish, fetch and delete by the number of queues."""
    comparison = Comparison("queues in the root")
    with running():
        compiled()
        with loop_ext4() as made:
            place = made.committing(commit)
            click.echo(place.heading(f"{connections} connections, bodies of {BODY_BYTES} bytes"))
            click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each,")
            click.echo(f"idle for {idle_s} s\n")
            roots = {f"{number:,}": _made(place.path / str(number), number) for number in (1, many)}
            for turn, (column, root) in interleaved(rounds, list(roots.items())):
                add = partial(comparison.add, column=column)
                _measure(place, root, connections, (seconds, idle_s), add)
                click.echo(f"round {turn}: {column} done", err=True)
    click.echo(comparison.table())


def _made(root: Path, number: int) -> Path:
    """A root with this many queues: QUEUE, and others beside it."""
    with processes() as started:
        server = started.mq(root)
        make_queue(server)
        server.terminate()
    one = Backlog.until_now(1, 1)
    for name in (QUEUE, *(f"queue-{other:05}" for other in range(1, number))):
        folder = root / "queues" / name
        folder.mkdir(0o700, exist_ok=True)
        write_backlog(folder, one, 1, flushed=False)
    os.sync()
    return root


def _measure(
    place: Place,
    root: Path,
    connections: int,
    rhythm: tuple[float, float],
    add: Callable[..., None],
) -> None:
    """`rhythm`: the seconds of each load, and of being idle."""
    seconds, idle_s = rhythm
    with processes() as started:
        began = time.perf_counter()
        server = started.mq(root, *place.flags)
        with Connection(server.port) as client:
            first = client.ask(request("GET", MESSAGES), 200).id
            start_ms = 1000 * (time.perf_counter() - began)
            # One stays for the next round's first fetch.
            client.ask(request("POST", MESSAGES, b"x" * BODY_BYTES), 201)
            client.ask(request("DELETE", f"{MESSAGES}/{first}"), 202)
        add("start to first fetch, ms", value=start_ms)
        mover = started.mover("--root", str(root))
        watched = {"mq": server.popen.pid, "mq-mover": mover.popen.pid}
        before = {daemon: cpu_s(pid) for daemon, pid in watched.items()}
        time.sleep(idle_s)
        for daemon, pid in watched.items():
            share = 100 * (cpu_s(pid) - before[daemon]) / idle_s
            add(f"{daemon}, idle, % of a core", value=share, form=",.2f")
        url, names = f"{server.url}{MESSAGES}", root.with_suffix(".ids")
        publish = load("publish", url, connections=connections, seconds=seconds)
        # All but one of them: another stays.
        fetch = load(
            "fetch", url, connections=connections, messages=publish.messages, ids_out=names
        )
        delete = load("delete", url, connections=connections, ids=names)
        for what, run in {"publish": publish, "fetch": fetch, "delete": delete}.items():
            add(f"{what}, a second", value=run.rate, rate=True)
            add(f"{what}, p99 ms", value=run.whole.p99_us / 1000, form=",.1f")
        for daemon, pid in watched.items():
            add(f"{daemon}, at most, MiB", value=resident_mib(pid)[1], form=",.1f")
        mover.terminate()
        server.terminate()


if __name__ == "__main__":
    main()
