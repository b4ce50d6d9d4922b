"""The transport over HTTP, by aiohttp: one session with a pool of connections."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from yarl import URL

from mq.client.bodies import PIECE_BYTES
from mq.client.errors import (
    AnswerTooLarge,
    ConnectionLost,
    CouldNotConnect,
    NotUsable,
    TimedOut,
    UpgradeRefused,
)
from mq.client.forks import renewed_by_forks
from mq.client.options import CLOSE_S
from mq.client.transport import Answer, BodyStream, Limits, Request, Socket
from mq.model.limits import KIB, MIB, PING_S_DEFAULT

# A client's connections at a time, and how long an idle one stays open: less than mq keeps it open
# (75 s), so that no request takes one that mq is about to close.
CONNECTIONS_MAX_DEFAULT: Final = 100
CONNECTIONS_MAX: Final = 10_000
KEEPALIVE_S: Final = 30.0
# The longest answer that a client reads into memory: a body of mq's default limit (64 MiB) in JSON
# has at most six times its bytes.
ANSWER_BYTES_MAX_DEFAULT: Final = 1024 * MIB
# The largest body over a WebSocket: aiohttp counts in 32 bits.
SOCKET_BODY_BYTES_MAX: Final = 2**32 - 1
_ANSWER_FIELD_BYTES_MAX: Final = 64 * KIB
_ANSWER_FIELDS_MAX: Final = 256
_NO_DEFAULTS_OF: Final = (hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)
# A problem has some hundred bytes. A larger error is not mq's, and its beginning is enough.
_ERROR_BODY_BYTES_MAX: Final = 64 * KIB
_ERRORS_FROM: Final = 300
# A body is delivered byte by byte as published: no proxy may compress it.
_UNCHANGED: Final = (hdrs.ACCEPT_ENCODING, "identity")


def whole_url(url: str) -> str:
    """The URL, with http:// where it has no scheme: `localhost:8080`."""
    return url if "://" in url else f"http://{url}"


def check_url(url: str) -> None:
    """Raises ValueError for anything but an HTTP URL without a query."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_one = is_one and not (parts.query or parts.fragment)
    except ValueError:  # A malformed port, or address in brackets.
        is_one = False
    if not is_one:
        raise ValueError(
            f"{url!r} is not the URL of an mq: use one such as http://127.0.0.1:8080, without a "
            "query"
        )


def shown_url(url: str) -> str:
    """The URL without its user and password, for logs."""
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class _Lost(Exception):
    """The connection ended in the middle of a request."""


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keeps aiohttp from repeating a GET or DELETE whose connection ended: a GET may have fetched a
    message.
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
    # A WebSocket has no _Sending.
    if isinstance(context.trace_request_ctx, _Sending):
        context.trace_request_ctx.is_alive()


def _connection_events() -> aiohttp.TraceConfig:
    """Notifies each request that it has a connection: the time-out for its answer starts then."""
    config = aiohttp.TraceConfig()
    config.on_connection_create_end.append(_is_connected)
    config.on_connection_reuseconn.append(_is_connected)
    return config


class _Connector(aiohttp.TCPConnector):
    """Closes no connections in a forked process: that would remove them from the epoll set that
    the parent's loop waits on.
    """

    _pid = -1

    def __del__(self, *_: object) -> None:
        if self._pid == os.getpid():
            super().__del__()


class HttpSocket:
    """An open WebSocket. aiohttp answers pings, and sends one when mq is silent for a while."""

    def __init__(self, found: "aiohttp.ClientWebSocketResponse[bool]", shown_url: str) -> None:
        self._found = found
        self._shown = shown_url

    async def send(self, text: str) -> None:
        """Sends a text frame; waits while mq does not read. Raises ConnectionLost."""
        try:
            await self._found.send_str(text)
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"the WebSocket to {self._shown} has ended: {error}") from error

    async def receive(self) -> str | bytes:
        """The next frame. Raises ConnectionLost once the connection has ended."""
        try:
            message = await self._found.receive()
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(f"the WebSocket to {self._shown} has ended: {error}") from error
        if message.type is aiohttp.WSMsgType.TEXT or message.type is aiohttp.WSMsgType.BINARY:
            found: str | bytes = message.data
            return found
        code = self._found.close_code
        raise ConnectionLost(f"the WebSocket to {self._shown} has ended with code {code}")

    async def close(self) -> None:
        """Ends the connection, within a bounded time. Raises nothing; may be called again."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(CLOSE_S):
                await self._found.close()


