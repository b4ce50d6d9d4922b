"""The work of one mq-mover on a root, a round at a time: redelivery, leases, schedules, then one
policy's turn.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from mq.coordination.coordinator import Coordinator, View
from mq.model.errors import MqError
from mq.model.log import logger
from mq.model.members import Acted, Doing
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher
from mq.store.members.files import MemberFile
from mq.store.operations.redeliver import Timer
from mq.store.settings.registry import Registry
from mq_mover.lapses import LeaseMover
from mq_mover.mover import Mover
from mq_mover.policies import policies_of
from mq_mover.policy import Policies, Work
from mq_mover.scheduler import Scheduler

_log = logger("mq-mover")


class Rounds:
    """The rounds of one process; any number of processes may share a root. Blocking; for one
    thread.
    """

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
        """Counts of the work without leadership: redelivery, leases, and firings."""
        self.view = View()
        """The members as of the last round."""
        self._telling = Telling(work, self.policies, self.redelivery)

    def start(self) -> None:
        """Joins the members and looks at all queues for the first time. Raises StartupError."""
        self._coordinator.start()
        self._refresh(now=True)

    def run_once(self) -> int:
        """Does one round. Returns the number of moved messages. Raises OSError if a folder cannot
        be listed; the next round works all the same.
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
        """Seconds until the next known work is due."""
        at_work = (self.mover, self._leases, self._scheduler, self.policies)
        beside = (self._coordinator, self.registry, self._telling)
        known = [each.next_due_s() for each in (*at_work, *beside)]
        return min((due_s for due_s in known if due_s is not None), default=None)

    def stop(self) -> None:
        """Ends running work and leaves the members."""
        self.policies.stop()
        self._coordinator.stop()
        self._telling.leave()

    def redelivery(self) -> dict[str, int]:
        """The counts of the work without leadership, and the number of waiting messages."""
        return {**self._done, "waiting": self.mover.waiting}

    def leads(self) -> bool:
        """Whether this member led in the last round."""
        return self.view.is_connected and self.view.leader == self._coordinator.member

    def queues(self) -> int:
        """The number of queues that this member keeps up. For any thread."""
        return sum(map(self._coordinator.has, list(self.registry.queues)))

    def _refresh(self, now: bool = False) -> None:
        """Scans all queues if that is due. After a failure the known queues stay."""
        try:
            if now:
                self.registry.refresh()
            else:
                self.registry.refresh_if_due()
            self._is_blind = False
        except (MqError, OSError) as error:
            if not self._is_blind:
                fields = {"error": repr(error)}
                _log.warning("could not list the queues", extra={"fields": fields})
            self._is_blind = True


class Telling:
    """A member's report. `redelivery` returns the counts of the work without leadership."""

    def __init__(
        self, work: Work, policies: Policies, redelivery: Callable[[], Mapping[str, int]] = dict
    ) -> None:
        self._work = work
        self._policies = policies
        self._redelivery = redelivery
        self._file = MemberFile(work.root, work.coordinator.member)

    def run_once(self) -> None:
        """Writes the report if that is due. Logs errors that may pass."""
        if self._file.is_due():
            self._file.tell(self._doing())

    def next_due_s(self) -> float:
        """Seconds until the next report."""
        return self._file.next_due_s()

    def leave(self) -> None:
        """Removes the report: the member ends."""
        self._file.leave()

    def _doing(self) -> Doing:
        coordinator = self._work.coordinator
        view = coordinator.view()
        return Doing(
            coordinator.kind,
            view.leader,
            view.is_connected,
            tuple(sorted(queue for queue, _ in self._work.queues())),
            {
                name: Acted(count.turns, count.acted, count.failed, count.last_ms, count.next_ms)
                for name, count in self._policies.counts().items()
            },
            dict(self._redelivery()),
        )
