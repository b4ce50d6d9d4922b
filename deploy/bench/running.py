"""One run of a bench: how it ends, and the flags that all have."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, get_args

import click

from deploy.bench.ceiling import Commit
from deploy.bench.load import BenchError

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)

Command = TypeVar("Command", bound=Callable[..., Any])


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Ctrl-C and SIGTERM end it: what is mounted is unmounted, what was started is ended, and
    nothing stops that. A BenchError is told in a line.
    """
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        yield
    except BenchError as error:
        raise click.ClickException(str(error)) from error


def rounds_flag(default: int) -> Callable[[Command], Command]:
    """`--rounds`."""
    return click.option("--rounds", type=click.IntRange(1), default=default, help="Interleaved.")


def seconds_flag(default: int) -> Callable[[Command], Command]:
    """`--seconds`."""
    return click.option(
        "--seconds", type=click.IntRange(1), default=default, help="Of each measurement."
    )


def commit_flag(command: Command) -> Command:
    """`--commit`, None unless given: then what mq chooses there by itself."""
    return click.option(
        "--commit",
        type=click.Choice(get_args(Commit)),
        help="As mq's --commit; none: --durability=none.  [default: as mq chooses by itself]",
    )(command)


def _end(number: int, frame: object) -> None:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
