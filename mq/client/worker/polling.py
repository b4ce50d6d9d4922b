"""Getting the messages of one queue: a poll after the other, for as many as there is room for."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from mq.client.errors import ClientError, NotUsable, Refused, one_line
from mq.client.message import AsyncMessage
from mq.client.options import Seams
from mq.client.queue.queue import AsyncQueue
from mq.client.worker.leases import Leases
from mq.model.limits import VISIBILITY_S_DEFAULT
from mq.model.worker_limits import POLL_AGAIN_S, POLL_AGAIN_S_MAX, WORKER_POLL_S, YOUNG_POLL_S

_log: Final = logging.getLogger("mq.worker")

Wanted = Callable[[str], int]
"""How many messages there is room for, of a queue."""
Came = Callable[[str, Sequence[AsyncMessage], float], None]
"""Messages of a queue came, whose visibility is usually so many seconds."""


class Poller:
    """Asks for messages of a queue until it is stopped."""

    def __init__(
        self,
        queue: AsyncQueue,
        visibility_s: float | None,
        wanted: Wanted,
        came: Came,
        leases: Leases,
        seams: Seams,
        url: str,
    ) -> None:
        self._queue = queue
        self._url = url
        self._visibility_s = visibility_s
        self._usual_s = visibility_s or VISIBILITY_S_DEFAULT
        self._wanted = wanted
        self._came = came
        self._leases = leases
        self._seams = seams
        self._room = asyncio.Event()
        self._asked_s: float | None = None
        self._failed = 0
        self._is_stopping = False

    def look_again(self) -> None:
        """There may be more room than there was."""
        self._room.set()

    async def run(self) -> None:
        """Asks again and again; waits while there is no room, and after what failed. Raises what
        another try would not mend: Refused, NotUsable.
        """
        while not self._is_stopping:
            self._room.clear()
            count = self._wanted(self._queue.name)
            if not count:
                await self._room.wait()
                continue
            try:
                await self._ask(count)
            except (Refused, NotUsable):
                raise
            except ClientError as error:
                await self._wait_after(error)

    async def stop(self, running: "asyncio.Task[None]") -> None:
        """Asks for nothing more. A poll that has just begun may have its answer on the way, with
        messages that would come back only when they are due: that one is waited for; what waits
        already is given up, which mq sees, and claims nothing for it.
        """
        self._is_stopping = True
        self._room.set()
        if self._asked_s is not None:
            young_s = self._asked_s + YOUNG_POLL_S - self._seams.clock.steady_s()
            if young_s > 0:
                await asyncio.wait({running}, timeout=young_s)
        running.cancel()
        await asyncio.wait({running})

    async def _ask(self, count: int) -> None:
        self._asked_s = self._seams.clock.steady_s()
        try:
            # A first answer tells how late it is at mq, and that all is well there.
            if not self._leases.knows_time:
                await self._meet()
            messages = await self._queue.fetch_many(
                count, wait_s=WORKER_POLL_S, visibility_s=self._visibility_s
            )
        finally:
            self._asked_s = None
        if self._failed:
            _log.info(
                "fetches from %s at %s again",
                *(self._queue.name, self._url),
                extra={"fields": {"queue": self._queue.name, "url": self._url}},
            )
            self._failed = 0
        if messages:
            self._came(self._queue.name, messages, self._usual_s)

    async def _meet(self) -> None:
        found = await self._queue.describe()
        self._leases.heard(found.as_of["totals"])
        if self._visibility_s is None:
            self._usual_s = float(found.settings.get("visibility_s", self._usual_s))

    async def _wait_after(self, error: ClientError) -> None:
        pause_s = min(POLL_AGAIN_S * 2.0 ** min(self._failed, 16), POLL_AGAIN_S_MAX)
        self._failed += 1
        level = logging.WARNING if self._failed == 1 else logging.DEBUG
        pause_s *= (1 + self._seams.chance()) / 2
        facts = {"queue": self._queue.name, "url": self._url, "error": one_line(error)}
        _log.log(
            *(level, "cannot fetch from %s at %s: %s; tries again in %.1f s"),
            *(*facts.values(), pause_s),
            extra={"fields": facts},
        )
        await self._seams.sleep(pause_s)
