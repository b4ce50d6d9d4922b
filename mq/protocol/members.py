"""What a request for the members says, and how one is shown: pure."""

from collections.abc import Sequence
from typing import Final

from mq.model.members import Member, leader_of, owner_of
from mq.model.names import QueueName
from mq.model.upkeep_limits import MEMBER_QUEUES_SHOWN_MAX
from mq.protocol.query import Name

QUEUE: Final = Name("queue", "A queue's name: whose its upkeep is, is answered too.")


def shown(members: Sequence[Member], queue: QueueName | None, now_ms: int) -> dict[str, object]:
    """What each member told last, also those that are gone; and whose the queue's upkeep is."""
    content: dict[str, object] = {
        "leader": leader_of(members, now_ms),
        "members": [_shown(each, now_ms) for each in members],
    }
    if queue is not None:
        content["assigned"] = {queue.text: owner_of(members, queue, now_ms)}
    return content


def _shown(member: Member, now_ms: int) -> dict[str, object]:
    """A member as it told of itself, with the names of some of its queues, and what follows."""
    said = member.as_json()
    del said["version"], said["leader"]
    names = [queue.text for queue in member.doing.queues[:MEMBER_QUEUES_SHOWN_MAX]]
    is_gone = member.is_gone(now_ms)
    return {
        **said,
        "gone": is_gone,
        "leads": member.leads and not is_gone,
        "queues": {"count": member.queues_count, "names": names},
    }
