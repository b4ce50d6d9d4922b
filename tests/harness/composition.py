"""compose.yaml, as docker compose itself reads it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.needs import cannot_run
from harness.processes import PATIENCE_S

TOP = Path(__file__).parents[2]
CONTAINER = TOP / "deploy" / "container"
COMPOSE = CONTAINER / "compose.yaml"


def program(name: str) -> str:
    """A tool of the extra `certificate`, beside this interpreter."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        cannot_run(f"needs {name}: pip install -e '.[certificate]'")
    assert found is not None
    return found


def docker_compose(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """docker compose, run to its end. It has no engine to speak to."""
    return subprocess.run(
        [program("docker-compose"), *arguments],
        cwd=TOP, capture_output=True, text=True, timeout=4 * PATIENCE_S,
    )  # fmt: skip


def composition() -> dict[str, Any]:
    """All that is said, anchors, merges and defaults put in."""
    done = docker_compose("-f", str(COMPOSE), "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read
