"""The policies, one a file; what runs them is `mq_mover.policy.Policies`."""

from typing import Final

from mq_mover.policies.buckets import Buckets
from mq_mover.policies.bulk import BulkPublishes
from mq_mover.policies.deleted import DeletedQueues
from mq_mover.policies.forgotten import ForgottenPublishes
from mq_mover.policies.histories import Histories
from mq_mover.policies.keys import Keys
from mq_mover.policies.leftovers import Leftovers
from mq_mover.policies.message_expiry import MessageExpiry
from mq_mover.policies.misplaced import Misplaced
from mq_mover.policies.overdue import Overdue
from mq_mover.policies.pipeline import Pipeline
from mq_mover.policies.purges import Purges
from mq_mover.policies.queue_expiry import QueueExpiry
from mq_mover.policies.shovel import Shovel
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
    Keys,
    Pipeline,
    Histories,
    Leftovers,
    Overdue,
    Shovel,
)
"""In the order in which they have their turns after a start."""


def policies_of(work: Work) -> Policies:
    """All of them, at work."""
    return Policies(work.root, [policy(work) for policy in ALL])
