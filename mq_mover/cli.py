"""The command `mq-mover`: flags and environment, then passes until it is stopped."""

import os
import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from mq.coordination.coordinator import ASSIGN_EVERY_S
from mq.coordination.opening import COORDINATOR_DEFAULT, open_coordinator
from mq.metrics.families import Family
from mq.metrics.serving import shown
from mq.model.clock import SystemClock
from mq.model.errors import AcrossFileSystems, StartupError
from mq.model.limits import REFRESH_EVERY_S
from mq.model.log import logger
from mq.runtime.logs import LogFormat
from mq.runtime.options import (
    Number,
    begin_logs,
    context,
    fail,
    folder_max_option,
    metrics_option,
    root_option,
    service_manager,
    upkeep_options,
)
from mq.runtime.pulse import Pulse
from mq.runtime.upkeep import Passes, PassVitals, Stop, make_passes
from mq.store.core.clocks import ClockFollower
from mq.store.core.presence import PresentFlusher
from mq.store.core.root import Root, probe_write
from mq.store.core.trust import check_trust
from mq.store.disk.files import Files, ProgressFiles
from mq.store.disk.flush import FSYNC_THREADS, FsyncFlusher
from mq.store.disk.mounts import choose_flusher
from mq.store.format.layout import Layout
from mq.store.opening import cannot_open, known_root, open_trusted_root, root_of
from mq.store.operations.redeliver import Timer
from mq.store.settings.registry import Registry
from mq_mover.metrics import of_moving, of_rounds
from mq_mover.mover import Mover
from mq_mover.rounds import Rounds

_log = logger("mq-mover")

_SAYS: Final = {
    "moved": "redelivered",
    "from_leases": "from leases",
    "fired": "published by schedules",
    "waiting": "wait",
}


class Shared(NamedTuple):
    """How members share the upkeep, and how often each looks at all queues."""

    coordinator: str
    member: str
    assign_every_s: float
    refresh_s: float


class Work(NamedTuple):
    """The work of a daemon: a round, the time of the next, and the end."""

    run_once: Callable[[], int]
    next_due_s: Callable[[], float | None]
    look: Callable[[], object]
    """Uses the folders, blocking: the watchdog's probe."""
    status: Callable[[], str]
    families: Callable[[Passes], Iterator[Family]]
    """The families of its metrics."""
    stop: Callable[[], None] = lambda: None


