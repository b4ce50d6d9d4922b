"""A queue's messages by their ids and keys: looking at them, and changing what becomes of them."""

from collections.abc import AsyncIterator, Iterable, Sequence

from mq.client.calls import fetching, settling
from mq.client.queue.base import OfQueue
from mq.client.values import (
    Extended,
    History,
    PeekedMessage,
    Reason,
    Settled,
    Sidelined,
    State,
    StoredMessage,
)
from mq.model.limits import BATCH_MESSAGES_MAX, PEEK_MESSAGES_DEFAULT


class Messages(OfQueue):
    """Messages by name. With `receives` a change is of that delivery alone: DeliveredAgain is
    raised where there was another.
    """

    __slots__ = ()

    async def read(
        self, message_id: str, *, start: int = 0, length: int | None = None
    ) -> StoredMessage:
        """A message in whatever state it is; nothing is consumed. `start` and `length`: a part of
        its body, in bytes. Raises MessageNotFound; Refused for a part that begins behind the end.
        """
        return await self._sender.send(fetching.read(self.name, message_id, start, length))

    async def read_key(
        self, key: str, *, start: int = 0, length: int | None = None
    ) -> StoredMessage:
        """The message that has the key, as `read` gives it. Raises KeyNotFound."""
        return await self._sender.send(fetching.read_key(self.name, key, start, length))

    async def delete_message(self, message_id: str, *, receives: int | None = None) -> None:
        """Deletes a message, whoever has it; also one that was deleted. Durable on return. Raises
        MessageNotFound, DeliveredAgain.
        """
        await self._sender.send(settling.delete(self.name, message_id, receives))

    async def delete_messages(self, ids: Sequence[str]) -> list[Settled]:
        """Deletes up to 1000 messages, whoever has them; what became of each, in their order.
        Durable on return, where it is done.
        """
        return await self._sender.send(settling.delete_many(self.name, ids))

    async def delete_key(self, key: str, *, receives: int | None = None) -> None:
        """Deletes the message that has the key. Durable on return. Raises KeyNotFound,
        DeliveredAgain. Not tried again once it may have been done: another may have the key then.
        """
        await self._sender.send(settling.delete_key(self.name, key, receives))

    async def extend(
        self, message_id: str, seconds: float, *, receives: int | None = None
    ) -> Extended:
        """Has a message be due so many seconds from now, be it fetched, delayed or ready. Durable
        on return. Raises MessageNotFound, DeliveredAgain.
        """
        return await self._sender.send(settling.extend(self.name, message_id, seconds, receives))

    async def release(
        self, message_id: str, *, delay_s: float = 0.0, receives: int | None = None
    ) -> Extended:
        """Has a message be ready after so many seconds. Durable on return. Raises MessageNotFound,
        DeliveredAgain.
        """
        call = settling.release_by_id(self.name, message_id, delay_s, receives)
        return await self._sender.send(call)

    async def sideline(
        self, message_id: str, *, reason: Reason = "rejected", receives: int | None = None
    ) -> Sidelined:
        """Moves a message to the queue's sideline. Durable on return. Raises MessageNotFound,
        MessageLeased, DeliveredAgain; Refused of a sideline.
        """
        return await self._sender.send(settling.sideline(self.name, message_id, reason, receives))

    async def history(self, message_id: str) -> History:
        """What became of a message, where the queue's setting `history` is true. Raises
        MessageNotFound.
        """
        return await self._sender.send(fetching.history(self.name, message_id))

    async def peek(
        self,
        *,
        states: Iterable[State] = ("ready",),
        count: int = PEEK_MESSAGES_DEFAULT,
        after: str | None = None,
    ) -> list[PeekedMessage]:
        """At most `count` (1 to 1000) messages of these states, one state after the other; nothing
        is consumed. `after`: an id behind which the page begins, with one state alone.
        """
        return await self._sender.send(fetching.peek(self.name, states, count, after))

    async def browse(
        self, states: Iterable[State] = ("ready",), *, count: int = BATCH_MESSAGES_MAX
    ) -> AsyncIterator[PeekedMessage]:
        """All messages of these states, one state after the other, in pages of `count`."""
        for state in tuple(states):
            after: str | None = None
            while True:
                page = await self.peek(states=(state,), count=count, after=after)
                for message in page:
                    yield message
                if len(page) < count:
                    break
                after = page[-1].id
