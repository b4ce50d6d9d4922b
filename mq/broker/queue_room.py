"""How many queues there may be in a root: what clients make is counted, what mq makes is not kept
from them.
"""

import asyncio

from mq.broker.broker import Broker
from mq.model.errors import TooManyQueues
from mq.model.names import QueueName
from mq.model.serving_limits import QUEUES_COUNTED_S, QUEUES_FULL_S
from mq.store.core.standing import queue_exists
from mq.store.operations.queues import ANY_SHAPE, WantedShape
from mq.store.settings.registry import count_queues


class QueueRoom:
    """Makes queues while there are fewer than `queues_max`, sidelines counted too. What other
    processes make is seen within a minute, and there may be so many more for as long.
    """

    def __init__(self, broker: Broker, queues_max: int) -> None:
        self._broker = broker
        self._queues_max = queues_max
        self._count = 0
        self._counted_s = float("-inf")
        self._turn = asyncio.Lock()

    async def create(self, name: QueueName, wanted: WantedShape = ANY_SHAPE) -> bool:
        """Makes a queue; False when it was there, which it may be whatever there are. Raises
        TooManyQueues, and as Broker.create_queue. Durable: yes.
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
        except Exception:  # Not where the caller is gone: it is made all the same.
            created = False
            raise
        finally:
            if not created:
                self._count -= 1
        return created

    async def _look(self) -> None:
        """Counts again where that was long ago; sooner where there was no room."""
        now_s = self._broker.root.clock.steady_s()
        is_full = self._count >= self._queues_max
        if now_s - self._counted_s >= (QUEUES_FULL_S if is_full else QUEUES_COUNTED_S):
            self._count = await self._broker.committer.call(count_queues, self._broker.root)
            self._counted_s = now_s
