"""`python -m tests.bench`: mq against the bare loop and against aiohttp, in the same run.

Rounds are interleaved: each measures everything once, so that what else the machine does hits
all of it alike; medians are reported. Everything written is removed at the end.
"""

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import click

from mq.store.mounts import file_system_of
from tests.bench.ceiling import BareLoop, Commit, bare_loops
from tests.bench.http import (
    EMPTY_POST,
    Load,
    measure_cycle,
    measure_empty_post,
    measure_operations,
)
from tests.bench.load import CONNECTIONS, BenchError, compiled
from tests.bench.machine import has_journal, heading
from tests.bench.places import clear, folder, loop_ext4, tmpfs
from tests.bench.table import Figures, Measured


@click.command("python -m tests.bench", context_settings={"show_default": True})
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder to make the bench's own in.  [default: where temporary files go]",
)
@click.option("--seconds", type=click.IntRange(1), default=3, help="Of each measurement.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Interleaved.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Kept open.")
@click.option(
    "--commit",
    type=click.Choice(get_args(Commit)),
    help="As mq's --commit; none: --durability=none.  [default: fsync; none with --tmpfs]",
)
@click.option("--tmpfs", "on_tmpfs", is_flag=True, help="On /dev/shm, with --durability=none.")
@click.option("--loop", "on_loop", is_flag=True, help="On an ext4 of its own; needs root.")
def main(
    root: Path | None,
    seconds: int,
    rounds: int,
    connections: int,
    commit: Commit | None,
    on_tmpfs: bool,
    on_loop: bool,
) -> None:
    """Measures messages a second: the bare loop, aiohttp's empty POST, and mq over HTTP."""
    if (root is not None) + on_tmpfs + on_loop > 1:
        raise click.UsageError("--root, --tmpfs and --loop exclude each other")
    if on_tmpfs and commit not in (None, "none"):
        raise click.UsageError("--tmpfs has nothing to flush to: it goes with --commit none only")
    commit = commit or ("none" if on_tmpfs else "fsync")
    signal.signal(signal.SIGTERM, _end)
    try:
        compiled()
        with _place(root, on_tmpfs, on_loop) as where:
            forced = not file_system_of(str(where)).in_memory
            load = Load(connections, seconds, commit, forced)
            click.echo(heading(where, commit, connections))
            click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each\n")
            loops = bare_loops(commit)
            figures = _measure(where, load, rounds, loops)
    except BenchError as error:
        raise click.ClickException(str(error)) from error
    click.echo(figures.table([loop.name for loop in loops], EMPTY_POST))


def _measure(where: Path, load: Load, rounds: int, loops: list[BareLoop]) -> Figures:
    steps: list[Callable[[Path], Measured]] = [
        *(_bare(loop, load.seconds) for loop in loops),
        lambda made: measure_empty_post(load),
        lambda made: measure_operations(load, made),
        lambda made: measure_cycle(load, made),
    ]
    figures = Figures()
    # Without a journal ext4 passes over every inode that was freed in the last minutes when it
    # makes a new one: removing one run's files would slow the next. They go at the end then.
    keeps = not has_journal(where)
    for number in range(1, rounds + 1):
        for place, step in enumerate(steps):
            made = where / f"{number}-{place}"
            measured = step(made)
            if not keeps:
                clear(made)
            figures.add(measured)
            for what in measured:
                click.echo(f"round {number}: {what}: {figures.last_rate(what):,.0f}/s", err=True)
    return figures


def _bare(loop: BareLoop, seconds: float) -> Callable[[Path], Measured]:
    return lambda made: {loop.name: loop.measure(made, seconds)}


def _place(
    root: Path | None, on_tmpfs: bool, on_loop: bool
) -> contextlib.AbstractContextManager[Path]:
    if on_loop:
        return loop_ext4()
    return tmpfs() if on_tmpfs else folder(root)


def _end(number: int, frame: object) -> None:
    """SIGTERM ends like Ctrl-C: what is mounted is unmounted, what was started is ended."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
