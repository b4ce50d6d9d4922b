"""`python -m deploy.bench.history`: what a queue's history costs a publish, and a whole life,
with the setting off and on.

Beside messages a second, the server's own time on the CPU for each message, which other programs of
the machine disturb less. The lines, and those said to be dropped, are counted against the answers.
"""

import json
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import click

from deploy.bench.ceiling import Commit
from deploy.bench.load import CONNECTIONS, BenchError, Mode, compiled, load
from deploy.bench.machine import heading
from deploy.bench.places import Place, chosen, place_flags
from deploy.bench.running import commit_flag, rounds_flag, running, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE, commit_flags, make_queue
from deploy.bench.table import Figures, drawn
from tests.harness.processes import Process, processes

EVENTS: Final[dict[Mode, int]] = {"publish": 1, "cycle": 3}
"""How many lines a message has in the end."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Found:
    figures: Figures = field(default_factory=Figures)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


@click.command("python -m deploy.bench.history", context_settings={"show_default": True})
@place_flags
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS)
@seconds_flag(3)
@rounds_flag(5)
@commit_flag
def main(
    root: Path | None,
    where: str | None,
    connections: int,
    seconds: int,
    rounds: int,
    commit: Commit | None,
) -> None:
    """Measures messages a second, and microseconds of the server's CPU for each."""
    found = _Found()
    with running():
        compiled()
        with chosen(root, where) as place:
            used = place.commit(commit)
            click.echo(heading(place.path, used, place.about, f"{connections} connections"))
            click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each\n")
            for number in range(1, rounds + 1):
                steps: list[Callable[[Path], None]] = [
                    partial(_measure, found, place, used, mode, is_on, connections, seconds)
                    for mode in EVENTS
                    for is_on in (False, True)
                ]
                # To and fro, so that none is always the last.
                for step in steps if number % 2 else steps[::-1]:
                    made = place.path / f"{number}"
                    step(made)
                    place.clear(made)
    click.echo(_table(found))


def _measure(
    found: _Found,
    place: Place,
    commit: Commit,
    mode: Mode,
    is_on: bool,
    connections: int,
    seconds: int,
    made: Path,
) -> None:
    what = _name(mode, is_on)
    with processes() as started:
        server = started.mq(made, *commit_flags(commit, place.in_memory))
        make_queue(server)
        if is_on:
            _turn_on(server)
        before_s = _cpu_s(server)
        run = load(mode, f"{server.url}{MESSAGES}", connections=connections, seconds=seconds)
        cpu_s = _cpu_s(server) - before_s
        server.terminate()
    found.figures.add({what: run})
    found.cpu_us.setdefault(what, []).append(cpu_s / run.messages * 1e6)
    if is_on:
        dropped = _check(made, EVENTS[mode] * run.messages)
        found.dropped[what] = found.dropped.get(what, 0) + dropped
    click.echo(f"{what}: {found.figures.last_rate(what):,.0f}/s", err=True)


def _turn_on(server: Process) -> None:
    request = urllib.request.Request(
        f"{server.url}/{QUEUE}/settings",
        data=json.dumps({"history": True}).encode(),
        method="PATCH",
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def _cpu_s(server: Process) -> float:
    """The time that the server, of one process, has spent on the CPU; the kernel's for it too."""
    fields = Path(f"/proc/{server.popen.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _check(made: Path, events: int) -> int:
    """How many lines were dropped. Raises BenchError when others lack."""
    lines = dropped = 0
    for path in (made / "history" / QUEUE).glob("*/*"):
        for line in path.read_bytes().splitlines():
            told = json.loads(line)
            lines += "id" in told
            dropped += told.get("count", 0)
    if lines + dropped < events:
        raise BenchError(f"of {events} events {lines} have lines and {dropped} were dropped")
    return dropped


def _name(mode: Mode, is_on: bool) -> str:
    done = "publish" if mode == "publish" else "publish + fetch + delete"
    return f"{done}, history {'on' if is_on else 'off'}"


def _table(found: _Found) -> str:
    rows = [("what", "messages/s", "to off", "CPU us a message", "to off", "dropped")]
    for mode in EVENTS:
        off = _name(mode, False)
        for what in (off, _name(mode, True)):
            rate = found.figures.median(what) / found.figures.median(off)
            cpu_us = median(found.cpu_us[what])
            cpu = cpu_us / median(found.cpu_us[off])
            spread = found.figures.spread(what)
            dropped = f"{found.dropped.get(what, 0):,}"
            rows.append((what, spread, f"{rate:.2f}", f"{cpu_us:.0f}", f"{cpu:.2f}", dropped))
    return drawn(rows)


if __name__ == "__main__":
    main()
