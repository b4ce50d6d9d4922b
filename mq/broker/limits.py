"""Publishes to queues with a limit: admits them, makes them wait for room, and makes room by
removing the oldest messages.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from mq.broker.claims import Sidelines
from mq.broker.queue import Queue
from mq.broker.sidelining import SIDELINE_PAUSE_S, SIDELINE_TRIES_MAX
from mq.model.errors import QueueFull
from mq.model.log import logger
from mq.store.core.room import Load, Says, full
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.format.layout import Place
from mq.store.operations.overflow import Old, goes_aside, make_room, oldest_ready, to_go
from mq.store.operations.sideline import is_of_a_moment

# The longest wait for a count of a queue. A publish that would wait longer is decided by the last
# count.
LOOK_WAIT_S_MAX: Final = 1.0
# The most tries of a publish, and rounds that make room before others have a turn.
TRIES_MAX: Final = 8
ROUNDS_MAX: Final = 16
# Messages that are removed at a time.
GOING_MAX: Final = 128

_log = logger("mq.queue")


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Standing:
    """The state of one limited queue: its counts, by number, and the oldest messages as last
    listed.
    """

    begun: int = 0
    ended: int = 0
    look: "asyncio.Task[None] | None" = None
    making: "asyncio.Task[None] | None" = None
    counted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a publish has ended."""
    oldest: deque[Old] = field(default_factory=deque)


