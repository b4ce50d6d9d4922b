"""A message of the fake."""

from dataclasses import dataclass

from mq.model.headers import Headers
from mq.model.lifecycle import State
from mq.model.message import Delivery, Stamp
from mq.model.names import MessageId, QueueName


@dataclass(slots=True, eq=False)
class Message:
    """A message, and where it is. `state` is READY, DELAYED or REMOVED. `was_purged`: its queue was
    purged, and it is not found by its id for what would change it.
    """

    queue: QueueName
    id: MessageId
    body: bytes
    headers: Headers
    state: State
    stamp: Stamp
    was_purged: bool = False

    @property
    def lives(self) -> bool:
        """Whether it was published and not removed."""
        return self.state is not State.REMOVED

    @property
    def place(self) -> tuple[int, str]:
        """Its place in the order of delivery."""
        return (-self.id.priority, self.id.uuid)

    def delivery(self) -> Delivery:
        """The message as its fetcher gets it."""
        return Delivery(
            queue=self.queue,
            id=self.id,
            stamp=self.stamp,
            size=len(self.body),
            offset=self.id.header_bytes,
            body=self.body,
            descriptor=None,
            headers=self.headers,
        )
