"""Counts of queues, at most a second old. Each queue is counted by one task at a time."""

import asyncio
from dataclasses import replace
from typing import Final

from mq.broker.accounts import Description
from mq.broker.queue import Queue
from mq.model.errors import QueueNotFound
from mq.store.core.facts import SETTINGS_AGE_S
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.commit import Committer
from mq.store.format.walk import look_pause_s
from mq.store.scan.census import Census, count
from mq.store.totals.ledger import Ledger

DESCRIBE_AGE_S: Final = 1.0


class Describer:
    """Describes the queues of one root. Use it on the event loop's thread."""

    def __init__(self, root: Root, committer: Committer) -> None:
        self._root = root
        self._committer = committer
        self.census = Census(root)
        self.ledger = Ledger(root)
        self._going_on: dict[Queue, asyncio.Task[Description]] = {}

    async def describe(self, queue: Queue) -> Description:
        """The queue's counts, at most a second old, or older when counting takes long. Callers that
        ask meanwhile wait for the same count. Raises QueueNotFound, Unavailable.
        """
        known, now_s = queue.description, self._root.clock.steady_s()
        if known is not None and now_s < known.stale_s:
            if now_s - known.seen_s >= SETTINGS_AGE_S:
                # The counts are fresh, but another process may have deleted the queue.
                if not await self._committer.call(queue_exists, self._root, queue.name):
                    raise QueueNotFound(queue.name.text)
                known = queue.description = replace(known, seen_s=now_s)
            return known
        task = self._going_on.get(queue)
        if task is None:
            task = self._going_on[queue] = asyncio.create_task(self._describe(queue))
            task.add_done_callback(lambda ended: self._ended(queue, ended))
        return await asyncio.shield(task)

    async def _describe(self, queue: Queue) -> Description:
        began_s = self._root.clock.steady_s()
        counts = await self._committer.call(count, self.census, queue.name)
        lifetime = await self._committer.call(self.ledger.of, queue.name)
        shape = await self._committer.call(self._root.facts.shape, queue.name)
        ended_s = self._root.clock.steady_s()
        fresh_s = max(DESCRIBE_AGE_S, look_pause_s(ended_s - began_s))
        return Description(counts, lifetime, shape, ended_s + fresh_s, began_s)

    def _ended(self, queue: Queue, task: "asyncio.Task[Description]") -> None:
        del self._going_on[queue]
        if not task.cancelled() and task.exception() is None:
            queue.description = task.result()
