"""The seam between a client and the network: requests, answers, and what carries them.

`HttpTransport` does it over aiohttp, and the fake in memory. All that is decided is decided above
it, in pure code; a transport sends each request once.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from urllib.parse import quote, urlencode

Pairs: TypeAlias = tuple[tuple[str, str], ...]


class BodyStream(Protocol):
    """A body that is not in memory."""

    @property
    def size(self) -> int | None:
        """Its bytes; None where nobody knows before its end."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body from its beginning."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `path` is percent-encoded; `query` and `headers` are as they are meant.

    `wait_s`: for so long the answer may keep the client waiting by its own will.
    """

    method: str
    path: str
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes | BodyStream = b""
    wait_s: float = 0.0

    @property
    def target(self) -> str:
        """Path and query, percent-encoded."""
        if not self.query:
            return self.path
        return f"{self.path}?{urlencode(self.query, quote_via=quote)}"

    def with_headers(self, more: Pairs) -> "Request":
        """The same with these headers before its own."""
        return Request(
            self.method, self.path, self.query, (*more, *self.headers), self.body, self.wait_s
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, whole. `headers` as they came."""

    status: int
    headers: Pairs = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """A header's value, by its name in any case; several are joined by commas."""
        wanted = name.lower()
        values = [value for each, value in self.headers if each.lower() == wanted]
        return ", ".join(values) if values else None


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transport waits: for a connection, and for each sign of life."""

    connect_s: float
    answer_s: float


class Socket(Protocol):
    """A WebSocket that was begun."""

    async def send(self, text: str) -> None:
        """Sends a text frame. Raises ConnectionLost; waits while the other side does not read."""

    async def receive(self) -> str | bytes:
        """What comes next: a text frame, or a whole binary message. Raises ConnectionLost when the
        connection has ended, however.
        """

    async def close(self) -> None:
        """Ends the connection, within a bounded time. Raises nothing; may be called again."""


class Transport(Protocol):
    """What carries requests. Of one event loop; many may be on their way at a time."""

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Sends it once, and gives the whole answer, whatever its status. Raises CouldNotConnect,
        ConnectionLost, TimedOut; NotUsable where the transport was closed.
        """

    async def connect(self, request: Request, limits: Limits) -> Socket:
        """Begins a WebSocket. Raises UpgradeRefused beside what `request` raises."""

    async def close(self) -> None:
        """Ends all connections, and what is on its way. May be called again."""
