"""The command `mqctl`: a group whose commands are imported when they are said, and how it ends."""

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from mq import __version__
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import group_options


class Place(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    module: str
    about: str
    attribute: str = ""


_OF: Final = "mq.tools.mqctl.commands."

SECTIONS: Final[Mapping[str, Mapping[str, Place]]] = {
    "Queues": {
        "queues": Place(_OF + "queues", "List the queues."),
        "create": Place(_OF + "queues", "Make a queue."),
        "describe": Place(_OF + "queues", "Show a queue's counts and totals."),
        "settings": Place(_OF + "settings", "Show or change a queue's settings."),
        "purge": Place(_OF + "queues", "Take away all that was published until now."),
        "delete": Place(_OF + "queues", "Delete a queue and all that is in it."),
    },
    "Messages": {
        "send": Place(_OF + "send", "Publish: an argument, files, stdin, or its lines."),
        "receive": Place(_OF + "receive", "Fetch messages; with --ack, delete them then."),
        "peek": Place(_OF + "messages", "Show messages, consuming nothing."),
        "read": Place(_OF + "messages", "Print a message by its id, consuming nothing."),
        "keys": Place(_OF + "keys", "Read or delete a message by its key."),
        "history": Place(_OF + "messages", "Show what became of a message."),
        "ack": Place(_OF + "settling", "Delete messages."),
        "release": Place(_OF + "settling", "Have messages be ready again."),
        "extend": Place(_OF + "settling", "Keep messages for longer."),
        "sideline": Place(_OF + "settling", "Put messages out of their queue's way."),
    },
    "Recurring and failed": {
        "schedules": Place(_OF + "schedules", "List, show, add, remove schedules."),
        "shovel": Place(_OF + "shovel", "Bring back what was sidelined."),
    },
    "Programs": {
        "worker": Place(_OF + "worker", "Run a worker of yours, in several processes."),
        "top": Place("mq.tools.mqctl.top.command", "Watch the queues live."),
        "bench": Place("mq.tools.mqctl.bench.command", "Measure publish, fetch and delete."),
    },
    "In bulk": {
        "pipeline": Place("mq.spark.commands.group", "Run jobs of Spark over a root."),
    },
    "The service": {
        "ready": Place(_OF + "service", "Say whether mq can persist now, and how durably."),
        "members": Place(_OF + "service", "List who does the upkeep."),
        "refresh": Place(_OF + "service", "Have all processes look at all queues now."),
        "token": Place(_OF + "token", "Make, list and remove tokens of mq's file."),
        "doctor": Place("mq.tools.doctor.command", "Probe what a folder's file system can do."),
        "fsck": Place("mq.tools.fsck.command", "Audit a root, and repair it."),
        "completion": Place(_OF + "completion", "Print a shell's completion."),
    },
}
COMMANDS: Final[Mapping[str, Place]] = {
    name: place for section in SECTIONS.values() for name, place in section.items()
}


class Commands(click.Group):
    """Imports a command when it is said, so that the list of all costs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click. Raises Failed where what it needs is not installed."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        try:
            module = importlib.import_module(place.module)
        except ModuleNotFoundError as error:
            raise Failed(
                ExitCode.REFUSED, f"{cmd_name} needs {error.name}, which is not installed."
            ) from error
        command: click.Command = getattr(module, place.attribute or cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """See click, which has a broken pipe be a failure like others."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Failed(ExitCode.PIPE_CLOSED) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See click: names of commands, importing nothing."""
        found = [
            CompletionItem(name, help=place.about)
            for name, place in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click: by sections, and importing nothing."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, place.about) for name, place in commands.items()])


@click.group(
    "mqctl",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 mq refused or failed, 2 wrong usage, 3 nothing there, 4 mq "
    "cannot be reached, 5 partly done or something is wrong, 130 interrupted.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@group_options
def mqctl() -> None:
    """Speak to mq from the shell: queues, messages, schedules, shovels.

    The options here may also stand behind a command's name.
    """


def run(arguments: list[str] | None = None) -> int:
    """Runs a command line, the process's own unless given; the exit code. What is complained of
    is on stderr by then.
    """
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
        # Of the output: commands tell of files themselves.
        click.echo(f"Error: {error.strerror or error}", err=True)
        return int(ExitCode.REFUSED)
    return code if isinstance(code, int) else int(ExitCode.DONE)


def _have_streams() -> None:
    """Has a file be where a standard stream is closed, as by `>&-`: nothing else that is opened
    takes its number. Who reads or writes it, but for stderr, is told that it is no good.
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
        # A reader that let somebody wait until an interrupt is not waited for again.
        if code < ExitCode.INTERRUPTED:
            sys.stdout.flush()
            sys.exit(code)
    except OSError:
        code = code or int(ExitCode.PIPE_CLOSED)
    # What is still to be written goes nowhere: the interpreter would try at its end.
    sys.stderr.flush()
    os._exit(code)