class Limits:
    """The limited queues of a broker. `begin` runs work in the background. Use it on the event
    loop's thread.
    """

    def __init__(
        self,
        root: Root,
        committer: Committer,
        sidelines: Sidelines,
        begin: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self._root = root
        self._room = root.room
        self._committer = committer
        self._sidelines = sidelines
        self._begin = begin
        self._ending = asyncio.Event()
        self._standing: WeakKeyDictionary[Queue, _Standing] = WeakKeyDictionary()

    async def admit(self, queue: Queue, load: Load, largest: int | None = None) -> None:
        """Returns when a publish may begin, and counts it; the caller then calls `ended`.
        `largest`: see Room.take. Raises QueueFull, QueueNotFound, Unavailable.
        """
        standing, has_looked = self._of(queue), False
        for _ in range(TRIES_MAX):
            says = self._room.take(queue.name, queue.settings, load, largest)
            if says is Says.YES:
                return
            if says is Says.WAIT:
                standing.counted.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(standing.counted.wait(), LOOK_WAIT_S_MAX)
                has_looked = False
            elif says is Says.MAKE:
                await asyncio.shield(self._making(queue))
            elif has_looked or self._room.pause_s(queue.name) > LOOK_WAIT_S_MAX:
                break
            else:
                await self._look(queue, standing)
                has_looked = says is Says.FULL
        raise full(queue.name, queue.settings)

    async def admit_each(self, queue: Queue, sizes: Sequence[int]) -> list[bool]:
        """Which of several messages, of these sizes in bytes, may be published; they are counted
        together. Raises QueueFull where none may; QueueNotFound, Unavailable.
        """
        try:
            await self.admit(queue, Load(len(sizes), sum(sizes)), max(sizes))
        except QueueFull:
            if len(sizes) == 1:
                raise
        else:
            return [True] * len(sizes)
        if queue.settings.refuses:
            take, settings = self._room.take, queue.settings
            fit = [take(queue.name, settings, Load(1, size)) is Says.YES for size in sizes]
        else:
            kept = self._room.held(queue.name).kept
            fit = [(kept + Load(1, size)).fits(queue.settings) for size in sizes]
            fitting = [size for size, fits in zip(sizes, fit, strict=True) if fits]
            if fitting:
                await self.admit(queue, Load(len(fitting), sum(fitting)), max(fitting))
        if not any(fit):
            raise full(queue.name, queue.settings)
        return fit

    @asynccontextmanager
    async def admitted(self, queue: Queue, load: Load) -> AsyncIterator[None]:
        """Admits a publish for the block. Raises as `admit`."""
        await self.admit(queue, load)
        was_published = False
        try:
            yield
            was_published = True
        finally:
            self.ended(queue, load, was_published)

    async def check(self, queue: Queue) -> None:
        """Raises QueueFull where the smallest message has no room; counts nothing."""
        await self.admit(queue, Load(1))
        self.ended(queue, Load(1), was_published=False)

    def ended(self, queue: Queue, load: Load, was_published: bool) -> None:
        """A publish that was counted has ended."""
        self._room.ended(queue.name, load, was_published)
        self._of(queue).counted.set()
        settings = queue.settings
        if was_published and not settings.refuses and self._room.is_over(queue.name, settings):
            self._making(queue)

    def stop(self) -> None:
        """Makes no more room, and waits for no more counts."""
        self._ending.set()

    def _of(self, queue: Queue) -> _Standing:
        standing = self._standing.get(queue)
        if standing is None:
            standing = self._standing[queue] = _Standing()
        return standing

    async def _look(self, queue: Queue, standing: _Standing) -> None:
        """Waits for a count that begins after this call. Raises QueueNotFound, Unavailable."""
        wanted = standing.begun + 1
        while standing.ended < wanted:
            if standing.look is None:
                standing.look = asyncio.create_task(self._count(queue, standing))
            await asyncio.shield(standing.look)

    async def _count(self, queue: Queue, standing: _Standing) -> None:
        if (pause_s := self._room.pause_s(queue.name)) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), min(pause_s, LOOK_WAIT_S_MAX))
        standing.begun += 1
        number = standing.begun
        try:
            await self._committer.call(self._room.look, queue.name, queue.settings)
            standing.ended = number
        finally:
            standing.look = None  # Before any callback, which may ask for the next count.

    def _making(self, queue: Queue) -> "asyncio.Task[None]":
        standing = self._of(queue)
        if standing.making is None:
            standing.making = self._begin(self._make_once(queue, standing))
        return standing.making

    async def _make_once(self, queue: Queue, standing: _Standing) -> None:
        try:
            await self._make(queue, standing)
        finally:
            standing.making = None

    async def _make(self, queue: Queue, standing: _Standing) -> None:
        """Removes the oldest messages, as many as a count exceeds the limit by. A listed message
        that is gone by now is not replaced by another: the listing came before the count, so
        another process removed it, or a consumer has it.
        """
        for _ in range(ROUNDS_MAX):
            settings = queue.settings
            if settings.refuses or queue.is_gone or self._ending.is_set():
                return
            if not standing.oldest:
                with_bytes = settings.bytes_max > 0
                listed = await self._committer.call(
                    oldest_ready, self._root, queue.name, with_bytes
                )
                standing.oldest.extend(listed)
            await self._look(queue, standing)
            excess = self._room.held(queue.name).excess(settings)
            going = to_go(standing.oldest, excess)[:GOING_MAX]
            if excess and not going:
                standing.oldest.clear()
            if not going:
                return
            for _ in going:
                standing.oldest.popleft()
            ends = await self._let_go(queue, going)
            if not all(end is True for end in ends):
                standing.oldest.clear()  # The listing is stale.
            if all(isinstance(end, BaseException) for end in ends):
                return

    async def _let_go(self, queue: Queue, going: Sequence[Place]) -> list[bool | BaseException]:
        ends = await self._run(queue, going)
        for _ in range(SIDELINE_TRIES_MAX):
            again = [number for number, end in enumerate(ends) if is_of_a_moment(end)]
            if not again or self._ending.is_set():
                break
            await asyncio.sleep(SIDELINE_PAUSE_S)
            more = await self._run(queue, [going[number] for number in again])
            for number, end in zip(again, more, strict=True):
                ends[number] = end
        queue.totals.dropped += sum(
            place.id.items or 1 for place, end in zip(going, ends, strict=True) if end is True
        )
        if all(isinstance(end, BaseException) for end in ends):
            fields = {"queue": queue.name.text, "error": repr(ends[0])}
            _log.warning("could not make room in a queue at its limit", extra={"fields": fields})
        return ends

    async def _run(self, queue: Queue, going: Sequence[Place]) -> list[bool | BaseException]:
        settings, submit = queue.settings, self._committer.submit
        futures = [submit(make_room(self._root, place, settings)) for place in going]
        if goes_aside(queue.name, settings):
            for place, future in zip(going, futures, strict=True):
                future.add_done_callback(partial(self._went, queue, place))
        await asyncio.wait(futures)
        return [future.exception() or future.result() for future in futures]

    def _went(self, queue: Queue, place: Place, future: "asyncio.Future[bool]") -> None:
        if future.exception() is None and future.result():
            self._sidelines.was_sidelined(queue.name, place.id)
