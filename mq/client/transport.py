"""Requests, answers, and the interface of transports.

`HttpTransport` sends requests over aiohttp. A transport sends each request once; retries are
decided above it, in `sending`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from urllib.parse import quote, urlencode

from multidict import CIMultiDict

Pairs: TypeAlias = tuple[tuple[str, str], ...]


class BodyStream(Protocol):
    """A body that is not in memory."""

    @property
    def size(self) -> int | None:
        """Its size in bytes; None if unknown."""

    def chunks(self) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `path` is percent-encoded; `query` and `headers` are not. `wait_s`: how long mq
    may wait before it answers. `expected`: the statuses of answers that are no error.
    """

    method: str
    path: str
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes | BodyStream = b""
    wait_s: float = 0.0
    expected: tuple[int, ...] = ()

    @property
    def target(self) -> str:
        """Path and query, percent-encoded."""
        if not self.query:
            return self.path
        return f"{self.path}?{urlencode(self.query, quote_via=quote)}"

    def with_headers(self, more: Pairs) -> "Request":
        """The same request with `more` headers before its own."""
        headers = (*more, *self.headers)
        return Request(
            self.method, self.path, self.query, headers, self.body, self.wait_s, self.expected
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, with its headers as they were sent."""

    status: int
    headers: Pairs = ()
    body: bytes = b""
    _by_name: CIMultiDict[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A message's answer is asked for ten headers.
        object.__setattr__(self, "_by_name", CIMultiDict(self.headers))

    def header(self, name: str) -> str | None:
        """A header's value, by its name in any case; several are joined by commas."""
        values = self._by_name.getall(name, ())
        return ", ".join(values) if values else None


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transport waits for a connection, and for each sign of life."""

    connect_s: float
    answer_s: float


class Socket(Protocol):
    """An open WebSocket."""

    async def send(self, text: str) -> None:
        """Sends a text frame; waits while mq does not read. Raises ConnectionLost."""

    async def receive(self) -> str | bytes:
        """The next text frame, or the next whole binary message. Raises ConnectionLost once the
        connection has ended.
        """

    async def close(self) -> None:
        """Ends the connection, within a bounded time. Raises nothing; may be called again."""


class Transport(Protocol):
    """Carries requests, many at a time, in one event loop."""

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Sends a request once; returns the whole answer of any status. Raises CouldNotConnect,
        ConnectionLost, TimedOut; AnswerTooLarge; NotUsable once the transport is closed.
        """

    async def connect(self, request: Request, limits: Limits) -> Socket:
        """Opens a WebSocket. Raises as `request` does, and UpgradeRefused."""

    async def close(self) -> None:
        """Ends all connections and requests. May be called again."""
