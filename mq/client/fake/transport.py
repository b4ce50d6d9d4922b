"""What carries a client's requests to the fake."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakSet

from mq.client.errors import ConnectionLost, CouldNotConnect, NotUsable, UpgradeRefused
from mq.client.fake.asked import Asked, Outcome, Reply, Values, Waits, error_reply
from mq.client.fake.consuming import Connection
from mq.client.fake.dispatch import outcome_of
from mq.client.fake.faults import Fault, Faults, Kind
from mq.client.fake.limits import BODY_BYTES_MAX
from mq.client.fake.waiting import Bell, Bells
from mq.client.fake.world import World
from mq.client.transport import Answer, BodyStream, Limits, Pairs, Request, Socket
from mq.model.errors import MqError

_CONSUME = "/-/consume"
_NO_HEADERS = ("\r", "\n", "\0")
_GONE = "the connection to the fake has ended"


@dataclass(slots=True)
class Inside:
    """What the transports of a fake share."""

    world: World
    faults: Faults = field(default_factory=Faults)
    bells: Bells = field(default_factory=Bells)
    sockets: "WeakSet[FakeSocket]" = field(default_factory=WeakSet)

    def act(self, asked: Asked) -> Outcome:
        """Does a request; those who wait hear of it."""
        with self.world.lock:
            outcome = outcome_of(self.world, asked)
        self.bells.ring()
        return outcome


class FakeTransport:
    """Implements `Transport` over a fake. Of one event loop; a fake has as many as it takes."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._is_closed = False
        self._bells: set[Bell] = set()
        self._sockets: set[FakeSocket] = set()

    async def request(self, request: Request, limits: Limits) -> Answer:
        """Does it, and gives the answer. Raises NotUsable, and what a test has asked for:
        CouldNotConnect, ConnectionLost; and what a streamed body raises.
        """
        self._check_open()
        # As over a network: whoever sends is not alone in the loop.
        await asyncio.sleep(0)
        asked = _asked(request, await _whole(request.body))
        inside = self._inside
        with inside.world.lock:
            fault = inside.faults.next(asked)
        if fault is not None and fault.kind is not Kind.UNANSWERED:
            return _failed(fault).answer(asked, inside.world.clock.now_ms())
        outcome = inside.act(asked)
        reply = outcome if isinstance(outcome, Reply) else await self._wait(outcome)
        if fault is not None:
            raise ConnectionLost(_GONE)
        return reply.answer(asked, inside.world.clock.now_ms())

    async def _wait(self, poll: Waits) -> Reply:
        world, loop = self._inside.world, asyncio.get_running_loop()
        end_s = loop.time() + poll.wait_s
        bell = self._bell()
        try:
            while True:
                left_s = end_s - loop.time()
                with world.lock:
                    world.catch_up()
                    reply = _reply_of(poll, left_s <= 0 or world.now_ms() >= poll.end_ms)
                    next_s = world.next_s()
                if reply is not None:
                    return reply
                self._check_connected()
                await bell.wait(left_s if next_s is None else min(left_s, next_s))
        finally:
            self._unbell(bell)
            with world.lock:
                poll.leave()
                world.catch_up()
            self._inside.bells.ring()

    async def connect(self, request: Request, limits: Limits) -> Socket:
        """Begins a WebSocket. Raises UpgradeRefused, NotUsable, and what a test has asked for."""
        self._check_open()
        await asyncio.sleep(0)
        asked = _asked(request, b"")
        inside = self._inside
        with inside.world.lock:
            fault = inside.faults.next(asked)
        if fault is not None:
            if fault.kind is Kind.UNANSWERED:
                raise ConnectionLost(_GONE)
            reply = _failed(fault)
            raise UpgradeRefused(reply.status, reply.body.decode())
        if asked.path != _CONSUME:
            outcome = inside.act(asked)
            status = outcome.status if isinstance(outcome, Reply) else 204
            raise UpgradeRefused(status)
        socket = FakeSocket(inside, self._bell(), self._forget)
        inside.sockets.add(socket)
        self._sockets.add(socket)
        return socket

    def _forget(self, socket: "FakeSocket", bell: Bell) -> None:
        self._sockets.discard(socket)
        self._unbell(bell)

    def _bell(self) -> Bell:
        bell = Bell()
        self._bells.add(bell)
        self._inside.bells.add(bell)
        return bell

    def _unbell(self, bell: Bell) -> None:
        self._bells.discard(bell)
        self._inside.bells.discard(bell)

    def _check_open(self) -> None:
        if self._is_closed:
            raise NotUsable("the client is closed")

    def _check_connected(self) -> None:
        if self._is_closed:
            raise ConnectionLost(_GONE)

    async def close(self) -> None:
        """Ends all connections. What waits for an answer raises ConnectionLost. May be called
        again.
        """
        self._is_closed = True
        for socket in list(self._sockets):
            await socket.close()
        for bell in list(self._bells):
            bell.ring()


