"""What mq-mover does by a test's clock."""

import os
from pathlib import Path

from mq.clock import Clock
from mq.store.files import Files
from mq.store.flush import NoFlusher
from mq.store.redeliver import Timer
from mq.store.root import open_root
from mq_mover.mover import Mover
from mq_mover.scheduler import Scheduler


def move_due(root: Path, clock: Clock) -> int:
    """A mover that starts, and moves what is due; how many that were."""
    opened = open_root(str(root), Files(), clock)
    moved = 0
    mover = Mover(opened, NoFlusher(), Timer())
    while more := mover.run_once():
        moved += more
    for folder, _, _ in os.walk(opened.layout.queues):
        os.utime(folder)  # The clock runs ahead of the folders' own: a later tick, as it would be.
    return moved


def fire_due(root: Path, clock: Clock) -> int:
    """A mover that starts, and fires what is due; how many messages it published."""
    opened = open_root(str(root), Files(), clock)
    scheduler = Scheduler(opened, NoFlusher())
    fired = 0
    while more := scheduler.run_once():
        fired += more
    for folder, _, _ in os.walk(opened.layout.queues):
        os.utime(folder)
    return fired
