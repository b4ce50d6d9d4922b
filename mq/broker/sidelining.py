"""Moves messages to their queues' sidelines, and creates a sideline at its first use."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from mq.broker.queue import Queue
from mq.model.errors import MqError, SidelineMissing
from mq.model.failure import Failure
from mq.model.log import logger
from mq.model.message import Reason
from mq.model.names import MessageId, QueueName
from mq.store.core.find import Precondition
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.sideline import Sidelined, sideline

# Retries when the sideline is deleted concurrently.
SIDELINE_TRIES_MAX: Final = 3

_log = logger("mq.queue")

_LOGGED_MAX: Final = 1000


class Sideliner:
    """Sidelines a broker's messages. `make` creates a queue, durably; `used` finds a queue that
    this process has used; `failed` is called with the error of an operation.
    """

    def __init__(
        self,
        root: Root,
        committer: Committer,
        make: Callable[[QueueName], Awaitable[bool]],
        used: Callable[[str], Queue | None],
        failed: Callable[[Queue | None, BaseException], None],
    ) -> None:
        self._root = root
        self._committer = committer
        self._make = make
        self._used = used
        self._operation_failed = failed
        self._failed: set[QueueName] = set()

    async def sideline(
        self,
        name: QueueName,
        message_id: MessageId,
        reason: Reason,
        if_receives: Precondition | None,
        failure: Failure | None = None,
    ) -> Sidelined:
        """Sidelines a message; completes this when the caller is cancelled, once it has begun.
        Raises AlreadySideline, QueueNotFound, MessageNotFound, MessageLeased, DeliveredAgain,
        SidelinePurged, Unavailable. Durable on return: yes.
        """
        for _ in range(SIDELINE_TRIES_MAX):
            try:
                return await self._try(name, message_id, reason, if_receives, failure)
            except SidelineMissing:
                await self._open(name)
        return await self._try(name, message_id, reason, if_receives, failure)

    async def _try(
        self,
        name: QueueName,
        message_id: MessageId,
        reason: Reason,
        if_receives: Precondition | None,
        failure: Failure | None = None,
    ) -> Sidelined:
        operation = sideline(self._root, name, message_id, reason, if_receives, failure)
        future = self._committer.submit(operation)
        future.add_done_callback(partial(self._ended, name, message_id))
        return await asyncio.shield(future)

    def _ended(
        self, name: QueueName, message_id: MessageId, future: "asyncio.Future[Sidelined]"
    ) -> None:
        error = future.exception()
        if error is None:
            self.was_sidelined(name, message_id)
        else:
            self._operation_failed(self._used(name.text), error)

    def was_sidelined(self, name: QueueName, message_id: MessageId) -> None:
        """Counts the message, and adds it to the sideline."""
        queue = self._used(name.text)
        into = self._used((name.sideline() if queue is None else queue.settings.aside(name)).text)
        if queue is not None:
            queue.totals.sidelined += message_id.items or 1
            queue.let_go(message_id)
        if into is not None:
            into.added(message_id)

    async def _open(self, name: QueueName) -> None:
        """Creates the sideline of the queue's messages."""
        settings = await self._committer.call(self._root.facts.settings, name)
        await self._make(settings.aside(name))

    async def prepare(self, name: QueueName) -> bool:
        """Creates the queue's sideline if it is missing. False if that failed, which is logged
        once. Durable on return: yes, when True.
        """
        try:
            await self._open(name)
        except MqError as error:
            if name not in self._failed and len(self._failed) < _LOGGED_MAX:
                self._failed.add(name)
                fields = {"queue": name.text, "error": repr(error)}
                _log.warning(
                    "cannot move messages to a sideline; they stay in their queue",
                    extra={"fields": fields},
                )
            return False
        self._failed.discard(name)
        return True
