"""The coordinator by files in members/, for a root without ZooKeeper.

Each member renews a lease. A member that finds the leader gone writes its own name into the
leader's file and deals the queues out there (FORMAT.md, "Members"). Two leaders, or a member that
was stopped, do no harm: the deal decides who tries, and renames decide who succeeds.
"""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mq.coordination.assigning import Deal, assign
from mq.coordination.coordinator import Pacing, View
from mq.coordination.leases import Lease, Sightings
from mq.coordination.settling import Settling
from mq.coordination.telling import LeaderFile
from mq.model.errors import StartupError
from mq.model.log import logger
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.format.members import members_lock
from mq.store.operations.remove import is_full

_log = logger("mq.coordination")


@dataclass(frozen=True, slots=True)
class _Moment:
    steady_s: float
    wall_ms: int


class FileCoordinator:
    """A member by files. `has` and `view` are for any thread, the rest is for one."""

    kind = "file"

    def __init__(self, root: Root, member: str, pacing: Pacing | None = None) -> None:
        self.member = member
        self._root = root
        self._pacing = pacing or Pacing()
        self._lease = Lease(root, member)
        self._leader_file = LeaderFile(root)
        self._sightings = Sightings(root, self._pacing.gone_s)
        self._settling = Settling(member, self._pacing.believe_s)
        self._renewed: _Moment | None = None
        """The time just before the last renewal that was followed by a read of the deal."""
        self._look_again_s = self._renew_again_s = self._deal_again_s = float("-inf")
        self._locked_out_since_s: float | None = None
        self._failing = False

    def start(self) -> None:
        """Joins. Raises StartupError when another process has the member's name."""
        with contextlib.suppress(OSError):  # `run_once` tries again, and logs it.
            self._lease.renew()

    def run_once(self, queues: Collection[QueueName]) -> None:
        """See Coordinator. Checks the members and the deal if that is due; after a failure the next
        check tries again.
        """
        began = self._moment()
        if began.steady_s < self._look_again_s:
            return
        self._look_again_s = began.steady_s + self._pacing.look_s
        try:
            self._look(queues, began)
            self._failing = False
        except (OSError, StartupError) as error:
            if not self._failing:
                _log.warning(
                    "cannot read or write the members' files; trying again",
                    extra={"fields": {"error": str(error)}},
                )
            self._failing = True

    def has(self, queue: QueueName) -> bool:
        """See Coordinator. False once the lease was not renewed in time by either clock, so that a
        process that was stopped, or a machine that slept, does nothing before it renews.
        """
        return self._is_believed() and self._settling.has(queue, self._root.clock.steady_s())

    def next_due_s(self) -> float:
        return max(0.0, self._look_again_s - self._root.clock.steady_s())

    def view(self) -> View:
        deal, members = self._settling.deal, self._settling.members
        leader = deal.leader if deal.leader in members else None
        return View(leader, members, deal.assigned, self._is_believed())

    def stop(self) -> None:
        """See Coordinator. Another member takes the lead at its next check."""
        self._renewed = None
        self._settling.forget()
        with contextlib.suppress(OSError):
            self._lease.leave()

    def _look(self, queues: Collection[QueueName], began: _Moment) -> None:
        lapsed = not self._is_believed() or not self._lease.is_there()
        if lapsed:
            self._renewed = None
            self._settling.forget()
        renews = lapsed or began.steady_s >= self._renew_again_s
        if renews:
            self._lease.renew()
        members = self._sightings.look(self.member)
        deal = self._leader_file.read()
        if deal.leader not in members:
            deal = self._take(queues, members)
        elif deal.leader == self.member:
            is_due = began.steady_s >= self._deal_again_s
            if is_due or members != self._settling.members:
                deal = self._deal(queues, members)
        self._settling.learn(deal, members, self._root.clock.steady_s())
        if renews:
            self._renewed = began
            self._renew_again_s = began.steady_s + self._pacing.renew_s

    def _take(self, queues: Collection[QueueName], members: tuple[str, ...]) -> Deal:
        """Takes the lead, unless another member has it. Returns the current deal."""
        with self._locked() as is_locked:
            found = self._leader_file.read()
            if found.leader in members or not is_locked:
                return found
            if self._settling.deal.leader != self.member:
                fields = {"member": self.member, "before": found.leader}
                _log.info("this member now leads", extra={"fields": fields})
            return self._write(found, queues, members)

    def _deal(self, queues: Collection[QueueName], members: tuple[str, ...]) -> Deal:
        """As the leader, deals the queues out, unless another member has taken the lead."""
        with self._locked() as is_locked:
            found = self._leader_file.read()
            if found.leader != self.member or not is_locked:
                return found
            self._sightings.forget(self.member)
            return self._write(found, queues, members)

    def _write(self, found: Deal, queues: Collection[QueueName], members: tuple[str, ...]) -> Deal:
        dealt = assign(queues, members, found)
        deal = Deal(self.member, {q: each for q, each in dealt.items() if each != self.member})
        if deal != found:
            try:
                self._leader_file.write(deal)
            except OSError as error:
                # A single member needs no deal, and its work may free space first: write the file
                # later.
                if members != (self.member,) or not is_full(error):
                    raise
        self._deal_again_s = self._root.clock.steady_s() + self._pacing.assign_s
        return deal

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether it may write: it has the lock, or the holder has kept the lock for so long that
        it must be stopped.
        """
        files, now_s = self._root.files, self._root.clock.steady_s()
        descriptor = files.open_kept(members_lock(self._root.layout))
        try:
            if files.lock(descriptor):
                self._locked_out_since_s = None
            elif self._locked_out_since_s is None:
                self._locked_out_since_s = now_s
            since_s = self._locked_out_since_s
            yield since_s is None or now_s - since_s >= self._pacing.gone_s
        finally:
            files.close(descriptor)

    def _is_believed(self) -> bool:
        renewed, now = self._renewed, self._moment()
        if renewed is None:
            return False
        steady_s = now.steady_s - renewed.steady_s
        wall_s = (now.wall_ms - renewed.wall_ms) / 1000
        return max(steady_s, wall_s) < self._pacing.believe_s

    def _moment(self) -> _Moment:
        return _Moment(self._root.clock.steady_s(), self._root.now_ms())
