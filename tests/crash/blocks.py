"""A disk that logs every write and every flush: a loop device over a file in FUSE.

`block_server.py` serves a file system of two files: `disk`, which the loop device is attached to,
and `marks`, where each write puts a mark into the log, between the block writes and flushes that
it happened between. `images.py` has the log's form and makes crash images from it.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.mounts import loop_device, run_tool, unmount
from harness.needs import cannot_run
from harness.processes import PATIENCE_S, eventually

_TESTS = Path(__file__).parent.parent


def check_fuse() -> None:
    """Skips the test, or fails it in CI, where a disk cannot be logged."""
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            cannot_run(f"needs {device}")
    tried = subprocess.run([sys.executable, "-c", "import mfusepy"], capture_output=True, text=True)
    if tried.returncode != 0:
        cannot_run(f"needs mfusepy and libfuse3: {tried.stderr.strip().splitlines()[-1]}")


class LoggedDisk:
    """A block device that is served, and the place for marks."""

    def __init__(self, device: str, marks: int) -> None:
        self.device = device
        """Such as `/dev/loop0`."""
        self._marks = marks

    def mark(self, what: str, **facts: Any) -> None:
        """Puts a mark into the log; on return it stands behind every write that was done."""
        at_ms = time.time_ns() // 1_000_000
        text = json.dumps({"what": what, "at_ms": at_ms, **facts}).encode()
        assert os.pwrite(self._marks, text, 0) == len(text)


@contextlib.contextmanager
def logged_disk(work: Path, image: Path, log: Path) -> Iterator[LoggedDisk]:
    """Serves `image` as a block device; on exit `log` holds all that was done with it."""
    with contextlib.ExitStack() as cleanup:
        where = cleanup.enter_context(_served(work, image, log))
        marks = os.open(where / "marks", os.O_WRONLY)
        cleanup.callback(os.close, marks)
        yield LoggedDisk(cleanup.enter_context(loop_device(where / "disk")), marks)


@contextlib.contextmanager
def _served(work: Path, image: Path, log: Path) -> Iterator[Path]:
    where = work / "logged"
    where.mkdir(exist_ok=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "crash.block_server", str(where), str(image), str(log)], cwd=_TESTS
    )
    try:
        eventually(lambda: server.poll() is not None or where.is_mount(), "the FUSE mount")
        assert server.poll() is None, f"the FUSE process ended with {server.returncode}"
        yield where
        unmount(where)
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        server.wait(PATIENCE_S)
        if where.is_mount():
            run_tool("umount", "--lazy", str(where))
