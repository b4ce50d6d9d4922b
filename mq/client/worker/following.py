"""Following the setting `consumers` of a worker's queues."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mq.client.errors import ClientError, one_line
from mq.client.options import Seams
from mq.client.queue.queue import AsyncQueue
from mq.model.worker_limits import FOLLOW_EVERY_S

_log: Final = logging.getLogger("mq.worker")


class Following:
    """Looks at it every few seconds, at all queues side by side."""

    def __init__(
        self,
        queues: Sequence[AsyncQueue],
        say: Callable[[Iterable[int]], None],
        seams: Seams,
    ) -> None:
        """`say`: is told what each queue says, each time."""
        self._queues = queues
        self._say = say
        self._seams = seams
        self._known = dict.fromkeys((queue.name for queue in queues), 0)

    async def run(self) -> None:
        """Until it is cancelled. What cannot be read is as it was last known."""
        while True:
            await asyncio.gather(*(self._look(queue) for queue in self._queues))
            self._say(self._known.values())
            await self._seams.sleep(FOLLOW_EVERY_S)

    async def _look(self, queue: AsyncQueue) -> None:
        try:
            said = (await queue.settings()).values.get("consumers", 0)
        except ClientError as error:
            facts = {"queue": queue.name, "error": one_line(error)}
            _log.debug(
                "cannot read the settings of %s: %s; goes on with those known",
                *facts.values(),
                extra={"fields": facts},
            )
            return
        if isinstance(said, int):
            self._known[queue.name] = said
