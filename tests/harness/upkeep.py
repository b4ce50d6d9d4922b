"""mq-mover's policies by a test's hand: one member that is alone."""

from mq.coordination.alone import Alone
from mq.store.flush import Flusher
from mq.store.registry import Registry
from mq.store.root import Root
from mq.store.sweep_bulk import sweep_bulk
from mq_mover.policies import ALL, BulkPublishes
from mq_mover.policy import Policies, Turn, Work

MEMBER = "tested"


class BulkAtOnce(BulkPublishes):
    """However long that takes, rather than beside the turns."""

    def act(self) -> Turn:
        return Turn(sweep_bulk(self.root, self.work.flusher))


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
