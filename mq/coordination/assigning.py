"""Which queues are whose: round robin, decided by one member for all. Pure.

A queue and its sideline are one: what is done to one is by the other's settings.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from mq.model.names import QueueName


@dataclass(frozen=True, slots=True)
class Deal:
    """What a leader has said: that it leads, and whose the queues are that are not its own. To one
    member, of whom alone it may speak, not `of_all`.
    """

    leader: str | None = None
    assigned: Mapping[str, str] = field(default_factory=dict)
    of_all: bool = True

    def owner(self, queue: QueueName) -> str | None:
        """The queue's member: the leader, where it is assigned to nobody. None: nobody's, or, of a
        deal that is not of all, who knows whose.
        """
        return self.owner_of(pair_of(queue))

    def owner_of(self, pair: str) -> str | None:
        """The same of a queue and its sideline, by the queue's name."""
        return self.assigned.get(pair, self.leader if self.of_all else None)


NOBODY: Final = Deal()


def pair_of(queue: QueueName) -> str:
    """What is assigned: the name of the queue, also for its sideline."""
    return queue.counterpart().text if queue.is_sideline else queue.text


def assign(
    queues: Collection[QueueName], members: Collection[str], before: Deal = NOBODY
) -> dict[str, str]:
    """Members by the names of queues: each queue has one, and none has two more than another. They
    are dealt in the order of names, round robin; but whoever had one before keeps it, as far as the
    parts are equal so: what changes hands rests a while.
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
