"""Shovels that requests ask for: each runs in the process asked, in threads of its own, and is seen
and stopped by any process of the root.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from mq.broker.broker import Broker
from mq.model.errors import AlreadySideline, ShovelNotFound, TooManyShovels
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import QueueSettings
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
from mq.protocol.shovels import Shown, Wanted
from mq.store.shovel.beginning import Asked, begin
from mq.store.shovel.files import ask_to_stop, read_record, scheduled_since_ms
from mq.store.shovel.hearing import Heard, Stopping
from mq.store.shovel.run import Run


class Shovels:
    """The shovels of a broker's queues. Made and used on the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._root = broker.root
        self._uuids = UuidSource(broker.root.clock)
        self._runs: dict[QueueName, Run] = {}
        self._over: dict[Run, asyncio.Event] = {}
        self._beginning = 0
        self._stops = False

    async def begin(self, name: QueueName, wanted: Wanted) -> str:
        """Begins a run; its id. Raises AlreadySideline, BadParameter, QueueNotFound, ShovelRunning,
        TooManyShovels, Unavailable.
        """
        if name.is_sideline:
            raise AlreadySideline(name.text)
        queue = await self._broker.queue(name)
        settings = self._broker.keeper.usable(queue)
        asked = Asked(
            name,
            Trigger.REQUEST,
            wanted.criteria(settings),
            wanted.rate,
            settings.shovel_concurrency,
            wanted.dry_run,
        )
        if self._stops or len(self._over) + self._beginning >= SHOVEL_RUNS_MAX:
            raise TooManyShovels(SHOVEL_RUNS_MAX)
        task = asyncio.create_task(self._begin(asked, self._uuids.next()))
        self._broker.background.add(task)
        task.add_done_callback(self._broker.background.discard)
        return await asyncio.shield(task)

    async def read(self, name: QueueName) -> Shown:
        """Raises QueueNotFound, ShovelNotFound, Unavailable."""
        queue = await self._broker.queue(name)
        record, since_ms = await self._broker.committer.call(self._look, name)
        shown = self._shown(name, record, queue.settings, since_ms)
        if shown.run is None and shown.interval_s is None:
            raise ShovelNotFound(name.text)
        return shown

    async def stop(self, name: QueueName) -> Shown:
        """Asks the run that goes on to stop, whichever process has it, and waits a moment until it
        has; how it is then. Raises QueueNotFound, ShovelNotFound, Unavailable.
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

    def stop_all(self) -> None:
        """Those of this process end soon, and no other begins: it drains."""
        self._stops = True
        for run in list(self._over):
            run.stop(Stopping.LEFT)

    async def _begin(self, asked: Asked, run_id: str) -> str:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def tell(moved: Sequence[MessageId]) -> None:
            loop.call_soon_threadsafe(self._moved, asked.queue, moved)

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
        task = asyncio.create_task(self._await_end(run, over))
        self._broker.background.add(task)
        task.add_done_callback(self._broker.background.discard)
        return run_id

    async def _await_end(self, run: Run, over: asyncio.Event) -> None:
        await over.wait()
        del self._over[run]
        if self._runs.get(run.queue) is run:
            del self._runs[run.queue]

    def _moved(self, name: QueueName, moved: Sequence[MessageId]) -> None:
        """Whoever waits for messages of the queue hears of them."""
        queue = self._broker.used(name.text)
        if queue is not None:
            queue.became_ready(*moved)

    def _look(self, name: QueueName) -> tuple[Record | None, int]:
        record = read_record(self._root, name)
        return record, scheduled_since_ms(self._root, name, record)

    def _shown(
        self, name: QueueName, record: Record | None, settings: QueueSettings, since_ms: int
    ) -> Shown:
        run = self._runs.get(name)
        progress = None if record is None else record.run
        # What this process does is known to the moment.
        if run is not None and (progress is None or progress.id == run.progress.id):
            progress = run.progress
        every_s = None if name.is_sideline else interval_s(settings)
        if every_s is None:
            return Shown(progress, None, None)
        if progress is not None and _is_of_schedule(progress):
            return Shown(progress, every_s, None)
        now_ms = self._root.now_ms()
        next_ms = now_ms + round(due_in_s(every_s, since_ms, now_ms) * 1000)
        return Shown(progress, every_s, next_ms)


def _is_of_schedule(progress: Progress) -> bool:
    """Whether it goes on, and the schedule counts from its end."""
    return progress.state.is_under_way and progress.by is Trigger.SCHEDULED


def _goes_on(progress: Progress | None, run_id: str) -> bool:
    """Whether the run of this id does."""
    return progress is not None and progress.id == run_id and progress.state.is_under_way
