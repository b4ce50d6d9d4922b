"""Shovels that requests start. Each runs in the process that got the request, in threads of its
own; any process of the root can show and stop it.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from mq.broker.broker import Broker
from mq.broker.queue import Queue
from mq.model.errors import AlreadySideline, ShovelNotFound, TooManyShovels
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.shovel import (
    SHOVEL_RUNS_MAX,
    SHOVEL_STOP_LOOK_S,
    SHOVEL_STOP_WAIT_S,
    Progress,
    Record,
    Trigger,
    due_in_s,
    interval_s,
)
from mq.protocol.sidelines import Shown, Wanted
from mq.store.shovel.files import ask_to_stop, read_record, scheduled_since_ms
from mq.store.shovel.run import Asked, Heard, Run, Stopping, begin


class Shovels:
    """The shovels of a broker's queues. Create and use it on the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._root = broker.root
        self._uuids = UuidSource(broker.root.clock)
        self._runs: dict[QueueName, Run] = {}
        self._over: dict[Run, asyncio.Event] = {}
        self._beginning = 0
        self._stops = False

    async def begin(self, name: QueueName, wanted: Wanted, run_id: str | None = None) -> str:
        """Begins a run; returns its id, a new one if it has none. Raises AlreadySideline,
        BadParameter, QueueNotFound, ShovelRunning, TooManyShovels, Unavailable.
        """
        for each in (name, wanted.into):
            if each is not None and each.is_sideline:
                raise AlreadySideline(each.text)
        if wanted.into is not None:
            await self._broker.queue(wanted.into)
        queue = await self._broker.queue(name)
        settings = self._broker.refresher.usable(queue)
        asked = Asked(
            name,
            Trigger.REQUEST,
            wanted.criteria(settings),
            wanted.rate,
            settings.shovel_concurrency,
            wanted.dry_run,
            wanted.into,
            wanted.renews,
        )
        if self._stops or len(self._over) + self._beginning >= SHOVEL_RUNS_MAX:
            raise TooManyShovels(SHOVEL_RUNS_MAX)
        beginning = self._begin(asked, run_id or self.new_id())
        return await asyncio.shield(self._broker.begin(beginning))

    def new_id(self) -> str:
        """An id of a run."""
        return self._uuids.next()

    async def read(self, name: QueueName) -> Shown:
        """The last run, running or ended. Raises QueueNotFound, ShovelNotFound, Unavailable."""
        queue = await self._broker.queue(name)
        # The record may show a run that ends during the look as still running.
        before = self._runs.get(name)
        record, since_ms = await self._broker.committer.call(self._look, name)
        runs = [each for each in (self._runs.get(name), before) if each is not None]
        shown = self._shown(runs, record, queue, since_ms)
        if shown.run is None and shown.interval_s is None:
            raise ShovelNotFound(name.text)
        return shown

    async def stop(self, name: QueueName) -> Shown:
        """Asks the current run to stop, in any process, and waits a moment for that. Returns its
        state then. Raises QueueNotFound, ShovelNotFound, Unavailable.
        """
        shown = await self.read(name)
        if shown.run is None:
            raise ShovelNotFound(name.text)
        run_id = shown.run.id
        if not shown.run.state.is_under_way:
            return shown
        run = self._runs.get(name)
        if run is not None and run.progress.id == run_id:
            run.stop()
        else:
            await self._broker.committer.call(ask_to_stop, self._root, name, run_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHOVEL_STOP_WAIT_S):
                while _goes_on(shown.run, run_id):
                    await asyncio.sleep(SHOVEL_STOP_LOOK_S)
                    shown = await self.read(name)
        return shown

    @property
    def running(self) -> list[Run]:
        """The runs in this process."""
        return list(self._over)

    def stop_all(self) -> None:
        """Stops the runs in this process and refuses new ones, as it drains."""
        self._stops = True
        for run in list(self._over):
            run.stop(Stopping.LEFT)

    async def _begin(self, asked: Asked, run_id: str) -> str:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def tell(moved: Sequence[MessageId]) -> None:
            loop.call_soon_threadsafe(self._moved, asked.into or asked.queue, moved)

        def end() -> None:
            loop.call_soon_threadsafe(over.set)

        heard = Heard(moved=tell, over=end)
        self._beginning += 1
        try:
            run: Run = await self._broker.committer.call(
                begin, self._root, self._broker.committer.flusher, asked, run_id, heard
            )
        finally:
            self._beginning -= 1
        self._runs[asked.queue] = run
        self._over[run] = over
        if self._stops:
            run.stop(Stopping.LEFT)
        self._broker.begin(self._await_end(run, over))
        return run_id

    async def _await_end(self, run: Run, over: asyncio.Event) -> None:
        await over.wait()
        del self._over[run]
        if self._runs.get(run.queue) is run:
            del self._runs[run.queue]

    def _moved(self, name: QueueName, moved: Sequence[MessageId]) -> None:
        queue = self._broker.used(name.text)
        if queue is not None:
            queue.added(*moved)

    def _look(self, name: QueueName) -> tuple[Record | None, int]:
        record = read_record(self._root, name)
        return record, scheduled_since_ms(self._root, name, record)

    def _shown(
        self, runs: Sequence[Run], record: Record | None, queue: Queue, since_ms: int
    ) -> Shown:
        progress = None if record is None else record.run
        # This process knows its own runs exactly.
        for run in runs:
            if progress is None or progress.id == run.progress.id:
                progress = run.progress
        earlier = () if record is None else record.earlier
        every_s = None if queue.name.is_sideline else interval_s(queue.settings)
        if every_s is None:
            return Shown(progress, None, None, earlier)
        if progress is not None and _is_of_schedule(progress):
            return Shown(progress, every_s, None, earlier)
        now_ms = self._root.now_ms()
        next_ms = now_ms + round(due_in_s(every_s, since_ms, now_ms) * 1000)
        return Shown(progress, every_s, next_ms, earlier)


def _is_of_schedule(progress: Progress) -> bool:
    """Whether it goes on, and the schedule counts from its end."""
    return progress.state.is_under_way and progress.by is Trigger.SCHEDULED


def _goes_on(progress: Progress | None, run_id: str) -> bool:
    """Whether the run of this id does."""
    return progress is not None and progress.id == run_id and progress.state.is_under_way
