"""What the pipeline has left: manifests of leases that ended, and listings of long ago."""

from typing import ClassVar

from mq.model.limits import SWEEP_EVERY_S
from mq.store.bulk.spools import sweep_spools
from mq.store.leases.lapses import sweep_leases
from mq_mover.policy import Policy, Turn


class Pipeline(Policy):
    """Takes it away."""

    name: ClassVar[str] = "pipeline"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """All of it: that is little."""
        sweep_leases(self.root)
        return Turn(sweep_spools(self.root))
