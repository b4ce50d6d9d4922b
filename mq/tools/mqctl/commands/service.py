"""mq as a service: `ready`, `members`, `refresh`, and the shells' `completion`."""

from typing import Any

import click
from click.shell_completion import get_completion_class

from mq.client.client import AsyncClient
from mq.tools.mqctl import completing
from mq.tools.mqctl.arguments import QUEUE
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.running import run


@click.command()
@shared_options
def ready(options: Options) -> None:
    """Check whether mq is ready to store messages, and show how durable they are.

    Exits with 0 if ready, 1 if not, 4 if mq does not answer.
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
@click.option(
    "--queue",
    type=QUEUE,
    shell_complete=completing.queues,
    help="Also show which member serves this queue.",
)
@shared_options
def members(options: Options, queue: str | None) -> None:
    """List the mq-mover processes: which one leads, and how many queues each serves."""

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
        printer.table(("member", "state", "connected", "queues", "started", "reported"), rows)
        if queue is not None:
            printer.note(
                f"{queue} is assigned to {found.assigned}"
                if found.assigned
                else f"{queue} is not assigned to a member now"
            )

    run(options, work)


@click.command()
@shared_options
def refresh(options: Options) -> None:
    """Make every process of the root reload the list of queues now."""

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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  eval "$(mqctl completion bash)"             in ~/.bashrc
    zsh:   eval "$(mqctl completion zsh)"              in ~/.zshrc
    fish:  mqctl completion fish > ~/.config/fish/completions/mqctl.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise Failed(ExitCode.REFUSED, f"The installed click has no completion for {shell}.")
    click.echo(kind(ctx.find_root().command, {}, "mqctl", "_MQCTL_COMPLETE").source())
