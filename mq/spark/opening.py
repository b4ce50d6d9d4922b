"""A root as a process that leases works on it, beside the daemons. No Spark here."""

import os
from pathlib import Path
from typing import Final

from mq.clock import SystemClock
from mq.store.files import Files
from mq.store.flush import Flusher
from mq.store.mounts import choose_flusher
from mq.store.root import Root, attach_root
from mq.store.server_clock import ClockFollower

_FLUSH_THREADS: Final = 2


def open_for_leases(path: Path) -> tuple[Root, Flusher]:
    """The root, and what makes changes of it durable; on a mount, with the clock of its server.
    Raises StartupError when it is none.
    """
    files, clock = Files(), SystemClock()
    root = attach_root(os.fspath(path), files, clock)
    ClockFollower(root, clock).follow()
    return root, choose_flusher(root.layout.root, files, _FLUSH_THREADS)
