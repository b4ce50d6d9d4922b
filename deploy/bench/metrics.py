"""`python -m deploy.bench.metrics`: what measuring costs a message's whole life, and what a scrape
costs.

Rounds of `mq --no-timings` and of mq as it is are interleaved. Beside messages a second, the
server's own time on the CPU for each message, which other programs of the machine disturb less.
Then how long scrapes take of a root with many queues, one after the other.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import click

from deploy.bench.ceiling import Commit
from deploy.bench.connection import Connection, request
from deploy.bench.load import CONNECTIONS, compiled, load
from deploy.bench.machine import heading
from deploy.bench.places import Place, chosen, place_flags
from deploy.bench.running import commit_flag, rounds_flag, running, seconds_flag
from deploy.bench.servers import MESSAGES, commit_flags, make_queue
from deploy.bench.table import drawn
from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.store.disk.files import Files
from mq.store.format.layout import Layout
from tests.harness.processes import Process, processes

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_WAYS: Final[dict[str, tuple[str, ...]]] = {"without": ("--no-timings",), "with": ()}
_SCRAPES: Final = 20


@dataclass(slots=True)
class _Found:
    cycles: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)


@click.command("python -m deploy.bench.metrics", context_settings={"show_default": True})
@place_flags
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS)
@click.option("--queues", type=click.IntRange(1), default=10_000, help="Of the scraped root.")
@seconds_flag(3)
@rounds_flag(5)
@commit_flag
def main(
    root: Path | None,
    where: str | None,
    connections: int,
    queues: int,
    seconds: int,
    rounds: int,
    commit: Commit | None,
) -> None:
    """Measures publish, fetch and delete with and without timings, and scrapes."""
    found = _Found()
    with running():
        compiled()
        with chosen(root, where) as place:
            used = place.commit(commit)
            click.echo(heading(place.path, used, place.about, f"{connections} connections"))
            click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each\n")
            flags = commit_flags(used, place.in_memory)
            for number in range(1, rounds + 1):
                # To and fro, so that none is always the last.
                for way in list(_WAYS) if number % 2 else list(_WAYS)[::-1]:
                    made = place.path / f"{number}"
                    _measure(found, made, way, flags, connections, seconds)
                    place.clear(made)
            click.echo(_table(found))
            click.echo(_scrapes(place, flags, queues))


def _measure(
    found: _Found, root: Path, way: str, flags: tuple[str, ...], connections: int, seconds: int
) -> None:
    with processes() as started:
        server = started.mq(root, *flags, *_WAYS[way])
        make_queue(server)
        before_s = _cpu_s(server)
        run = load("cycle", f"{server.url}{MESSAGES}", connections=connections, seconds=seconds)
        cpu_s = _cpu_s(server) - before_s
        found.cycles.setdefault(way, []).append(run.messages / run.seconds)
        found.cpu_us.setdefault(way, []).append(cpu_s / run.messages * 1e6)
        server.terminate()


def _cpu_s(server: Process) -> float:
    told = Path(f"/proc/{server.popen.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / _TICKS_PER_S


def _table(found: _Found) -> str:
    without, with_ = ("without", "with")
    ratios = [b / a for a, b in zip(found.cycles[without], found.cycles[with_], strict=True)]
    costs = [b / a for a, b in zip(found.cpu_us[without], found.cpu_us[with_], strict=True)]
    rows = [(way, _spread(found.cycles[way], 0), _spread(found.cpu_us[way], 1)) for way in _WAYS]
    rows.append(("with / without", _spread(ratios, 3), _spread(costs, 3)))
    return drawn([("timings", "cycles/s", "CPU us a message"), *rows])


def _spread(values: list[float], digits: int) -> str:
    low, high = min(values), max(values)
    return f"{median(values):,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def _scrapes(place: Place, flags: tuple[str, ...], queues: int) -> str:
    """How long each of some scrapes takes."""
    root = place.path / "scraped"
    taken: list[float] = []
    with processes() as started:
        server = started.mq(root, *flags)
        layout, files = Layout.of(root), Files()
        for number in range(queues):
            files.mkdir(layout.base(State.READY, QueueName(f"q{number:06}")))
        with Connection(server.port) as connection:
            for _ in range(_SCRAPES):
                began_s = time.monotonic()
                page = connection.ask(request("GET", "/-/metrics"), 200).body
                taken.append((time.monotonic() - began_s) * 1000)
        server.terminate()
    place.clear(root)
    return f"\na scrape of {queues:,} queues: {len(page) / 1024:.0f} KiB in {_spread(taken, 0)} ms"


if __name__ == "__main__":
    main()
