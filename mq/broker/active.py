"""The active consumer of a queue whose setting `active_consumer` is `single`. It alone gets the
queue's messages, among all consumers in all processes of the root.

The active consumer's process has the queue's turn (`store.core.turns`), and gives it back when none
of its consumers needs it.

A new active consumer begins only when no message is left with a consumer from before. Otherwise it
would get later messages while an earlier one is still in flight, and the order that the setting
promises would be lost. Messages of the previous consumer are settled, or become ready again and are
delivered first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mq.broker.claims import Claimer
from mq.model.errors import MqError
from mq.model.limits import LOOK_INTERVAL_S, TURN_SILENT_S
from mq.model.log import logger
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.core.turns import Turn
from mq.store.disk.commit import Committer
from mq.store.format.walk import look_pause_s
from mq.store.operations.taking_over import is_any_in_flight, take_over

# How often a process renews its turn, and how long it may rely on the renewal. A process that was
# stopped for longer (SIGSTOP, a paused machine) must look before it claims: another process may
# have taken the turn over meanwhile.
KEEP_EVERY_S: Final = 1.0
BELIEVED_S: Final = TURN_SILENT_S / 2
# How long a consumer that polls is the active one after a poll, with nothing in flight.
LINGER_S: Final = 2.0
# Seconds between two looks whether the previous consumer's messages are settled.
OCCUPIED_LOOK_S: Final = 0.05

_log = logger("mq.queue")


@dataclass(eq=False, slots=True)
class Seat:
    """A consumer's claim to be the active one. Seats of one `name` are one consumer; "" is a name
    of its own. `on_turn` is called when it becomes the active consumer, `on_lost` when it stops
    being it, `on_refused` when another one is.
    """

    name: str
    priority: int
    on_turn: Callable[[], None]
    on_lost: Callable[[], None]
    on_refused: Callable[[], None]
    has_turn: bool = False


class Consumed(Protocol):
    name: QueueName
    root: Root
    committer: Committer
    claimers: list[Claimer]

    async def asks_for_turn(self, name: str) -> bool:
        """Whether another process of this mq gave the turn back, as its active consumer has this
        name.
        """
        ...

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...


class Active:
    """Decides which consumer of the queue is the active one, for this process. Use it on the event
    loop's thread.
    """

    def __init__(self, queue: Consumed) -> None:
        self._queue = queue
        self._steady_s = queue.root.clock.steady_s
        self._seats: dict[Seat, None] = {}
        self._turn: Turn | None = None
        self._kept_s = float("-inf")
        self._name: str | None = None
        """Of the active consumer. None: there is none."""
        self._left_s = 0.0
        self._yields: asyncio.Future[bool] | None = None
        self._running: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_closed = False

    def join(self, seat: Seat) -> None:
        """Adds a consumer that wants to be the active one."""
        if self._is_closed:
            seat.on_refused()
            return
        self._seats[seat] = None
        if seat.name and seat.name == self._name and self._is_kept():
            self._give(seat)
        self._go_on()

    def leave(self, seat: Seat) -> None:
        """A consumer goes, or a poll has ended. A consumer without a name gives the turn up at
        once.
        """
        self._seats.pop(seat, None)
        if seat.has_turn:
            seat.has_turn = False
            self._left_s = self._steady_s()
            if not seat.name and not self._holders():
                self._name = None
        self._go_on()

    def has_turn(self, seat: Seat) -> bool:
        """Whether this consumer may claim now."""
        return seat.has_turn and self._is_kept()

    def yields(self, name: str) -> Awaitable[bool]:
        """The consumer of this name polls another process. Gives the turn back if it is that
        consumer's and it does not poll here. Whether it did.
        """
        yields: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._turn is None or name != self._name or self._holders():
            yields.set_result(False)
            return yields
        if self._yields is None:
            self._yields = yields
        self._go_on()
        return asyncio.shield(self._yields)

    def close(self, is_for_all: bool = False) -> None:
        """Ends the turn. `is_for_all`: from here on each consumer gets messages."""
        self._is_closed = True
        seats, self._seats = self._seats, {}
        for seat in seats:
            if not is_for_all:
                seat.on_refused()
            elif not seat.has_turn:
                seat.on_turn()
        self._wake.set()

    def _go_on(self) -> None:
        self._wake.set()
        if self._running is None and not self._is_closed:
            self._running = self._queue.begin(self._run())

    def _is_kept(self) -> bool:
        return self._steady_s() - self._kept_s < BELIEVED_S

    def _holders(self) -> int:
        return sum(seat.has_turn for seat in self._seats)

    def _give(self, seat: Seat) -> None:
        if seat in self._seats:
            seat.has_turn = True
            seat.on_turn()

    # The task that runs while a consumer waits for the turn, or the process has it

    async def _run(self) -> None:
        try:
            pause_s: float | None = 0.0
            while pause_s is not None and not self._is_closed:
                self._wake.clear()
                pause_s = await self._step()
                if pause_s is not None:
                    await self._pause(pause_s)
        finally:
            try:
                await self._give_back()
            finally:
                self._running = None
                if self._seats:
                    self._go_on()  # A consumer came meanwhile.

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _step(self) -> float | None:
        """Does one step. Returns the seconds until the next one; None: there is none."""
        try:
            return await self._look()
        except Exception as error:
            fields = {"queue": self._queue.name.text, "error": repr(error)}
            known = isinstance(error, MqError)
            _log.warning(
                "could not look for the active consumer",
                exc_info=None if known else error,
                extra={"fields": fields},
            )
            self._refuse()
            return LOOK_INTERVAL_S

    async def _look(self) -> float | None:
        if self._turn is None:
            if self._first() is None:
                return None
            if not await self._take():
                self._refuse()
                return LOOK_INTERVAL_S
        elif self._steady_s() - self._kept_s >= KEEP_EVERY_S and not await self._keep():
            return 0.0
        if self._holders():
            self._refuse()
            return KEEP_EVERY_S
        if self._yields is not None:
            await self._give_back()
            return 0.0
        return await self._choose()

    async def _choose(self) -> float | None:
        """Makes the first waiting consumer the active one, once no message is left with an earlier
        consumer.
        """
        left_s = self._left_s + LINGER_S - self._steady_s()
        if self._name is not None and left_s > 0:
            self._refuse()
            return min(left_s, KEEP_EVERY_S)
        began_s = self._steady_s()
        if await self._is_occupied():
            self._refuse()
            return max(OCCUPIED_LOOK_S, look_pause_s(self._steady_s() - began_s))
        if self._holders() or self._is_closed:
            return 0.0
        self._name = None
        if (first := self._first()) is None:
            return None
        self._begin(first)
        self._refuse()
        return KEEP_EVERY_S

    def _begin(self, first: Seat) -> None:
        # This process may not know messages that others took and released meanwhile.
        for each in self._queue.claimers:
            each.forget()
        self._name = first.name
        same = [seat for seat in self._seats if first.name and seat.name == first.name]
        for seat in same or [first]:
            self._give(seat)

    def _first(self) -> Seat | None:
        """The consumer of the highest priority that came first."""
        waiting = [seat for seat in self._seats if not seat.has_turn]
        return max(waiting, key=lambda seat: seat.priority, default=None)

    def _refuse(self) -> None:
        for seat in [each for each in self._seats if not each.has_turn]:
            seat.on_refused()

    async def _take(self) -> bool:
        first = self._first()
        name = "" if first is None else first.name
        was_yielded = bool(name) and await self._queue.asks_for_turn(name)
        began_s = self._steady_s()
        self._turn = await self._queue.committer.call(take_over, self._queue.root, self._queue.name)
        self._name, self._kept_s = None, began_s
        if self._turn is not None and was_yielded and first in self._seats and first is not None:
            self._begin(first)
        return self._turn is not None

    async def _keep(self) -> bool:
        began_s, turn = self._steady_s(), self._turn
        if turn is not None and await self._queue.committer.call(turn.keep):
            was_kept, self._kept_s = self._is_kept(), began_s
            for seat in () if was_kept else [each for each in self._seats if each.has_turn]:
                # Its claims in the meantime were refused.
                seat.on_lost()
                seat.on_turn()
            return True
        fields = {"queue": self._queue.name.text}
        _log.warning(
            "another process took the turn of the active consumer", extra={"fields": fields}
        )
        await self._give_back()
        return False

    async def _give_back(self) -> None:
        """Gives the turn back: none of this process's consumers is active."""
        self._kept_s, self._name = float("-inf"), None
        for seat in [each for each in self._seats if each.has_turn]:
            seat.has_turn = False
            seat.on_lost()
        await self._drained()
        turn, self._turn = self._turn, None
        if turn is not None:
            await self._queue.committer.call(turn.end)
        if self._yields is not None:
            self._yields.set_result(turn is not None)
            self._yields = None

    async def _is_occupied(self) -> bool:
        await self._drained()
        return await self._queue.committer.call(
            is_any_in_flight, self._queue.root, self._queue.name
        )

    async def _drained(self) -> None:
        """Waits for the claims in progress, whose messages are released."""
        claimers: Sequence[Claimer] = self._queue.claimers
        while pending := {each for claimer in claimers for each in claimer.pending()}:
            await asyncio.wait(pending)
