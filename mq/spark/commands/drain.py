"""`mqctl pipeline drain`."""

from pathlib import Path

import click

from mq.model.bulk_limits import LEASE_S_DEFAULT, LEASE_S_MAX, LEASED_MESSAGES_MAX
from mq.spark.commands.running import Job, job_options, root_option
from mq.spark.jobs import drain as jobs
from mq.spark.jobs.row_files import COMPRESSIONS, FORMATS, Format


@click.command("drain")
@root_option
@click.option("--queue", "names", multiple=True, required=True, help="May be said again.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    required=True,
    help="A folder, new or of the same drain, the same on every machine of the job.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="Of the files: Parquet, JSON lines or CSV.",
)
@click.option(
    "--compression",
    type=click.Choice(sorted({each for known in COMPRESSIONS.values() for each in known})),
    help="[default: zstd for Parquet, else none]",
)
@click.option("--copy", is_flag=True, help="Only read: nothing is taken out of the queue.")
@click.option(
    "--state",
    type=click.Choice(jobs.COPIED),
    default="ready",
    show_default=True,
    help="Of the messages, with --copy.",
)
@click.option("--limit", type=click.IntRange(1), help="At most so many messages.")
@click.option(
    "--batch",
    type=click.IntRange(1, LEASED_MESSAGES_MAX),
    default=jobs.BATCH_MESSAGES_DEFAULT,
    show_default=True,
    help="Messages that are leased, written and acknowledged at a time.",
)
@click.option(
    "--per-file",
    type=click.IntRange(1),
    default=jobs.FILE_MESSAGES_DEFAULT,
    show_default=True,
    help="At most so many messages in a file.",
)
@click.option(
    "--lease",
    type=click.IntRange(1, LEASE_S_MAX),
    default=LEASE_S_DEFAULT,
    show_default=True,
    metavar="SECONDS",
    help="How long after the job's death what it held comes again, unless it is run again.",
)
@job_options
def drain(
    job: Job,
    root: Path,
    names: tuple[str, ...],
    to: Path,
    format_: Format,
    compression: str | None,
    copy: bool,
    state: str,
    limit: int | None,
    batch: int,
    per_file: int,
    lease: int,
) -> None:
    """Take what is ready in queues out of them, into files.

    Messages are removed once their files are on stable media. Killed at any point, it is run again
    with the same --to, and goes on: nothing is lost, and nothing is in the files twice.
    """
    if state != "ready" and not copy:
        raise click.UsageError("--state: what is not ready can only be copied, with --copy.")
    with job.running() as (spark, watcher):
        done = jobs.drain(
            spark,
            root.absolute(),
            names,
            to,
            format=format_,
            compression=compression,
            copy=copy,
            state=state,
            limit=limit,
            batch_messages=batch,
            file_messages=per_file,
            lease_seconds=lease,
            watcher=watcher,
        )
    what = "copied" if copy else "drained"
    lines = [f"{done.messages} messages {what} to {done.files} files in {done.folder}"]
    if done.resumed:
        lines.append(f"{done.resumed} of them were left by an earlier run")
    if done.twice:
        lines.append(f"{done.twice} came again, and were in the files already")
    if done.damaged:
        lines.append(f"{done.damaged} of them are damaged: all that their files have is written")
    job.tell(done.facts(), lines)
