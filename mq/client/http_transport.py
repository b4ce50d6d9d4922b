"""The transport over HTTP, by aiohttp: one session, whose connections are used again and again."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from yarl import URL

from mq.client import address
from mq.client.errors import ConnectionLost, CouldNotConnect, NotUsable, TimedOut, UpgradeRefused
from mq.client.limits import (
    CLOSE_S,
    CONNECTIONS_MAX,
    KEEPALIVE_S,
    PIECE_BYTES,
    SOCKET_BODY_BYTES_MAX,
)
from mq.client.transport import Answer, BodyStream, Limits, Request, Socket
from mq.client.web_socket import HttpSocket
from mq.model.limits import KIB, PING_S_DEFAULT

_ANSWER_FIELD_BYTES_MAX: Final = 64 * KIB
_ANSWER_FIELDS_MAX: Final = 256
_NOT_BY_ITSELF: Final = (hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)
# A body is bytes as they were published: nobody on the way is to offer another form of it.
_AS_IT_IS: Final = (hdrs.ACCEPT_ENCODING, "identity")


class _Lost(Exception):
    """The connection ended in the middle of a request."""


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Has aiohttp send each request once: by itself it sends a GET and a DELETE again when their
    connection ended, but here a GET may have fetched a message.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Lost(str(error)) from error


async def _is_connected(
    session: aiohttp.ClientSession, context: SimpleNamespace, _: object
) -> None:
    # A WebSocket's has none.
    if isinstance(context.trace_request_ctx, _Sending):
        context.trace_request_ctx.is_alive()


def _told_of_connections() -> aiohttp.TraceConfig:
    """Has each request hear when it has its connection: from then on the answer is waited for."""
    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(_is_connected)
    config.on_connection_reuseconn.append(_is_connected)
    return config


class _Connector(aiohttp.TCPConnector):
    """In a process that was forked from its own it is left alone: to end its connections there
    would tell the kernel that the parent's loop waits for them no more.
    """

    _pid = -1

    def __del__(self, *_: object) -> None:
        if self._pid == os.getpid():
            super().__del__()


_transports: "WeakSet[HttpTransport]" = WeakSet()


def _leave_alone() -> None:
    """In a forked process: its parent's sessions are not its own to end."""
    for each in _transports:
        each.leave_alone()


os.register_at_fork(after_in_child=_leave_alone)


