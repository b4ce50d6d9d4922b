"""The daemons' flags and variables, as click has them."""

from collections.abc import Iterator

import click

from mq.cli import main as mq
from mq_mover.cli import main as mq_mover
from mq_reaper.cli import main as mq_reaper

COMMANDS = {"mq": mq, "mq-mover": mq_mover, "mq-reaper": mq_reaper}


def variables(command: click.Command) -> set[str]:
    """The variables of a command's flags."""
    context = click.Context(command, **command.context_settings)
    return {name for option in command.params for name in _names(option, context)}


def _names(option: click.Parameter, context: click.Context) -> Iterator[str]:
    if isinstance(option.envvar, str):
        yield option.envvar
    elif getattr(option, "allow_from_autoenv", False):
        yield f"{context.auto_envvar_prefix}_{str(option.name).upper()}"
