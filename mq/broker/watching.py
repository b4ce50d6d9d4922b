"""Learns what other processes publish and redeliver, for waiting consumers: by inotify, and by
scans.

Messages that inotify reports are added at once. In addition, one timer in a process checks, in one
hop into a thread, which watched folders have changed, and only those are scanned: often where
inotify reports nothing, and elsewhere now and then, in case it missed something.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mq.broker.claims import Claimer
from mq.broker.queue import Queue
from mq.broker.refreshing import Refresher
from mq.broker.siblings import Siblings
from mq.broker.tailing import LOOK_IDS_MAX
from mq.model.errors import MqError
from mq.model.limits import LOOK_INTERVAL_S
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.store.core.arrivals import Arrivals, News
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.scan.newest import newest
from mq.store.scan.order import FolderMark, is_unchanged

# How long a queue's folder is watched after its last consumer left.
WATCH_KEPT_S: Final = 10.0
# Messages that this process added whose inotify report is still to come.
TOLD_MAX: Final = 4096
# Seconds between two scans of a folder whose changes inotify reports, in case it missed one.
HEARD_LOOK_INTERVAL_S: Final = 5.0

_log = logger("mq.watching")


class Listening:
    """inotify's reports to one process. Use it on the event loop's thread, except `change`.

    `hears_all`: every rename into a watched queue's own folder is reported. That is false where
    another machine may use the file system. `arrivals` None: nothing is reported.
    """

    def __init__(self, arrivals: Arrivals | None = None, hears_all: bool = False) -> None:
        self.is_on = arrivals is not None
        self.hears_all = hears_all
        self._arrivals = arrivals
        self._on_news: Callable[[News], None] | None = None
        self._known: dict[str, None] = {}
        """Messages that were added before inotify reported them, the oldest first."""

    def begin(self, on_news: Callable[[News], None]) -> None:
        """Passes on all news from here on."""
        if self._arrivals is not None:
            self._on_news = on_news
            asyncio.get_running_loop().add_reader(self._arrivals.fileno(), self._read)

    def end(self) -> None:
        if self._arrivals is not None:
            if self._on_news is not None:
                asyncio.get_running_loop().remove_reader(self._arrivals.fileno())
            self._arrivals.close()
            self._arrivals = None

    def hears(self, queue: QueueName) -> bool:
        """Whether renames into the queue's own folder are reported."""
        return self._arrivals is not None and self._arrivals.is_watched(queue)

    def knows(self, queue: QueueName, ids: Iterable[MessageId]) -> None:
        """These were added: their later reports are ignored."""
        if not self.hears(queue):
            return
        if not self._known:
            asyncio.get_running_loop().call_soon(self._settle)
        for each in ids:
            self._known[each.text] = None
        while len(self._known) > TOLD_MAX:
            del self._known[next(iter(self._known))]

    def _settle(self) -> None:
        """Stops waiting for reports of added messages. Their renames are over, so a report is
        here by now, or never comes (a bucket is not watched). A later report is a new event.
        """
        while self._read():
            pass
        self._known.clear()

    def change(self, begin: Iterable[QueueName], end: Iterable[QueueName]) -> None:
        """Begins to watch some queues, and ends watching others. Blocking; one thread at a time. A
        newly watched queue must be scanned afterwards.
        """
        if self._arrivals is not None:
            for queue in end:
                self._arrivals.unwatch(queue)
            for queue in begin:
                self._arrivals.watch(queue)

    def _read(self) -> bool:
        """Whether there was anything to read."""
        if self._arrivals is None or self._on_news is None:
            return False
        news, known = self._arrivals.read(), self._known
        if news.missed:
            known.clear()
        elif known:
            for name, ids in news.arrived.items():
                news.arrived[name] = [
                    each for each in ids if each.text not in known or known.pop(each.text)
                ]
        self._on_news(news)
        return news.events > 0


@dataclass(slots=True)
class _Watched:
    """A queue with waiting consumers, now or a moment ago: when its folders were last checked, and
    since when no consumer waits.
    """

    queue: Queue
    asked_s: float = float("-inf")
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Due:
    """A waited-for queue, and the known state of its folders."""

    queue: Queue
    claimer: Claimer
    mark: FolderMark | None


