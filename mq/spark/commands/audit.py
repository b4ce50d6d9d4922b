"""`mqctl pipeline audit`: flags, the job, what it tells, and its own three exit codes."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from mq.model.errors import BadName, StartupError
from mq.model.fsck_limits import AGAIN_AFTER_S, AGAIN_AFTER_S_MAX, OVERDUE_S_DEFAULT
from mq.model.names import QueueName
from mq.spark.commands.running import Job, job_options, root_option
from mq.spark.jobs.audit import EXAMPLES_DEFAULT, check_is_root
from mq.spark.jobs.audit import audit as run_audit
from mq.tools.mqctl.exits import ExitCode

OVERDUE_S_MAX: Final = 31_622_400.0
"""A year."""
FINDINGS: Final = ExitCode.REFUSED
"""What it ends with where something is wrong."""
NOT_RUN: Final = ExitCode.USAGE
"""What it ends with where it could not look."""


def _queues(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[QueueName, ...]:
    try:
        return tuple(map(QueueName.parse, values))
    except BadName as error:
        raise click.BadParameter(str(error)) from error


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
    "only",
    metavar="QUEUE",
    multiple=True,
    callback=_queues,
    help="Look at what is of this queue alone; may be said again. A sideline is a queue too.",
)
@click.option("--bodies", is_flag=True, help="Read every body, and hold it against its digest.")
@click.option(
    "--by-name",
    is_flag=True,
    help="By listings alone: nothing is said of modes, times, and what is in files.",
)
@click.option(
    "--again-after",
    type=click.FloatRange(0, AGAIN_AFTER_S_MAX),
    callback=_seconds,
    metavar="SECONDS",
    default=AGAIN_AFTER_S,
    show_default=True,
    help="What is wrong is believed once it was seen twice, so long apart: daemons may be in the "
    "middle of something. 0 for a root that nobody uses.",
)
@click.option(
    "--overdue",
    type=click.FloatRange(0, OVERDUE_S_MAX),
    callback=_seconds,
    metavar="SECONDS",
    default=OVERDUE_S_DEFAULT,
    show_default=True,
    help="How late what mq-mover does may be before it is told.",
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
def audit(
    job: Job,
    root: Path,
    archive: Path | None,
    only: tuple[QueueName, ...],
    bodies: bool,
    by_name: bool,
    again_after: float,
    overdue: float,
    examples: int,
    to: Path | None,
) -> None:
    """Hold all that lies in a root against mq's disk format, in parallel.

    Changes nothing, and works beside the daemons. What is broken is what `mqctl fsck` calls so,
    which puts it right. Exits with 0 when all is well, 1 when something is wrong, 2 when it could
    not look.
    """
    job = replace(job, failure=NOT_RUN)
    if to is not None and to.exists():
        raise click.BadParameter(f"{to} is there already", param_hint="--to")
    try:
        # Before Spark is begun, which takes its time.
        check_is_root(root)
    except StartupError as error:
        raise job.failed(str(error)) from error
    with job.running() as (spark, watcher):
        done = run_audit(
            spark,
            root,
            archive=archive,
            bodies=bodies,
            queues=only,
            is_by_name=by_name,
            again_after_s=again_after,
            overdue_s=overdue,
            examples=examples,
            to=to,
            watcher=watcher,
        )
    job.tell(done.facts(), done.lines())
    raise click.exceptions.Exit(ExitCode.DONE if done.is_clean else FINDINGS)
