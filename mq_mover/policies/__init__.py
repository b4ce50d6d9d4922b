"""All policies. `mq_mover.policy.Policies` runs them."""

from typing import Final

from mq_mover.policies.expiry import MessageExpiry, QueueExpiry
from mq_mover.policies.misplaced import Misplaced
from mq_mover.policies.overdue import Overdue
from mq_mover.policies.overflow import Overflow
from mq_mover.policies.shovel import Shovel
from mq_mover.policies.sweeps import (
    Buckets,
    BulkPublishes,
    DeletedQueues,
    Failures,
    ForgottenPublishes,
    Histories,
    Keys,
    Leftovers,
    Pipeline,
    Purges,
    Totals,
)
from mq_mover.policy import Policies, Policy, Work

ALL: Final[tuple[type[Policy], ...]] = (
    Buckets,
    Misplaced,
    BulkPublishes,
    ForgottenPublishes,
    DeletedQueues,
    Purges,
    MessageExpiry,
    QueueExpiry,
    Overflow,
    Keys,
    Pipeline,
    Histories,
    Failures,
    Leftovers,
    Overdue,
    Shovel,
    Totals,
)
"""In the order of their first turns after a start."""


def policies_of(work: Work) -> Policies:
    return Policies(work.root, [policy(work) for policy in ALL])
