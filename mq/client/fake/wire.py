"""Connections to a daemon in the same process, with the bytes of a network's."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from httptools import HttpResponseParser
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from mq.client.errors import ConnectionLost, UpgradeRefused
from mq.client.transport import Answer, Request
from mq.http.connection import Server
from mq.model.limits import KIB

LOST: Final = "the connection to the fake has ended"
_HOST: Final = "fake"
_PIECE_BYTES: Final = 256 * KIB
_NO_HEADERS: Final = ("\r", "\n", "\0")


class Link(asyncio.Transport):
    """The daemon's end of a connection. `received` gets the bytes that the daemon sends, `lost` is
    called at the end. In the daemon's loop, as all here.
    """

    def __init__(
        self, server: Server, received: Callable[[bytes], None], lost: Callable[[], None]
    ) -> None:
        super().__init__()
        self._loop = server.loop
        self._received = received
        self._lost = lost
        self._unread: deque[bytes] = deque()
        self._is_paused = False
        self._is_over = False
        self._connection = server()
        self._connection.connection_made(self)

    def send(self, data: bytes) -> None:
        self._unread.extend(
            data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)
        )
        self._feed()

    def _feed(self) -> None:
        while self._unread and not self._is_paused and not self._is_over:
            self._connection.data_received(self._unread.popleft())

    # See asyncio.Transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_over:
            self._loop.call_soon(self._received, bytes(data))

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._loop.call_soon(self._end)

    abort = close

    def _end(self) -> None:
        self._connection.connection_lost(None)
        self._lost()

    def is_closing(self) -> bool:
        return self._is_over

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._feed)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def can_write_eof(self) -> bool:
        return False


class _Parsed:
    """Collects an answer from httptools."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self.body: list[bytes] = []
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        decoded = (each.decode("utf-8", "surrogateescape") for each in (name, value))
        self.headers.append((next(decoded), next(decoded)))

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.is_whole = True


async def exchange(server: Server, request: Request, body: bytes) -> Answer:
    """Sends a request over its own connection; returns the answer. Raises ConnectionLost without an
    answer, ValueError for a malformed header.
    """
    parts: list[bytes] = []
    ended = asyncio.Event()
    link = Link(server, parts.append, ended.set)
    try:
        link.send(_written(request, body))
        await ended.wait()
    finally:
        link.abort()
    return _answer_of(b"".join(parts), request.method == "HEAD")


def _written(request: Request, body: bytes) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    fields = (("Host", _HOST), ("Connection", "close"), *request.headers)
    if body or request.method in ("POST", "PUT", "PATCH"):
        fields = (*fields, ("Content-Length", str(len(body))))
    for name, value in fields:
        if any(mark in text for text in (name, value) for mark in _NO_HEADERS):
            raise ValueError("a header has no line feed, carriage return or null byte")
        lines.append(f"{name}: {value}")
    head = "\r\n".join((*lines, "", ""))
    return head.encode("utf-8", "surrogateescape") + body


def _answer_of(data: bytes, is_bodiless: bool) -> Answer:
    found = _Parsed()
    parser = HttpResponseParser(found)
    parser.feed_data(data)
    if not data or not (found.is_whole or is_bodiless):
        raise ConnectionLost(LOST)
    return Answer(parser.get_status_code(), tuple(found.headers), b"".join(found.body))


class Wire:
    """A WebSocket's client. `received` gets its messages, and None at its end."""

    def __init__(
        self, server: Server, request: Request, received: Callable[[str | bytes | None], None]
    ) -> None:
        self._received = received
        self._parts: list[bytes] = []
        self._is_text = False
        self._protocol = ClientProtocol(parse_uri(f"ws://{_HOST}{request.target}"), max_size=None)
        self._begun: asyncio.Future[None] = server.loop.create_future()
        self._link = Link(server, self._came, self._ended)
        handshake = self._protocol.connect()
        for name, value in request.headers:
            handshake.headers[name] = value
        self._protocol.send_request(handshake)
        self._flush()

    async def begun(self) -> None:
        """Waits for the handshake's answer. Raises UpgradeRefused, ConnectionLost."""
        try:
            await self._begun
        except BaseException:
            self._link.abort()
            raise

    def send(self, text: str) -> None:
        """Sends a text frame. Raises ConnectionLost."""
        if self._link.is_closing():
            raise ConnectionLost(LOST)
        self._protocol.send_text(text.encode())
        self._flush()

    def drop(self) -> None:
        self._link.abort()

    def _flush(self) -> None:
        if data := b"".join(self._protocol.data_to_send()):
            self._link.send(data)

    def _came(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._framed(event)
            elif isinstance(event, Response) and not self._begun.done():
                self._answered(event)
        self._flush()

    def _answered(self, response: Response) -> None:
        if isinstance(self._protocol.handshake_exc, InvalidStatus):
            text = (response.body or b"").decode("utf-8", "replace")
            self._begun.set_exception(UpgradeRefused(response.status_code, text))
        else:
            self._begun.set_result(None)

    def _framed(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._link.close()
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._parts.append(bytes(frame.data))
            if frame.fin:
                whole = b"".join(self._parts)
                self._parts.clear()
                self._received(whole.decode() if self._is_text else whole)

    def _ended(self) -> None:
        if not self._begun.done():
            self._begun.set_exception(ConnectionLost(LOST))
        self._received(None)
