"""Hearing of and looking for, for those who wait, what other processes publish and redeliver.

What the kernel tells is offered at once. Beside that one timer in a process asks at each of its
moments, in one hop into a thread, which of the folders changed in which somebody waits, and only
those are listed: where nothing is told often, and elsewhere now and then all the same.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from mq.broker.fetching import Fetching
from mq.broker.keeper import Keeper
from mq.broker.listening import Listening
from mq.broker.queue import Queue
from mq.model.errors import MqError
from mq.model.limits import HEARD_LOOK_INTERVAL_S, LOOK_INTERVAL_S, WATCH_KEPT_S
from mq.model.names import MessageId, QueueName
from mq.store.core.arrivals import News
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.scan.order import FolderMark, is_unchanged

_log = logging.getLogger("mq.watching")


@dataclass(slots=True)
class _Watched:
    """A queue in which somebody waits, or did a moment ago: when it was last asked whether its
    folders changed, and since when nobody waits.
    """

    queue: Queue
    asked_s: float = float("-inf")
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Due:
    """Where somebody waits, and what is known of the folders there."""

    queue: Queue
    fetching: Fetching
    mark: FolderMark | None


class Watching:
    """The looks of one process for those who wait. Lives on the event loop's thread.

    `keeper` looks whether a queue's settings changed, before messages of it are claimed that others
    published.
    """

    def __init__(
        self, root: Root, committer: Committer, keeper: Keeper, listening: Listening
    ) -> None:
        self._root = root
        self._committer = committer
        self._keeper = keeper
        self._listening = listening
        self._queues: dict[QueueName, _Watched] = {}
        self._new: dict[QueueName, None] = {}
        """Queues that are to be heard of from now on."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        listening.begin(self._hear)

    def watch(self, queue: Queue) -> None:
        """Somebody waits for a message of the queue from here on."""
        name = queue.name
        watched = self._queues.get(name)
        if watched is None or watched.queue is not queue:
            watched = self._queues[name] = _Watched(queue)
        watched.left_s = None
        if self._listening.is_on and not self._listening.hears(name) and name not in self._new:
            self._new[name] = None
            if len(self._new) == 1:
                # At the end of this turn of the loop: those who come in it go along.
                asyncio.get_running_loop().call_soon(self._look_into_new)
        if self._timer is None:
            self._set_timer()

    def untold(self, queue: Queue, ids: Sequence[MessageId]) -> Sequence[MessageId]:
        """Those of what this process has just published that are still to be offered."""
        return self._listening.untold(queue.name, ids)

    def stop(self) -> None:
        """Nobody waits any more."""
        self._queues.clear()
        self._new.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def drain(self) -> None:
        """Waits until nothing goes on here."""
        self.stop()
        going_on = self._background | ({self._looking} if self._looking is not None else set())
        if going_on:
            await asyncio.wait(going_on)
        self._listening.end()

    # What the kernel tells

    def _hear(self, news: News) -> None:
        for name, ids in news.arrived.items():
            watched = self._queues.get(name)
            if watched is None:
                continue
            if not watched.queue.would_hear():
                watched.queue.missed()
                continue
            self._listening.was_told(ids)
            if self._listening.hears_all:
                watched.queue.hears_all(self._root.clock.steady_s())
            if self._keeper.is_fresh(watched.queue):
                watched.queue.heard(ids)
            else:
                self._in_background(self._offer(watched.queue, ids))
        for name in self._queues if news.missed else news.changed:
            if (watched := self._queues.get(name)) is not None:
                for fetching in watched.queue.fetchings_to_look(self._root.clock.steady_s()):
                    self._in_background(self._look_into(watched.queue, fetching))

    async def _offer(self, queue: Queue, ids: Sequence[MessageId]) -> None:
        await self._keeper.refresh(queue)
        queue.heard(ids)

    # Looks

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_s = self._root.clock.steady_s()
        left = []
        for name, watched in self._queues.items():
            watched.queue.check_stalled(now_s)
            watched.queue.end_if_expired()
            if watched.queue.is_consumed and not watched.queue.is_gone:
                watched.left_s = None
            elif watched.left_s is None:
                watched.left_s = now_s
            elif now_s - watched.left_s >= WATCH_KEPT_S:
                left.append(name)
        if self._queues:
            self._set_timer()
            self._look(now_s, (), left)
        consumed = [each.queue for each in self._queues.values() if each.queue.is_consumed]
        if consumed:
            self._in_background(self._keeper.refresh_all(consumed))

    def _look_into_new(self) -> None:
        if self._looking is None:
            self._look(self._root.clock.steady_s(), list(self._new), ())

    def _look(self, now_s: float, new: Sequence[QueueName], left: Sequence[QueueName]) -> None:
        """Into what is due, or, where some are new, into those."""
        if self._looking is not None:
            return
        for name in left:
            del self._queues[name]
        for name in new:
            self._new.pop(name, None)
        watched = [self._queues[name] for name in new if name in self._queues]
        due = [each for one in watched or self._queues.values() for each in self._due(one, now_s)]
        if due or new or left:
            self._looking = asyncio.create_task(self._look_where_changed(due, new, left))
            self._looking.add_done_callback(self._looked)

    def _due(self, watched: _Watched, now_s: float) -> list[_Due]:
        queue, listening = watched.queue, self._listening
        is_heard = listening.hears_all and listening.hears(queue.name)
        was_asked = is_heard and now_s - watched.asked_s < HEARD_LOOK_INTERVAL_S
        due = []
        for fetching in queue.fetchings_to_look(now_s):
            mark = fetching.backlog.mark
            # Of what comes to a bucket nothing is told.
            if not (was_asked and mark is not None and fetching.backlog.is_of_one_folder):
                due.append(_Due(queue, fetching, mark))
        if due:
            watched.asked_s = now_s
        return due

    async def _look_where_changed(
        self, due: Sequence[_Due], new: Sequence[QueueName], left: Sequence[QueueName]
    ) -> None:
        now_s = self._root.clock.steady_s()
        changed = await self._committer.call(self._changed, due, new, left)
        async with asyncio.TaskGroup() as looks:
            for each, has_changed in zip(due, changed, strict=True):
                if has_changed:
                    looks.create_task(self._look_into(each.queue, each.fetching))
                else:
                    each.fetching.backlog.is_as_looked(now_s)

    def _changed(
        self, due: Sequence[_Due], new: Sequence[QueueName], left: Sequence[QueueName]
    ) -> list[bool]:
        """Hears of the new ones first: what came before shows in their folders."""
        self._listening.change(new, left)
        return [each.mark is None or not is_unchanged(self._root, each.mark) for each in due]

    async def _look_into(self, queue: Queue, fetching: Fetching) -> None:
        try:
            await self._keeper.refresh(queue)
        except MqError as error:
            queue.failed(error)
        else:
            fetching.look_again()

    def _looked(self, looking: "asyncio.Task[None]") -> None:
        self._looking = None
        if not looking.cancelled() and (error := looking.exception()) is not None:
            _log.warning("a look failed", extra={"fields": {"error": repr(error)}})
        if self._new:
            self._look_into_new()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a look failed", extra={"fields": {"error": repr(error)}})
