"""What came on a connection, and settling it there: many messages with one command.

A connection knows a message by its id alone, but what is meant is a delivery: an id with its
receives. So what was delivered again, or might have been by now, is not settled there but by a
request with If-Match.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mq.client.consuming.connection import Connection
from mq.client.errors import ClientError, ConnectionLost, DeliveredAgain, Problem
from mq.client.limits import COMMANDS_IN_HAND_MAX, HELD_MAX
from mq.client.wire.frames import Result, Verb
from mq.client.wire.rows import Row
from mq.model.clock import Clock
from mq.model.limits import BATCH_MESSAGES_MAX

# So long before its due time a message is surely nobody else's.
_SURELY: Final = timedelta(seconds=1)


class Elsewhere(Exception):
    """The connection cannot settle the delivery. `was_sent`: whether it may have all the same."""

    def __init__(self, was_sent: bool) -> None:
        super().__init__(was_sent)
        self.was_sent = was_sent


@dataclass(slots=True)
class _Held:
    """A delivery as this connection brought it."""

    queue: str
    receives: int
    due: datetime


@dataclass(slots=True, eq=False)
class _Wish:
    """A delivery that is to be settled, and who waits for that."""

    queue: str
    id: str
    receives: int
    done: "asyncio.Future[None]"


class Holding:
    """The deliveries of one connection, and what is to become of them."""

    def __init__(self, connection: Connection, clock: Clock, grants: "Callable[[], None]") -> None:
        self._connection = connection
        self._clock = clock
        self._after_settling = grants
        self._held: dict[str, _Held] = {}
        self._wishes: dict[Verb, deque[_Wish]] = {verb: deque() for verb in Verb}
        self._in_hand: set[asyncio.Task[None]] = set()

    def came(self, queue: str, row: Row) -> None:
        """A message came: the latest delivery of its id is the one that the connection means."""
        if len(self._held) >= HELD_MAX:
            now = self._now()
            self._held = {one: held for one, held in self._held.items() if held.due > now}
        self._held[row.id] = _Held(queue, row.receives, row.due)

    async def begin(self, message_id: str) -> bool:
        """The program gets it now; false where mq cannot be told any more."""
        try:
            await self._connection.tell_begun([message_id])
        except ConnectionLost:
            return False
        return True

    def extended(self, message_id: str, receives: int, due: datetime) -> None:
        """A delivery is its holder's for longer, or shorter."""
        held = self._held.get(message_id)
        if held is not None and held.receives == receives:
            held.due = due

    def forget(self, message_id: str, receives: int) -> None:
        """A delivery was settled elsewhere."""
        held = self._held.get(message_id)
        if held is not None and held.receives == receives:
            del self._held[message_id]

    async def settle(self, verb: Verb, queue: str, message_id: str, receives: int) -> None:
        """Settles a delivery; durable on return. Raises DeliveredAgain; Elsewhere where that is to
        be done by a request.
        """
        if not self._is_meant(queue, message_id, receives):
            raise Elsewhere(was_sent=False)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wishes[verb].append(_Wish(queue, message_id, receives, done))
        self._send()
        await done

    def _is_meant(self, queue: str, message_id: str, receives: int) -> bool:
        """Whether the connection, by this id, means this delivery and no other."""
        held = self._held.get(message_id)
        if self._connection.is_over or held is None:
            return False
        if (held.queue, held.receives) != (queue, receives):
            return False
        return self._now() < held.due - _SURELY

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def _send(self) -> None:
        for verb, wishes in self._wishes.items():
            while wishes and len(self._in_hand) < COMMANDS_IN_HAND_MAX:
                batch = [wishes.popleft() for _ in range(min(len(wishes), BATCH_MESSAGES_MAX))]
                meant = [wish for wish in batch if self._is_still_meant(wish)]
                if meant:
                    sending = asyncio.create_task(self._settle(verb, meant))
                    self._in_hand.add(sending)
                    sending.add_done_callback(self._was_sent)

    def _is_still_meant(self, wish: _Wish) -> bool:
        if wish.done.done():
            return False
        if self._is_meant(wish.queue, wish.id, wish.receives):
            return True
        wish.done.set_exception(Elsewhere(was_sent=False))
        return False

    def _was_sent(self, task: "asyncio.Task[None]") -> None:
        self._in_hand.discard(task)
        self._send()

    async def _settle(self, verb: Verb, wishes: list[_Wish]) -> None:
        try:
            results = await self._connection.settle(verb, [wish.id for wish in wishes])
        except (ClientError, asyncio.CancelledError) as error:
            for wish in wishes:
                if not wish.done.done():
                    wish.done.set_exception(Elsewhere(was_sent=not isinstance(error, Problem)))
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for wish, result in zip(wishes, results, strict=True):
            self.forget(wish.id, wish.receives)
            if not wish.done.done():
                self._tell(wish, result)
        self._after_settling()

    @staticmethod
    def _tell(wish: _Wish, result: Result) -> None:
        if result.problem is None:
            wish.done.set_result(None)
        elif isinstance(result.problem, DeliveredAgain):
            wish.done.set_exception(result.problem)
        else:
            # A request says what it is by now, and is tried again where that helps.
            wish.done.set_exception(Elsewhere(was_sent=result.problem.retryable))

    async def finish(self, within_s: float) -> None:
        """Waits, for so long, until all that was to be settled is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._in_hand:
                    await asyncio.wait(list(self._in_hand))

    async def end(self) -> None:
        """Nothing more is settled here: what waits is told to be settled elsewhere."""
        for task in list(self._in_hand):
            task.cancel()
        if self._in_hand:
            await asyncio.wait(list(self._in_hand))
        for wishes in self._wishes.values():
            while wishes:
                wish = wishes.popleft()
                if not wish.done.done():
                    wish.done.set_exception(Elsewhere(was_sent=False))
        self._held.clear()
