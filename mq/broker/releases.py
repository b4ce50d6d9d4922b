"""Giving back all that somebody had who is gone: of each queue as one operation."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from mq.broker.queue import Queue
from mq.model.errors import Unavailable
from mq.model.message import Delivery
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.operations.giving_back import release_many

_log = logging.getLogger("mq.queue")


class Releaser:
    """Releases a broker's deliveries. `used` is the queue of a name that this process has used."""

    def __init__(
        self, root: Root, committer: Committer, used: Callable[[str], Queue | None]
    ) -> None:
        self._root = root
        self._committer = committer
        self._used = used

    async def release(self, deliveries: Sequence[Delivery], unhandled: bool = False) -> None:
        """Puts them back into their queues, but for those that have moved on; what cannot be put
        back comes back when it is due. `unhandled`: the deliveries are no attempts. Their
        descriptors are closed. Durable: yes.
        """
        by_queue: dict[QueueName, list[Delivery]] = {}
        for delivery in deliveries:
            if delivery.descriptor is not None:
                self._root.files.close(delivery.descriptor)
            by_queue.setdefault(delivery.queue, []).append(delivery)
        await asyncio.gather(*(self._release(name, of, unhandled) for name, of in by_queue.items()))

    async def _release(
        self, name: QueueName, deliveries: Sequence[Delivery], unhandled: bool
    ) -> None:
        try:
            operation = release_many(self._root, name, deliveries, unhandled)
            ids = await self._committer.commit(operation)
        except Unavailable as error:
            _log.warning(
                "releases failed; the messages come back when they are due",
                extra={"fields": {"queue": name.text, "error": repr(error)}},
            )
            return
        queue = self._used(name.text)
        if queue is not None and ids:
            queue.totals.released += len(ids)
            queue.became_ready(*ids)
