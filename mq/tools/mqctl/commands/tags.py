"""`mqctl tags`: lists, deletes or sidelines the messages of a tag, and shows their history."""

import click

from mq.client.client import AsyncClient
from mq.client.values import Reason, TaggedMessage
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.protocol.fetching import PEEK_MESSAGES_DEFAULT
from mq.tools.mqctl.arguments import queue_argument
from mq.tools.mqctl.commands.messages import not_recording, print_events
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain
from mq.tools.mqctl.running import run


@click.group()
def tags() -> None:
    """List, delete or sideline all messages of a tag, or show their history."""


@tags.command("list")
@queue_argument
@click.argument("tag")
@click.option(
    "--count",
    type=click.IntRange(1),
    default=PEEK_MESSAGES_DEFAULT,
    show_default=True,
    help="The most messages to list.",
)
@click.option("--after", metavar="ID", help="Start after this id.")
@shared_options
def list_tag(options: Options, queue: str, tag: str, count: int, after: str | None) -> None:
    """List the messages of QUEUE that have TAG: ids and states."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found: list[TaggedMessage] = []
        behind = after
        while len(found) < count:
            wanted = min(count - len(found), BATCH_MESSAGES_MAX)
            page = await client.queue(queue).tagged(tag, count=wanted, after=behind)
            found += page.messages
            behind = page.after
            if behind is None:
                break
        if printer.as_json:
            printer.document({"messages": [plain(each) for each in found], "after": behind})
        else:
            printer.table(("id", "state"), [(each.id, each.state) for each in found])

    run(options, work)


@tags.command("delete")
@queue_argument
@click.argument("tag")
@shared_options
def delete_tag(options: Options, queue: str, tag: str) -> None:
    """Delete all messages of QUEUE that have TAG."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        _print(printer, "deleted", tag, await client.queue(queue).delete_tagged(tag))

    run(options, work)


@tags.command("sideline")
@queue_argument
@click.argument("tag")
@click.option(
    "--reason",
    type=click.Choice(("rejected", "exception")),
    default="rejected",
    show_default=True,
    help="The reason to record.",
)
@shared_options
def sideline_tag(options: Options, queue: str, tag: str, reason: Reason) -> None:
    """Move all messages of QUEUE that have TAG to its sideline."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        done = await client.queue(queue).sideline_tagged(tag, reason=reason)
        _print(printer, "sidelined", tag, done)

    run(options, work)


@tags.command("history")
@queue_argument
@click.argument("tag")
@shared_options
def tag_history(options: Options, queue: str, tag: str) -> None:
    """Show the events of messages that were published to QUEUE with TAG.

    QUEUE's setting `history` must be true.
    """

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).tag_history(tag)
        print_events(printer, found, ("time", "event", "id", "receives", "due", "reason"))
        if not found.recording and not printer.as_json:
            printer.note(not_recording(queue))

    run(options, work)


def _print(printer: Printer, what: str, tag: str, count: int) -> None:
    if printer.as_json:
        printer.document({"tag": tag, what: count})
    else:
        printer.line(f"{what} {count}")
