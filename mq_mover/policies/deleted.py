"""What deleted queues have left: messages in delay/ and in leases, settings, schedules, keys."""

from typing import ClassVar

from mq.model.limits import SWEEP_EVERY_S
from mq.model.upkeep_limits import RETIRED_PER_TURN_MAX
from mq.store.disk.group import run_alone
from mq.store.operations.queues import sweep_tombstones
from mq_mover.policy import Policy, Turn


class DeletedQueues(Policy):
    """Takes it away, and at last their tombstones."""

    name: ClassVar[str] = "deleted-queues"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """So many messages. Raises Busy while another makes or deletes a queue."""
        retired = run_alone(sweep_tombstones(self.root, RETIRED_PER_TURN_MAX), self.work.flusher)
        return Turn(retired, more=retired >= RETIRED_PER_TURN_MAX)
