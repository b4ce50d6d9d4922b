"""Telling what this member does: its file in members/, from its policies and its coordinator."""

from collections.abc import Callable, Mapping

from mq.model.members import Acted, Doing
from mq.store.members.files import MemberFile
from mq_mover.policy import Policies, Work


class Telling:
    """One member's. `redelivery` gives the figures of what needs no leader."""

    def __init__(
        self,
        work: Work,
        policies: Policies,
        redelivery: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._work = work
        self._policies = policies
        self._redelivery = redelivery
        self._file = MemberFile(work.root, work.coordinator.member)

    def run_once(self) -> None:
        """Tells, where that is due. Never raises for what may pass."""
        if self._file.is_due():
            self._file.tell(self._doing())

    def next_due_s(self) -> float:
        """Seconds until it is."""
        return self._file.next_due_s()

    def leave(self) -> None:
        """The member ends."""
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
