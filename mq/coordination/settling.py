"""When a member has what it was dealt: once who had it before has surely given it up. Pure.

A member gives up at once what it reads that it has no more, and all when it could not ask for
`believe_s`. So what comes to it from another that is still there, it has so much later; what comes
from one that is gone, at once.
"""

from collections.abc import Collection
from dataclasses import dataclass

from mq.coordination.assigning import NOBODY, Deal
from mq.model.names import QueueName


@dataclass(frozen=True, slots=True)
class _Learnt:
    deal: Deal
    members: frozenset[str]
    before: tuple[tuple[float, Deal | None], ...] = ()
    """Deals of before, None where none is known, and until when they may be believed by others."""


class Settling:
    """What one member was dealt. `has` is for any thread, all else is for one."""

    def __init__(self, member: str, believe_s: float) -> None:
        self._member = member
        self._believe_s = believe_s
        self._learnt: _Learnt | None = None

    @property
    def deal(self) -> Deal:
        """The last one."""
        learnt = self._learnt
        return NOBODY if learnt is None else learnt.deal

    @property
    def members(self) -> tuple[str, ...]:
        """Who was there then, in the order of names."""
        learnt = self._learnt
        return () if learnt is None else tuple(sorted(learnt.members))

    def learn(self, deal: Deal, members: Collection[str], now_s: float) -> None:
        """Takes in what is dealt now, and who is there; a steady clock's time."""
        learnt = self._learnt
        before = () if learnt is None else learnt.before
        if learnt is None or deal != learnt.deal:
            last = None if learnt is None else learnt.deal
            before = (*before, (now_s + self._believe_s, last))
        kept = tuple((until_s, each) for until_s, each in before if until_s > now_s)
        self._learnt = _Learnt(deal, frozenset(members), kept)

    def forget(self) -> None:
        """Has nothing: it begins anew, as one that has just come."""
        self._learnt = None

    def has(self, queue: QueueName, now_s: float) -> bool:
        """Whether the queue is the member's by then."""
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
