"""What purges have left: messages that are served no more."""

from typing import ClassVar

from mq.model.limits import SWEEP_EVERY_S
from mq.model.names import QueueName
from mq.store.core.purged import PurgeMark
from mq.store.disk.group import run_alone
from mq.store.operations.purge import sweep_purged
from mq_mover.policy import Policy, Turn, Work


class Purges(Policy):
    """Takes them away, and at last the purges' marks."""

    name: ClassVar[str] = "purges"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._purged: dict[QueueName, PurgeMark] = {}
        """Purges of which nothing was left."""

    def act(self) -> Turn:
        """Some of them. Raises Busy."""
        return Turn(run_alone(sweep_purged(self.root, self._purged), self.work.flusher))
