"""`python -m deploy.bench`: mq against the bare loop and against aiohttp, in the same run.

Rounds are interleaved: each measures everything once, so that what else the machine does hits
all of it alike; medians are reported. Everything written is removed at the end.
"""

from collections.abc import Callable
from pathlib import Path

import click

from deploy.bench.ceiling import BareLoop, Commit, bare_loops
from deploy.bench.counting import CountingLoad, FlushCounts
from deploy.bench.http import (
    EMPTY_POST,
    Load,
    measure_cycle,
    measure_empty_post,
    measure_operations,
)
from deploy.bench.load import BODY_BYTES, CONNECTIONS, compiled
from deploy.bench.machine import heading
from deploy.bench.places import Place, chosen, place_flags
from deploy.bench.running import commit_flag, rounds_flag, running, seconds_flag
from deploy.bench.table import Figures, Measured


@click.command("python -m deploy.bench", context_settings={"show_default": True})
@place_flags
@seconds_flag(3)
@rounds_flag(3)
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
@commit_flag
def main(
    root: Path | None,
    where: str | None,
    seconds: int,
    rounds: int,
    connections: int,
    commit: Commit | None,
) -> None:
    """Measures messages a second: the bare loop, aiohttp's empty POST, and mq over HTTP.

    With --slow also how often the device is flushed for each message.
    """
    with running():
        compiled()
        with chosen(root, where) as place:
            mode = place.commit(commit)
            said = f"{connections} connections, bodies of {BODY_BYTES} bytes"
            click.echo(heading(place.path, mode, place.about, said))
            click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each\n")
            loops = bare_loops(mode)
            load = Load(connections, seconds, mode, not place.in_memory)
            counts = None if place.flushes is None else FlushCounts(place.flushes)
            if counts is not None:
                load = CountingLoad(connections, seconds, mode, counts=counts)
            figures = _measure(place, load, rounds, loops, counts)
        click.echo(figures.table([loop.name for loop in loops], EMPTY_POST))
        if counts is not None:
            click.echo(f"\n{counts.table()}")


def _measure(
    place: Place, load: Load, rounds: int, loops: list[BareLoop], counts: FlushCounts | None
) -> Figures:
    steps: list[Callable[[Path], Measured]] = [
        *(_bare(loop, load.seconds, counts) for loop in loops),
        lambda made: measure_empty_post(load),
        lambda made: measure_operations(load, made),
        lambda made: measure_cycle(load, made),
    ]
    figures = Figures()
    for number in range(1, rounds + 1):
        for turn, step in enumerate(steps):
            made = place.path / f"{number}-{turn}"
            measured = step(made)
            place.clear(made)
            figures.add(measured)
            for what in measured:
                click.echo(f"round {number}: {what}: {figures.last_rate(what):,.0f}/s", err=True)
    return figures


def _bare(loop: BareLoop, seconds: float, counts: FlushCounts | None) -> Callable[[Path], Measured]:
    if counts is None:
        return lambda made: {loop.name: loop.measure(made, seconds)}
    return lambda made: {loop.name: counts.loop(loop, made, seconds)}


if __name__ == "__main__":
    main()
