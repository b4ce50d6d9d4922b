"""Flags that the three daemons share. Each can also be set in the environment, and --help shows it.

Of this package, the commands mq_mover and mq_reaper use this module alone.
"""

import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import click

from mq import __version__
from mq.model.limits import FOLDER_FILES_MAX, KIB, MIB, PROCESSES_MAX
from mq.runtime.activation import take_descriptors
from mq.runtime.cores import processes_auto
from mq.runtime.logs import LogFormat, configure
from mq.runtime.notify import Notifier, take_notifier

F = TypeVar("F", bound=Callable[..., Any])


def context(prefix: str) -> dict[str, Any]:
    """A command's settings: its own flags are also `{prefix}_{FLAG}` in the environment."""
    return {
        "auto_envvar_prefix": prefix,
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    }


ROOT_DEFAULT: Final = Path("/tmp/mq")  # noqa: S108 - the original's, for a first try

_LOOPBACK: Final = "127.0.0.1"
_PORT_MAX: Final = 65535
_UNITS: Final = {
    "": 1,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": KIB * MIB,
    "K": KIB,
    "M": MIB,
    "G": KIB * MIB,
}


class Number(click.FloatRange):
    """A range of numbers. It excludes NaN, which is neither below nor above a bound."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See click. Raises click's BadParameter."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Whole(click.IntRange):
    """A range of whole numbers, which an error calls so."""

    name = "whole number"


class Port(Whole):
    """A port. The error explains an address in MQ_PORT, to which Kubernetes sets it."""

    name = "port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See click. Raises click's BadParameter."""
        if isinstance(value, str) and value.startswith("tcp://"):
            self.fail(
                f"{value!r} is not a port. Kubernetes sets MQ_PORT to an address for a Service "
                "called mq; set enableServiceLinks: false in the pod's spec, or use --port",
                param,
                ctx,
            )
        return int(super().convert(value, param, ctx))


class Processes(Whole):
    """A number of processes, or `auto`: see `processes_auto`."""

    name = "number of processes"

    def __init__(self) -> None:
        super().__init__(1, PROCESSES_MAX)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "auto|NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See click. Raises click's BadParameter."""
        return processes_auto() if value == "auto" else int(super().convert(value, param, ctx))


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parses an option's value in bytes: a number, with KiB, MiB or GiB if wanted."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]+)\s*([A-Za-z]*)", value)
    if match is None or match.group(2).upper() not in _UNITS:
        raise click.BadParameter(
            f"{value!r} is not a size; use bytes, or KiB, MiB or GiB: 1048576, 512KiB, 64MiB"
        )
    return int(match.group(1)) * _UNITS[match.group(2).upper()]


def root_option(help_text: str) -> Callable[[F], F]:
    """The option --root, as all three daemons have it."""
    return click.option(
        "--root",
        type=click.Path(),
        callback=_root,
        default=str(ROOT_DEFAULT),
        envvar="MQ_ROOT",
        show_envvar=True,
        help=help_text,
    )


def _root(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    if not value:
        raise click.BadParameter(
            "it is empty, perhaps from an unset variable; name the root's folder"
        )
    return Path(value)


def folder_max_option(command: F) -> F:
    """The option --folder-max, as mq and mq-mover have it."""
    return click.option(
        "--folder-max",
        type=Whole(1),
        default=FOLDER_FILES_MAX,
        show_envvar=True,
        help=(
            "Files in a folder above which new ones go to buckets below it. Daemons "
            "of one root may have different values."
        ),
    )(command)


def daemon_options(command: F) -> F:
    """The options for the version and the log, as every daemon has them."""
    for option in (
        click.version_option(__version__, message="%(prog)s %(version)s"),
        click.option(
            "--log-format",
            type=click.Choice(get_args(LogFormat)),
            default="human",
            envvar="MQ_LOG_FORMAT",
            show_envvar=True,
            help=(
                "The format of the log, one line an event, on stderr: text, JSON "
                "objects, or for the journal of systemd."
            ),
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            envvar="MQ_LOG_LEVEL",
            show_envvar=True,
            help="The lowest level that is logged.",
        ),
    ):
        command = option(command)
    return command


def upkeep_options(command: F) -> F:
    """`daemon_options`, --attach and --exit-with-stdin, for mq-mover and mq-reaper."""
    return click.option(
        "--exit-with-stdin",
        is_flag=True,
        help="Stop when standard input ends (for a supervising process).",
    )(attach_option(daemon_options(command)))


def attach_option(command: F) -> F:
    """The option by which a daemon says to its children which root is theirs."""
    return click.option("--attach", default=None, hidden=True, allow_from_autoenv=False)(command)


def metrics_option(command: F) -> F:
    """The option --metrics, for mq-mover and mq-reaper."""
    return click.option(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        callback=_place,
        default=None,
        show_default="nowhere",
        show_envvar=True,
        help=(
            "Serve metrics for Prometheus at /metrics; on loopback unless an "
            "address is given. Port 0 takes a free port and logs it."
        ),
    )(command)


def _place(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"(?:\[(.+)\]:|(.*):)?([0-9]{1,5})", value)
    if match is None or int(match[3]) > _PORT_MAX:
        raise click.BadParameter(f"{value!r} is not a port; use 9101, 10.0.0.1:9101 or [::1]:9101")
    return match[1] or match[2] or _LOOPBACK, int(match[3])


def fail(name: str, error: Exception) -> "click.exceptions.Exit":
    """Logs in one line why a daemon cannot run. Returns the exit to raise."""
    logging.getLogger(name).error(str(error))
    return click.exceptions.Exit(1)


def begin_logs(
    log_format: LogFormat, log_level: str, facts: Mapping[str, object] | None = None
) -> None:
    """Configures the process's logs from the flags' values; each line has the `facts`."""
    configure(log_format, log_level, facts)


def service_manager() -> Notifier:
    """The service manager that started this process, if one did. Raises StartupError."""
    return take_notifier(os.environ, os.getpid())


def given_descriptors() -> tuple[int, ...]:
    """The listening sockets that this process was started with. Raises StartupError."""
    return take_descriptors(os.environ, os.getpid())
