"""mq as a service: `ready`, `members`, `refresh`."""

from typing import Any

import click

from mq.client.client import AsyncClient
from mq.tools.mqctl.arguments import QUEUE
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.running import run


@click.command()
@shared_options
def ready(options: Options) -> None:
    """Say whether mq can persist now, and what a success promises there.

    Exits with 0 when it can, with 1 when it cannot, with 4 when it does not answer.
    """

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.readiness()
        if printer.as_json:
            printer.document(found)
            return
        printer.facts(
            [
                ("durability", found.durability),
                ("file system", found.file_system),
                ("commit", found.commit),
                ("free bytes", found.free_bytes),
                ("free inodes", found.free_inodes),
                ("below reserve", found.below_reserve),
            ]
        )

    run(options, work)


@click.command()
@click.option("--queue", type=QUEUE, default=None, help="Say whose this queue is, too.")
@shared_options
def members(options: Options, queue: str | None) -> None:
    """List the mq-mover processes, who leads, and what each does."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.members(queue)
        if printer.as_json:
            document: dict[str, Any] = {
                "leader": found.leader,
                "members": [each.said for each in found.members],
            }
            if queue is not None:
                document["assigned"] = {queue: found.assigned}
            printer.document(document)
            return
        rows = [
            (
                each.name,
                "gone" if each.gone else "leads" if each.leads else "follows",
                each.connected,
                each.queues_count,
                each.started,
                each.told,
            )
            for each in found.members
        ]
        printer.table(("member", "state", "connected", "queues", "started", "told"), rows)
        if queue is not None:
            printer.note(f"{queue} is of {found.assigned or 'nobody at this moment'}")

    run(options, work)


@click.command()
@shared_options
def refresh(options: Options) -> None:
    """Have every process of the root look at all queues now."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.refresh()
        if printer.as_json:
            printer.document(found)
        else:
            printer.facts(
                [
                    ("queues", found.queues),
                    ("new", found.new),
                    ("changed", found.changed),
                    ("gone", found.gone),
                ]
            )

    run(options, work)
