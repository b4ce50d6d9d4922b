"""Moving messages to their queues' sidelines, which are made by the first who needs them."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mq.broker.queue import Queue
from mq.errors import SidelineMissing
from mq.limits import SIDELINE_TRIES_MAX
from mq.message import Reason, Stamp
from mq.names import MessageId, QueueName
from mq.store.commit import Committer
from mq.store.find import Precondition
from mq.store.root import Root
from mq.store.sideline import sideline


class Sideliner:
    """Sidelines a broker's messages. `make` makes a queue, durably; `used` is the queue of a name
    that this process has used; `heard` hears of each operation's end, and says whether it ended
    well.
    """

    def __init__(
        self,
        root: Root,
        committer: Committer,
        make: Callable[[QueueName], Awaitable[bool]],
        used: Callable[[str], Queue | None],
        heard: Callable[[Queue | None, "asyncio.Future[Any]"], bool],
    ) -> None:
        self._root = root
        self._committer = committer
        self._make = make
        self._used = used
        self._heard = heard

    async def sideline(
        self,
        name: QueueName,
        message_id: MessageId,
        reason: Reason,
        if_receives: Precondition | None,
    ) -> Stamp:
        """To the end also when the caller is cancelled, once it has begun. Raises AlreadySideline,
        QueueNotFound, MessageNotFound, MessageLeased, DeliveredAgain, SidelinePurged, Unavailable.
        Durable: yes.
        """
        for _ in range(SIDELINE_TRIES_MAX):
            try:
                return await self._try(name, message_id, reason, if_receives)
            except SidelineMissing:
                await self._make(name.sideline())
        return await self._try(name, message_id, reason, if_receives)

    async def _try(
        self,
        name: QueueName,
        message_id: MessageId,
        reason: Reason,
        if_receives: Precondition | None,
    ) -> Stamp:
        operation = sideline(self._root, name, message_id, reason, if_receives)
        future = self._committer.submit(operation)
        future.add_done_callback(partial(self._ended, name, message_id))
        return await asyncio.shield(future)

    def _ended(
        self, name: QueueName, message_id: MessageId, future: "asyncio.Future[Stamp]"
    ) -> None:
        """Whoever waits for messages of the sideline hears of it, also when nobody else does."""
        into = self._used(name.sideline().text)
        if self._heard(self._used(name.text), future) and into is not None:
            into.became_ready(message_id)