class Watching:
    """The watches and scans of one process for its consumers. Use it on the event loop's thread.

    `refresher` checks the queue's settings before another process's messages are claimed.
    """

    def __init__(
        self,
        root: Root,
        committer: Committer,
        refresher: Refresher,
        listening: Listening,
        siblings: Siblings | None = None,
    ) -> None:
        self._siblings = siblings
        self._root = root
        self._committer = committer
        self._refresher = refresher
        self._listening = listening
        self._queues: dict[QueueName, _Watched] = {}
        self._new: dict[QueueName, None] = {}
        """Queues that are to be watched from now on."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        listening.begin(self._report)

    def watch(self, queue: Queue) -> None:
        """Consumers wait for messages of the queue from here on."""
        name = queue.name
        watched = self._queues.get(name)
        if watched is None or watched.queue is not queue:
            watched = self._queues[name] = _Watched(queue)
            queue.is_watched = self._listening.is_on
        watched.left_s = None
        if self._listening.is_on and not self._listening.hears(name) and name not in self._new:
            self._new[name] = None
            if len(self._new) == 1:
                # At the end of this turn of the loop, for all consumers that come in it.
                asyncio.get_running_loop().call_soon(self._look_into_new)
        if self._timer is None:
            if self._siblings is not None:
                self._siblings.lives()
            self._set_timer()

    def stop(self) -> None:
        self._queues.clear()
        self._new.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def drain(self) -> None:
        """Waits for background work."""
        self.stop()
        going_on = self._background | ({self._looking} if self._looking is not None else set())
        if going_on:
            await asyncio.wait(going_on)
        self._listening.end()

    # Reports of inotify

    def _report(self, news: News) -> None:
        for name, names in news.left.items():
            if (watched := self._queues.get(name)) is not None:
                watched.queue.departed(names)
        for name, ids in news.arrived.items():
            if (watched := self._queues.get(name)) is not None:
                self._arrived(watched.queue, ids)
        for name, ids in news.passed.items():
            if (watched := self._queues.get(name)) is not None:
                watched.queue.tails.passed(ids)
        for name in self._queues if news.missed else news.changed:
            if (watched := self._queues.get(name)) is not None:
                for claimer in watched.queue.claimers_to_scan(self._root.clock.steady_s()):
                    self._in_background(self._scan(watched.queue, claimer))

    def _arrived(self, queue: Queue, ids: Sequence[MessageId]) -> None:
        others = queue.reported(ids)
        if others and not queue.takes_news():
            queue.tails.saw(others)
            queue.missed()
            return
        if self._listening.hears_all:
            queue.all_was_reported(self._root.clock.steady_s())
        if others and self._refresher.is_fresh(queue):
            queue.added(*others)
        elif others:
            self._in_background(self._add(queue, others))

    async def _add(self, queue: Queue, ids: Sequence[MessageId]) -> None:
        await self._refresher.refresh(queue)
        queue.added(*ids)

    # Scans

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_s = self._root.clock.steady_s()
        if self._siblings is not None:
            self._siblings.lives()
        left = []
        for name, watched in self._queues.items():
            watched.queue.end_if_expired()
            is_heard = self._listening.hears_all and self._listening.hears(name)
            if watched.queue.tails.begins_look(now_s, is_heard):
                self._in_background(self._look_for_tails(watched.queue))
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
            self._in_background(self._refresher.refresh_all(consumed))

    async def _look_for_tails(self, queue: Queue) -> None:
        try:
            found = await self._committer.call(newest, self._root, queue.name, LOOK_IDS_MAX)
        except MqError as error:
            queue.tails.failed_to_look()
            queue.failed(error)
        else:
            queue.tails.found(*found)

    def _look_into_new(self) -> None:
        if self._looking is None:
            self._look(self._root.clock.steady_s(), list(self._new), ())

    def _look(self, now_s: float, new: Sequence[QueueName], left: Sequence[QueueName]) -> None:
        """Looks into the folders that are due, or only into the new ones if there are some."""
        if self._looking is not None:
            return
        for name in left:
            self._queues.pop(name).queue.is_watched = False
        for name in new:
            self._new.pop(name, None)
        watched = [self._queues[name] for name in new if name in self._queues]
        due = [each for one in watched or self._queues.values() for each in self._due(one, now_s)]
        if due or new or left:
            self._looking = asyncio.create_task(self._scan_where_changed(due, new, left))
            self._looking.add_done_callback(self._looked)

    def _due(self, watched: _Watched, now_s: float) -> list[_Due]:
        queue, listening = watched.queue, self._listening
        is_heard = listening.hears_all and listening.hears(queue.name)
        was_asked = is_heard and now_s - watched.asked_s < HEARD_LOOK_INTERVAL_S
        due = []
        for claimer in queue.claimers_to_scan(now_s):
            mark = claimer.ready.mark
            # inotify does not report renames into buckets.
            if not (was_asked and mark is not None and claimer.ready.is_of_one_folder):
                due.append(_Due(queue, claimer, mark))
        if due:
            watched.asked_s = now_s
        return due

    async def _scan_where_changed(
        self, due: Sequence[_Due], new: Sequence[QueueName], left: Sequence[QueueName]
    ) -> None:
        now_s = self._root.clock.steady_s()
        changed = await self._committer.call(self._changed, due, new, left)
        async with asyncio.TaskGroup() as scans:
            for each, has_changed in zip(due, changed, strict=True):
                if has_changed:
                    scans.create_task(self._scan(each.queue, each.claimer))
                else:
                    each.claimer.ready.is_as_scanned(now_s)

    def _changed(
        self, due: Sequence[_Due], new: Sequence[QueueName], left: Sequence[QueueName]
    ) -> list[bool]:
        """Watches the new ones first: what came before shows in their folders."""
        self._listening.change(new, left)
        return [each.mark is None or not is_unchanged(self._root, each.mark) for each in due]

    async def _scan(self, queue: Queue, claimer: Claimer) -> None:
        try:
            await self._refresher.refresh(queue)
        except MqError as error:
            queue.failed(error)
        else:
            claimer.scan_again()

    def _looked(self, looking: "asyncio.Task[None]") -> None:
        self._looking = None
        if not looking.cancelled() and (error := looking.exception()) is not None:
            _log.warning(
                "could not check a queue for changes", extra={"fields": {"error": repr(error)}}
            )
        if self._new:
            self._look_into_new()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning(
                "could not check a queue for changes", extra={"fields": {"error": repr(error)}}
            )
