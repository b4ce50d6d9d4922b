"""Counts of queues, at most a second old; one at a time for each queue."""

import asyncio
from dataclasses import replace

from mq.broker.accounts import Description
from mq.broker.queue import Queue
from mq.model.errors import QueueNotFound
from mq.model.limits import DESCRIBE_AGE_S, SETTINGS_AGE_S
from mq.store.core.listing import look_pause_s
from mq.store.core.root import Root
from mq.store.core.standing import queue_exists
from mq.store.disk.commit import Committer
from mq.store.scan.census import Census
from mq.store.scan.counting import count


class Describer:
    """Describes the queues of one root. Lives on the event loop's thread."""

    def __init__(self, root: Root, committer: Committer) -> None:
        self._root = root
        self._committer = committer
        self.census = Census(root)
        self._going_on: dict[Queue, asyncio.Task[Description]] = {}

    async def describe(self, queue: Queue) -> Description:
        """The queue's counts, at most a second old, or older when counting takes long; whoever
        asks meanwhile waits for the same count. Raises QueueNotFound, Unavailable.
        """
        known, now_s = queue.description, self._root.clock.steady_s()
        if known is not None and now_s < known.stale_s:
            if now_s - known.seen_s >= SETTINGS_AGE_S:
                # Its counts are fresh still; whether another process has deleted it is asked anew.
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
        shape = await self._committer.call(self._root.places.shape, queue.name)
        ended_s = self._root.clock.steady_s()
        fresh_s = max(DESCRIBE_AGE_S, look_pause_s(ended_s - began_s))
        return Description(counts, shape, ended_s + fresh_s, began_s)

    def _ended(self, queue: Queue, task: "asyncio.Task[Description]") -> None:
        del self._going_on[queue]
        if not task.cancelled() and task.exception() is None:
            queue.description = task.result()
