"""Keys of nothing: of messages that are gone, of publishes of long ago, and of firings that their
schedules have left behind.
"""

import logging
from typing import ClassVar

from mq.model.limits import SWEEP_EVERY_S
from mq.store.disk.group import run_alone
from mq.store.keys.orphans import OrphanSweep
from mq_mover.policy import Policy, Turn, Work

_log = logging.getLogger("mq-mover.policies")


class Keys(Policy):
    """Takes such links away; so many are looked at in a turn, and the next goes on behind them."""

    name: ClassVar[str] = "keys"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._orphans = OrphanSweep(work.root)

    def act(self) -> Turn:
        """Some of them."""
        swept = run_alone(self._orphans.sweep(), self.work.flusher)
        if swept:
            _log.info("keys of nothing removed", extra={"fields": {"count": swept}})
        return Turn(swept)
