"""How a fetched message is settled: the seam between it and how it came."""

from typing import Protocol

from mq.client.calls import settling
from mq.client.sending import Sender
from mq.client.values import Extended, Reason


class Settler(Protocol):
    """Settles deliveries of one way of fetching. Each raises DeliveredAgain where the message was
    delivered again since, and what a request raises.
    """

    async def begin(self, message_id: str) -> bool:
        """The program gets it now; false where it is not its to have any more."""

    async def delete(self, queue: str, message_id: str, receives: int) -> None:
        """Deletes it. Durable on return."""

    async def release(
        self, queue: str, message_id: str, receives: int, delay_s: float, unhandled: bool
    ) -> None:
        """Gives it back, ready after so many seconds. `unhandled`: the delivery is no attempt.
        Durable on return.
        """

    async def extend(self, queue: str, message_id: str, receives: int, seconds: float) -> Extended:
        """Has it be due so many seconds from now. Durable on return."""

    async def sideline(self, queue: str, message_id: str, receives: int, reason: Reason) -> None:
        """Moves it to the sideline. Durable on return."""


class HttpSettler:
    """Settles by requests, with If-Match."""

    __slots__ = ("_sender",)

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def begin(self, message_id: str) -> bool:
        """The program gets it now, which mq need not know: its delivery counts anyway."""
        return True

    async def delete(self, queue: str, message_id: str, receives: int) -> None:
        """Deletes it. Durable on return."""
        await self._sender.send(settling.delete(queue, message_id, receives))

    async def release(
        self, queue: str, message_id: str, receives: int, delay_s: float, unhandled: bool
    ) -> None:
        """Gives it back, ready after so many seconds. `unhandled`: the delivery is no attempt.
        Durable on return.
        """
        call = settling.release(queue, message_id, delay_s, receives, unhandled)
        await self._sender.send(call)

    async def extend(self, queue: str, message_id: str, receives: int, seconds: float) -> Extended:
        """Has it be due so many seconds from now. Durable on return."""
        return await self._sender.send(settling.extend(queue, message_id, seconds, receives))

    async def sideline(self, queue: str, message_id: str, receives: int, reason: Reason) -> None:
        """Moves it to the sideline. Durable on return."""
        await self._sender.send(settling.sideline(queue, message_id, reason, receives))
