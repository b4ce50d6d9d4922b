"""The command `mqctl`: a group that imports a command when it is called."""

import importlib
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from mq import __version__
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import group_options


class Place(NamedTuple):
    """The module of a command, and its line in the list of commands."""

    module: str
    about: str


_OF: Final = "mq.tools.mqctl.commands."

SECTIONS: Final[Mapping[str, Mapping[str, Place]]] = {
    "Queues": {
        "queues": Place(_OF + "queues", "List the queues."),
        "create": Place(_OF + "queues", "Create a queue."),
        "describe": Place(_OF + "queues", "Show a queue's counts and totals."),
        "settings": Place(_OF + "queues", "Show or change a queue's settings."),
        "consumers": Place(_OF + "queues", "List a queue's consumers, or end one."),
        "purge": Place(_OF + "queues", "Remove all messages of a queue."),
        "delete": Place(_OF + "queues", "Delete a queue and all its messages."),
    },
    "Messages": {
        "send": Place(_OF + "send", "Publish arguments, files, stdin, or lines of stdin."),
        "receive": Place(_OF + "receive", "Fetch messages; with --ack, delete them afterwards."),
        "peek": Place(_OF + "messages", "List messages without fetching them."),
        "tail": Place(_OF + "messages", "Show messages as they come, without fetching them."),
        "groups": Place(_OF + "messages", "List the groups that wait for a message."),
        "read": Place(_OF + "messages", "Print a message by its id without fetching it."),
        "keys": Place(_OF + "messages", "Read or delete a message by its key."),
        "tags": Place(_OF + "tags", "List, delete or sideline all messages of a tag."),
        "history": Place(_OF + "messages", "Show the events of a message."),
        "failures": Place(
            _OF + "messages", "Show why a message was released or sidelined (dead letter)."
        ),
        "ack": Place(_OF + "settling", "Delete messages."),
        "release": Place(_OF + "settling", "Make messages ready again."),
        "extend": Place(_OF + "settling", "Extend the visibility of messages."),
        "sideline": Place(
            _OF + "settling", "Move messages to the queue's sideline (dead letters)."
        ),
    },
    "Schedules and dead letters": {
        "schedules": Place(_OF + "schedules", "List, show, add or remove schedules."),
        "shovel": Place(_OF + "shovel", "Move sidelined messages back to their queue."),
    },
    "Programs": {
        "worker": Place(_OF + "worker", "Run a worker in one or several processes."),
        "top": Place("mq.tools.mqctl.top.command", "Watch the queues live."),
    },
    "Bulk data": {"pipeline": Place("mq.spark.commands.group", "Run Spark jobs on a root.")},
    "The service": {
        "ready": Place(_OF + "service", "Check whether mq is ready, and show its durability."),
        "members": Place(_OF + "service", "List the mq-mover processes."),
        "refresh": Place(_OF + "service", "Make every process reload the list of queues."),
        "token": Place(_OF + "token", "Create, list or remove tokens and secrets in a token file."),
        "doctor": Place("mq.tools.doctor.command", "Check whether a file system is fit for mq."),
        "fsck": Place("mq.tools.fsck.command", "Check a root, and repair it."),
        "upgrade": Place("mq.tools.fsck.command", "Convert a root of an older format."),
        "completion": Place(_OF + "service", "Print a shell's completion script."),
    },
}
COMMANDS: Final[Mapping[str, Place]] = {
    name: place for section in SECTIONS.values() for name, place in section.items()
}

# What other queues call a command.
_ELSEWHERE: Final[Mapping[str, list[str]]] = {
    "consume": ["receive", "worker"],
    "dlq": ["sideline", "shovel"],
    "nack": ["release"],
    "publish": ["send"],
    "redrive": ["shovel"],
    "requeue": ["release", "shovel"],
    "retry": ["release", "shovel"],
}


class Commands(click.Group):
    """Imports a command when it is called, so that `mqctl --help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click. Raises Failed for a command whose packages are not installed."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        try:
            module = importlib.import_module(place.module)
        except ModuleNotFoundError as error:
            raise Failed(
                ExitCode.REFUSED, f"{cmd_name} needs {error.name}, which is not installed."
            ) from error
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click. Names the nearest commands for an unknown one."""
        name = args[0]
        near = [] if name in COMMANDS else _ELSEWHERE.get(name) or get_close_matches(name, COMMANDS)
        # While click completes a command line, it has no place for an error.
        if near and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {name!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """See click, which would exit with 1 for a broken pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Failed(ExitCode.PIPE_CLOSED) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See click. Imports no command."""
        found = [
            CompletionItem(name, help=place.about)
            for name, place in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click. Lists the commands by section, and imports none."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, place.about) for name, place in commands.items()])


@click.group(
    "mqctl",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success, 1 mq or a file refused, 2 wrong usage, 3 not found or no "
    "message, 4 mq cannot be reached, 5 partial failure, 130 interrupted.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@group_options
def mqctl() -> None:
    """Use mq from the shell.

    Every command takes the options below, before or after its name.
    """


def run(arguments: list[str] | None = None) -> int:
    """Runs a command line, by default the process's own; returns the exit code. Prints errors."""
    try:
        code = mqctl.main(arguments, prog_name="mqctl", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        return int(ExitCode.PIPE_CLOSED)
    except OSError as error:
        # It concerns the output: commands handle errors of files themselves.
        click.echo(f"Error: {error.strerror or error}", err=True)
        return int(ExitCode.REFUSED)
    return code if isinstance(code, int) else int(ExitCode.DONE)


def _have_streams() -> None:
    """Opens /dev/null for a closed standard stream (`>&-`), so that no other file gets its number.
    Reading stdin and writing stdout fail then; stderr is discarded.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def main() -> NoReturn:
    """The entry point: runs the process's command line, and ends with its code."""
    _have_streams()
    code = run()
    try:
        # After an interrupt, do not wait again for a reader that does not read.
        if code < ExitCode.INTERRUPTED:
            sys.stdout.flush()
            sys.exit(code)
    except OSError:
        code = code or int(ExitCode.PIPE_CLOSED)
    # Skip the interpreter's own flush at exit, which would fail or wait.
    sys.stderr.flush()
    os._exit(code)
