"""The limit of a root's queues. It applies to queues that clients create, not to those that mq
itself needs.
"""

import asyncio
from typing import Final

from mq.broker.broker import Broker
from mq.model.errors import TooManyQueues
from mq.model.names import QueueName
from mq.store.core.standing import queue_exists
from mq.store.operations.queues import ANY_SHAPE, WantedShape
from mq.store.settings.registry import count_queues

# How long a count of the root's queues is believed, and one that says that there is no room.
QUEUES_COUNTED_S: Final = 60.0
QUEUES_FULL_S: Final = 1.0


class QueueRoom:
    """Creates queues while there are fewer than `queues_max`, sidelines included. Queues of other
    processes are counted within a minute, so the limit may be exceeded for as long.
    """

    def __init__(self, broker: Broker, queues_max: int) -> None:
        self._broker = broker
        self._queues_max = queues_max
        self._count = 0
        self._counted_s = float("-inf")
        self._turn = asyncio.Lock()

    async def create(self, name: QueueName, wanted: WantedShape = ANY_SHAPE) -> bool:
        """Creates a queue; False when it existed, which succeeds at any count. Raises
        TooManyQueues, and the errors of Broker.create_queue. Durable on return: yes.
        """
        broker = self._broker
        if await broker.committer.call(queue_exists, broker.root, name):
            return await broker.create_queue(name, wanted)
        async with self._turn:
            await self._look()
            if self._count >= self._queues_max:
                raise TooManyQueues(self._queues_max)
            self._count += 1  # Before it is there: others come meanwhile.
        created = True
        try:
            created = await broker.create_queue(name, wanted)
        except Exception:  # Not a cancelled caller: then the queue is made all the same.
            created = False
            raise
        finally:
            if not created:
                self._count -= 1
        return created

    async def _look(self) -> None:
        """Counts again if the last count is old; sooner if it found no room."""
        now_s = self._broker.root.clock.steady_s()
        is_full = self._count >= self._queues_max
        if now_s - self._counted_s >= (QUEUES_FULL_S if is_full else QUEUES_COUNTED_S):
            self._count = await self._broker.committer.call(count_queues, self._broker.root)
            self._counted_s = now_s
