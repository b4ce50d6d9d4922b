"""Decides when a member takes over a queue that was dealt to it: once the former member has
certainly given it up. Pure.

A member gives up a queue as soon as it reads a deal without it, and all queues after `believe_s`
seconds without a successful read. So a queue of a living member is taken over after that time; a
queue of a member that is gone, at once.
"""

from collections.abc import Collection
from dataclasses import dataclass

from mq.coordination.assigning import NO_DEAL, Deal
from mq.model.names import QueueName


@dataclass(frozen=True, slots=True)
class _Learnt:
    deal: Deal
    members: frozenset[str]
    before: tuple[tuple[float, Deal | None], ...] = ()
    """An earlier deal, None if it is unknown, and the time until which other members may follow
    it.
    """


class Settling:
    """One member's queues. `has` is for any thread, the rest is for one."""

    def __init__(self, member: str, believe_s: float) -> None:
        self._member = member
        self._believe_s = believe_s
        self._learnt: _Learnt | None = None

    @property
    def deal(self) -> Deal:
        learnt = self._learnt
        return NO_DEAL if learnt is None else learnt.deal

    @property
    def members(self) -> tuple[str, ...]:
        """The members at the time of the deal, in the order of names."""
        learnt = self._learnt
        return () if learnt is None else tuple(sorted(learnt.members))

    def learn(self, deal: Deal, members: Collection[str], now_s: float) -> None:
        """Records a deal and the living members, at a time of a steady clock."""
        learnt = self._learnt
        before = () if learnt is None else learnt.before
        if learnt is None or deal != learnt.deal:
            last = None if learnt is None else learnt.deal
            before = (*before, (now_s + self._believe_s, last))
        kept = tuple((until_s, each) for until_s, each in before if until_s > now_s)
        self._learnt = _Learnt(deal, frozenset(members), kept)

    def forget(self) -> None:
        """Gives up all queues and begins as a member that has just joined."""
        self._learnt = None

    def has(self, queue: QueueName, now_s: float) -> bool:
        """Whether the member has the queue at that time."""
        learnt = self._learnt
        if learnt is None or learnt.deal.owner(queue) != self._member:
            return False
        if learnt.members <= {self._member}:
            return True
        return not any(
            now_s < until_s and self._may_be_anothers(queue, each, learnt.members)
            for until_s, each in learnt.before
        )

    def _may_be_anothers(
        self, queue: QueueName, before: Deal | None, members: frozenset[str]
    ) -> bool:
        if before is None:
            return True
        owner = before.owner(queue)
        if owner is None:
            return not before.of_all
        return owner != self._member and owner in members
