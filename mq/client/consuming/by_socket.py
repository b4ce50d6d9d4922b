"""Consuming by WebSockets, one after the other."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from mq.client.consuming.connection import Connection, Hears
from mq.client.consuming.holding import Holding
from mq.client.consuming.inbox import Inbox
from mq.client.consuming.patience import Patience
from mq.client.consuming.settler import SocketSettler
from mq.client.errors import (
    ClientError,
    ConnectionLost,
    NotMq,
    Problem,
    TimedOut,
    Unauthenticated,
    UpgradeRefused,
)
from mq.client.limits import CLOSE_S, CREDIT_AGAIN_S
from mq.client.message import AsyncMessage
from mq.client.sending import Sender
from mq.client.values import Subscription
from mq.client.wire.rows import Row

_UNAUTHENTICATED: Final = 401


class InTheWay(Exception):
    """Something between here and mq does not let a WebSocket through; `why` is what came of it."""

    def __init__(self, why: ClientError) -> None:
        super().__init__(str(why))
        self.why = why


class BySocket:
    """Has one connection at a time, and makes another when it is lost."""

    def __init__(self, sender: Sender, wanted: Sequence[Subscription], inbox: Inbox) -> None:
        self._sender = sender
        self._wanted = wanted
        self._inbox = inbox
        queues = ", ".join(each.queue for each in wanted)
        self._patience = Patience(queues, sender.shown_url, sender.retry, sender.seams)

    async def run(self) -> None:
        """Brings messages into the inbox until it is cancelled. Raises InTheWay, only before the
        first success; what is final; and what stood in the way of the first connection.
        """
        while True:
            try:
                await _One(self._sender, self._wanted, self._inbox, self._patience).run()
            except (ConnectionLost, TimedOut, NotMq) as error:
                # NotMq has UpgradeRefused with it. What cannot be connected to is not in the way.
                if not self._patience.has_succeeded:
                    raise InTheWay(error) from error
                if isinstance(error, UpgradeRefused) and error.status == _UNAUTHENTICATED:
                    # It was good once, and is no more.
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

    async def run(self) -> None:
        hears = Hears(self._message, self._was_unsubscribed)
        connection = await Connection.begin(self._sender, hears)
        self._holding = Holding(connection, self._sender.seams.clock, self._inbox.changed)
        self._settler = SocketSettler(self._holding, self._sender)
        tasks = [
            asyncio.create_task(connection.run()),
            asyncio.create_task(self._ask(connection)),
        ]
        try:
            await _first([*tasks, self._unsubscribed])
        finally:
            await self._end(connection, tasks)

    def _message(self, queue: str, row: Row) -> None:
        self._patience.went_well()
        self._holding.came(queue, row)
        self._inbox.put(AsyncMessage(queue, row, self._settler))

    def _was_unsubscribed(self, problem: Problem) -> None:
        if not self._unsubscribed.done():
            self._unsubscribed.set_exception(problem)

    async def _ask(self, connection: Connection) -> None:
        """Subscribes, then grants credit as messages are taken."""
        await connection.tell_begun(())
        asked = [(each, self._inbox.wanted(each.queue)) for each in self._wanted]
        for each, credit in asked:
            self._inbox.asked(each.queue, credit)
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
                # It holds too much: there is room once something is settled, or due. Or the queue
                # is gone, which is told beside.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CREDIT_AGAIN_S):
                        await self._inbox.change(turn)

    async def _grant(self, connection: Connection, more: Mapping[str, int]) -> bool:
        """Grants so much more credit, by queue; whether all of it was taken."""
        for queue, count in more.items():
            self._inbox.asked(queue, count)
        results = await connection.grant(more)
        for (queue, count), result in zip(more.items(), results, strict=True):
            if result.problem is not None:
                self._inbox.asked(queue, -count)
        return all(result.problem is None for result in results)

    async def _end(self, connection: Connection, tasks: "list[asyncio.Task[None]]") -> None:
        """Ends what is left: nothing that came on it and was not taken is to be had any more."""
        if not self._unsubscribed.cancel():
            self._unsubscribed.exception()
        holding, settler = self._holding, self._settler
        self._inbox.lose(lambda message: message.came_by(settler))
        self._inbox.forget_asked()
        try:
            if not connection.is_over:
                await holding.finish(CLOSE_S / 2)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await holding.end()
            await connection.close()


async def _first(waited: "Sequence[asyncio.Future[None]]") -> None:
    """Waits for the first that ends, and raises what it raises."""
    done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    for each in waited:
        if each in done:
            each.result()
