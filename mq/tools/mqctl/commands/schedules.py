"""`mqctl schedules`: what is published again and again."""

import sys
from datetime import datetime
from typing import Literal

import click

from mq.client.client import AsyncClient
from mq.client.values import Schedule
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.tools.mqctl.arguments import MOMENT, SECONDS, headers_of, message_options, queue_argument
from mq.tools.mqctl.complaints import problem_said, problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer, plain, shown
from mq.tools.mqctl.reading import Descriptor, Pieces
from mq.tools.mqctl.running import run

_name_argument = click.argument("name")


@click.group()
def schedules() -> None:
    """What publishes a message again and again: list, show, add, remove."""


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
    """Show what the schedule NAME of QUEUE says, and how far it is."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        _print(printer, await client.queue(queue).get_schedule(name))

    run(options, work)


@schedules.command("add")
@queue_argument
@_name_argument
@click.argument("message", required=False)
@click.option("--every", type=SECONDS, default=None, help="Every so many seconds.")
@click.option("--delay", type=SECONDS, default=None, help="With --every: the first after so many.")
@click.option("--cron", default=None, metavar="EXPRESSION", help="Five fields, or Quartz's.")
@click.option("--tz", default=None, metavar="ZONE", help="With --cron, such as Europe/Berlin.")
@click.option("--times", type=click.IntRange(1), default=None, help="So many times, then no more.")
@click.option("--until", type=MOMENT, default=None, help="Not after this time (RFC 3339).")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    default=None,
    help="skip: publish none while the last one still lives.",
)
@message_options
@shared_options
def add(
    options: Options,
    queue: str,
    name: str,
    message: str | None,
    every: float | None,
    delay: float | None,
    cron: str | None,
    tz: str | None,
    times: int | None,
    until: datetime | None,
    overlap: Literal["allow", "skip"] | None,
    priority: int | None,
    key: str | None,
    visibility: int | None,
    headers: tuple[tuple[str, str], ...],
    content_type: str | None,
) -> None:
    """Have MESSAGE, else what stdin says, published to QUEUE by the schedule NAME.

    One that says the same as what is there changes nothing; any other takes its place.
    """
    if (every is None) == (cron is None):
        raise click.UsageError("Say --every or --cron.")
    kept = headers_of(headers)

    async def work(client: AsyncClient, printer: Printer) -> None:
        found = await client.queue(queue).schedule(
            name,
            message if message is not None else await _stdin(options),
            every_s=every,
            delay_s=delay,
            cron=cron,
            tz=tz,
            count=times,
            until=until,
            overlap=overlap,
            priority=priority,
            key=key,
            visibility_s=visibility,
            headers=kept,
            content_type=content_type,
        )
        if printer.as_json:
            printer.document(_listed(found))
        else:
            printer.line(
                f"{name} is next at {shown(found.next)}" if found.next else f"{name} is over"
            )

    run(options, work)


@schedules.command("remove")
@queue_argument
@_name_argument
@shared_options
def remove(options: Options, queue: str, name: str) -> None:
    """Have the schedule NAME of QUEUE publish no more. Its messages stay."""

    async def work(client: AsyncClient, printer: Printer) -> None:
        await client.queue(queue).delete_schedule(name)
        if printer.as_json:
            printer.document({"name": name, "removed": True})
        else:
            printer.line(f"{name} is removed")

    run(options, work)


async def _stdin(options: Options) -> bytes:
    if sys.stdin.isatty() and not options.as_json:
        click.echo("Reading from the terminal; Ctrl-D ends it.", err=True)
    held = b""
    try:
        async for piece in Pieces(Descriptor(sys.stdin.buffer)):
            held += piece
            if len(held) > BODY_HELD_BYTES_MAX:
                why = f"stdin: a schedule's message has at most {BODY_HELD_BYTES_MAX} bytes"
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
    said: dict[str, object] = plain(schedule)
    if schedule.problem is not None:
        return {"name": schedule.name, "problem": problem_said(schedule.problem)}
    return {name: value for name, value in said.items() if name not in ("problem", "is_new")}


def _print(printer: Printer, schedule: Schedule) -> None:
    if printer.as_json:
        printer.document(_listed(schedule))
        return
    names = ("next", "fired", "skipped", "last", "count", "until", "overlap")
    more = ("priority", "key", "visibility_s", "size", "body")
    printer.facts(
        [
            ("name", schedule.name),
            ("when", _when(schedule)),
            *((name, getattr(schedule, name)) for name in (*names, *more)),
            *((f"header {name}", value) for name, value in schedule.headers.items()),
        ]
    )
