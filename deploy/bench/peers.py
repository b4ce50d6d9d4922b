"""`python -m deploy.bench.peers`: several mq processes that fetch from one queue.

For each number of processes, `--peers` 0 and as many as there are others, and queues of one and
of several shards: the same messages are published, then fetched by all processes at once until
none is left, then published, fetched and deleted one by one for a while. Each process has a port
of its own; the connections are spread evenly. The races lost are what the processes say.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, CONNECTIONS, Run, compiled, load
from deploy.bench.places import Place, on_place, rounds_flag, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE, make_queue
from deploy.bench.table import drawn, spread
from tests.harness.processes import Process, processes

PROCESSES: Final = (1, 2, 4)
SHARDS: Final = (1, 8)

_HEADINGS: Final = (
    "processes, peers, shards", "fetches/s", "p50 ms", "p99 ms", "lost races a fetch",
    "cycles/s", "lost races a fetch",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run."""

    processes: int
    peers: int
    shards: int

    def __str__(self) -> str:
        return f"{self.processes}, {self.peers}, {self.shards}"


@dataclass(frozen=True, slots=True)
class Measured:
    """One round of a setting; losses are lost races a fetch."""

    fetch: Run
    fetch_losses: float
    cycle: Run
    cycle_losses: float


@click.command("python -m deploy.bench.peers", context_settings={"show_default": True})
@on_place
@click.option("--messages", type=int, default=20_000, help="Published, then fetched by all.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
@click.option("--processes", "numbers", type=int, multiple=True, default=PROCESSES)
@click.option("--shards", "shards", type=int, multiple=True, default=SHARDS)
@seconds_flag(3)
@rounds_flag(3)
def main(
    place: Place,
    messages: int,
    connections: int,
    numbers: tuple[int, ...],
    shards: tuple[int, ...],
    seconds: int,
    rounds: int,
) -> None:
    """Measures fetches by several processes, and the races that they lose to each other."""
    settings = [
        Setting(number, peers, each)
        for number in numbers
        for peers in sorted({0, number - 1})
        for each in shards
    ]
    found: dict[Setting, list[Measured]] = {setting: [] for setting in settings}
    compiled()
    click.echo(place.heading(f"{connections} connections, bodies of {BODY_BYTES} bytes"))
    click.echo(f"median (min-max) of {rounds} interleaved rounds; {messages:,} messages,")
    click.echo(f"cycles for {seconds} s\n")
    for number in range(1, rounds + 1):
        for setting, measured in found.items():
            made = place.path / f"{number}-{setting}".replace(", ", "-")
            with _peers(made, setting, place.flags) as servers:
                measured.append(_measure(servers, messages, connections, seconds))
            place.clear(made)
            click.echo(f"round {number}: {setting} done", err=True)
    click.echo(_table(found))


@contextlib.contextmanager
def _peers(root: Path, setting: Setting, flags: tuple[str, ...]) -> Iterator[list[Process]]:
    """The processes, and the queue made."""
    with processes() as started:
        told = (*flags, "--peers", str(setting.peers))
        servers = [
            started.mq(root, *told, "--peer-index", str(index))
            for index in range(setting.processes)
        ]
        several = f"bucket=8&shards={setting.shards}" if setting.shards > 1 else ""
        make_queue(servers[0], settings=several)
        yield servers
        for server in servers:
            server.terminate()


def _measure(
    servers: Sequence[Process], messages: int, connections: int, seconds: float
) -> Measured:
    urls = [f"{server.url}{MESSAGES}" for server in servers]
    load("publish", *urls, connections=connections, messages=messages)
    before = _totals(servers)
    fetch = load("fetch", *urls, connections=connections)
    between = _totals(servers)
    cycle = load("cycle", *urls, connections=connections, seconds=seconds)
    return Measured(fetch, _losses(before, between), cycle, _losses(between, _totals(servers)))


def _totals(servers: Sequence[Process]) -> tuple[int, int]:
    """Messages fetched and races lost so far, by all of them."""
    fetched = lost = 0
    for server in servers:
        with Connection(server.port) as connection:
            said = json.loads(connection.ask(request("GET", f"/{QUEUE}"), 200).body)["totals"]
        fetched, lost = fetched + said["fetched"], lost + said["lost_races"]
    return fetched, lost


def _losses(before: tuple[int, int], after: tuple[int, int]) -> float:
    fetched, lost = (now - then for now, then in zip(after, before, strict=True))
    return lost / fetched


def _table(found: dict[Setting, list[Measured]]) -> str:
    rows: list[Sequence[str]] = [_HEADINGS]
    for setting, rounds in found.items():
        rows.append(
            (
                str(setting),
                spread([each.fetch.rate for each in rounds]),
                spread([each.fetch.whole.p50_us / 1000 for each in rounds], ",.1f"),
                spread([each.fetch.whole.p99_us / 1000 for each in rounds], ",.1f"),
                spread([each.fetch_losses for each in rounds], ".3f"),
                spread([each.cycle.rate for each in rounds]),
                spread([each.cycle_losses for each in rounds], ".3f"),
            )
        )
    return drawn(rows)


if __name__ == "__main__":
    main()