class HttpTransport:
    """Sends requests to one mq, or to a proxy before several. `url` may have a path, which a proxy
    removes. `context`: of TLS, for an https URL. Raises ValueError for another URL and for options
    out of bounds.
    """

    def __init__(
        self,
        url: str,
        connections_max: int,
        context: ssl.SSLContext | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX_DEFAULT,
    ) -> None:
        check_url(url)
        self._tls: ssl.SSLContext | bool = True if context is None else context
        if not 1 <= connections_max <= CONNECTIONS_MAX:
            raise ValueError(
                f"connections_max must be a whole number from 1 to {CONNECTIONS_MAX}, not "
                f"{connections_max!r}"
            )
        if answer_bytes_max < 1:
            raise ValueError(f"answer_bytes_max must be bytes from 1, not {answer_bytes_max!r}")
        self._answer_bytes_max = answer_bytes_max
        self._base = url.rstrip("/")
        self._shown = shown_url(self._base)
        self._connections_max = connections_max
        self._make_slots()
        self._session: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._is_closed = False
        renewed_by_forks(self)

    def _make_slots(self) -> None:
        # Fetches that wait at mq have their own, so that messages can be settled meanwhile.
        self._slots = asyncio.Semaphore(self._connections_max)
        self._waiting_slots = asyncio.Semaphore(self._connections_max)

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Sends a request once; returns the whole answer. Raises CouldNotConnect, ConnectionLost,
        TimedOut, AnswerTooLarge, NotUsable; and what a streamed body raises.
        """
        # The time-out holds while the request has a slot, so that no slot is lost.
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
            headers=[_UNCHANGED, *sending.headers, *request.headers],
            skip_auto_headers=_NO_DEFAULTS_OF,
            data=sending.data,
            allow_redirects=False,
            trace_request_ctx=sending,
            timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect_s),
        ) as response:
            sending.is_alive()
            is_error = response.status >= _ERRORS_FROM
            bytes_max = _ERROR_BODY_BYTES_MAX if is_error else self._answer_bytes_max
            parts, size = [], 0
            async for chunk in response.content.iter_any():
                sending.is_alive()
                parts.append(chunk)
                size += len(chunk)
                if size > bytes_max:
                    response.close()
                    break
            if size > bytes_max and not is_error:
                raise AnswerTooLarge(
                    f"the answer of {self._shown} to {request.method} {request.path} has more than "
                    f"{bytes_max} bytes: ask for less, or set the client's answer_bytes_max higher"
                )
            body = b"".join(parts)[:bytes_max]
            return Answer(response.status, tuple(response.headers.items()), body)

    async def connect(self, request: Request, limits: Limits) -> Socket:
        """Opens a WebSocket. Raises UpgradeRefused, CouldNotConnect, ConnectionLost, TimedOut,
        NotUsable.
        """
        session = self._opened()
        try:
            async with asyncio.timeout(limits.connect_s + limits.answer_s):
                found = await session.ws_connect(
                    URL(self._base + request.target, encoded=True),
                    headers=[_UNCHANGED, *request.headers],
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
        return HttpSocket(found, self._shown)

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise NotUsable.closed()
        if self._session is None:
            connector = _Connector(
                limit=0, keepalive_timeout=KEEPALIVE_S, socket_factory=self._socket, ssl=self._tls
            )
            connector._pid = os.getpid()  # noqa: SLF001
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
                middlewares=(_once,),
                trace_configs=[_connection_events()],
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
            return CouldNotConnect(
                self._unreachable(f"no connection within {limits.connect_s:g} s")
            )
        if self._is_closed:
            return TimedOut(f"the client was closed before {self._shown} answered")
        return TimedOut(
            f"{self._shown} did not answer within {limits.answer_s:g} s (Timeouts.answer_s)"
        )

    def _failed(self, error: Exception) -> CouldNotConnect | ConnectionLost:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = (
                f"its certificate is not trusted: {_lack_of(error.certificate_error)}; see ca_file"
            )
            return CouldNotConnect(f"cannot connect to {self._shown}: {why}")
        if isinstance(error, aiohttp.ClientConnectorError):
            return CouldNotConnect(self._unreachable(str(error.os_error.strerror or error)))
        return ConnectionLost(f"the connection to {self._shown} ended before the answer: {error}")

    def _unreachable(self, why: str) -> str:
        return f"cannot connect to {self._shown} ({why}): is mq running there?"

    def forked(self) -> None:
        """Forgets all connections without ending them: they are the parent's."""
        self._make_slots()
        self._sockets = WeakSet()
        if self._session is not None:
            self._session.detach()
            self._session = None

    async def close(self) -> None:
        """Ends all connections. Requests in flight raise ConnectionLost."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is None:
            return
        await session.close()
        # A peer that does not read would keep the socket of unsent data open.
        for each in self._sockets:
            if each.fileno() >= 0:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
        # asyncio reports the end to its transports in the loop's next turns.
        for _ in range(3):
            await asyncio.sleep(0)


def _lack_of(error: Exception) -> str:
    """Why a certificate is not trusted, in OpenSSL's words."""
    return str(getattr(error, "verify_message", "") or error)


class _Sending:
    """A request's body while it is sent. Each piece that is sent or received is a sign of life, and
    restarts the time-out of `answer_s`.
    """

    def __init__(self, body: bytes | BodyStream) -> None:
        self.patience: asyncio.Timeout | None = None
        self.answer_s = 0.0
        self.failed: Exception | None = None
        """The exception of the caller's own body."""
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
        """Restarts the time-out, of `answer_s` and `more_s`."""
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
