"""Commands that end by themselves, and processes looked at from outside."""

import os
import subprocess
import sys
from pathlib import Path

from harness.processes import PATIENCE_S, Process


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
