"""The command `mqctl pipeline shovel`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mq.model.shovel import SHOVEL_LIMIT_MAX, SHOVEL_RATE_MAX
from mq.spark.commands.running import Job, counted_by, job_options, root_option
from mq.spark.jobs import shovel as jobs


@click.command("shovel")
@root_option
@click.option("--from", "source", metavar="QUEUE", required=True, help="Whose ready messages.")
@click.option(
    "--where",
    metavar="SQL",
    required=True,
    help="Which: a condition over the queue's rows, `text` and `json`, as Spark SQL has it.",
)
@click.option("--to", metavar="QUEUE", help="Where they go. [default: of a sideline, its queue]")
@click.option("--dry-run", is_flag=True, help="Count them, and change nothing.")
@click.option(
    "--rate", type=click.IntRange(1, SHOVEL_RATE_MAX), help="At most this many messages a second."
)
@click.option(
    "--limit", type=click.IntRange(1, SHOVEL_LIMIT_MAX), help="How many at most, the oldest first."
)
@click.option("--replay-id", metavar="ID", help="The run's name; of one that was cut off: go on.")
@job_options
def shovel(job: Job, root: Path, source: str, where: str, dry_run: bool, **options: Any) -> None:
    """Move the messages of a queue that a condition chooses to another queue.

    Each goes by one rename, exactly once, with its id, receives, headers and key. A run that is
    killed goes on where it was with the same --replay-id.
    """
    with job.running() as (spark, watcher):
        done = jobs.shovel(spark, root, source, where, dry_run=dry_run, watcher=watcher, **options)
    job.tell(done.facts(), _lines(done, dry_run=dry_run))


def _lines(done: jobs.Shovelled, *, dry_run: bool) -> Iterator[str]:
    if dry_run and done.chosen is not None:
        yield from chosen_lines(done.chosen, f"would go from {done.source} to {done.target}")
        return
    if done.was_over:
        yield f"{done.replay_id} is over: nothing was done"
    yield f"{done.moved} of {done.selected} messages moved from {done.source} to {done.target}"
    if done.moved_before:
        yield f"{done.moved_before} were moved before"
    for why, count in sorted(done.stayed.items()):
        yield f"{count} were not moved: {why}"
    if done.selected and not done.was_over:
        yield f"replay id: {done.replay_id}"


def chosen_lines(choice: jobs.Choice, would: str) -> Iterator[str]:
    facts = choice.facts()
    yield f"{choice.messages} messages, {choice.size_bytes} bytes, {would}"
    for by in ("priority", "reason"):
        yield from counted_by(by, facts[f"by_{by}"])
    if choice.first_ids:
        yield f"oldest: {facts['oldest']}"
    yield from choice.first_ids
