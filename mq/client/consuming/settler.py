"""How messages that came over a WebSocket are settled: there, and by requests where that cannot
be.
"""

from mq.client.calls import settling
from mq.client.consuming.holding import Elsewhere, Holding
from mq.client.sending import Sender
from mq.client.settling import HttpSettler
from mq.client.values import Extended, Reason
from mq.client.wire.frames import Verb


class SocketSettler:
    """Settles what came on one connection, also when that is gone."""

    __slots__ = ("_by_request", "_holding", "_sender")

    def __init__(self, holding: Holding, sender: Sender) -> None:
        self._holding = holding
        self._sender = sender
        self._by_request = HttpSettler(sender)

    async def begin(self, message_id: str) -> bool:
        """The program gets it now; false where the connection is over, and mq has it again."""
        return await self._holding.begin(message_id)

    async def delete(self, queue: str, message_id: str, receives: int) -> None:
        """Deletes it. Durable on return."""
        try:
            await self._holding.settle(Verb.ACK, queue, message_id, receives)
        except Elsewhere as found:
            call = settling.delete(queue, message_id, receives)
            await self._sender.send(call, was_tried=found.was_sent)
            self._holding.forget(message_id, receives)

    async def release(
        self, queue: str, message_id: str, receives: int, delay_s: float, unhandled: bool
    ) -> None:
        """Gives it back, ready after so many seconds. `unhandled`: the delivery is no attempt.
        Durable on return.
        """
        try:
            if delay_s > 0 or unhandled:
                raise Elsewhere(was_sent=False)
            await self._holding.settle(Verb.RELEASE, queue, message_id, receives)
        except Elsewhere as found:
            call = settling.release(queue, message_id, delay_s, receives, unhandled)
            await self._sender.send(call, was_tried=found.was_sent)
            self._holding.forget(message_id, receives)

    async def extend(self, queue: str, message_id: str, receives: int, seconds: float) -> Extended:
        """Has it be due so many seconds from now. Durable on return."""
        found = await self._by_request.extend(queue, message_id, receives, seconds)
        self._holding.extended(message_id, receives, found.due)
        return found

    async def sideline(self, queue: str, message_id: str, receives: int, reason: Reason) -> None:
        """Moves it to the sideline. Durable on return."""
        try:
            # A WebSocket's command says no reason: it is that nobody wants the message.
            if reason != "rejected":
                raise Elsewhere(was_sent=False)
            await self._holding.settle(Verb.SIDELINE, queue, message_id, receives)
        except Elsewhere:
            await self._by_request.sideline(queue, message_id, receives, reason)
            self._holding.forget(message_id, receives)
