"""Consumes by WebSockets, one after the other, and settles their messages."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mq.client.consuming.connection import Connection
from mq.client.consuming.holding import Elsewhere, Holding
from mq.client.consuming.inbox import Inbox
from mq.client.consuming.patience import Patience
from mq.client.errors import (
    ClientError,
    ConnectionLost,
    NotMq,
    Problem,
    TimedOut,
    Unauthenticated,
    UpgradeRefused,
)
from mq.client.message import (
    AsyncMessage,
    Released,
    Said,
    Settler,
    Target,
    Why,
    delete_call,
    release_call,
    return_unhandled,
    said,
    sideline_call,
)
from mq.client.options import CLOSE_S
from mq.client.sending import Call, Sender
from mq.client.values import Extended, Settled, Subscription
from mq.client.wire import Row
from mq.protocol.consume.frames import Verb

# How long to wait before credit that mq refused is asked for again.
CREDIT_AGAIN_S: Final = 1.0
_UNAUTHENTICATED: Final = 401


class InTheWay(Exception):
    """No WebSocket gets through to mq; `why`: the error of the attempt."""

    def __init__(self, why: ClientError) -> None:
        super().__init__(str(why))
        self.why = why


class BySocket:
    """Keeps one WebSocket open, and opens another when it is lost."""

    def __init__(self, sender: Sender, wanted: Sequence[Subscription], inbox: Inbox) -> None:
        self._sender = sender
        self._wanted = wanted
        self._inbox = inbox
        self._lost: list[AsyncMessage] = []
        queues = ", ".join(each.queue for each in wanted)
        self._patience = Patience(queues, sender.shown_url, sender.retry, sender.seams)

    async def run(self) -> None:
        """Brings messages into the inbox until it is cancelled. Raises final errors; before the
        first success also InTheWay, and the errors of the first connection.
        """
        while True:
            try:
                one = _One(self._sender, self._wanted, self._inbox, self._patience)
                await one.run(self._lost)
            except (ConnectionLost, TimedOut, NotMq) as error:
                # NotMq includes UpgradeRefused. A proxy does not cause CouldNotConnect.
                if not self._patience.has_succeeded:
                    raise InTheWay(error) from error
                if isinstance(error, UpgradeRefused) and error.status == _UNAUTHENTICATED:
                    # The token was valid at first.
                    raise Unauthenticated.here() from error
                await self._patience.after(error)
            except ClientError as error:
                await self._patience.after(error)


class _One:
    """One connection, from its beginning to its end."""

    def __init__(
        self, sender: Sender, wanted: Sequence[Subscription], inbox: Inbox, patience: Patience
    ) -> None:
        self._sender = sender
        self._wanted = wanted
        self._inbox = inbox
        self._patience = patience
        self._unsubscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, lost: list[AsyncMessage]) -> None:
        """`lost`: the messages that the program had not taken when the last connection ended, and,
        afterwards, this one's.
        """
        connection = await Connection.open(self._sender, self)
        self._holding = Holding(connection, self._sender.seams.clock, self._inbox.changed)
        self._settler = SocketSettler(self._holding, self._sender)
        tasks = [asyncio.create_task(connection.run()), asyncio.create_task(self._ask(connection))]
        # mq has released them, unless it was killed: then they would count as attempts.
        returning = asyncio.create_task(return_unhandled(list(lost)))
        lost.clear()
        try:
            # First: mq may close the connection right after it reports the end of a subscription.
            await _first([self._unsubscribed, *tasks])
        finally:
            lost += await self._end(connection, [*tasks, returning])

    def message(self, queue: str, row: Row) -> None:
        self._patience.went_well()
        self._holding.came(queue, row)
        self._inbox.put(AsyncMessage(queue, row, self._settler), was_requested=True)

    def unsubscribed(self, problem: Problem) -> None:
        if not self._unsubscribed.done():
            self._unsubscribed.set_exception(problem)

    async def _ask(self, connection: Connection) -> None:
        """Subscribes, then grants credit as the program takes messages."""
        await connection.report_begun(())
        asked = [(each, self._inbox.wanted(each.queue)) for each in self._wanted]
        for each, credit in asked:
            self._inbox.requested(each.queue, credit)
        await connection.subscribe(asked)
        self._patience.succeeded()
        while True:
            wanted = {each.queue: self._inbox.wanted(each.queue) for each in self._wanted}
            more = {queue: count for queue, count in wanted.items() if count}
            if not more:
                await self._inbox.change()
                continue
            turn = self._inbox.turn
            if not await self._grant(connection, more):
                # The connection holds too many messages until one is settled or due. Or the queue
                # is gone, which another frame reports.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CREDIT_AGAIN_S):
                        await self._inbox.change(turn)

    async def _grant(self, connection: Connection, more: Mapping[str, int]) -> bool:
        """Grants more credit, by queue; whether mq accepted all of it."""
        for queue, count in more.items():
            self._inbox.requested(queue, count)
        results = await connection.grant(more)
        for (queue, count), result in zip(more.items(), results, strict=True):
            if result.problem is not None:
                self._inbox.requested(queue, -count)
        return all(result.problem is None for result in results)

    async def _end(
        self, connection: Connection, tasks: "list[asyncio.Task[None]]"
    ) -> list[AsyncMessage]:
        """Ends the connection, and drops its messages that the program has not taken, which it
        returns: mq releases them.
        """
        if not self._unsubscribed.cancel():
            self._unsubscribed.exception()
        holding, settler = self._holding, self._settler
        lost = self._inbox.lose(lambda message: message.came_by(settler))
        self._inbox.forget_requests()
        try:
            if not connection.is_over:
                await holding.finish(CLOSE_S / 2)
                # While it is still read: mq's closing frame means that it has released all
                # messages.
                await connection.close()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await holding.end()
            await connection.close()
        return lost


class SocketSettler(Settler):
    """Settles a connection's deliveries by its commands, else by requests, also once the connection
    has ended.
    """

    __slots__ = ("_holding",)

    def __init__(self, holding: Holding, sender: Sender) -> None:
        super().__init__(sender)
        self._holding = holding

    async def begin(self, message_id: str) -> bool:
        """Reports that the program gets the message now; False: the connection has ended, and mq
        has released the message.
        """
        return await self._holding.begin(message_id)

    async def delete(self, target: Target) -> None:
        await self._settle(Verb.ACK, target, delete_call(target))

    async def release(self, target: Target, how: Released) -> None:
        """Makes the message ready again."""
        # The client's commands have neither a delay nor `unhandled`.
        is_plain = how == Released(failure=how.failure)
        verb = Verb.RELEASE if is_plain else None
        await self._settle(verb, target, release_call(target, how), said(how.failure))

    async def return_unhandled(self, targets: Sequence[Target]) -> list[Settled]:
        """Releases up to 1000 messages of one queue that no program had; the result of each."""
        found = await super().return_unhandled(targets)
        for target, each in zip(targets, found, strict=True):
            if each.is_done:
                self._holding.forget(target)
        return found

    async def _settle(
        self, verb: Verb | None, target: Target, call: Call[Any], reason: Said = None
    ) -> None:
        """Settles a delivery by a command; by a request without a verb, or where that fails."""
        try:
            if verb is None:
                raise Elsewhere(was_sent=False)
            await self._holding.settle(verb, target, reason)
        except Elsewhere as found:
            await self._sender.send(call, was_tried=found.was_sent)
            self._holding.forget(target)

    async def extend(self, target: Target, seconds: float) -> Extended:
        """Makes the message due in `seconds`."""
        found = await super().extend(target, seconds)
        self._holding.extended(target, found.due)
        return found

    async def sideline(self, target: Target, why: Why) -> None:
        """Moves the message to the sideline."""
        await self._settle(Verb.SIDELINE, target, sideline_call(target, why), why.said())


async def _first(waited: "Sequence[asyncio.Future[None]]") -> None:
    """Waits for the first future to end, and raises its exception."""
    done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    for each in waited:
        if each in done:
            each.result()
