"""`mqctl settings`: a queue's settings, shown and changed."""

import json
from typing import Any

import click

from mq.client.client import AsyncClient
from mq.tools.mqctl.arguments import Kind, queue_argument
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.running import run


class _Change(Kind):
    """`name=value`, where the value is JSON, or else a text."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """See click."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is no name=value", param, ctx)
        try:
            return name, json.loads(text, parse_constant=str)
        except ValueError:
            return name, text


@click.command()
@queue_argument
@click.argument("changes", nargs=-1, type=_Change(), metavar="[NAME=VALUE]...")
@click.option(
    "--if-match",
    default=None,
    metavar="ETAG",
    help="Change nothing unless the settings are those that had this etag.",
)
@shared_options
def settings(
    options: Options, queue: str, changes: tuple[tuple[str, Any], ...], if_match: str | None
) -> None:
    """Show QUEUE's settings; or change those that are named, all of them or none.

    NAME=null restores the default.
    """
    if if_match is not None and not changes:
        raise click.UsageError("--if-match is for a change: say NAME=VALUE.")
    if len({name for name, _ in changes}) < len(changes):
        raise click.UsageError("A setting is said twice.")
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
            # As JSON, so that what is shown can be said.
            values = [(name, _text(value)) for name, value in found.values.items()]
            printer.facts([*values, ("etag", found.etag.strip('"'))])

    run(options, work)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
