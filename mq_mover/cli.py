"""The command `mq-mover`: flags and environment, then passes until it is stopped."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from mq.clock import SystemClock
from mq.errors import AcrossFileSystems, StartupError
from mq.options import (
    begin_logs,
    context,
    fail,
    folder_max_option,
    root_option,
    upkeep_options,
)
from mq.store.files import Files
from mq.store.flush import FsyncFlusher
from mq.store.layout import Layout
from mq.store.mounts import ClockFollower, choose_flusher
from mq.store.redeliver import Timer
from mq.store.root import Root, open_root
from mq.store.sweep_bulk import BulkSweep
from mq.upkeep import Stop, make_passes
from mq_mover.lapses import LeaseMover
from mq_mover.mover import Mover
from mq_mover.scheduler import Scheduler
from mq_mover.sweeper import Sweeper

_log = logging.getLogger("mq-mover")

_THREADS: Final = 8


@click.command("mq-mover", context_settings=context("MQ_MOVER"))
@root_option(
    "Do all that time does in this root: redelivery, schedules, and sweeping what was forgotten."
)
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    default=None,
    show_envvar=True,
    help="Instead of a root: move what is due from this folder ({queue}:{id}) ...",
)
@click.option(
    "--destination",
    type=click.Path(path_type=Path),
    default=None,
    show_envvar=True,
    help="... to the queues' folders in this one ({queue}/{id}).",
)
@click.option(
    "--delay",
    type=click.FloatRange(0),
    default=0.0,
    show_envvar=True,
    help="0: a message leaves when its own due time (its mtime) has passed. N: when it has lain "
    "there for N seconds, whatever its due time.",
)
@folder_max_option
@upkeep_options
def main(
    root: Path,
    source: Path | None,
    destination: Path | None,
    delay: float,
    folder_max: int,
    exit_with_stdin: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Bring messages back to their queues when they are due, and publish those of schedules.

    Timers are the files' own mtimes: a restart loses none, and starts with what is there.
    """
    begin_logs(log_format, log_level)
    stop = Stop()
    stop.on_signals()
    if exit_with_stdin:
        stop.with_standard_input()
    try:
        if (source is None) != (destination is None):
            raise StartupError("--source and --destination go together")
        if source is None or destination is None:
            passes, due_in_s = _over_root(root, delay, folder_max)
        else:
            passes, due_in_s = _between(source, destination, delay, folder_max)
    except StartupError as error:
        raise fail("mq-mover", error) from error
    except OSError as error:
        raise fail("mq-mover", StartupError(f"cannot begin: {error}")) from error
    make_passes(passes, due_in_s, stop)
    _log.info("stopped")


def _over_root(
    path: Path, delay_s: float, folder_max: int
) -> tuple[Callable[[], int], Callable[[], float | None]]:
    files, clock = Files(), SystemClock()
    root = open_root(str(path), files, clock, folder_max=folder_max, kind="mq-mover")
    flusher = choose_flusher(root.layout.root, files, _THREADS)
    mover = Mover(root, flusher, _timer(delay_s))
    leases = LeaseMover(root, flusher)
    scheduler = Scheduler(root, flusher)
    sweeper = Sweeper(root, flusher, BulkSweep(root, flusher).begin)
    clock_follower = ClockFollower(root, clock)
    _log.info("moving", extra={"fields": {"root": path, "commit": flusher.name}})

    def passes() -> int:
        clock_follower.follow()
        moved = mover.run_once() + leases.run_once()
        return moved + scheduler.run_once() + sweeper.run_if_due()

    def next_due_s() -> float | None:
        known = (mover.next_due_s(), leases.next_due_s(), scheduler.next_due_s())
        return min((due_s for due_s in known if due_s is not None), default=None)

    return passes, next_due_s


def _between(
    source: Path, destination: Path, delay_s: float, folder_max: int
) -> tuple[Callable[[], int], Callable[[], float | None]]:
    layout = Layout.between(source.resolve(), destination.resolve())
    if layout.delay == layout.new:
        raise StartupError(
            f"{source} is where messages are written: mq delivers them by itself, and a file "
            "there may be half written"
        )
    for folder in (source, destination):
        if not folder.is_dir():
            raise StartupError(f"{folder} is no folder")
    if source.stat().st_dev != destination.stat().st_dev:
        raise AcrossFileSystems(source, destination)
    files, clock = Files(), SystemClock()
    root = Root.of(layout, files, clock, folder_max=folder_max, kind="mq-mover")
    flusher = FsyncFlusher(files, _THREADS)
    mover = Mover(root, flusher, _timer(delay_s))
    clock_follower = ClockFollower(root, clock)
    _log.info("moving", extra={"fields": {"source": source, "destination": destination}})

    def passes() -> int:
        clock_follower.follow()
        return mover.run_once()

    return passes, mover.next_due_s


def _timer(delay_s: float) -> Timer:
    return Timer(lain_s=delay_s or None)
