"""Looking, for those who wait, for what other processes publish and redeliver.

One timer in a process: at each of its moments it asks, in one hop into a thread, which of the
folders changed in which somebody waits, and only those are listed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from mq.broker.fetching import Fetching
from mq.broker.queue import Queue
from mq.errors import MqError
from mq.limits import LOOK_INTERVAL_S
from mq.store.commit import Committer
from mq.store.order import FolderMark, is_unchanged
from mq.store.root import Root

_log = logging.getLogger("mq.watching")


class Ends(Protocol):
    """One whose waiting ends at a time."""

    def time_is_up(self) -> None:
        """It has waited as long as it would."""


class Watching:
    """The looks of one process for those who wait. Lives on the event loop's thread.

    `refresh` looks whether a queue's settings changed, before messages of it are claimed that
    others published.
    """

    def __init__(
        self, root: Root, committer: Committer, refresh: Callable[[Queue], Awaitable[None]]
    ) -> None:
        self._root = root
        self._committer = committer
        self._refresh = refresh
        self._queues: dict[Queue, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def watch(self, queue: Queue) -> None:
        """Somebody waits for a message of the queue from here on."""
        self._queues[queue] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Nobody waits any more."""
        self._queues.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def drain(self) -> None:
        """Waits until nothing goes on here."""
        self.stop()
        if self._looking is not None:
            await asyncio.wait([self._looking])

    def _tick(self) -> None:
        self._timer = None
        now_s = self._root.clock.steady_s()
        for queue in list(self._queues):
            queue.check_stalled(now_s)
            if not queue.interests or queue.is_gone:
                del self._queues[queue]
        if not self._queues:
            return
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._tick)
        if self._looking is None:
            due = [
                (queue, fetching, fetching.backlog.mark)
                for queue in self._queues
                for fetching in queue.fetchings_to_look(now_s)
            ]
            if due:
                self._looking = asyncio.create_task(self._look(due))
                self._looking.add_done_callback(self._looked)

    async def _look(self, due: list[tuple[Queue, Fetching, FolderMark | None]]) -> None:
        changed = await self._committer.call(self._changed, [mark for _, _, mark in due])
        async with asyncio.TaskGroup() as looks:
            for (queue, fetching, _), has_changed in zip(due, changed, strict=True):
                if has_changed:
                    looks.create_task(self._look_into(queue, fetching))

    def _changed(self, marks: list[FolderMark | None]) -> list[bool]:
        return [mark is None or not is_unchanged(self._root, mark) for mark in marks]

    async def _look_into(self, queue: Queue, fetching: Fetching) -> None:
        try:
            await self._refresh(queue)
        except MqError as error:
            queue.failed(error)
        else:
            fetching.look_again()

    def _looked(self, looking: "asyncio.Task[None]") -> None:
        self._looking = None
        if not looking.cancelled() and (error := looking.exception()) is not None:
            _log.warning("a look failed", extra={"fields": {"error": repr(error)}})