class FakeSocket:
    """A WebSocket of the fake."""

    def __init__(
        self, inside: Inside, bell: Bell, forget: "Callable[[FakeSocket, Bell], None]"
    ) -> None:
        self._inside = inside
        self._bell = bell
        self._forget = forget
        self._connection = Connection(inside.world)

    async def send(self, text: str) -> None:
        """A command. Raises ConnectionLost."""
        await asyncio.sleep(0)
        world = self._inside.world
        with world.lock:
            if self._connection.is_over:
                raise ConnectionLost(_GONE)
            world.catch_up()
            self._connection.hear(text)
            world.catch_up()
        self._inside.bells.ring()

    async def receive(self) -> str | bytes:
        """What comes next. Raises ConnectionLost when the connection has ended."""
        world = self._inside.world
        while True:
            with world.lock:
                world.catch_up()
                frame = self._connection.next()
                is_over, next_s = self._connection.is_over, world.next_s()
            if frame is not None:
                return frame
            if is_over:
                raise ConnectionLost(_GONE)
            await self._bell.wait(next_s)

    async def close(self) -> None:
        """Ends the connection: what its client holds is released. May be called again."""
        self.drop()
        self._forget(self, self._bell)

    def drop(self) -> None:
        """The connection is lost, from any thread."""
        with self._inside.world.lock:
            self._connection.end()
            self._inside.world.catch_up()
        self._inside.bells.ring()


def _failed(fault: Fault) -> Reply:
    if fault.kind is Kind.UNREACHED:
        raise CouldNotConnect("cannot connect to the fake (as asked for): is mq running there?")
    if fault.kind is Kind.CUT:
        raise ConnectionLost(_GONE)
    return fault.reply()


def _reply_of(poll: Waits, is_late: bool) -> Reply | None:
    try:
        return poll.reply(is_late)
    except MqError as error:
        return error_reply(error)


def _asked(request: Request, body: bytes) -> Asked:
    path, _, rest = request.path.partition("?")
    if rest:
        raise ValueError("a query stands beside the path")
    headers = Values(_sent(request.headers), is_folded=True)
    return Asked(request.method, path, Values(request.query), headers, body)


def _sent(headers: Pairs) -> Pairs:
    """Headers as they come to the other side. Raises ValueError for what no header can have."""
    if any(mark in text for pair in headers for text in pair for mark in _NO_HEADERS):
        raise ValueError("a header has no line feed, carriage return or null byte")
    return tuple((name, value.strip(" \t")) for name, value in headers)


async def _whole(body: bytes | BodyStream) -> bytes:
    """A body to its end, or to where it is too large for any queue."""
    if isinstance(body, bytes):
        return body
    found = bytearray()
    async for chunk in body.chunks():
        found += chunk
        if len(found) > BODY_BYTES_MAX:
            break
    return bytes(found)
