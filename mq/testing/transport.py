"""The transport of a fake's clients: HTTP, with the faults that the test asked for."""

import asyncio

from mq.client.errors import ConnectionLost, CouldNotConnect, NotUsable, UpgradeRefused
from mq.client.http_transport import CONNECTIONS_MAX_DEFAULT, HttpTransport
from mq.client.transport import Answer, Limits, Request, Socket
from mq.testing.faults import Fault, Kind
from mq.testing.inside import Inside

_LOST = "the connection to the fake has ended"


class FakeTransport:
    """Implements `Transport` over a fake, for one client."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._http: HttpTransport | None = None
        self._is_closed = False

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Sends a request to the fake; returns the answer. Raises CouldNotConnect and
        ConnectionLost, also as faults of the test; NotUsable; and what a streamed body raises.
        """
        http = await self._opened()
        fault = self._inside.faults.next(request)
        if fault is not None and fault.kind is not Kind.UNANSWERED:
            return _failed(fault)
        answer = await http.request(request, limits)
        if fault is not None:
            raise ConnectionLost(_LOST)
        return answer

    async def connect(self, request: Request, limits: Limits) -> Socket:
        """Opens a WebSocket. Raises UpgradeRefused, and as `request` does."""
        http = await self._opened()
        fault = self._inside.faults.next(request)
        if fault is None:
            return await http.connect(request, limits)
        if fault.kind is Kind.UNANSWERED:
            raise ConnectionLost(_LOST)
        answer = _failed(fault)
        raise UpgradeRefused(answer.status, answer.body.decode())

    async def _opened(self) -> HttpTransport:
        if self._is_closed:
            raise NotUsable.closed()
        if self._http is None:
            # Another request may have made it meanwhile.
            url = await asyncio.wrap_future(self._inside.url())
            self._http = self._http or HttpTransport(url, CONNECTIONS_MAX_DEFAULT)
        return self._http

    async def close(self) -> None:
        """Ends all connections. Requests in flight raise ConnectionLost. May be called again."""
        self._is_closed = True
        if self._http is not None:
            await self._http.close()


def _failed(fault: Fault) -> Answer:
    """The answer of a fault. Raises CouldNotConnect, ConnectionLost."""
    if fault.kind is Kind.UNREACHED:
        raise CouldNotConnect(
            "cannot connect to the fake (by refuse_connections): is mq running there?"
        )
    if fault.kind is Kind.CUT:
        raise ConnectionLost(_LOST)
    return fault.answer()
