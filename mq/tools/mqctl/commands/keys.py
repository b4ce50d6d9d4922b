"""`mqctl keys`: a message by its lookup key."""

import click

from mq.client.client import AsyncClient
from mq.tools.mqctl.arguments import queue_argument
from mq.tools.mqctl.commands.messages import print_stored, stored_by_key
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.running import run


@click.group()
def keys() -> None:
    """Read or delete the message that has a lookup key."""


@keys.command("read")
@queue_argument
@click.argument("key")
@click.option("--facts", is_flag=True, help="Its state, times and headers instead of its body.")
@shared_options
def read(options: Options, queue: str, key: str, facts: bool) -> None:
    """Print the message of QUEUE that has KEY, consuming nothing."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await print_stored(stored_by_key(client, queue, key), printer, facts)

    run(options, work)


@keys.command("delete")
@queue_argument
@click.argument("key")
@click.option(
    "--receives", type=click.IntRange(0), default=None, help="Only while it was received so often."
)
@shared_options
def delete(options: Options, queue: str, key: str, receives: int | None) -> None:
    """Delete the message of QUEUE that has KEY."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await client.queue(queue).delete_key(key, receives=receives)
        if printer.as_json:
            printer.document({"key": key, "deleted": True})
        else:
            printer.line(f"deleted {key}")

    run(options, work)
