"""`mqctl pipeline load`."""

from pathlib import Path

import click

from mq.spark.commands.running import Job, job_options, root_option
from mq.spark.jobs import load as jobs
from mq.spark.jobs.row_files import FORMATS, Format
from mq.spark.options import OnKeyTaken


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
    "format_",
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
@click.option("--keep-due", is_flag=True, help="What was delayed is delayed until then.")
@click.option("--publish-id", help="A name of this load, which is published once. [default: made]")
@click.option("--again", is_flag=True, help="Publish also what was loaded before.")
@job_options
def load(
    job: Job,
    root: Path,
    source: Path,
    queue: str | None,
    format_: Format | None,
    key_taken: OnKeyTaken,
    create: bool,
    keep_due: bool,
    publish_id: str | None,
    again: bool,
) -> None:
    """Publish what was drained, or files of one's own: all of it, or nothing.

    Killed at any point, it is run again, and publishes once: the same files are loaded to the same
    queue once in 7 days, unless --again says otherwise.
    """
    if again and publish_id is not None:
        raise click.UsageError("--again and --publish-id: say one of them.")
    with job.running() as (spark, watcher):
        done = jobs.load(
            spark,
            root.absolute(),
            source,
            queue=queue,
            format=format_,
            key_taken=key_taken,
            create=create,
            keep_due=keep_due,
            publish_id=publish_id,
            again=again,
            watcher=watcher,
        )
    if done.was_before:
        lines = [f"loaded before, as {done.publish_id}: nothing is published (--again does)"]
    else:
        lines = [f"{done.messages} messages published from {done.files} files"]
        lines += [f"queue {each} made" for each in done.created]
    if done.damaged:
        lines.append(f"{done.damaged} damaged messages passed by")
    job.tell(done.facts(), lines)
