"""`mqctl pipeline audit`: options, the job, its report, and its own three exit codes."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from mq.model.errors import StartupError
from mq.spark.commands.running import Job, job_options, root_option
from mq.spark.jobs.audit import EXAMPLES_DEFAULT, check_is_root
from mq.spark.jobs.audit import audit as run_audit
from mq.store.audit.findings import AGAIN_AFTER_S, AGAIN_AFTER_S_MAX, OVERDUE_S_DEFAULT
from mq.tools.mqctl.arguments import queues_said
from mq.tools.mqctl.exits import ExitCode

OVERDUE_S_MAX: Final = 31_622_400.0
"""A year."""
FINDINGS: Final = ExitCode.REFUSED
"""The exit code for findings."""
NOT_RUN: Final = ExitCode.USAGE
"""The exit code if it could not run."""


def _seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("is no number")
    return value


@click.command("audit")
@root_option
@click.option(
    "--archive",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="The root's archive: counts are held against it, and with --bodies its digests.",
)
@click.option(
    "--queue",
    "queues",
    metavar="QUEUE",
    multiple=True,
    callback=queues_said,
    help="Audit this queue alone; may be repeated. A sideline is a queue too.",
)
@click.option("--bodies", is_flag=True, help="Read every body, and hold it against its digest.")
@click.option(
    "--by-name",
    "is_by_name",
    is_flag=True,
    help="By listings alone: modes, times and contents of files are not checked.",
)
@click.option(
    "--again-after",
    "again_after_s",
    type=click.FloatRange(0, AGAIN_AFTER_S_MAX),
    callback=_seconds,
    metavar="SECONDS",
    default=AGAIN_AFTER_S,
    show_default=True,
    help="Time between the two looks that a finding takes, since daemons may be in the middle of "
    "something. 0 for a root without daemons.",
)
@click.option(
    "--overdue",
    "overdue_s",
    type=click.FloatRange(0, OVERDUE_S_MAX),
    callback=_seconds,
    metavar="SECONDS",
    default=OVERDUE_S_DEFAULT,
    show_default=True,
    help="How late mq-mover may be before it is a finding.",
)
@click.option(
    "--examples",
    type=click.IntRange(0, 10_000),
    default=EXAMPLES_DEFAULT,
    show_default=True,
    help="How many findings of each kind are shown.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path, exists=False),
    metavar="DIR",
    help="Write all findings there, as Parquet; a folder that is not there yet.",
)
@job_options
def audit(job: Job, root: Path, to: Path | None, **options: Any) -> None:
    """Check a root against mq's disk format, in parallel.

    Changes nothing, and works beside the daemons. It makes the checks of `mqctl fsck`, which
    repairs. Exits with 0 when all is well, 1 with findings, 2 when it could not run.
    """
    job = replace(job, failure=NOT_RUN)
    if to is not None and to.exists():
        raise click.BadParameter(f"{to} is there already", param_hint="--to")
    try:
        # Before Spark starts, which takes seconds.
        check_is_root(root)
    except StartupError as error:
        raise job.failed(str(error)) from error
    with job.running() as (spark, watcher):
        done = run_audit(spark, root, to=to, watcher=watcher, **options)
    job.tell(done.facts(), done.lines())
    raise click.exceptions.Exit(ExitCode.DONE if done.is_clean else FINDINGS)
