"""What a queue's history has recorded: pure."""

from dataclasses import dataclass, field

from mq.client.fake.limits import PASTS_MAX
from mq.model.limits import HISTORY_EVENTS_MAX


@dataclass(slots=True)
class Past:
    """A message's latest events, and how many were before those."""

    events: list[dict[str, object]] = field(default_factory=list)
    left_out: int = 0


class Pasts:
    """Of a queue, by the messages' ids; what was begun first is forgotten first."""

    def __init__(self) -> None:
        self._by_id: dict[str, Past] = {}

    def add(self, message_id: str, event: dict[str, object]) -> None:
        """Something became of a message."""
        past = self._by_id.setdefault(message_id, Past())
        past.events.append(event)
        if len(past.events) > HISTORY_EVENTS_MAX:
            del past.events[0]
            past.left_out += 1
        if len(self._by_id) > PASTS_MAX:
            del self._by_id[next(iter(self._by_id))]

    def of(self, message_id: str) -> Past:
        """What is known of a message."""
        return self._by_id.get(message_id) or Past()
