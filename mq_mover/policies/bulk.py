"""Bulk publishes: what is committed is rolled forward, and what nobody commits is taken away."""

from typing import ClassVar

from mq.model.limits import SWEEP_EVERY_S
from mq.store.bulk.sweep import BulkSweep
from mq_mover.policy import Policy, Turn, Work


class BulkPublishes(Policy):
    """Begins that; a large publish takes a while, and goes on beside the turns."""

    name: ClassVar[str] = "bulk-publishes"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._sweep = BulkSweep(work.root, work.flusher)

    def act(self) -> Turn:
        """Begins a pass, where one is needed and none is on its way."""
        self._sweep.begin()
        return Turn()
