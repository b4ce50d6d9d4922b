"""Queues as a whole: `queues`, `create`, `describe`, `purge`, `delete`."""

import asyncio

import click

from mq.client.client import AsyncClient
from mq.client.errors import QueueNotFound
from mq.client.values import Description, QueueEntry
from mq.tools.mqctl.arguments import confirm, queue_argument
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.running import run

_DESCRIBED_AT_ONCE = 16
_COUNTS = ("ready", "delayed", "in_flight", "leased", "overdue", "removed", "sidelined", "foreign")


@click.command()
@click.option("--counts", is_flag=True, help="How much is in each, too: a request a queue.")
@shared_options
def queues(options: Options, counts: bool) -> None:
    """List the queues, sidelines too, by name."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        entries = [entry async for entry in client.queues()]
        found = await _described(client, entries) if counts else []
        if printer.as_json:
            printer.document({"queues": [each.said for each in found] if counts else entries})
        elif counts:
            rows = [
                (each.name, each.ready, each.delayed, each.in_flight, each.sidelined)
                for each in found
            ]
            printer.table(("queue", "ready", "delayed", "in flight", "sidelined"), rows)
        else:
            printer.table(("queue",), [(entry.name,) for entry in entries])

    run(options, work)


async def _described(client: AsyncClient, entries: list[QueueEntry]) -> list[Description]:
    """Those that are still there, in their order; some at a time."""
    turn = asyncio.Semaphore(_DESCRIBED_AT_ONCE)

    async def describe(entry: QueueEntry) -> Description | None:
        async with turn:
            try:
                return await client.queue(entry.name).describe()
            except QueueNotFound:
                return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(describe(entry)) for entry in entries]
    return [found for task in tasks if (found := task.result()) is not None]


@click.command()
@queue_argument
@click.option(
    "--bucket",
    type=click.IntRange(7, 9),
    default=None,
    help="How wide the time windows of a large backlog are: 7 is 17 minutes, 8 (the default) 65 "
    "seconds, 9 four. Stays as it is.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 16),
    default=None,
    help="Into how many parts each window goes, for daemons with --peers. Stays as it is.",
)
@shared_options
def create(options: Options, queue: str, bucket: int | None, shards: int | None) -> None:
    """Make QUEUE. One that is there stays as it is, which is no failure."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        is_new = await client.queue(queue).create(bucket=bucket, shards=shards)
        if printer.as_json:
            printer.document({"name": queue, "created": is_new})
        else:
            printer.line(f"{queue} is made" if is_new else f"{queue} was there")

    run(options, work)


@click.command()
@queue_argument
@shared_options
def describe(options: Options, queue: str) -> None:
    """Show how much is in QUEUE, in which state, and what was done with it.

    What is "by this process" was done by the one that answers, since it began; mq-mover is another.
    """

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).describe()
        if printer.as_json:
            printer.document(found.said)
            return
        facts: list[tuple[str, object]] = [("name", found.name)]
        facts += [(name.replace("_", " "), getattr(found, name)) for name in _COUNTS]
        facts += [("oldest ready, s", found.oldest_ready_age_s), ("expired", found.expired)]
        # Of one process: what others did, mq-mover too, is not among them.
        facts += [
            (f"{name.replace('_', ' ')} by this process", of) for name, of in found.totals.items()
        ]
        printer.facts(facts)

    run(options, work)


@click.command()
@queue_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@shared_options
def purge(options: Options, queue: str, yes: bool) -> None:
    """Take away all messages of QUEUE that were published until now, in any state."""
    confirm(f"Purge all messages of {queue}?", yes)

    async def work(client: AsyncClient, printer: Printer) -> None:
        before = await client.queue(queue).purge()
        if printer.as_json:
            printer.document({"name": queue, "purged_before": before})
        else:
            printer.line(f"{queue} is purged of what was published until {before.isoformat()}")

    run(options, work)


@click.command()
@queue_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@shared_options
def delete(options: Options, queue: str, yes: bool) -> None:
    """Delete QUEUE, its messages, settings and schedules. Its sideline stays."""
    confirm(f"Delete the queue {queue} and all that is in it?", yes)

    async def work(client: AsyncClient, printer: Printer) -> None:
        await client.queue(queue).delete()
        if printer.as_json:
            printer.document({"name": queue, "deleted": True})
        else:
            printer.line(f"{queue} is deleted")

    run(options, work)
