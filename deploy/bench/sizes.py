"""`python -m deploy.bench.sizes`: what a backlog costs, from a thousand messages to ten million.

Queues of each size are written straight to disk, each in a root of its own, all on one ext4. A
round takes one size after the other: it starts mq and waits for the first fetch, publishes, fetches
and deletes by id in bursts that leave the queue as large as it was, looks at mq's memory, deletes
the queue, and puts its folder back. The aim is within 1.3 times of the smallest.
"""

import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click

from deploy.bench.backlog import SHARD_FILES, Backlog, write_backlog
from deploy.bench.ceiling import Commit
from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, Run, compiled, load
from deploy.bench.machine import resident_mib
from deploy.bench.places import (
    Ext4,
    Place,
    commit_flag,
    loop_ext4,
    rounds_flag,
    running,
    seconds_flag,
)
from deploy.bench.servers import MESSAGES, QUEUE, make_queue
from deploy.bench.table import Comparison, interleaved
from tests.harness.processes import Process, processes

SIZES: Final = (1_000, 100_000, 1_000_000)
LARGEST: Final = 10_000_000

PER_S: Final = 200
_WRITERS: Final = 2
_BURST: Final = 512
_IDS_MAX: Final = 20_000
_SPARE_FILES: Final = 500_000
_IMAGE_BYTES_A_FILE: Final = 1200
# The body lies in its inode: ten million messages are 5 GB, not 40.
_MADE_WITH: Final = (
    "-I", "512", "-O", "inline_data", "-E", "lazy_itable_init=1,lazy_journal_init=0"
)  # fmt: skip


