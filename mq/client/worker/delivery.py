"""A message in a worker's hands, and what the worker knows of it beside."""

import asyncio

from mq.client.errors import ClientError, DeliveredAgain, MessageNotFound, QueueNotFound
from mq.client.message import AsyncMessage
from mq.client.worker.lease import Lease

LOST: tuple[type[ClientError], ...] = (DeliveredAgain, MessageNotFound, QueueNotFound)
"""What says that a message is no longer whose it was."""


class Delivery:
    """One delivery of a message: its lease, and whether it was lost."""

    __slots__ = ("is_lost", "lease", "message", "straggler", "timer")

    def __init__(self, message: AsyncMessage) -> None:
        self.message = message
        self.is_lost = False
        """It lapsed and was delivered again, or is gone: whatever is said of it now is not done."""
        self.lease: Lease | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Rings when its lease is to be extended."""
        self.straggler: asyncio.Future[object] | None = None
        """Its handler, which goes on though its time was over."""

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to be done with it."""
        return self.is_lost or self.message.settled is not None

    @property
    def named(self) -> str:
        """For a line of the log."""
        return f"{self.message.id} of {self.message.queue}"

    @property
    def facts(self) -> dict[str, object]:
        """For a log's line."""
        message = self.message
        return {"queue": message.queue, "id": message.id, "receives": message.receives}
