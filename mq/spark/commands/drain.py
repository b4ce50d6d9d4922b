"""`mqctl pipeline drain`."""

from pathlib import Path
from typing import Any

import click

from mq.spark.commands.running import Job, counted_by, dry_run_option, job_options, root_option
from mq.spark.jobs import drain as jobs
from mq.spark.jobs.row_files import COMPRESSIONS, FORMATS
from mq.spark.jobs.tables import TABLES
from mq.store.leases.manifest import LEASE_S_DEFAULT, LEASE_S_MAX, LEASED_MESSAGES_MAX


@click.command("drain")
@root_option
@click.option("--queue", "queues", multiple=True, required=True, help="A queue; may be repeated.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    required=True,
    help="A folder, new or of the same drain, the same on every machine of the job.",
)
@click.option(
    "--format",
    type=click.Choice([*FORMATS, *TABLES]),
    default="parquet",
    show_default=True,
    help="Of the files: Parquet, JSON lines or CSV; or a table of Parquet files.",
)
@click.option(
    "--table",
    metavar="CATALOG.NAMESPACE.TABLE",
    help="The Iceberg table, of a catalog that pyiceberg's configuration names.",
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
@click.option("--limit", type=click.IntRange(1), help="At most this many messages.")
@click.option(
    "--batch",
    "batch_messages",
    type=click.IntRange(1, LEASED_MESSAGES_MAX),
    default=jobs.BATCH_MESSAGES_DEFAULT,
    show_default=True,
    help="Messages that are leased, written and acknowledged at a time.",
)
@click.option(
    "--per-file",
    "file_messages",
    type=click.IntRange(1),
    default=jobs.FILE_MESSAGES_DEFAULT,
    show_default=True,
    help="At most this many messages in a file.",
)
@click.option(
    "--lease",
    "lease_seconds",
    type=click.IntRange(1, LEASE_S_MAX),
    default=LEASE_S_DEFAULT,
    show_default=True,
    metavar="SECONDS",
    help="If the job dies and is not run again, how long until its messages are delivered again.",
)
@dry_run_option
@job_options
def drain(job: Job, root: Path, queues: tuple[str, ...], to: Path, **options: Any) -> None:
    """Move ready messages from queues to files.

    Messages are removed once their files are on stable media. Killed at any point, it is run again
    with the same --to, and goes on: nothing is lost, and nothing is in the files twice.
    """
    if options["state"] != "ready" and not options["copy"]:
        raise click.UsageError(
            "--state: messages that are not ready can only be copied; add --copy."
        )
    if (options["format"] == "iceberg") is (options["table"] is None):
        raise click.UsageError("--table and --format iceberg go together.")
    with job.running() as (spark, watcher):
        done = jobs.drain(spark, root.absolute(), queues, to, watcher=watcher, **options)
    what = "copied" if options["copy"] else "drained"
    if options["dry_run"]:
        lines = [f"{done.messages} messages would be {what} to {done.folder}"]
        lines += counted_by("queue", done.by_queue)
        if done.resumed:
            lines.append(f"{done.resumed} of them were left by an earlier run")
        job.tell({"dry_run": True, **done.facts()}, lines)
        return
    lines = [f"{done.messages} messages {what} to {done.files} files in {done.folder}"]
    if done.resumed:
        lines.append(f"{done.resumed} of them were left by an earlier run")
    if done.twice:
        lines.append(f"{done.twice} came again, and were in the files already")
    if done.damaged:
        lines.append(f"{done.damaged} of them are damaged: all that their files have is written")
    job.tell(done.facts(), lines)
