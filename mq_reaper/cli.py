"""The command `mq-reaper`: flags and environment, then passes until it is stopped."""

import logging
from dataclasses import replace
from pathlib import Path

import click

from mq.clock import SystemClock
from mq.errors import StartupError
from mq.options import begin_logs, context, fail, root_option, upkeep_options
from mq.store.files import Files
from mq.store.layout import Layout
from mq.store.mounts import ClockFollower
from mq.store.root import Root, check_format, open_root
from mq.upkeep import Stop, make_passes
from mq_reaper.reaper import Reaper

_log = logging.getLogger("mq-reaper")


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
    type=click.FloatRange(0),
    default=0.0,
    show_envvar=True,
    help="Seconds that a removed message stays before it is unlinked.",
)
@upkeep_options
def main(
    root: Path,
    source: Path | None,
    keep: float,
    exit_with_stdin: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Unlink removed messages and deleted queues.

    Everything else that lies in the folder is left alone.
    """
    begin_logs(log_format, log_level)
    stop = Stop()
    stop.on_signals()
    if exit_with_stdin:
        stop.with_standard_input()
    files, clock = Files(), SystemClock()
    try:
        if source is None:
            folder = Layout.of(root).remove
            if Path(folder).is_dir():
                # No more than this: on a full disk nothing can be made, and the reaper frees it.
                check_format(Layout.of(root), files)
            else:
                open_root(str(root), files, clock)
        else:
            folder = _checked(source)
    except StartupError as error:
        raise fail("mq-reaper", error) from error
    except OSError as error:
        raise fail("mq-reaper", StartupError(f"cannot begin: {error}")) from error
    _log.info("reaping", extra={"fields": {"source": folder, "keep_s": keep}})
    reaper = Reaper(files, clock, folder, keep)
    layout = replace(Layout.of(Path(folder).parent), remove=folder)
    follower = ClockFollower(Root.of(layout, files, clock), clock)

    def passes() -> int:
        follower.follow()
        return reaper.run_once()

    make_passes(passes, reaper.next_due_s, stop)
    _log.info("stopped")


def _checked(source: Path) -> str:
    """The folder to reap. Raises StartupError for one whose messages are alive."""
    folder = str(source.resolve())
    layout = Layout.of(source.resolve().parent)
    if folder in (layout.new, layout.queues, layout.delay):
        raise StartupError(f"{source} holds messages that are alive; reap only what was removed")
    if not source.is_dir():
        raise StartupError(f"{source} is no folder")
    return folder