class HttpTransport:
    """Requests to one mq, or to what stands before several. `url` may have a path, which a proxy
    takes away. `context`: of TLS, for an https URL. Raises ValueError for what is no URL of HTTP.
    """

    def __init__(
        self, url: str, connections_max: int, context: ssl.SSLContext | None = None
    ) -> None:
        address.check(url)
        self._tls: ssl.SSLContext | bool = True if context is None else context
        if not 1 <= connections_max <= CONNECTIONS_MAX:
            raise ValueError(f"connections_max is a whole number from 1 to {CONNECTIONS_MAX}")
        self._base = url.rstrip("/")
        self._shown = address.shown(self._base)
        # Those that mq keeps waiting have their own: what they fetched is to be settled meanwhile.
        self._slots = asyncio.Semaphore(connections_max)
        self._waiting_slots = asyncio.Semaphore(connections_max)
        self._session: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._is_closed = False

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Sends it once, and gives the whole answer. Raises CouldNotConnect, ConnectionLost,
        TimedOut, NotUsable; and what a streamed body raises.
        """
        # Whoever has a slot is timed, so that none is had for ever.
        async with self._waiting_slots if request.wait_s else self._slots:
            session = self._opened()
            sending = _Sending(request.body)
            try:
                async with asyncio.timeout(None) as patience:
                    sending.patience, sending.answer_s = patience, limits.answer_s
                    sending.is_alive(limits.connect_s)
                    return await self._exchange(session, request, limits, sending)
            except TimeoutError as error:
                raise self._timed_out(error, limits) from error
            except (aiohttp.ClientError, _Lost, OSError) as error:
                if sending.failed is not None:
                    raise sending.failed from None
                raise self._failed(error) from error

    async def _exchange(
        self, session: aiohttp.ClientSession, request: Request, limits: Limits, sending: "_Sending"
    ) -> Answer:
        async with session.request(
            request.method,
            URL(self._base + request.target, encoded=True),
            headers=[_AS_IT_IS, *sending.headers, *request.headers],
            skip_auto_headers=_NOT_BY_ITSELF,
            data=sending.data,
            allow_redirects=False,
            trace_request_ctx=sending,
            timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect_s),
        ) as response:
            sending.is_alive()
            parts = []
            async for chunk in response.content.iter_any():
                sending.is_alive()
                parts.append(chunk)
            return Answer(response.status, tuple(response.headers.items()), b"".join(parts))

    async def connect(self, request: Request, limits: Limits) -> Socket:
        """Begins a WebSocket. Raises UpgradeRefused, CouldNotConnect, ConnectionLost, TimedOut,
        NotUsable.
        """
        session = self._opened()
        try:
            async with asyncio.timeout(limits.connect_s + limits.answer_s):
                found = await session.ws_connect(
                    URL(self._base + request.target, encoded=True),
                    headers=[_AS_IT_IS, *request.headers],
                    max_msg_size=SOCKET_BODY_BYTES_MAX,
                    heartbeat=PING_S_DEFAULT,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S / 2),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise UpgradeRefused(error.status, error.message) from error
        except TimeoutError as error:
            raise self._timed_out(error, limits) from error
        except (aiohttp.ClientError, _Lost, OSError) as error:
            raise self._failed(error) from error
        return HttpSocket(found)

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise NotUsable("the client is closed")
        if self._session is None:
            connector = _Connector(
                limit=0,
                keepalive_timeout=KEEPALIVE_S,
                socket_factory=self._socket,
                ssl=self._tls,
            )
            connector._pid = os.getpid()  # noqa: SLF001
            _transports.add(self)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
                middlewares=(_once,),
                trace_configs=[_told_of_connections()],
                max_line_size=_ANSWER_FIELD_BYTES_MAX,
                max_field_size=_ANSWER_FIELD_BYTES_MAX,
                max_headers=_ANSWER_FIELDS_MAX,
            )
        return self._session

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    def _timed_out(self, error: TimeoutError, limits: Limits) -> CouldNotConnect | TimedOut:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return CouldNotConnect(self._unreachable(f"nothing within {limits.connect_s:g} s"))
        if self._is_closed:
            return TimedOut("the client was closed")
        return TimedOut(f"no answer of {self._shown} within {limits.answer_s:g} s")

    def _failed(self, error: Exception) -> CouldNotConnect | ConnectionLost:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = f"its certificate is not believed: {_said_of(error.certificate_error)}"
            return CouldNotConnect(f"cannot connect to {self._shown}: {why}")
        if isinstance(error, aiohttp.ClientConnectorError):
            return CouldNotConnect(self._unreachable(str(error.os_error.strerror or error)))
        return ConnectionLost(f"the connection to {self._shown} ended before the answer: {error}")

    def _unreachable(self, why: str) -> str:
        return f"cannot connect to {self._shown} ({why}): is mq running there?"

    def leave_alone(self) -> None:
        """Lets go of all connections without ending them: they are another process's."""
        self._is_closed = True
        if self._session is not None:
            self._session.detach()
            self._session = None

    async def close(self) -> None:
        """Ends all connections. What is on its way raises ConnectionLost."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is None:
            return
        await session.close()
        # What was not taken by the other side keeps a socket open for as long as that hangs.
        for each in self._sockets:
            if each.fileno() >= 0:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        # The loop tells transports of their ends in its next turns.
        for _ in range(3):
            await asyncio.sleep(0)


def _said_of(error: Exception) -> str:
    """What a certificate lacks, in the words of OpenSSL."""
    return str(getattr(error, "verify_message", "") or error)


class _Sending:
    """A request's body on its way; each piece that is taken, and each that comes, is a sign of
    life, from which on the other side has `answer_s` again.
    """

    def __init__(self, body: bytes | BodyStream) -> None:
        self.patience: asyncio.Timeout | None = None
        self.answer_s = 0.0
        self.failed: Exception | None = None
        """What the caller's own body raised."""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.data: bytes | AsyncIterator[bytes] | None
        if isinstance(body, bytes):
            self.data = body or None
            if len(body) > PIECE_BYTES:
                self.data = self._pieces(_cut(body))
                self.headers = ((hdrs.CONTENT_LENGTH, str(len(body))),)
            return
        self.data = self._pieces(body.chunks())
        if body.size is not None:
            self.headers = ((hdrs.CONTENT_LENGTH, str(body.size)),)

    def is_alive(self, more_s: float = 0.0) -> None:
        """The other side has been heard of."""
        if self.patience is not None:
            now_s = asyncio.get_running_loop().time()
            self.patience.reschedule(now_s + self.answer_s + more_s)

    async def _pieces(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                self.is_alive()
                yield chunk
        except Exception as error:
            self.failed = error
            raise
        self.is_alive()


async def _cut(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])
