"""All that one mq-mover does over a root, a round at a time: what is due first, redelivery before
all, and then one policy's turn.
"""

import logging
from collections import Counter

from mq.coordination.coordinator import Coordinator, View
from mq.model.errors import MqError
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.operations.redeliver import Timer
from mq.store.settings.registry import Registry
from mq_mover.lapses import LeaseMover
from mq_mover.mover import Mover
from mq_mover.policies import policies_of
from mq_mover.policy import Work
from mq_mover.scheduler import Scheduler
from mq_mover.telling import Telling

_log = logging.getLogger("mq-mover")


class Rounds:
    """Any number of processes may make them over one root. Blocking; for one thread."""

    def __init__(
        self,
        root: Root,
        flusher: Flusher,
        coordinator: Coordinator,
        timer: Timer,
        registry: Registry | None = None,
    ) -> None:
        self.registry = registry or Registry(root)
        self._coordinator = coordinator
        self.mover = Mover(root, flusher, timer)
        self._leases = LeaseMover(root, flusher)
        self._scheduler = Scheduler(root, flusher)
        self._is_blind = False
        work = Work(root, flusher, coordinator, self.registry, timer, self.mover.passing)
        self.policies = policies_of(work)
        self._done: Counter[str] = Counter(moved=0, from_leases=0, fired=0)
        """What needed no leadership: messages redelivered, those of leases, and firings."""
        self.view = View()
        """What is known of all members, as of the last round."""
        self._telling = Telling(work, self.policies, self.redelivery)

    def start(self) -> None:
        """Joins those who share the upkeep, and looks at all queues for the first time. Raises
        StartupError.
        """
        self._coordinator.start()
        self._refresh(now=True)

    def run_once(self) -> int:
        """One round; how many messages were moved. Raises OSError when a folder cannot be listed:
        the next is made all the same.
        """
        done = {
            "moved": self.mover.run_once(),
            "from_leases": self._leases.run_once(),
            "fired": self._scheduler.run_once(),
        }
        for what, count in done.items():
            self._done[what] += count
        self._refresh()
        self._coordinator.run_once(self.registry.queues)
        self.view = self._coordinator.view()
        acted = self.policies.run_next()
        self._telling.run_once()
        return sum(done.values()) + acted

    def next_due_s(self) -> float | None:
        """Seconds until something is due, as far as is known."""
        at_work = (self.mover, self._leases, self._scheduler, self.policies)
        beside = (self._coordinator, self.registry, self._telling)
        known = [each.next_due_s() for each in (*at_work, *beside)]
        return min((due_s for due_s in known if due_s is not None), default=None)

    def stop(self) -> None:
        """Ends what was begun, and leaves those who share the upkeep."""
        self.policies.stop()
        self._coordinator.stop()
        self._telling.leave()

    def redelivery(self) -> dict[str, int]:
        """What was done so far that needed no leadership, and how many messages wait."""
        return {**self._done, "waiting": self.mover.waiting}

    def leads(self) -> bool:
        """Whether this member led, as of the last round."""
        return self.view.is_connected and self.view.leader == self._coordinator.member

    def queues(self) -> int:
        """How many queues' upkeep is this member's. For any thread."""
        return sum(map(self._coordinator.has, list(self.registry.queues)))

    def _refresh(self, now: bool = False) -> None:
        """Looks at all queues when that is due. Where that fails what was known stays known."""
        try:
            if now:
                self.registry.refresh()
            else:
                self.registry.refresh_if_due()
            self._is_blind = False
        except (MqError, OSError) as error:
            if not self._is_blind:
                fields = {"error": repr(error)}
                _log.warning("the queues could not be looked at", extra={"fields": fields})
            self._is_blind = True
