"""Assigns queues to members, round robin; the leader decides for all. Pure.

A queue and its sideline go together, since the upkeep of one follows the settings of the other.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from mq.model.names import QueueName


@dataclass(frozen=True, slots=True)
class Deal:
    """A leader's deal: the leader, and the members of the queues that are not its own. In ZooKeeper
    a member sees only its own queues; such a deal is not `of_all`.
    """

    leader: str | None = None
    assigned: Mapping[str, str] = field(default_factory=dict)
    of_all: bool = True

    def owner(self, queue: QueueName) -> str | None:
        """The queue's member: the leader, if no other member has it. None: unknown, as in a deal
        that is not of all.
        """
        return self.owner_of(pair_of(queue))

    def owner_of(self, pair: str) -> str | None:
        """Likewise, by the name that a queue shares with its sideline."""
        return self.assigned.get(pair, self.leader if self.of_all else None)


NO_DEAL: Final = Deal()


def pair_of(queue: QueueName) -> str:
    """The name to assign: the queue's, also for its sideline."""
    return queue.counterpart().text if queue.is_sideline else queue.text


def assign(
    queues: Collection[QueueName], members: Collection[str], before: Deal = NO_DEAL
) -> dict[str, str]:
    """Members by the names of queues. Each queue has one member, and no member has two more than
    another. Queues are dealt in the order of names, round robin, but a member keeps what it had as
    far as the shares stay equal: upkeep of a queue that changes hands pauses for a while.
    """
    parts: dict[str, list[str]] = {member: [] for member in sorted(set(members))}
    if not parts:
        return {}
    left: list[str] = []
    for pair in sorted({pair_of(queue) for queue in queues}):
        parts.get(before.owner_of(pair) or "", left).append(pair)
    share, larger = divmod(len(left) + sum(map(len, parts.values())), len(parts))
    for part in sorted(parts.values(), key=len, reverse=True):
        most = share + (larger > 0)
        larger -= len(part) > share
        left += part[most:]
        del part[most:]
    for pair in sorted(left):
        min(parts.values(), key=len).append(pair)
    return {pair: member for member, part in parts.items() for pair in part}
