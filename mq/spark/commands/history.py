"""The command `mqctl pipeline history`."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mq.model.clock import rfc3339
from mq.model.errors import BadName
from mq.model.names import QueueName
from mq.spark.commands.running import Job, job_options, root_option
from mq.spark.commands.spans import length, when
from mq.spark.jobs.history import History
from mq.spark.jobs.history import history as run_history
from mq.spark.jobs.report import render


@click.command("history", context_settings={"show_default": True})
@root_option
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The folder that the tables and the report are written to, in the place of those of the "
    "last time. Made where it is missing.",
)
@click.option(
    "--archive",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The archive of the root: what mq-reaper has taken is known by it.",
)
@click.option(
    "--queue", "names", multiple=True, help="This queue alone; may be said again. [default: all]"
)
@click.option(
    "--since",
    metavar="WHEN",
    callback=when,
    help="From then on: a time of RFC 3339, or so long ago, as 7d. [default: the first publish]",
)
@click.option(
    "--until", metavar="WHEN", callback=when, help="Up to then, said so too. [default: now]"
)
@click.option(
    "--step",
    metavar="LENGTH",
    callback=length,
    help="How long each step is: 90s, 15m, 12h, 1d. [default: a minute to weeks, so that there "
    "are 200 at most]",
)
@click.option("--report/--no-report", default=True, help="Write report.html beside the tables.")
@job_options
def history(
    job: Job,
    root: Path,
    to: Path,
    archive: Path | None,
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    step: int | None,
    report: bool,
) -> None:
    """Tell what became of messages over time: rates, latencies, receives, sizes and backlog.

    From the inodes of the root, its history files, and the archive where there is one: tables in
    Parquet, and a report for a browser. The root is only read.
    """
    chosen = [_queue(name) for name in names] or None
    with job.running() as (spark, watcher):
        done = run_history(
            spark,
            root,
            to,
            archive=archive,
            queues=chosen,
            step_s=step,
            since=since,
            until=until,
            render=_report if report else None,
            watcher=watcher,
        )
    job.tell(done.facts(), _lines(done))


def _queue(name: str) -> QueueName:
    try:
        return QueueName.parse(name)
    except BadName as error:
        raise click.BadParameter(str(error), param_hint="--queue") from error


def _report(tables: Mapping[str, list[dict[str, Any]]], made_at: datetime) -> str:
    return render(tables, title="Queues over time", made_at=made_at)


def _lines(done: History) -> Iterator[str]:
    yield (
        f"{done.messages} messages of {len(done.queues)} queues, "
        f"{done.steps} steps of {done.step_s} s from {rfc3339(done.since_ms)}"
    )
    yield f"tables: {done.to}"
    if done.has_report:
        yield f"report: {done.to}/report.html"
