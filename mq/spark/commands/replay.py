"""The command `mqctl pipeline replay`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mq.model.shovel import SHOVEL_LIMIT_MAX, SHOVEL_RATE_MAX
from mq.spark.commands.running import Job, counted_by, job_options, root_option
from mq.spark.jobs import replay as jobs


@click.command("replay")
@root_option
@click.option(
    "--archive",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="What `mqctl pipeline archive` has made.",
)
@click.option(
    "--where",
    metavar="SQL",
    required=True,
    help="Which: a condition over the archive's rows, `text` and `json`, as Spark SQL has it.",
)
@click.option("--to", metavar="QUEUE", help="Where they go. [default: each to its own queue]")
@click.option("--dry-run", is_flag=True, help="Count them, and publish nothing.")
@click.option(
    "--rate", type=click.IntRange(1, SHOVEL_RATE_MAX), help="How many become ready a second."
)
@click.option(
    "--limit", type=click.IntRange(1, SHOVEL_LIMIT_MAX), help="How many at most, the oldest first."
)
@click.option("--replay-id", metavar="ID", help="The run's name: it is published once, for 7 days.")
@click.option(
    "--key-taken",
    type=click.Choice(("fail", "skip", "drop")),
    default="fail",
    show_default=True,
    help="Of keys that living messages have: publish nothing, pass those by, or drop all keys.",
)
@click.option("--skip-damaged", is_flag=True, help="Pass messages by that cannot be read.")
@job_options
def replay(job: Job, root: Path, archive: Path, where: str, dry_run: bool, **options: Any) -> None:
    """Publish archived messages again that a condition chooses, as new messages.

    All of them are published at once, or none. A run that is killed is tried again with the same
    --replay-id, and published once.
    """
    with job.running() as (spark, watcher):
        done = jobs.replay(spark, root, archive, where, dry_run=dry_run, watcher=watcher, **options)
    job.tell(done.facts(), _lines(done, dry_run=dry_run))


def _lines(done: jobs.Replayed, *, dry_run: bool) -> Iterator[str]:
    chosen = done.chosen
    if chosen is None:
        yield f"{done.replay_id} is published already: nothing was done"
        return
    if dry_run:
        yield f"{chosen.messages} messages, {chosen.size_bytes} bytes, would be published"
        yield from counted_by("queue", chosen.by_queue)
        yield from counted_by("priority", chosen.by_priority)
        if chosen.damaged:
            yield f"{chosen.damaged} of them are damaged"
        yield from chosen.first_ids
        return
    yield f"{chosen.messages - chosen.damaged} messages published"
    if done.skipped_damaged:
        yield f"{done.skipped_damaged} damaged ones passed by"
    yield f"replay id: {done.replay_id}"
