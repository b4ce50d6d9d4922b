"""A root as a process that leases works on it, beside the daemons. No Spark here."""

import os
from pathlib import Path
from typing import Final

from mq.model.clock import SystemClock
from mq.store.core.root import Root, attach_root
from mq.store.core.server_clock import ClockFollower
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher
from mq.store.disk.mounts import choose_flusher

_FLUSH_THREADS: Final = 2


def open_for_leases(path: Path) -> tuple[Root, Flusher]:
    """The root, and what makes changes of it durable; on a mount, with the clock of its server.
    Raises StartupError when it is none.
    """
    files, clock = Files(), SystemClock()
    root = attach_root(os.fspath(path), files, clock)
    ClockFollower(root, clock).follow()
    return root, choose_flusher(root.layout.root, files, _FLUSH_THREADS)
