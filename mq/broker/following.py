"""Follows what other processes do to queues: create, change and delete them.

A request checks its queue itself. This is for queues without requests, and for waiting consumers:
it looks every few minutes, and when a request asks all processes to.
"""

import asyncio
import contextlib

from mq.broker.broker import Broker
from mq.broker.queue import Queue
from mq.model.errors import MqError, QueueNotFound
from mq.model.log import logger
from mq.store.core.standing import queue_exists
from mq.store.settings.registry import REFRESH_ASKED_EVERY_S, Refreshed, Registry

_log = logger("mq.following")


class Following:
    """One process's looks at all queues of its root. Use it on the event loop's thread."""

    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def refresh_all(self) -> Refreshed:
        """Asks all processes of the root to look, and looks. Returns what this process found.
        Raises Unavailable. Durable on return: no.
        """
        await self._broker.committer.call(self._registry.ask_all)
        return await self.refresh()

    async def tell_of_change(self) -> None:
        """Asks all other processes to look, as this one has changed a queue's settings. If that
        fails, they look a few minutes later. Durable on return: no.
        """
        with contextlib.suppress(MqError):
            await self._broker.committer.call(self._registry.ask_all)

    async def refresh(self) -> Refreshed:
        """Looks at all queues: forgets deleted ones, so that their consumers end, and applies
        changed settings. Raises Unavailable.
        """
        async with self._lock:
            # Before the look: a queue that comes into use meanwhile may be missing in it.
            used = self._broker.in_use()
            found = await self._broker.committer.call(self._registry.refresh)
            for queue in used:
                await self._look(queue)
            return found

    async def _look(self, queue: Queue) -> None:
        registered = self._registry.queues.get(queue.name)
        if registered is not None:
            if queue.facts is None or registered.version != queue.facts.version:
                await self._broker.refresher.refresh(queue)
        elif not await self._broker.committer.call(queue_exists, self._broker.root, queue.name):
            queue.failed(QueueNotFound(queue.name.text))

    async def _follow(self) -> None:
        is_failing = False
        while True:
            await asyncio.sleep(min(self._registry.next_due_s(), REFRESH_ASKED_EVERY_S))
            try:
                if await self._broker.committer.call(self._registry.is_due):
                    await self.refresh()
                is_failing = False
            except MqError as error:
                if not is_failing:
                    fields = {"error": repr(error)}
                    _log.warning("could not list the queues", extra={"fields": fields})
                is_failing = True