@click.command("mq-mover", context_settings=context("MQ_MOVER"))
@root_option("Do the upkeep of this root: redelivery, schedules, expiry and sweeps.")
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    default=None,
    show_envvar=True,
    help="Instead of a root: move due messages from this folder ({queue}:{id}) ...",
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
    type=Number(0),
    default=0.0,
    show_envvar=True,
    help="With --source. 0: a message leaves when its own due time (its mtime) has passed. N: when "
    "it has lain there for N seconds, whatever its due time.",
)
@click.option(
    "--coordinator",
    default=COORDINATOR_DEFAULT,
    show_envvar=True,
    help=(
        "How several mq-movers of the root divide its queues: `file`, by files "
        "in the root; `zookeeper://HOST:PORT,.../PREFIX`; or `alone`, for a "
        "single one."
    ),
)
@click.option(
    "--member",
    default=None,
    show_envvar=True,
    help=(
        "This process's name among the mq-movers of the root. It must be "
        "unique. By default it is made of the host's name, the process id and "
        "random digits."
    ),
)
@click.option(
    "--assign-every",
    type=Number(min=0, min_open=True),
    default=ASSIGN_EVERY_S,
    show_envvar=True,
    help=(
        "Seconds between two assignments of the queues to members. All members "
        "should have the same value."
    ),
)
@click.option(
    "--refresh",
    type=Number(min=0, min_open=True),
    default=REFRESH_EVERY_S,
    show_envvar=True,
    help=(
        "Seconds between two looks at all queues and their settings; the first one at the start."
    ),
)
@folder_max_option
@metrics_option
@upkeep_options
def main(
    root: Path,
    source: Path | None,
    destination: Path | None,
    delay: float,
    coordinator: str,
    member: str | None,
    assign_every: float,
    refresh: float,
    folder_max: int,
    metrics: tuple[str, int] | None,
    attach: str | None,
    exit_with_stdin: bool,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Bring messages back to their queues when they are due, and publish those of schedules.

    Timers are the files' own mtimes: a restart loses none, and starts with the files there.
    """
    begin_logs(log_format, log_level)
    stop = Stop()
    stop.on_signals()
    if exit_with_stdin:
        stop.with_standard_input()
    try:
        notifier = service_manager()
        pulse = Pulse(notifier)
        files = Files() if notifier.watchdog_s is None else ProgressFiles(pulse.beat)
        if (source is None) != (destination is None):
            raise StartupError("--source and --destination go together; use both, or neither")
        if delay and source is None:
            # Otherwise a message would return while a consumer has it, or before its time.
            raise StartupError(
                "--delay (MQ_MOVER_DELAY) needs --source and --destination, since each message of "
                "a root has its own due time; leave it out"
            )
        timer = Timer(lain_s=delay or None)
        if source is None or destination is None:
            name = _new_member() if member is None else member
            shared = Shared(coordinator, name, assign_every, refresh)
            clock = SystemClock()
            opened = _open(root, files, clock, folder_max, attach)
            work = _over_root(opened, clock, timer, shared)
        else:
            work = _between(source, destination, files, timer, folder_max)
    except StartupError as error:
        raise fail("mq-mover", error) from error
    except OSError as error:
        raise fail("mq-mover", cannot_open(str(source or root), error)) from error
    passes = Passes(SystemClock())
    vitals = PassVitals(notifier, pulse, SystemClock(), work.status)
    try:
        with shown(metrics, partial(work.families, passes)) as port:
            if port is not None:
                _log.info("metrics", extra={"fields": {"port": port}})
            vitals.begin(work.look)
            make_passes(passes.counted(work.run_once), work.next_due_s, stop, vitals.after_pass)
            vitals.ending()
    except StartupError as error:
        work.stop()
        raise fail("mq-mover", error) from error
    work.stop()
    _log.info("stopped")


def _open(
    path: Path, files: Files, clock: SystemClock, folder_max: int, attach: str | None
) -> Root:
    return open_trusted_root(
        str(path),
        files,
        clock,
        makes=False,
        known=known_root(attach),
        folder_max=folder_max,
        kind="mq-mover",
    )


def _over_root(root: Root, clock: SystemClock, timer: Timer, shared: Shared) -> Work:
    path = root.layout.root
    flusher = PresentFlusher(choose_flusher(path, root.files, FSYNC_THREADS), root.presence)
    coordinator = open_coordinator(shared.coordinator, root, shared.member, shared.assign_every_s)
    rounds = Rounds(root, flusher, coordinator, timer, Registry(root, every_s=shared.refresh_s))
    rounds.start()
    clock_follower = ClockFollower(root, clock)
    fields = {"root": path, "commit": flusher.name, "member": shared.member}
    _log.info("moving", extra={"fields": fields})

    def run_once() -> int:
        root.presence.check()
        clock_follower.follow()
        return rounds.run_once()

    def status() -> str:
        done = rounds.redelivery()
        said = ", ".join(f"{count} {_SAYS[what]}" for what, count in done.items())
        return f"Moving due messages in {path}: {said}"

    # The probe has its own Files: its calls are not progress of the passes.
    looked_at = root_of(root.layout, Files(), clock)
    look = partial(probe_write, looked_at)
    families = partial(of_rounds, rounds=rounds)
    return Work(run_once, rounds.next_due_s, look, status, families, rounds.stop)


def _between(source: Path, destination: Path, files: Files, timer: Timer, folder_max: int) -> Work:
    layout = Layout.between(source.resolve(), destination.resolve())
    if layout.delay == layout.new:
        raise StartupError(
            f"mq writes messages in {source}, where a file may be half written, and delivers them "
            "itself; use another --source"
        )
    for folder in (source, destination):
        if not folder.is_dir():
            raise StartupError(
                f"{folder} is not a folder; correct --source or --destination, or make it"
            )
    if source.stat().st_dev != destination.stat().st_dev:
        raise AcrossFileSystems(source, destination)
    for folder in (source, destination):
        check_trust(str(folder), files)
    clock = SystemClock()
    root = root_of(layout, files, clock, folder_max=folder_max, kind="mq-mover")
    flusher = FsyncFlusher(files, FSYNC_THREADS)
    mover = Mover(root, flusher, timer)
    clock_follower = ClockFollower(root, clock)
    _log.info("moving", extra={"fields": {"source": source, "destination": destination}})

    def run_once() -> int:
        clock_follower.follow()
        return mover.run_once()

    def status() -> str:
        return f"Moving due messages from {source} to {destination}: {mover.waiting} wait"

    look = partial(Files().free, str(source))
    return Work(run_once, mover.next_due_s, look, status, partial(of_moving, mover=mover))


def _new_member() -> str:
    return member_name(socket.gethostname(), os.getpid(), os.urandom(4))


_OTHER: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_HOST_CHARS_MAX: Final = 60


def member_name(host: str, pid: int, chance: bytes) -> str:
    """A unique default name of a member. Random bytes tell apart processes that have the same pid:
    on two machines, in two containers, or one after the other.
    """
    known = _OTHER.sub("-", host).strip("-_.")[:_HOST_CHARS_MAX] or "host"
    return f"{known}-{pid}-{chance.hex()}"
