"""`mqctl shovel`: what was sidelined goes back to its queue."""

import asyncio
from typing import Final

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mq.client.client import AsyncClient
from mq.client.queue.queue import AsyncQueue
from mq.client.values import ShovelProgress
from mq.tools.mqctl.arguments import SECONDS, queue_argument
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain
from mq.tools.mqctl.running import run

_LOOK_EVERY_S: Final = 0.5
_BAD_STATES: Final = ("failed", "interrupted")


@click.group()
def shovel() -> None:
    """Bring what was sidelined back to its queue: start, show, stop."""


@shovel.command("start")
@queue_argument
@click.option("--limit", type=click.IntRange(1), default=None, help="Move so many at most.")
@click.option("--rate", type=click.IntRange(1), default=None, help="So many a second at most.")
@click.option(
    "--older-than", type=SECONDS, default=None, help="Those sidelined so many seconds ago or more."
)
@click.option("--key", default=None, help="Those with this key, or one that begins so: eu-*.")
@click.option("--priority", default=None, help="Those of this priority, or a range: 5.., 3..7.")
@click.option(
    "--max-receives",
    type=click.IntRange(0),
    default=None,
    help="Those received so often stay; 0: none does. Else as the queue's setting says.",
)
@click.option("--dry-run", is_flag=True, help="Count, and move nothing.")
@click.option("--wait", is_flag=True, help="Until it is over, with a progress bar.")
@shared_options
def start(
    options: Options,
    queue: str,
    limit: int | None,
    rate: int | None,
    older_than: float | None,
    key: str | None,
    priority: str | None,
    max_receives: int | None,
    dry_run: bool,
    wait: bool,
) -> None:
    """Begin to move QUEUE's sidelined messages back. Ctrl-C under --wait leaves it running."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        total = (await where.describe()).sidelined if wait else 0
        run_id = await where.shovel(
            limit=limit,
            rate=rate,
            older_than_s=older_than,
            key=key,
            priority=priority,
            max_receives=max_receives,
            dry_run=dry_run or None,
        )
        if wait:
            _tell(await _watch(where, printer, total), printer, options)
        elif printer.as_json:
            printer.document({"id": run_id, "queue": queue})
        else:
            printer.line(run_id)

    run(options, work)


@shovel.command("show")
@queue_argument
@click.option("--follow", is_flag=True, help="Until it is over, with a progress bar.")
@shared_options
def show(options: Options, queue: str, follow: bool) -> None:
    """Show how far QUEUE's shovel is, or what came of its last run."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        found = await where.shovel_progress()
        if follow and not found.is_over:
            total = found.looked_at + (await where.describe()).sidelined
            found = await _watch(where, printer, total)
        _tell(found, printer, options)

    run(options, work)


@shovel.command("stop")
@queue_argument
@shared_options
def stop(options: Options, queue: str) -> None:
    """Have QUEUE's shovel end after what it has in hand."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).stop_shovel()
        if printer.as_json:
            printer.document(found)
        else:
            printer.facts(_facts(found))

    run(options, work)


async def _watch(where: AsyncQueue, printer: Printer, total: int) -> ShovelProgress:
    """Looks until it is over. The bar goes to stderr, where somebody sees it; `total` is a guess:
    messages come to a sideline, and leave it, while it runs.
    """
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
            await asyncio.sleep(_LOOK_EVERY_S)


def _tell(found: ShovelProgress, printer: Printer, options: Options) -> None:
    """Prints how it stands. Raises Failed where a run came to no good end."""
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
