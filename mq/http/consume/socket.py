"""A WebSocket's handshake, reading and writing.

aiohttp shakes hands and parses what comes; what goes out is written here, since aiohttp knows no
message in fragments.
"""

import asyncio
import contextlib
from typing import Final, cast

from aiohttp import WSMsgType, web
from aiohttp.http import WebSocketError

from mq.http.answers import SERVER
from mq.http.connection import Connection
from mq.http.consume.wire import CloseCode, Opcode, close_frame, frame
from mq.http.origins import is_foreign
from mq.model.limits import LINGERING_S
from mq.protocol.consume.errors import ForeignOrigin, NoWebSocket
from mq.protocol.consume.limits import COMMAND_BYTES_MAX

_CODES: Final = {code.value: code for code in CloseCode}
_GONE: Final = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)


class _Response(web.WebSocketResponse):
    """aiohttp's, which writes no frame by itself."""

    async def close(
        self, *, code: int = CloseCode.NORMAL, message: bytes = b"", drain: bool = True
    ) -> bool:
        """Nothing: whoever reads hears of what went wrong."""
        return False

    async def write_eof(self) -> None:  # type: ignore[override]
        """Nothing: the closing frame was written, or nobody is there for one."""


class Socket:
    """One connection, from its handshake on."""

    def __init__(self, request: web.BaseRequest, response: _Response) -> None:
        self.response = response
        self._request = request
        self.broken: CloseCode | None = None
        """How the client broke the protocol, once it has."""
        self._has_closed = False

    @classmethod
    async def accept(cls, request: web.BaseRequest) -> "Socket":
        """Shakes hands. Raises NoWebSocket, ForeignOrigin."""
        # Compression is off: bodies are byte-exact bytes that are often compressed already, and
        # each connection would hold hundreds of KiB for it.
        response = _Response(
            compress=False,
            autoclose=False,
            autoping=False,
            max_msg_size=COMMAND_BYTES_MAX + 1,  # aiohttp refuses one of this size, too.
        )
        if not response.can_prepare(request):
            raise NoWebSocket
        _check_origin(request)
        response.headers["Server"] = SERVER
        await response.prepare(request)
        return cls(request, response)

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""
        transport = self._request.transport
        is_gone = transport is None or transport.is_closing()
        return not (self._has_closed or is_gone)

    @property
    def is_full(self) -> bool:
        """Whether the client has to read before more is written."""
        return self._request.protocol.writing_paused

    async def read(self) -> str | bytes | None:
        """What the client says next: text, or bytes where it should have been text; "" when it only
        shows that it is there; None when it has closed, or broke the protocol.
        """
        message = await self.response.receive()
        if message.type is WSMsgType.ERROR and isinstance(message.data, WebSocketError):
            self.broken = _CODES.get(message.data.code, CloseCode.PROTOCOL)
        if message.type is WSMsgType.PING:
            if self.is_full:
                # Who pings and does not read has to wait; nothing more of it is read meanwhile.
                with contextlib.suppress(ConnectionError):
                    await self.emptied()
            self.write(frame(Opcode.PONG, message.data))
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            said: str | bytes = message.data
            return said
        return None if message.type in _GONE else ""

    def write(self, data: bytes, held: object = None) -> None:
        """Sends frames, each whole; nothing when the connection is gone, or was closed. `held`:
        what counts them in memory, until they have left the process.
        """
        if self.is_open and self._request.transport is not None:
            self._request.transport.write(data)
            if held:
                cast(Connection, self._request.protocol).hold_until_sent(held)

    def ping(self) -> None:
        """Asks whether the client is there, unless it has enough to read."""
        if not self.is_full:
            self.write(frame(Opcode.PING, b""))

    def close(self, code: CloseCode, reason: str = "") -> None:
        """Sends the last frame of this side; what comes is still read."""
        self.write(close_frame(code, reason))
        self._has_closed = True

    async def linger(self) -> None:
        """Waits until the client has seen the last frame, and goes: a connection that is closed
        while something comes is reset, and what was sent is lost. What comes is dropped.
        """
        self.end_writing()
        if (transport := self._request.transport) is not None and not transport.is_closing():
            await asyncio.sleep(LINGERING_S)

    def end_writing(self) -> None:
        """Says that nothing more comes from here; TLS has no word for that."""
        transport = self._request.transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()

    def abort(self) -> None:
        """Ends the connection at once; what was written and not sent is lost."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def emptied(self) -> None:
        """Waits until the client has read enough. Raises ConnectionError when it is gone."""
        await self._request.writer.drain()


def _check_origin(request: web.BaseRequest) -> None:
    """Browsers let any page open a WebSocket to anywhere, and read what comes."""
    if is_foreign(request):
        raise ForeignOrigin
