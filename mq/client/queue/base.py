"""What all that is done with a queue has in common."""

from mq.client.consuming.consumers import Consumers
from mq.client.sending import Sender


class OfQueue:
    """A queue's name, and what sends its calls."""

    __slots__ = ("_consumers", "_sender", "name")

    def __init__(self, name: str, sender: Sender, consumers: Consumers) -> None:
        self.name = name
        self._sender = sender
        self._consumers = consumers

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
