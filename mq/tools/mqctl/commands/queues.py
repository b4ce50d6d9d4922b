"""Queues: `queues`, `create`, `describe`, `settings`, `consumers`, `purge`, `delete`."""

import asyncio
import json
from typing import Any, Final

import click

from mq.client.client import AsyncClient
from mq.client.errors import QueueNotFound
from mq.client.together import together
from mq.client.values import Description, QueueEntry
from mq.tools.mqctl import completing
from mq.tools.mqctl.arguments import Kind, confirm, queue_argument
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.running import run

_DESCRIBED_AT_ONCE: Final = 16
_COUNTS: Final = (
    "ready",
    "delayed",
    "in_flight",
    "leased",
    "overdue",
    "removed",
    "sidelined",
    "foreign",
)
_CONSUMER: Final = (
    *("consumer", "via", "address", "since", "active", "priority", "credit", "in flight"),
    *("delivered", "a second", "select"),
)


@click.command()
@click.option("--counts", is_flag=True, help="Show the counts of each, with one request per queue.")
@shared_options
def queues(options: Options, counts: bool) -> None:
    """List the queues and their sidelines by name."""

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
    """The descriptions of the queues that still exist, in their order."""
    turn = asyncio.Semaphore(_DESCRIBED_AT_ONCE)

    async def describe(entry: QueueEntry) -> Description | None:
        async with turn:
            try:
                return await client.queue(entry.name).describe()
            except QueueNotFound:
                return None

    described = await together(*(describe(entry) for entry in entries))
    return [found for found in described if found is not None]


@click.command()
@queue_argument
@click.option(
    "--bucket",
    type=click.IntRange(7, 9),
    help="The width of a large backlog's time windows: 7 is 17 minutes, 8 (the default) 65 s, 9 "
    "four seconds. Cannot be changed later.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 16),
    help="The number of parts of each window, for daemons with --peers. Cannot be changed later.",
)
@shared_options
def create(options: Options, queue: str, bucket: int | None, shards: int | None) -> None:
    """Create QUEUE. An existing queue stays as it is, and the command succeeds."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        is_new = await client.queue(queue).create(bucket=bucket, shards=shards)
        if printer.as_json:
            printer.document({"name": queue, "created": is_new})
        else:
            printer.line(f"created {queue}" if is_new else f"{queue} exists already")

    run(options, work)


@click.command()
@queue_argument
@shared_options
def describe(options: Options, queue: str) -> None:
    """Show how many messages QUEUE has in each state, and its totals.

    A total "in all" counts from the creation of QUEUE, over all processes; one "by this process"
    from the start of the mq process that answers.
    """

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).describe()
        if printer.as_json:
            printer.document(found.said)
            return
        facts: list[tuple[str, object]] = [("name", found.name)]
        facts += [(name.replace("_", " "), getattr(found, name)) for name in _COUNTS]
        facts += [("oldest ready, s", found.oldest_ready_age_s), ("expired", found.expired)]
        facts += [(f"{name} in all", of) for name, of in found.lifetime.items()]
        # Other processes, mq-mover too, have totals of their own.
        facts += [
            (f"{name.replace('_', ' ')} by this process", of) for name, of in found.totals.items()
        ]
        printer.facts(facts)

    run(options, work)


class _Change(Kind):
    """`name=value`; the value is JSON, or else a string."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form NAME=VALUE", param, ctx)
        try:
            return name, json.loads(text, parse_constant=str)
        except ValueError:
            return name, text


@click.command()
@queue_argument
@click.argument(
    "changes",
    nargs=-1,
    type=_Change(),
    metavar="[NAME=VALUE]...",
    shell_complete=completing.settings,
)
@click.option(
    "--if-match", metavar="ETAG", help="Change nothing unless the settings still have this etag."
)
@shared_options
def settings(
    options: Options, queue: str, changes: tuple[tuple[str, Any], ...], if_match: str | None
) -> None:
    """Show QUEUE's settings, or change the named ones, all or none.

    NAME=null restores the default.
    """
    if if_match is not None and not changes:
        raise click.UsageError("--if-match requires a change: add NAME=VALUE.")
    if len({name for name, _ in changes}) < len(changes):
        raise click.UsageError("A setting is given twice.")
    etag = None if if_match is None else f'"{if_match.removeprefix("W/").strip(chr(34))}"'

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        if changes:
            found = await where.change_settings(dict(changes), if_match=etag)
        else:
            found = await where.settings()
        if printer.as_json:
            printer.document({"settings": found.values, "etag": found.etag})
        else:
            # In the form that the command accepts.
            values = [(name, _text(value)) for name, value in found.values.items()]
            printer.facts([*values, ("etag", found.etag.strip('"'))])

    run(options, work)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@click.command()
@queue_argument
@click.option("--end", "ended", metavar="ID", help="End this consumer; its messages are released.")
@shared_options
def consumers(options: Options, queue: str, ended: str | None) -> None:
    """List who consumes QUEUE now, in all processes of mq; with --end, end one."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        if ended is not None:
            await where.end_consumer(ended)
            if printer.as_json:
                printer.document({"id": ended, "ended": True})
            else:
                printer.line(f"ended {ended}")
            return
        found = await where.consumers()
        if printer.as_json:
            each = [one.said for one in found.consumers]
            printer.document({"consumers": each, "complete": found.complete})
            return
        rows = [
            (
                one.id,
                one.via,
                one.address + (f" ({one.caller})" if one.caller else ""),
                one.since,
                "yes" if one.active else "waits",
                one.priority,
                one.credit,
                one.in_flight,
                one.delivered,
                one.deliveries_per_s,
                one.select,
            )
            for one in found.consumers
        ]
        printer.table(_CONSUMER, rows)
        if not found.complete:
            printer.note("there may be more: a process did not answer, or has too many to list")

    run(options, work)


@click.command()
@queue_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def purge(options: Options, queue: str, yes: bool) -> None:
    """Remove all messages of QUEUE that were published until now, in any state."""
    confirm(f"Remove all messages of {queue}?", yes)

    async def work(client: AsyncClient, printer: Printer) -> None:
        before = await client.queue(queue).purge()
        if printer.as_json:
            printer.document({"name": queue, "purged_before": before})
        else:
            printer.line(f"purged {queue}: all messages published until {before.isoformat()}")

    run(options, work)


@click.command()
@queue_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def delete(options: Options, queue: str, yes: bool) -> None:
    """Delete QUEUE with its messages, settings and schedules. Its sideline stays."""
    confirm(f"Delete the queue {queue} and all its messages?", yes)

    async def work(client: AsyncClient, printer: Printer) -> None:
        await client.queue(queue).delete()
        if printer.as_json:
            printer.document({"name": queue, "deleted": True})
        else:
            printer.line(f"deleted {queue}")

    run(options, work)
