"""`mqctl receive`: fetches messages, prints or keeps them, and deletes them where that is said."""

from pathlib import Path

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
@click.option("--count", type=click.IntRange(1), default=None, help="At most so many, not one.")
@click.option(
    "--wait", type=SECONDS, default=0.0, help="Wait for so long where there is nothing yet."
)
@click.option(
    "--follow", is_flag=True, help="Go on for ever, or up to --count; also when mq was away."
)
@click.option("--ack", is_flag=True, help="Delete each message once it is written out and flushed.")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Keep each message in a file of this folder, named by its id, and print the file's path. "
    "It is on stable media there before it is deleted from the queue.",
)
@click.option(
    "--visibility", type=SECONDS, default=None, help="For how long the messages are yours."
)
@click.option(
    "--select",
    multiple=True,
    metavar="TERMS",
    help="Those alone of which all terms hold: priority:5.., key:eu-*, content-type:text/*, "
    "header:ce-type=order.*",
)
@shared_options
def receive(
    options: Options,
    queue: str,
    count: int | None,
    wait: float,
    follow: bool,
    ack: bool,
    folder: Path | None,
    visibility: float | None,
    select: tuple[str, ...],
) -> None:
    """Fetch from QUEUE: one message, whose bytes are printed as they are, or --count, each with a
    line's end behind it.

    Without --ack a message comes back when its visibility is over. Exits with 3 where there is
    nothing, and with 5 where a message came too late to be deleted.
    """
    if follow and not ack:
        raise click.UsageError("--follow needs --ack: else the same messages come round again.")
    if follow and wait:
        raise click.UsageError("--follow waits for ever: say no --wait with it.")
    wanted = Wanted(
        count=count if follow or count is not None else 1,
        is_one=count is None and not follow,
        wait_s=wait,
        follow=follow,
        ack=ack,
        visibility_s=visibility,
        select=select,
    )
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
