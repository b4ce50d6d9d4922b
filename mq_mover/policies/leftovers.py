"""What members that are gone have left, what is said of shovels of queues that are gone, and files
that nobody goes on writing.
"""

from typing import ClassVar

from mq.model.limits import SWEEP_EVERY_S
from mq.store.members.sweep import sweep_members
from mq.store.shovel.crossing_files import sweep_crossings
from mq.store.shovel.sweep import sweep_shovels
from mq_mover.policy import Policy, Turn


class Leftovers(Policy):
    """Takes it away."""

    name: ClassVar[str] = "leftovers"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """All of it: that is little."""
        swept = sweep_members(self.root) + sweep_shovels(self.root)
        return Turn(swept + sweep_crossings(self.root, self.work.flusher))
