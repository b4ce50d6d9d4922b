"""`mqctl pipeline load`."""

from pathlib import Path
from typing import Any

import click

from mq.spark.commands.running import Job, dry_run_option, job_options, root_option
from mq.spark.jobs import load as jobs
from mq.spark.jobs.row_files import FORMATS


@click.command("load")
@root_option
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="A folder of a drain, a folder of files, or a file.",
)
@click.option("--queue", help="All go to this queue. [default: the one that each row names]")
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Of the files. [default: as the drain, or the files' names, say]",
)
@click.option(
    "--key-taken",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="Where a living message has a row's key: publish nothing, or pass the row by.",
)
@click.option("--create", is_flag=True, help="Make queues that are missing.")
@click.option(
    "--keep-due", is_flag=True, help="A delayed message is delayed until its old due time."
)
@click.option("--publish-id", help="A name of this load, which is published once. [default: made]")
@click.option("--again", is_flag=True, help="Publish also files that were loaded before.")
@dry_run_option
@job_options
def load(job: Job, root: Path, source: Path, **options: Any) -> None:
    """Publish drained messages, or files of one's own: all of it, or nothing.

    Killed at any point, it is run again, and publishes once: the same files are loaded to the same
    queue once in 7 days, unless --again says otherwise.
    """
    if options["again"] and options["publish_id"] is not None:
        raise click.UsageError("--again and --publish-id: say one of them.")
    with job.running() as (spark, watcher):
        done = jobs.load(spark, root.absolute(), source, watcher=watcher, **options)
    if options["dry_run"] and not done.was_before:
        lines = [f"{done.messages} messages of {done.files} files would be published"]
        lines += [f"queue {each} would be made" for each in done.created]
    elif done.was_before:
        lines = [f"loaded before, as {done.publish_id}: nothing is published (--again does)"]
    else:
        lines = [f"{done.messages} messages published from {done.files} files"]
        lines += [f"queue {each} made" for each in done.created]
    if done.damaged:
        lines.append(f"{done.damaged} damaged messages passed by")
    job.tell(({"dry_run": True} if options["dry_run"] else {}) | done.facts(), lines)
