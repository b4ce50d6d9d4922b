"""The command `mqctl pipeline`: a group that imports a job's command when it is called."""

import importlib
from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem

from mq.tools.mqctl.exits import ExitCode, Failed

_OF: Final = "mq.spark.commands."
# Each command's module contains it under its own name.
JOBS: Final[Mapping[str, str]] = {
    "archive": "Keep removed messages as Parquet, before mq-reaper takes them.",
    "history": "Rates, latencies and backlog over time, as tables and a report.",
    "drain": "Take all of a queue to Parquet, CSV or JSON lines.",
    "load": "Publish drained messages, or files of one's own.",
    "shovel": "Move what an SQL condition chooses to another queue.",
    "replay": "Publish archived messages again.",
    "audit": "Hold tens of millions of names against the disk format.",
}
_EXTRA: Final = "pip install 'mq[spark]'"


class Jobs(click.Group):
    """Imports a job's command when it is called, so that the list of all jobs imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click. Raises Failed where Spark is not installed."""
        if cmd_name not in JOBS:
            return None
        try:
            module = importlib.import_module(_OF + cmd_name)
        except ModuleNotFoundError as error:
            raise Failed(
                ExitCode.USAGE, f"pipeline {cmd_name} needs {error.name}: {_EXTRA}"
            ) from error
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See click. Names of jobs; imports nothing."""
        found = [
            CompletionItem(name, help=about)
            for name, about in JOBS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click. Imports nothing."""
        with formatter.section("Jobs"):
            formatter.write_dl(list(JOBS.items()))


@click.group("pipeline", cls=Jobs)
def pipeline() -> None:
    """Handle messages in bulk, as jobs of Spark over a root's folders.

    A job runs on all cores of this machine, on a cluster with --master, or on a Spark Connect
    server with --remote. `spark-submit submit.py JOB ...` runs it too; `python -m
    mq.spark.commands.submit --where` says where that file is.
    """
