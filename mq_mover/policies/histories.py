"""Histories: what is too old of them or too much, also of queues that are gone."""

import contextlib
from typing import ClassVar, Final

from mq.model.errors import BadName
from mq.model.limits import SWEEP_EVERY_S
from mq.model.names import QueueName
from mq.store.history.sweep import recorded_queues, sweep_history
from mq_mover.policy import Policy, Turn, Work

_QUEUES_PER_TURN_MAX: Final = 100


class Histories(Policy):
    """Takes their oldest files away; of so many queues a turn."""

    name: ClassVar[str] = "histories"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._waiting: list[str] = []
        """What this pass has not come to."""

    def act(self) -> Turn:
        """The queues that are next. Raises OSError."""
        root = self.root
        root.history.close_idle()
        self._waiting = self._waiting or recorded_queues(root.layout, root.files)
        swept = 0
        for _ in range(min(_QUEUES_PER_TURN_MAX, len(self._waiting))):
            name = self._waiting.pop()
            with contextlib.suppress(BadName):
                if (kept := root.history.kept(QueueName.parse(name))) is not None:
                    now_ms = root.aged_ms(kept.seconds)
                    swept += sweep_history(root.layout, root.files, name, kept, now_ms)
        return Turn(swept, more=bool(self._waiting))
