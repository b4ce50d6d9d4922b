"""The commands `mqctl fsck` (flags, a check, its report, and an exit code) and `mqctl upgrade`."""

import json
import signal
import threading
from pathlib import Path

import click
from rich.console import Console

from mq.model.errors import MqError, StartupError
from mq.model.names import QueueName
from mq.runtime.options import Number
from mq.store.audit.findings import AGAIN_AFTER_S, AGAIN_AFTER_S_MAX, OVERDUE_S_DEFAULT
from mq.store.opening import format_of
from mq.store.totals.writing import write_totals
from mq.store.upgrade import upgrade as convert
from mq.tools.fsck.checking import Asked, Check, Doing, Interrupted, open_for_fsck
from mq.tools.fsck.report import Outcome, Report
from mq.tools.fsck.watching import Bar, Ending
from mq.tools.mqctl.arguments import queues_said
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import json_option


@click.command("fsck")
@click.argument("root", type=click.Path(path_type=Path, readable=False), envvar="MQ_ROOT")
@click.option(
    "--queue",
    "only",
    metavar="QUEUE",
    multiple=True,
    callback=queues_said,
    help="Check this queue alone; may be given more than once. A sideline is a queue too.",
)
@click.option("--repair", is_flag=True, help="Put right what a program may.")
@click.option("--dry-run", is_flag=True, help="Say what --repair would do, and change nothing.")
@click.option(
    "--again-after",
    type=Number(0, AGAIN_AFTER_S_MAX),
    metavar="SECONDS",
    default=AGAIN_AFTER_S,
    show_default=True,
    help="A breach is believed once it was seen twice, so long apart: daemons may be in the middle "
    "of something. 0 for a root without daemons.",
)
@click.option(
    "--overdue",
    type=Number(0),
    metavar="SECONDS",
    default=OVERDUE_S_DEFAULT,
    show_default=True,
    help="How late mq-mover's work may be before fsck reports it.",
)
@json_option
def fsck(
    root: Path,
    only: tuple[QueueName, ...],
    repair: bool,
    dry_run: bool,
    again_after: float,
    overdue: float,
    as_json: bool,
) -> None:
    """Hold the root at ROOT against mq's disk format, and put it right with --repair.

    Works beside the daemons, and on a root without any. Exits with 0 when all is well, or was
    put right; 1 when ROOT is no root or cannot be read; 5 when something is wrong and stays so; 130
    when it was interrupted.
    """
    if repair and dry_run:
        raise click.UsageError("--repair and --dry-run exclude each other")
    doing = Doing.REPAIR if repair else Doing.DRY_RUN if dry_run else Doing.LOOK
    try:
        opened, flusher, risks = open_for_fsck(root)
    except (StartupError, OSError) as error:
        raise Failed(ExitCode.REFUSED, str(error), as_json=as_json) from error
    for risk in risks:
        click.echo(f"mqctl: {risk.says}: {risk.do}", err=True)
    asked = Asked(only, doing, again_after, overdue)
    try:
        with Bar(Console(stderr=True)) as bar:
            _on_interrupt(bar)
            check = Check(opened, flusher, asked, bar)
            try:
                code = _code(check.run())
            except Interrupted:
                code = ExitCode.INTERRUPTED
            except OSError as error:
                raise Failed(ExitCode.REFUSED, f"{root}: {error}", as_json=as_json) from error
    finally:
        opened.history.end()
        write_totals(opened, at_end=True)
        flusher.close()
    _tell(check.report, as_json=as_json)
    raise click.exceptions.Exit(code)


def _on_interrupt(ending: Ending) -> None:
    """On the first signal, finishes the repair in progress, then ends. A second signal ends at
    once, and leaves what a crash may leave.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ending.say()

    signal.signal(signal.SIGINT, end)


def _code(report: Report) -> int:
    return ExitCode.PARTLY if report.outcome is Outcome.BROKEN else ExitCode.DONE


def _tell(report: Report, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**report.as_json(), "interrupted": not report.is_whole}))
        return
    if not report.is_whole:
        click.echo("interrupted; until then:")
    for line in report.lines():
        click.echo(line)


@click.command()
@click.argument("root", type=click.Path(path_type=Path, readable=False), envvar="MQ_ROOT")
@click.option("--force", is_flag=True, help="Also where a daemon was at work a moment ago.")
def upgrade(root: Path, force: bool) -> None:
    """Convert the root at ROOT to this mq's format, while no daemon uses it.

    May be called again after it was interrupted. Exits with 0 when the root has the format; 1 when
    ROOT is no root, cannot be read, or a daemon is at work.
    """
    try:
        opened, flusher, _ = open_for_fsck(root, format_of)
        try:
            done = convert(opened, flusher, is_unused=force)
        finally:
            flusher.close()
    except (MqError, OSError) as error:
        raise Failed(ExitCode.REFUSED, str(error)) from error
    if done is None:
        click.echo(f"{root} has this mq's format")
        return
    click.echo(
        f"{root} was {done.before}: {done.moved} folders of keys moved, {done.removed} of deleted "
        "queues removed"
    )
    for folder in done.kept:
        click.echo(f"mqctl: {folder} holds files that are not mq's, and stays", err=True)
