"""What deleted queues have left: messages in delay/ and in leases, settings, schedules, keys."""

from typing import ClassVar

from mq.limits import SWEEP_EVERY_S
from mq.store.group import run_alone
from mq.store.queues import sweep_tombstones
from mq.upkeep_limits import RETIRED_PER_TURN_MAX
from mq_mover.policy import Policy, Turn


class DeletedQueues(Policy):
    """Takes it away, and at last their tombstones."""

    name: ClassVar[str] = "deleted-queues"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """So many messages. Raises Busy while another makes or deletes a queue."""
        retired = run_alone(sweep_tombstones(self.root, RETIRED_PER_TURN_MAX), self.work.flusher)
        return Turn(retired, more=retired >= RETIRED_PER_TURN_MAX)