@click.command("python -m deploy.bench.sizes", context_settings={"show_default": True})
@click.option("--size", "sizes", type=int, multiple=True, default=SIZES, help="Messages ready.")
@click.option("--largest", is_flag=True, help=f"Also {LARGEST:,}: 10 minutes and 8 GB more.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
@seconds_flag(5)
@rounds_flag(3)
@commit_flag
def main(
    sizes: tuple[int, ...],
    largest: bool,
    connections: int,
    seconds: int,
    rounds: int,
    commit: Commit | None,
) -> None:
    """Measures start-up, publish, fetch, delete, memory and the queue's deletion by size."""
    sizes = tuple(sorted({*sizes, *((LARGEST,) if largest else ())}))
    with running():
        compiled()
        with loop_ext4(ext4_for(sizes)) as made:
            place = made.committing(commit)
            said = f"{connections} connections, bodies of {BODY_BYTES} bytes, in their inodes"
            click.echo(place.heading(said))
            click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each;")
            click.echo(f"the backlog was published at {PER_S} a second\n")
            filled = [fill(place, size) for size in sizes]
            comparison = Comparison("ready messages")
            for number, root in interleaved(rounds, filled):
                _measure(place, root, connections, seconds, comparison)
                click.echo(f"round {number}: {root.column} done", err=True)
    click.echo(comparison.table())


@dataclass(frozen=True, slots=True)
class Filled:
    """A root with a queue of this many messages; `ids` of some or all of them, oldest first."""

    path: Path
    size: int
    ids: dict[str, None]

    @property
    def column(self) -> str:
        """What the table calls it."""
        return f"{self.size:,}"


def ext4_for(sizes: Sequence[int]) -> Ext4:
    """An ext4 for queues of these sizes."""
    files = sum(sizes) + _SPARE_FILES
    return Ext4(files * _IMAGE_BYTES_A_FILE, files, _MADE_WITH, ("noinit_itable",))


def fill(place: Place, size: int, block: bytes = b"") -> Filled:
    """A root with a queue of this many messages, published at that rate until now."""
    backlog = Backlog.until_now(size, PER_S, SHARD_FILES, block)
    path = place.path / str(size)
    with processes() as started:
        server = started.mq(path)
        make_queue(server)
        server.terminate()
    began = time.monotonic()
    write_backlog(path / "queues" / QUEUE, backlog, _WRITERS)
    click.echo(f"{size:,} written in {time.monotonic() - began:.0f} s", err=True)
    return Filled(path, size, dict.fromkeys(backlog.ids(_IDS_MAX)))


def _measure(
    place: Place, filled: Filled, connections: int, seconds: float, comparison: Comparison
) -> None:
    column = filled.column
    with processes() as started:
        began = time.perf_counter()
        server = started.mq(filled.path, *place.flags)
        with Connection(server.port) as client:
            first = client.ask(request("GET", MESSAGES), 200).id
            start_ms = 1000 * (time.perf_counter() - began)
            filled.ids.pop(first, None)
            comparison.add("start to first fetch, ms", column, start_ms)
            client.ask(request("DELETE", f"{MESSAGES}/{first}"), 202)
            _bursts(filled, server, connections, seconds).compare(comparison, column)
            now_mib, most_mib = resident_mib(server.popen.pid)
            comparison.add("resident memory, MiB", column, now_mib, ",.1f")
            comparison.add("at most, MiB", column, most_mib, ",.1f")
            began = time.perf_counter()
            client.ask(request("DELETE", f"/{QUEUE}"), 200)
            deleted_ms = 1000 * (time.perf_counter() - began)
            comparison.add("DELETE of the queue, ms", column, deleted_ms, ",.2f")
        server.terminate()
    _bring_back(filled.path)


@dataclass(slots=True)
class _Bursts:
    """The runs of one round, by what they did."""

    runs: dict[str, list[Run]]

    def compare(self, comparison: Comparison, column: str) -> None:
        """Each one's rate, and the medians of the bursts' percentiles."""
        for what, runs in self.runs.items():
            rate = sum(run.messages for run in runs) / sum(run.seconds for run in runs)
            p50_ms = median(run.whole.p50_us for run in runs) / 1000
            p99_ms = median(run.whole.p99_us for run in runs) / 1000
            comparison.add(f"{what}, a second", column, rate, rate=True)
            comparison.add(f"{what}, p50 ms", column, p50_ms, ",.2f")
            comparison.add(f"{what}, p99 ms", column, p99_ms, ",.2f")


def _bursts(filled: Filled, server: Process, connections: int, seconds: float) -> _Bursts:
    """Publishes _BURST, fetches and deletes half as many, and deletes as many of those ready, in
    turn. What is deleted ready is of the newer half: fetching takes the oldest.
    """
    url, names = f"{server.url}{MESSAGES}", filled.path.with_suffix(".ids")
    bursts = _Bursts({"publish": [], "fetch": [], "delete fetched": [], "delete ready": []})
    chance = random.Random(filled.size)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        bursts.runs["publish"].append(
            load("publish", url, connections=connections, messages=_BURST, ids_out=names)
        )
        filled.ids.update(dict.fromkeys(names.read_text().split()))
        bursts.runs["fetch"].append(
            load("fetch", url, connections=connections, messages=_BURST // 2, ids_out=names)
        )
        for fetched in names.read_text().split():
            filled.ids.pop(fetched, None)
        bursts.runs["delete fetched"].append(
            load("delete", url, connections=connections, ids=names)
        )
        newer = list(filled.ids)[len(filled.ids) // 2 :]
        gone = chance.sample(newer, _BURST // 2)
        names.write_text("".join(f"{name}\n" for name in gone))
        bursts.runs["delete ready"].append(load("delete", url, connections=connections, ids=names))
        for name in gone:
            del filled.ids[name]
    return bursts


def _bring_back(root: Path) -> None:
    """Undoes a queue's deletion while no daemon uses the root: the folder, and its tombstone."""
    folders = [path for path in (root / "remove").iterdir() if path.name.endswith(".d")]
    if len(folders) != 1:
        raise BenchError(f"of one deleted queue there are {len(folders)} folders")
    folders[0].rename(root / "queues" / QUEUE)
    with contextlib.suppress(FileNotFoundError):
        (root / "deleted" / QUEUE).unlink()


if __name__ == "__main__":
    main()
