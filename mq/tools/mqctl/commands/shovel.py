"""`mqctl shovel`: moves sidelined messages back to their queue (a redrive)."""

import asyncio
from typing import Any, Final

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mq.client.client import AsyncClient
from mq.client.queue import AsyncQueue
from mq.client.values import ShovelProgress
from mq.tools.mqctl.arguments import SECONDS, queue_argument
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain
from mq.tools.mqctl.running import run

_POLL_EVERY_S: Final = 0.5
_BAD_STATES: Final = ("failed", "interrupted")


@click.group()
def shovel() -> None:
    """Move sidelined messages back to their queue (redrive): start, show, stop."""


@shovel.command("start")
@queue_argument
@click.option("--limit", type=click.IntRange(1), help="The most messages to move.")
@click.option("--rate", type=click.IntRange(1), help="The most messages per second.")
@click.option(
    "--older-than",
    "older_than_s",
    type=SECONDS,
    help="Only those sidelined at least this long ago.",
)
@click.option("--key", help="Only this key, or a prefix: eu-*.")
@click.option("--priority", help="Only this priority, or a range: 5.., 3..7.")
@click.option(
    "--max-receives",
    type=click.IntRange(0),
    help="Leave those received this often; 0: none. [default: the queue's setting]",
)
@click.option("--dry-run", is_flag=True, help="Count the messages without moving them.")
@click.option("--wait", is_flag=True, help="Wait for its end, with a progress bar.")
@shared_options
def start(options: Options, queue: str, wait: bool, dry_run: bool, **criteria: Any) -> None:
    """Start to move QUEUE's sidelined messages back. mq runs it; Ctrl-C only ends --wait."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        total = (await where.describe()).sidelined if wait else 0
        run_id = await where.shovel(dry_run=dry_run or None, **criteria)
        if wait:
            _print(await _watch(where, printer, total), printer, options)
        elif printer.as_json:
            printer.document({"id": run_id, "queue": queue})
        else:
            printer.line(run_id)

    run(options, work)


@shovel.command("show")
@queue_argument
@click.option("--follow", is_flag=True, help="Wait for its end, with a progress bar.")
@shared_options
def show(options: Options, queue: str, follow: bool) -> None:
    """Show the progress of QUEUE's shovel, or its last run."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        found = await where.shovel_progress()
        if follow and not found.is_over:
            total = found.looked_at + (await where.describe()).sidelined
            found = await _watch(where, printer, total)
        _print(found, printer, options)

    run(options, work)


@shovel.command("stop")
@queue_argument
@shared_options
def stop(options: Options, queue: str) -> None:
    """Stop QUEUE's shovel after the messages that it is moving."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).stop_shovel()
        if printer.as_json:
            printer.document(found)
        else:
            printer.facts(_facts(found))

    run(options, work)


async def _watch(where: AsyncQueue, printer: Printer, total: int) -> ShovelProgress:
    """Polls until the run ends. `total` is a guess: messages enter and leave the sideline."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} looked at, {task.fields[moved]} moved"),
        TimeElapsedColumn(),
        console=printer.console(of_err=True),
        transient=True,
        disable=not printer.err_is_terminal,
    )
    with bar:
        task = bar.add_task(where.name, total=max(total, 1), moved=0)
        while True:
            found = await where.shovel_progress()
            bar.update(
                task,
                completed=found.looked_at,
                total=max(total, found.looked_at, 1),
                moved=found.moved,
            )
            if found.is_over:
                return found
            await asyncio.sleep(_POLL_EVERY_S)


def _print(found: ShovelProgress, printer: Printer, options: Options) -> None:
    """Prints the progress. Raises Failed for a run that failed or left messages."""
    if printer.as_json:
        printer.document(plain(found))
    else:
        printer.facts(_facts(found))
    if found.state in _BAD_STATES or (found.is_over and found.failed):
        message = f"The run is {found.state}; {found.failed} messages could not be moved."
        raise Failed(ExitCode.PARTLY, message, as_json=options.as_json)


def _facts(found: ShovelProgress) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [("queue", found.queue), ("state", found.state)]
    if found.id is not None:
        facts += [
            ("id", found.id),
            ("by", found.by),
            ("dry run", found.dry_run),
            ("criteria", found.criteria),
            ("began", found.began),
            ("ended", found.ended),
            ("looked at", found.looked_at),
            ("moved", found.moved),
            ("failed", found.failed),
            ("error", found.error),
        ]
        facts += [(f"stayed, {why}", count) for why, count in found.stayed.items()]
    if found.next is not None:
        facts.append(("next", found.next))
    return facts
