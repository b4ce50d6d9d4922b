"""Commands that end by themselves, their flags, and processes looked at from outside."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from harness.processes import PATIENCE_S, Process
from mq.daemon.cli import main as mq
from mq_mover.cli import main as mq_mover
from mq_reaper.cli import main as mq_reaper


def run_command(
    module: str, *flags: str, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """`python -m module flags`, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", module, *flags],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | (env or {}),
        timeout=PATIENCE_S,
    )


def is_running(pid: int) -> bool:
    """Whether the process is there and not a zombie that its parent has yet to wait for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def child_pid(process: Process, daemon: str) -> int:
    """The pid of a child that `mq --standalone` says it started."""
    return int(process.wait_for_log(rf"started daemon={daemon} pid=(\d+)").group(1))


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
