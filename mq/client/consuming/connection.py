"""One WebSocket of a consumer: its commands and their answers, and its messages.

It is read all the time, so that answers, pings and the end are noticed while the program is busy;
credit bounds what arrives.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from mq.client import wire
from mq.client.consuming import frames
from mq.client.consuming.frames import (
    SWITCHING,
    Frame,
    Header,
    Malformed,
    Result,
    Results,
    Unsubscribed,
)
from mq.client.errors import ClientError, ConnectionLost, NotMq, Problem, TimedOut
from mq.client.message import Said, Target
from mq.client.sending import Sender
from mq.client.transport import Socket
from mq.client.values import Subscription
from mq.client.wire import Row
from mq.protocol.consume.frames import Verb


class Receiver(Protocol):
    """Gets what arrives on a connection."""

    def message(self, queue: str, row: Row) -> None: ...

    def unsubscribed(self, problem: Problem) -> None: ...


class Connection:
    """An open WebSocket. `run` reads it until its end; other tasks send commands."""

    def __init__(self, socket: Socket, sender: Sender, receiver: Receiver) -> None:
        self._socket = socket
        self._answer_s = sender.timeouts.answer_s
        self._shown = sender.shown_url
        self._receiver = receiver
        self._refs = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Sequence[Result]]] = {}
        self._ended: ClientError | None = None

    @classmethod
    async def open(cls, sender: Sender, receiver: Receiver) -> "Connection":
        """Connects. Raises UpgradeRefused, CouldNotConnect, ConnectionLost, TimedOut."""
        return cls(await sender.connect(wire.request_to("consume")), sender, receiver)

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self._ended is not None

    async def run(self) -> None:
        """Reads until the end, which it raises, also in commands without an answer: ConnectionLost,
        NotMq.
        """
        try:
            while True:
                frame = self._parsed(await self._socket.receive())
                if isinstance(frame, Header):
                    body = await self._socket.receive()
                    if not isinstance(body, bytes) or len(body) != frame.size:
                        raise NotMq(SWITCHING, "", "has a message without its body")
                    self._receiver.message(frame.queue, replace(frame.row, body=body))
                elif isinstance(frame, Unsubscribed):
                    self._receiver.unsubscribed(frame.problem)
                else:
                    self._answered(frame)
        except ClientError as error:
            self.fail(error)
            raise
        except asyncio.CancelledError:
            self.fail(ConnectionLost("the consumer was closed"))
            raise

    @staticmethod
    def _parsed(frame: str | bytes) -> Frame:
        if isinstance(frame, bytes):
            raise NotMq(SWITCHING, "", "has a body without its message")
        return frames.parse(frame)

    def _answered(self, frame: Results | Malformed) -> None:
        waiting = None if frame.ref is None else self._asked.pop(frame.ref, None)
        if waiting is None or waiting.done():
            return
        if isinstance(frame, Malformed):
            waiting.set_exception(frame.problem)
        else:
            waiting.set_result(frame.results)

    def fail(self, error: ClientError) -> None:
        """Ends the connection for its commands, which raise ConnectionLost."""
        if self._ended is not None:
            return
        self._ended = error
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(str(error)))
        self._asked.clear()

    async def subscribe(self, wanted: Iterable[tuple[Subscription, int]]) -> None:
        """Subscribes to queues, each with a first credit. Raises the first Problem."""
        each = list(wanted)
        for result in await self._command(lambda ref: frames.subscribe(ref, each), len(each)):
            if result.problem is not None:
                raise result.problem

    async def grant(self, credit: Mapping[str, int]) -> Sequence[Result]:
        """Lets mq send more messages, by queue; returns a result for each."""
        return await self._command(lambda ref: frames.grant(ref, credit), len(credit))

    async def report_begun(self, ids: Sequence[str]) -> None:
        """Reports to mq that the program gets these messages. The first report declares that each
        message will be reported. Raises ConnectionLost.
        """
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        await self._socket.send(frames.begin(ids))

    async def report_prefetched(self, fetched: Sequence[Target]) -> None:
        """Reports to mq that the program does not have these messages yet, which were fetched by
        requests. Raises ConnectionLost.
        """
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        await self._socket.send(frames.prefetched(fetched))

    async def settle(self, verb: Verb, ids: Sequence[str], reason: Said = None) -> Sequence[Result]:
        """Settles messages; `reason`: why. Returns a result for each."""
        return await self._command(lambda ref: frames.settle(ref, verb, ids, reason), len(ids))

    async def _command(self, printed: Callable[[int], str], count: int) -> Sequence[Result]:
        """Sends a command; returns its results. Raises ConnectionLost; Problem for a malformed
        command; TimedOut, which ends the connection.
        """
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        ref = next(self._refs)
        answer: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        self._asked[ref] = answer
        try:
            async with asyncio.timeout(self._answer_s):
                await self._socket.send(printed(ref))
                found = await answer
        except TimeoutError as error:
            late = TimedOut(
                f"{self._shown} did not answer a consumer's command within {self._answer_s:g} s "
                "(Timeouts.answer_s)"
            )
            self.fail(late)
            raise late from error
        except ConnectionLost as error:
            self.fail(error)
            raise
        finally:
            self._asked.pop(ref, None)
            if answer.done() and not answer.cancelled():
                # asyncio logs an exception that is never read: here sending itself has failed.
                answer.exception()
        if len(found) != count:
            raise NotMq(SWITCHING, "", f"has {len(found)} results for a command of {count}")
        return found

    async def close(self) -> None:
        """Ends the connection, within a bounded time; mq releases its messages that are not
        settled. Raises nothing.
        """
        self.fail(ConnectionLost("the consumer was closed"))
        await self._socket.close()
