"""Reports to mq which messages of a worker wait for a handler, over a WebSocket.

mq returns those when the connection ends: a worker that is killed costs them no attempt. The worker
opens the connection when a message first waits. Where none gets through, all deliveries count.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from mq.client.consuming.connection import Connection
from mq.client.errors import ClientError, NotUsable, Problem, one_line
from mq.client.message import Target, return_unhandled
from mq.client.options import Seams
from mq.client.sending import Sender
from mq.client.wire import Row
from mq.client.worker.leases import Delivery
from mq.model.limits import BATCH_MESSAGES_MAX

# How soon a lost connection is opened again.
REPORT_AGAIN_S: Final = 0.5
REPORT_AGAIN_S_MAX: Final = 30.0

_log: Final = logging.getLogger("mq.worker")


class Reporting:
    """The waiting messages of a worker, in one event loop. `drop` gets those that mq may have
    returned, since their connection was lost: no handler may begin them.
    """

    def __init__(
        self, sender: Sender, seams: Seams, drop: Callable[[Sequence[Delivery]], None]
    ) -> None:
        self._sender = sender
        self._seams = seams
        self._drop = drop
        self._waiting: dict[str, Delivery] = {}
        """The messages, by id, that are not reported to mq yet."""
        self._reported: dict[str, Delivery] = {}
        self._begins: list[tuple[str, asyncio.Future[bool]]] = []
        self._dropped: list[Delivery] = []
        """To be returned by requests: mq may have been killed, and returned none."""
        self._changed = asyncio.Event()

    def came(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            self._reported.pop(each.message.id, None)
            self._waiting[each.message.id] = each
        self._changed.set()

    def begins(self, delivery: Delivery) -> "asyncio.Future[bool] | None":
        """A handler begins a message once the future is true; False: mq may have returned the
        message. None: the message was not reported to mq, and the handler begins at once.
        """
        message_id = delivery.message.id
        if self._waiting.get(message_id) is delivery:
            del self._waiting[message_id]
        if self._reported.get(message_id) is not delivery:
            return None
        del self._reported[message_id]
        begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._begins.append((message_id, begun))
        self._changed.set()
        return begun

    async def run(self) -> None:
        """Reports until it is cancelled. Raises nothing else."""
        pause_s = REPORT_AGAIN_S
        while True:
            while not (self._waiting or self._dropped):
                self._changed.clear()
                await self._changed.wait()
            try:
                connection = await Connection.open(self._sender, self)
            except NotUsable:
                return
            except ClientError as error:
                _log.debug(
                    "the worker cannot report to %s which messages wait: %s",
                    *(self._sender.shown_url, one_line(error)),
                )
                await self._seams.sleep(pause_s * (1 + self._seams.chance()) / 2)
                pause_s = min(2 * pause_s, REPORT_AGAIN_S_MAX)
                continue
            pause_s = REPORT_AGAIN_S
            await self._run(connection)

    async def _run(self, connection: Connection) -> None:
        parts = (connection.run(), self._write(connection), self._return())
        reading, writing, returning = tasks = [asyncio.create_task(each) for each in parts]
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            returning.cancel()
            lost = list(self._reported.values())
            self._reported.clear()
            for _, begun in self._begins:
                if not begun.done():
                    begun.set_result(False)
            self._begins.clear()
            self._dropped += lost
            self._drop(lost)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await connection.close()

    async def _write(self, connection: Connection) -> None:
        """Writes the reports. Raises ConnectionLost, TimeoutError."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with asyncio.timeout(self._sender.timeouts.answer_s):
                while self._waiting or self._begins:
                    if self._begins:
                        await self._write_begins(connection)
                    else:
                        await self._write_waiting(connection)

    async def _write_begins(self, connection: Connection) -> None:
        batch = self._begins[:BATCH_MESSAGES_MAX]
        await connection.report_begun([message_id for message_id, _ in batch])
        del self._begins[: len(batch)]
        for _, begun in batch:
            if not begun.done():
                begun.set_result(True)

    async def _write_waiting(self, connection: Connection) -> None:
        batch = list(self._waiting.values())[:BATCH_MESSAGES_MAX]
        for each in batch:
            del self._waiting[each.message.id]
            self._reported[each.message.id] = each
        named = [(each.message.queue, each.message.id, each.message.receives) for each in batch]
        await connection.report_prefetched([Target(*each) for each in named])

    async def _return(self) -> None:
        """Returns what a lost connection had, once each, now that mq answers again."""
        dropped, self._dropped = self._dropped, []
        await return_unhandled(each.message for each in dropped)

    def message(self, queue: str, row: Row) -> None:
        """Never called: the connection has no subscription."""

    def unsubscribed(self, problem: Problem) -> None: ...
