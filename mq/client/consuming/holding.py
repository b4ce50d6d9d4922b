"""The deliveries of one WebSocket, and the commands that settle them there, many in one.

A WebSocket's command names a message by its id alone, but a program settles a delivery: an id with
its receives. So a delivery is settled there only while the connection brought no later one and it
is not about to be due. Otherwise a request with If-Match settles it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mq.client.consuming.connection import Connection
from mq.client.consuming.frames import Result
from mq.client.errors import ClientError, ConnectionLost, DeliveredAgain, Problem
from mq.client.message import Said, Target
from mq.client.wire import Row
from mq.model.clock import Clock
from mq.model.limits import BATCH_MESSAGES_MAX
from mq.protocol.consume.frames import Verb

# The deliveries that a connection remembers; beyond, it forgets those that are due.
HELD_MAX: Final = 10_000
# The commands of a WebSocket without an answer yet: mq reads no more than 16.
COMMANDS_IN_FLIGHT_MAX: Final = 8
# How long before its due time a message is certainly no other consumer's yet.
_MARGIN: Final = timedelta(seconds=1)


class Elsewhere(Exception):
    """The connection cannot settle the delivery. `was_sent`: it may have done so nevertheless."""

    def __init__(self, was_sent: bool) -> None:
        super().__init__(was_sent)
        self.was_sent = was_sent


@dataclass(slots=True, eq=False)
class _Waiting:
    """A delivery to settle, the reason, and the future of the result."""

    target: Target
    reason: Said
    done: "asyncio.Future[None]"


class Holding:
    """The deliveries of one connection. `after_settling` is called after each command."""

    def __init__(
        self, connection: Connection, clock: Clock, after_settling: "Callable[[], None]"
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._after_settling = after_settling
        # The latest delivery of each id, and its due time.
        self._held: dict[str, tuple[Target, datetime]] = {}
        self._waiting: dict[Verb, deque[_Waiting]] = {verb: deque() for verb in Verb}
        self._in_flight: set[asyncio.Task[None]] = set()

    def came(self, queue: str, row: Row) -> None:
        """Remembers a delivery; a command with its id is about this one from now on."""
        if len(self._held) >= HELD_MAX:
            now = self._now()
            self._held = {one: held for one, held in self._held.items() if held[1] > now}
        self._held[row.id] = (Target(queue, row.id, row.receives), row.due)

    async def begin(self, message_id: str) -> bool:
        """Reports that the program gets a message; False: the connection can no longer
        report it.
        """
        try:
            await self._connection.report_begun([message_id])
        except ConnectionLost:
            return False
        return True

    def extended(self, target: Target, due: datetime) -> None:
        """A request changed a delivery's due time."""
        if self._is_latest(target):
            self._held[target.id] = (target, due)

    def forget(self, target: Target) -> None:
        if self._is_latest(target):
            del self._held[target.id]

    def _is_latest(self, target: Target) -> bool:
        held = self._held.get(target.id)
        return held is not None and held[0] == target

    async def settle(self, verb: Verb, target: Target, reason: Said = None) -> None:
        """Settles a delivery; durable on return. Raises DeliveredAgain; Elsewhere where a request
        has to do it.
        """
        if not self._can_settle(target):
            raise Elsewhere(was_sent=False)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[verb].append(_Waiting(target, reason, done))
        self._send()
        await done

    def _can_settle(self, target: Target) -> bool:
        """Whether a command with the id is certainly about this delivery."""
        if self._connection.is_over or not self._is_latest(target):
            return False
        return self._now() < self._held[target.id][1] - _MARGIN

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def _send(self) -> None:
        for verb, waiting in self._waiting.items():
            while waiting and len(self._in_flight) < COMMANDS_IN_FLIGHT_MAX:
                batch = [waiting.popleft()]
                while (
                    waiting
                    and len(batch) < BATCH_MESSAGES_MAX
                    and waiting[0].reason == batch[0].reason
                ):
                    batch.append(waiting.popleft())
                ready = [each for each in batch if self._is_ready(each)]
                if ready:
                    sending = asyncio.create_task(self._settle(verb, ready))
                    self._in_flight.add(sending)
                    sending.add_done_callback(self._was_sent)

    def _is_ready(self, waiting: _Waiting) -> bool:
        if waiting.done.done():
            return False
        if self._can_settle(waiting.target):
            return True
        waiting.done.set_exception(Elsewhere(was_sent=False))
        return False

    def _was_sent(self, task: "asyncio.Task[None]") -> None:
        self._in_flight.discard(task)
        self._send()

    async def _settle(self, verb: Verb, batch: list[_Waiting]) -> None:
        try:
            ids = [each.target.id for each in batch]
            results = await self._connection.settle(verb, ids, batch[0].reason)
        except (ClientError, asyncio.CancelledError) as error:
            for each in batch:
                if not each.done.done():
                    each.done.set_exception(Elsewhere(was_sent=not isinstance(error, Problem)))
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for each, result in zip(batch, results, strict=True):
            self.forget(each.target)
            if not each.done.done():
                self._resolve(each, result)
        self._after_settling()

    @staticmethod
    def _resolve(waiting: _Waiting, result: Result) -> None:
        if result.problem is None:
            waiting.done.set_result(None)
        elif isinstance(result.problem, DeliveredAgain):
            waiting.done.set_exception(result.problem)
        else:
            # A request gets the current problem, and is retried where that helps.
            waiting.done.set_exception(Elsewhere(was_sent=result.problem.retryable))

    async def finish(self, within_s: float) -> None:
        """Waits until all commands are answered, at most `within_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._in_flight:
                    await asyncio.wait(list(self._in_flight))

    async def end(self) -> None:
        """Leaves all deliveries that are not settled to requests."""
        for task in list(self._in_flight):
            task.cancel()
        if self._in_flight:
            await asyncio.wait(list(self._in_flight))
        for waiting in self._waiting.values():
            while waiting:
                each = waiting.popleft()
                if not each.done.done():
                    each.done.set_exception(Elsewhere(was_sent=False))
        self._held.clear()
