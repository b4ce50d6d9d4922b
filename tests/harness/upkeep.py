"""What mq-mover does, by a test's hand and clock: one member that is alone."""

import os
from pathlib import Path

from mq.coordination.coordinator import Alone
from mq.model.clock import Clock
from mq.store.bulk.sweep import sweep_bulk
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher, NoFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq.store.packs.rolling import sweep_packs
from mq.store.settings.registry import Registry
from mq_mover.mover import Mover
from mq_mover.policies import ALL, BulkPublishes
from mq_mover.policies.expiry import MessageExpiry
from mq_mover.policy import Policies, Turn, Work
from mq_mover.scheduler import Scheduler

MEMBER = "tested"


class BulkAtOnce(BulkPublishes):
    """However long that takes, rather than beside the turns."""

    def act(self) -> Turn:
        swept = sweep_bulk(self.root)
        return Turn(swept + sweep_packs(self.root))


def work_of(root: Root, flusher: Flusher) -> Work:
    """What policies work with, of one that shares with nobody and knows all queues."""
    registry = Registry(root)
    registry.refresh()
    return Work(root, flusher, Alone(MEMBER), registry)


def all_policies(root: Root, flusher: Flusher) -> Policies:
    """All of them, each with a turn of its own when it is due."""
    work = work_of(root, flusher)
    kinds = [BulkAtOnce if policy is BulkPublishes else policy for policy in ALL]
    return Policies(root, [policy(work) for policy in kinds])


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


def expire_due(root: Path, clock: Clock) -> int:
    """A mover's pass over what has expired; how many messages it took away."""
    opened = open_root(str(root), Files(), clock)
    policies = Policies(opened, [MessageExpiry(work_of(opened, NoFlusher()))])
    taken = 0
    while (due_s := policies.next_due_s()) is not None and due_s <= 0:
        taken += policies.run_next()
    for folder, _, _ in os.walk(opened.layout.queues):
        os.utime(folder)
    return taken


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
