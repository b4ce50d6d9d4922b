"""Moves messages to their queues' sidelines."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from mq.broker.queue import Queue
from mq.model.errors import SidelineMissing
from mq.model.failure import Failure
from mq.model.log import logger
from mq.model.message import Reason
from mq.model.names import MessageId, QueueName
from mq.store.core.find import Precondition
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.sideline import Sidelined, Stuck, is_of_a_moment, sideline

# Tries where another process makes or deletes a queue at the same time, and the pause between two.
SIDELINE_TRIES_MAX: Final = 100
SIDELINE_PAUSE_S: Final = 0.05


class Sideliner:
    """Sidelines a broker's messages. `used` finds a queue that this process has used; `failed` is
    called with the error of an operation.
    """

    def __init__(
        self,
        root: Root,
        committer: Committer,
        used: Callable[[str], Queue | None],
        failed: Callable[[Queue | None, BaseException], None],
    ) -> None:
        self._root = root
        self._committer = committer
        self._used = used
        self._operation_failed = failed
        self._stuck = Stuck(logger("mq.queue"))
        self.failed = self._stuck.failed

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
        NameTaken, SidelinePurged, Unavailable. Durable on return: yes.
        """
        tries = 0
        while True:
            operation = sideline(self._root, name, message_id, reason, if_receives, failure)
            future = self._committer.submit(operation)
            future.add_done_callback(partial(self._ended, name, message_id))
            try:
                return await asyncio.shield(future)
            except SidelineMissing as error:
                tries += 1
                if not is_of_a_moment(error) or tries == SIDELINE_TRIES_MAX:
                    raise (error.__cause__ or error) from None
            await asyncio.sleep(SIDELINE_PAUSE_S)

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
        self._stuck.moved(name)
        queue = self._used(name.text)
        into = self._used((name.sideline() if queue is None else queue.settings.aside(name)).text)
        if queue is not None:
            queue.totals.sidelined += message_id.items or 1
            queue.let_go(message_id)
        if into is not None:
            into.added(message_id)
