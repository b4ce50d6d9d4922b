"""The command `mqctl pipeline history`."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from mq.model.clock import SystemClock, parse_rfc3339, rfc3339
from mq.model.names import QueueName
from mq.spark.commands.running import Job, job_options, root_option
from mq.spark.jobs.history import History
from mq.spark.jobs.history import history as run_history
from mq.spark.jobs.report.page import render
from mq.tools.mqctl.arguments import queues_said

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LENGTH: Final = re.compile(r"([1-9][0-9]{0,9})([smhdw])")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def length(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parses a duration; returns seconds. Raises click's BadParameter."""
    if value is None:
        return None
    length_s = _length_s(value)
    if length_s is None:
        raise click.BadParameter(f"{value!r} is no length; say 90s, 15m, 12h, 7d or 2w")
    return length_s


def when(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parses a time; returns it in UTC. Raises click's BadParameter."""
    if value is None:
        return None
    ago_s = _length_s(value)
    try:
        now_ms = SystemClock().now_ms()
        ms = parse_rfc3339(value) if ago_s is None else now_ms - ago_s * 1000
        return _EPOCH + timedelta(milliseconds=ms)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{value!r} is no time; say 2026-01-31T12:00:00Z, or 7d for so long ago"
        ) from error


def _length_s(text: str) -> int | None:
    match = _LENGTH.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS_S[match[2]]


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
    "--queue",
    "queues",
    multiple=True,
    callback=queues_said,
    help="This queue alone; may be repeated. [default: all]",
)
@click.option(
    "--since",
    metavar="WHEN",
    callback=when,
    help="Start: a time of RFC 3339, or an age, as 7d. [default: the first publish]",
)
@click.option(
    "--until", metavar="WHEN", callback=when, help="End, in the same form. [default: now]"
)
@click.option(
    "--step",
    "step_s",
    metavar="LENGTH",
    callback=length,
    help="How long each step is: 90s, 15m, 12h, 1d. [default: a minute to weeks, so that there "
    "are 200 at most]",
)
@click.option("--report/--no-report", default=True, help="Write report.html beside the tables.")
@job_options
def history(
    job: Job, root: Path, to: Path, queues: tuple[QueueName, ...], report: bool, **options: Any
) -> None:
    """Tell what became of messages over time: rates, latencies, receives, sizes and backlog.

    From the inodes of the root, its history files, and the archive where there is one: tables in
    Parquet, and a report for a browser. The root is only read.
    """
    render = _report if report else None
    with job.running() as (spark, watcher):
        done = run_history(
            spark, root, to, queues=queues or None, render=render, watcher=watcher, **options
        )
    job.tell(done.facts(), _lines(done))


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
