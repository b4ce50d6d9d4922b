"""The command `mq-reaper`: flags and environment, then passes until it is stopped."""

import os
from functools import partial
from pathlib import Path

import click

from mq.metrics.serving import shown
from mq.model.clock import SystemClock
from mq.model.errors import StartupError
from mq.model.log import logger
from mq.runtime.logs import LogFormat
from mq.runtime.options import (
    Number,
    begin_logs,
    context,
    fail,
    metrics_option,
    root_option,
    service_manager,
    upkeep_options,
)
from mq.runtime.pulse import Pulse
from mq.runtime.upkeep import Passes, PassVitals, Stop, make_passes
from mq.store.core.clocks import ClockFollower, check_clock
from mq.store.core.presence import Identity, Presence
from mq.store.core.root import probe_write
from mq.store.core.trust import check_trust
from mq.store.disk.files import Files, ProgressFiles
from mq.store.format.layout import Layout
from mq.store.opening import cannot_open, check_format, check_is_there, known_root, root_of
from mq_reaper.metrics import of_reaping
from mq_reaper.reaper import ARCHIVE_LATE_S_DEFAULT, Reaper

_log = logger("mq-reaper")


@click.command("mq-reaper", context_settings=context("MQ_REAPER"))
@root_option("Reap this root's remove/.")
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    default=None,
    show_default="the root's remove/",
    show_envvar=True,
    help="Reap this folder instead.",
)
@click.option(
    "--keep",
    type=Number(0),
    default=0.0,
    show_envvar=True,
    help="Seconds that a removed message stays before it is unlinked.",
)
@click.option(
    "--archive-late",
    type=Number(0),
    default=ARCHIVE_LATE_S_DEFAULT,
    show_envvar=True,
    help=(
        "Seconds after which a removed message that an enabled archive has not "
        "stored is late. The log then warns."
    ),
)
@metrics_option
@upkeep_options
def main(
    root: Path,
    source: Path | None,
    keep: float,
    archive_late: float,
    metrics: tuple[str, int] | None,
    attach: str | None,
    exit_with_stdin: bool,
    log_format: LogFormat,
    log_level: str,
) -> None:
    """Unlink removed messages and deleted queues.

    Leaves everything else in the folder alone. While an archive is enabled, a message stays until
    the archive has stored it.
    """
    begin_logs(log_format, log_level)
    stop = Stop()
    stop.on_signals()
    if exit_with_stdin:
        stop.with_standard_input()
    clock = SystemClock()
    try:
        notifier = service_manager()
        pulse = Pulse(notifier)
        files = Files() if notifier.watchdog_s is None else ProgressFiles(pulse.beat)
        presence = None
        if source is None:
            layout = Layout.of(root)
            folder = layout.remove
            check_is_there(layout, files, known_root(attach))
            _refuse_links(files, str(root), folder)
            # No further checks: on a full disk nothing can be created, and the reaper frees space.
            check_trust(str(root), files, layout.folders())
            check_clock(layout, files, clock)
            check_format(layout, files)
            presence = Presence(layout, files, Identity.of(layout, files))
        else:
            folder = _checked(source)
            _refuse_links(files, str(source))
            check_trust(str(source), files)
    except StartupError as error:
        raise fail("mq-reaper", error) from error
    except OSError as error:
        raise fail("mq-reaper", cannot_open(str(source or root), error)) from error
    _log.info("reaping", extra={"fields": {"source": folder, "keep_s": keep}})
    reaper = Reaper(files, clock, folder, keep, archive_late)
    follower = ClockFollower(reaper.root, clock)

    def passes() -> int:
        if presence is not None:
            presence.check()
        follower.follow()
        return reaper.run_once()

    vitals = PassVitals(notifier, pulse, clock, lambda: f"Reaping {folder}: {reaper.went} gone")
    counted = Passes(clock)
    try:
        with shown(metrics, partial(of_reaping, counted, reaper)) as port:
            if port is not None:
                _log.info("metrics", extra={"fields": {"port": port}})
            # The probe has its own Files: its calls are not progress of the passes.
            vitals.begin(partial(probe_write, root_of(reaper.root.layout, Files(), clock)))
            make_passes(counted.counted(passes), reaper.next_due_s, stop, vitals.after_pass)
            vitals.ending()
    except StartupError as error:
        raise fail("mq-reaper", error) from error
    _log.info("stopped")


def _refuse_links(files: Files, *folders: str) -> None:
    """Raises StartupError for a folder that is a symbolic link: a user who can change the link
    could have other files unlinked.
    """
    for folder in folders:
        if files.is_link(folder.rstrip("/") or "/"):
            raise StartupError(
                f"{folder} is a symbolic link, which could lead elsewhere while mq-reaper unlinks "
                f"files; use the folder itself, {os.path.realpath(folder)}"
            )


def _checked(source: Path) -> str:
    """The folder to reap. Raises StartupError for a folder whose messages are alive."""
    folder = str(source.resolve())
    layout = Layout.of(source.resolve().parent)
    if folder in (layout.new, layout.queues, layout.delay):
        raise StartupError(
            f"{source} holds messages that are not removed, and mq-reaper would unlink them; use "
            f"--source {layout.remove}"
        )
    if not source.is_dir():
        raise StartupError(f"{source} is not a folder; correct --source, or use --root")
    return folder
