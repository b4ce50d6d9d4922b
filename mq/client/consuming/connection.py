"""One WebSocket of a consumer: its commands and their answers, and what came on it.

What comes is read all the time, so that answers, pings and the end are seen whatever the caller
does; credit bounds how much that is.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mq.client.errors import ClientError, ConnectionLost, NotMq, Problem, TimedOut
from mq.client.sending import Sender
from mq.client.transport import Request, Socket
from mq.client.values import Subscription
from mq.client.wire import frames
from mq.client.wire.frames import Header, Malformed, Result, Results, Said, Unsubscribed, Verb
from mq.client.wire.rows import Row

PATH: Final = "/-/consume"


@dataclass(frozen=True, slots=True)
class Hears:
    """Who hears of what comes: a message of a queue; that nothing more comes of one."""

    message: Callable[[str, Row], None]
    unsubscribed: Callable[[Problem], None]


class Connection:
    """A WebSocket that was begun. `run` reads it until its end; commands are for other tasks."""

    def __init__(self, socket: Socket, answer_s: float, hears: Hears) -> None:
        self._socket = socket
        self._answer_s = answer_s
        self._hears = hears
        self._refs = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Sequence[Result]]] = {}
        self._ended: ClientError | None = None

    @classmethod
    async def begin(cls, sender: Sender, hears: Hears) -> "Connection":
        """Connects. Raises UpgradeRefused, CouldNotConnect, ConnectionLost, TimedOut."""
        socket = await sender.connect(Request("GET", PATH))
        return cls(socket, sender.timeouts.answer_s, hears)

    @property
    def is_over(self) -> bool:
        """Whether nothing comes nor goes on it any more."""
        return self._ended is not None

    async def run(self) -> None:
        """Reads what comes, until the end, which it raises: ConnectionLost, NotMq. Who waits for an
        answer hears of it too.
        """
        try:
            while True:
                said = self._parsed(await self._socket.receive())
                if isinstance(said, Header):
                    body = await self._socket.receive()
                    if not isinstance(body, bytes) or len(body) != said.size:
                        raise NotMq(101, "", "brings a message without its body")
                    self._hears.message(said.queue, replace(said.row, body=body))
                elif isinstance(said, Unsubscribed):
                    self._hears.unsubscribed(said.problem)
                else:
                    self._answered(said)
        except ClientError as error:
            self.fail(error)
            raise
        except asyncio.CancelledError:
            self.fail(ConnectionLost("the consumer was closed"))
            raise

    @staticmethod
    def _parsed(frame: str | bytes) -> Said:
        if isinstance(frame, bytes):
            raise NotMq(101, "", "brings a body without its message")
        return frames.parse(frame)

    def _answered(self, said: Results | Malformed) -> None:
        waiting = None if said.ref is None else self._asked.pop(said.ref, None)
        if waiting is None or waiting.done():
            return
        if isinstance(said, Malformed):
            waiting.set_exception(said.problem)
        else:
            waiting.set_result(said.results)

    def fail(self, error: ClientError) -> None:
        """It is over: whoever waits for an answer hears why."""
        if self._ended is not None:
            return
        self._ended = error
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(str(error)))
        self._asked.clear()

    async def subscribe(self, wanted: Iterable[tuple[Subscription, int]]) -> None:
        """Asks for messages of these queues, each with this credit. Raises the first Problem."""
        said = list(wanted)
        results = await self._command(lambda ref: frames.subscribe(ref, said), len(said))
        for result in results:
            if result.problem is not None:
                raise result.problem

    async def grant(self, credit: Mapping[str, int]) -> Sequence[Result]:
        """So many more messages may come, by queue; a result for each."""
        return await self._command(lambda ref: frames.grant(ref, credit), len(credit))

    async def tell_begun(self, ids: Sequence[str]) -> None:
        """Reports to mq that the program gets these; the first report declares that each will be.
        Raises ConnectionLost.
        """
        if self._ended is not None:
            raise ConnectionLost(str(self._ended))
        await self._socket.send(frames.begin(ids))

    async def settle(self, verb: Verb, ids: Sequence[str]) -> Sequence[Result]:
        """What is to become of these; a result for each."""
        return await self._command(lambda ref: frames.settle(ref, verb, ids), len(ids))

    async def _command(self, printed: Callable[[int], str], count: int) -> Sequence[Result]:
        """Sends a command; its results. Raises ConnectionLost, Problem for what is no command;
        TimedOut, after which the connection is over: who does not answer is not there.
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
            late = TimedOut(f"no answer to a command within {self._answer_s:g} s")
            self.fail(late)
            raise late from error
        except ConnectionLost as error:
            self.fail(error)
            raise
        finally:
            self._asked.pop(ref, None)
            if answer.done() and not answer.cancelled():
                # Of nobody's concern where the sending itself failed.
                answer.exception()
        if len(found) != count:
            raise NotMq(101, "", f"has {len(found)} results for {count}")
        return found

    async def close(self) -> None:
        """Ends the connection, within a bounded time; all that came on it and is not settled is
        released. Raises nothing.
        """
        self.fail(ConnectionLost("the consumer was closed"))
        await self._socket.close()
