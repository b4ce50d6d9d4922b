"""`mqctl schedules`: messages that mq publishes repeatedly."""

import sys
from typing import Any

import click

from mq.client.client import AsyncClient
from mq.client.values import Schedule
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.tools.mqctl import completing
from mq.tools.mqctl.arguments import MOMENT, SECONDS, message_options, queue_argument
from mq.tools.mqctl.complaints import problem_said, problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain, shown
from mq.tools.mqctl.reading import Descriptor, Pieces
from mq.tools.mqctl.running import run

_name_argument = click.argument("name", shell_complete=completing.schedules)


@click.group()
def schedules() -> None:
    """List, show, add or remove schedules, which publish a message repeatedly."""


@schedules.command("list")
@queue_argument
@shared_options
def list_(options: Options, queue: str) -> None:
    """List QUEUE's schedules."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).schedules()
        if printer.as_json:
            printer.document({"schedules": [_listed(each) for each in found]})
            return
        rows = [
            (each.name, _when(each), each.next, each.fired, each.skipped)
            if each.problem is None
            else (each.name, problem_text(each.problem), None, None, None)
            for each in found
        ]
        printer.table(("schedule", "when", "next", "fired", "skipped"), rows)

    run(options, work)


@schedules.command("show")
@queue_argument
@_name_argument
@shared_options
def show(options: Options, queue: str, name: str) -> None:
    """Show the schedule NAME of QUEUE and its progress."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        _print(printer, await client.queue(queue).get_schedule(name))

    run(options, work)


@schedules.command("add")
@queue_argument
@_name_argument
@click.argument("message", required=False)
@click.option("--every", "every_s", type=SECONDS, help="Publish at this interval.")
@click.option("--delay", "delay_s", type=SECONDS, help="With --every: delay of the first message.")
@click.option("--cron", metavar="EXPRESSION", help="Five fields, or Quartz syntax.")
@click.option("--tz", metavar="ZONE", help="With --cron, such as Europe/Berlin.")
@click.option("--times", "count", type=click.IntRange(1), help="End after this many messages.")
@click.option("--until", type=MOMENT, help="End at this time (RFC 3339).")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    help="skip: publish none while the previous message still exists.",
)
@click.option(
    "--after",
    type=click.Choice(["due", "done"]),
    help="done: count the next one from the end of the previous message.",
)
@click.option(
    "--misfire",
    type=click.Choice(["once", "skip", "all"]),
    help="Which missed firings to make up for: one, none, or all.",
)
@message_options
@shared_options
def add(options: Options, queue: str, name: str, message: str | None, **attributes: Any) -> None:
    """Add the schedule NAME, which publishes MESSAGE, or else stdin, to QUEUE.

    An identical schedule of this name stays as it is; a different one is replaced.
    """
    if (attributes["every_s"] is None) == (attributes["cron"] is None):
        raise click.UsageError("Give either --every or --cron.")

    async def work(client: AsyncClient, printer: Printer) -> None:
        body = message if message is not None else await _stdin(options)
        found = await client.queue(queue).schedule(name, body, **attributes)
        if printer.as_json:
            printer.document(_listed(found))
        elif found.next is not None:
            printer.line(f"scheduled {name}: next at {shown(found.next)}")
        elif found.waiting:
            printer.line(f"{name} waits for the end of {found.last}")
        else:
            printer.line(f"{name} has ended")

    run(options, work)


@schedules.command("remove")
@queue_argument
@_name_argument
@shared_options
def remove(options: Options, queue: str, name: str) -> None:
    """Remove the schedule NAME of QUEUE. Its messages stay."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await client.queue(queue).delete_schedule(name)
        if printer.as_json:
            printer.document({"name": name, "removed": True})
        else:
            printer.line(f"removed {name}")

    run(options, work)


async def _stdin(options: Options) -> bytes:
    if sys.stdin.isatty() and not options.as_json:
        click.echo("Reading from the terminal; Ctrl-D ends it.", err=True)
    held = b""
    try:
        async for piece in Pieces(Descriptor(sys.stdin.buffer)):
            held += piece
            if len(held) > BODY_HELD_BYTES_MAX:
                why = f"stdin: a schedule's message may have at most {BODY_HELD_BYTES_MAX} bytes"
                raise Failed(ExitCode.REFUSED, why, as_json=options.as_json)
    except OSError as error:
        why = f"stdin: {error.strerror or error}"
        raise Failed(ExitCode.REFUSED, why, as_json=options.as_json) from None
    return held


def _when(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.tz or 'UTC'}"
    return f"every {shown(schedule.every_s)} s"


def _listed(schedule: Schedule) -> dict[str, object]:
    fields: dict[str, object] = plain(schedule)
    if schedule.problem is not None:
        return {"name": schedule.name, "problem": problem_said(schedule.problem)}
    return {name: value for name, value in fields.items() if name not in ("problem", "is_new")}


def _print(printer: Printer, schedule: Schedule) -> None:
    if printer.as_json:
        printer.document(_listed(schedule))
        return
    names = ("next", "waiting", "fired", "skipped", "last", "count", "until", "overlap")
    more = ("after", "misfire", "priority", "key", "visibility_s", "ttl_s", "group", "size")
    printer.facts(
        [
            ("name", schedule.name),
            ("when", _when(schedule)),
            *((name, getattr(schedule, name)) for name in (*names, *more)),
            ("tags", ", ".join(schedule.tags) or None),
            ("body", schedule.body),
            *((f"header {name}", value) for name, value in schedule.headers.items()),
        ]
    )
