"""The transport of a fake's clients."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from mq.client.errors import ConnectionLost, CouldNotConnect, NotUsable, UpgradeRefused
from mq.client.fake.faults import Fault, Kind
from mq.client.fake.wire import LOST, Wire
from mq.client.fake.world import Inside
from mq.client.transport import Answer, BodyStream, Limits, Request, Socket

T = TypeVar("T")


class FakeTransport:
    """Implements `Transport` over a fake, for one client."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._is_closed = False
        self._in_flight: set[Future[Any]] = set()
        self._sockets: set[FakeSocket] = set()

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Sends a request to the fake; returns the answer. Raises NotUsable; the faults of the
        test, CouldNotConnect and ConnectionLost; and what a streamed body raises.
        """
        self._check_open()
        body = await _whole(request.body)
        fault = self._inside.faults.next(request)
        if fault is not None and fault.kind is not Kind.UNANSWERED:
            return _failed(fault)
        answer = await self._do(lambda: self._inside.world.ask(request, body))
        if fault is not None:
            raise ConnectionLost(LOST)
        return answer

    async def connect(self, request: Request, limits: Limits) -> Socket:
        """Opens a WebSocket. Raises UpgradeRefused, NotUsable, and the faults of the test."""
        self._check_open()
        fault = self._inside.faults.next(request)
        if fault is not None:
            if fault.kind is Kind.UNANSWERED:
                raise ConnectionLost(LOST)
            answer = _failed(fault)
            raise UpgradeRefused(answer.status, answer.body.decode())
        socket = FakeSocket(self._inside, self._sockets.discard)
        socket.wire = await self._do(
            lambda: self._inside.world.connect(request, socket.receive_frame)
        )
        self._sockets.add(socket)
        return socket

    async def _do(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine in the fake's loop. Raises ConnectionLost at `close`."""
        future = self._inside.submit(begin)
        self._in_flight.add(future)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if self._is_closed:
                raise ConnectionLost(LOST) from None
            raise
        finally:
            self._in_flight.discard(future)

    def _check_open(self) -> None:
        if self._is_closed:
            raise NotUsable.closed()

    async def close(self) -> None:
        """Ends all connections. Requests in flight raise ConnectionLost. May be called again."""
        self._is_closed = True
        for each in list(self._in_flight):
            each.cancel()
        for socket in list(self._sockets):
            await socket.close()


class FakeSocket:
    """A WebSocket of the fake."""

    wire: Wire

    def __init__(self, inside: Inside, forget: "Callable[[FakeSocket], None]") -> None:
        self._inside = inside
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._frames: asyncio.Queue[str | bytes | None] = asyncio.Queue()

    def receive_frame(self, frame: str | bytes | None) -> None:
        """Gets a frame from the fake; None: the connection has ended. In the fake's thread."""
        with contextlib.suppress(RuntimeError):  # The client's loop has ended.
            self._loop.call_soon_threadsafe(self._frames.put_nowait, frame)

    async def send(self, text: str) -> None:
        """Sends a text frame. Raises ConnectionLost."""
        await self._do(lambda: self._inside.world.send(self.wire, text))

    async def receive(self) -> str | bytes:
        """The next frame. Raises ConnectionLost once the connection has ended."""
        frame = await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)
            raise ConnectionLost(LOST)
        return frame

    async def close(self) -> None:
        """Ends the connection; mq releases the client's messages. May be called again."""
        self._forget(self)
        with contextlib.suppress(NotUsable):
            await self._do(lambda: self._inside.world.drop(self.wire))

    async def _do(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.wrap_future(self._inside.submit(begin))


def _failed(fault: Fault) -> Answer:
    """The answer of a fault. Raises CouldNotConnect, ConnectionLost."""
    if fault.kind is Kind.UNREACHED:
        raise CouldNotConnect(
            "cannot connect to the fake (by refuse_connections): is mq running there?"
        )
    if fault.kind is Kind.CUT:
        raise ConnectionLost(LOST)
    return fault.answer()


async def _whole(body: bytes | BodyStream) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"".join([chunk async for chunk in body.chunks()])
