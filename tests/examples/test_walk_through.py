"""The walk-through with real files, against the three daemons as they are deployed."""

import subprocess
from pathlib import Path

import pytest
from harness.processes import Processes

SCRIPT = Path(__file__).with_name("walk_through")


@pytest.mark.certificate
def test_the_walk_through(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--visibility", "1")
    daemons.mover("--source", str(root / "delay"), "--destination", str(root / "queues"))
    daemons.reaper("--source", str(root / "remove"))
    done = subprocess.run(
        [str(SCRIPT), mq.url], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same") == 27
    assert "== done" in done.stdout
