"""`mqctl receive`: fetches messages and prints or saves them; with --ack it then deletes them."""

from pathlib import Path
from typing import Any

import click

from mq.client.client import AsyncClient
from mq.store.disk.files import Files
from mq.tools.mqctl.arguments import SECONDS, queue_argument
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.inbox import Inbox
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.receiving import Receiving, Wanted
from mq.tools.mqctl.running import run


@click.command()
@queue_argument
@click.option("--count", type=click.IntRange(1), help="The most messages to receive. [default: 1]")
@click.option("--wait", "wait_s", type=SECONDS, default=0.0, help="Wait this long for a message.")
@click.option(
    "--follow", is_flag=True, help="Continue without end, or to --count, across restarts of mq."
)
@click.option("--ack", is_flag=True, help="Delete each message after it is written and flushed.")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save each message as a file in this folder, named by its id, and print the path. The "
    "file is on stable media before the message is deleted.",
)
@click.option(
    "--visibility", "visibility_s", type=SECONDS, help="How long other consumers do not see them."
)
@click.option(
    "--select",
    multiple=True,
    metavar="TERMS",
    help="Only messages that match all terms: priority:5.., key:eu-*, content-type:text/*, "
    "header:ce-type=order.*",
)
@shared_options
def receive(options: Options, queue: str, folder: Path | None, **asked: Any) -> None:
    """Fetch one message from QUEUE and print its bytes; or --count messages, each with a line end
    after it.

    Without --ack a message returns to the queue when its visibility ends. Exits with 3 if there is
    no message, and with 5 if a message could not be deleted.
    """
    wanted = Wanted(**asked)
    if wanted.follow and not wanted.ack:
        raise click.UsageError("--follow requires --ack, or else the same messages return.")
    if wanted.follow and wanted.wait_s:
        raise click.UsageError("--follow waits without end. Leave out --wait.")
    inbox = None if folder is None else Inbox(folder, Files())
    if inbox is not None:
        try:
            inbox.open()
        except OSError as error:
            why = f"{folder}: {error.strerror or error}"
            raise Failed(ExitCode.REFUSED, why, as_json=options.as_json) from None

    async def work(client: AsyncClient, printer: Printer) -> None:
        await Receiving(client.queue(queue), wanted, inbox, printer, options).run()

    run(options, work)
