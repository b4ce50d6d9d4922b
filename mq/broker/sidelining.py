"""Moving messages to their queues' sidelines, which are made by the first who needs them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from mq.broker.queue import Queue
from mq.model.errors import MqError, SidelineMissing
from mq.model.limits import SIDELINE_TRIES_MAX
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.find import Precondition
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.sideline import sideline

_log = logging.getLogger("mq.queue")

_TOLD_OF_MAX: Final = 1000


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
        self._failed: set[QueueName] = set()

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
        """Also when nobody else hears of it."""
        if self._heard(self._used(name.text), future):
            self.was_sidelined(name, message_id)

    def was_sidelined(self, name: QueueName, message_id: MessageId) -> None:
        """Counts it; whoever waits for messages of the sideline hears of it."""
        queue, into = self._used(name.text), self._used(name.sideline().text)
        if queue is not None:
            queue.totals.sidelined += 1
        if into is not None:
            into.became_ready(message_id)

    async def prepare(self, name: QueueName) -> bool:
        """Makes the queue's sideline, where it is missing; whether it is there then. Durable: yes,
        when it is. Of one that cannot be made the log tells, once.
        """
        try:
            await self._make(name.sideline())
        except MqError as error:
            if name not in self._failed and len(self._failed) < _TOLD_OF_MAX:
                self._failed.add(name)
                fields = {"queue": name.text, "error": repr(error)}
                _log.warning("messages cannot go to a sideline", extra={"fields": fields})
            return False
        self._failed.discard(name)
        return True
