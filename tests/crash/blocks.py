"""A disk that logs every write and every flush: a loop device over a file in FUSE.

`block_server.py` serves a file system of two files: `disk`, which the loop device is attached to,
and `marks`, where each write puts a mark into the log, between the block writes and flushes that
it happened between. `images.py` has the log's form and makes crash images from it.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.fuse import served
from harness.mounts import loop_device

LOOP_CONTROL = "/dev/loop-control"


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
        where = cleanup.enter_context(
            served("crash.block_server", work / "logged", str(image), str(log))
        )
        marks = os.open(where / "marks", os.O_WRONLY)
        cleanup.callback(os.close, marks)
        yield LoggedDisk(cleanup.enter_context(loop_device(where / "disk")), marks)
