"""A WebSocket's handshake, reading, writing and frames.

`websockets` checks the handshake, parses what comes and answers pings; the frames that go out are
made here (RFC 6455, section 5.2), unmasked and uncompressed.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from websockets.datastructures import Headers
from websockets.frames import Close, Frame
from websockets.frames import Opcode as Kind
from websockets.http11 import Request as Handshake
from websockets.protocol import State
from websockets.server import ServerProtocol

from mq.http.answers import head_of
from mq.http.request import FRAMED_PER_TURN_MAX, LINGERING_S, Client, Request
from mq.model.errors import ForeignOrigin, NoWebSocket
from mq.model.limits import KIB

COMMAND_BYTES_MAX: Final = 256 * KIB
# Unanswered commands at which reading pauses.
COMMANDS_IN_FLIGHT_MAX: Final = 16
# Pings, pongs and empty fragments that a client may send at once, and then a second.
CONTROL_FRAMES_MAX: Final = 100
CONTROL_FRAMES_PER_S: Final = 10

_FIN: Final = 0x80
# Beyond these the payload's length takes two more bytes, and eight.
_SHORT_MAX: Final = 125
_MEDIUM_MAX: Final = 0xFFFF
_MEDIUM: Final = 126
_LONG: Final = 127


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """Why the server ends a connection (RFC 6455, section 7.4.1)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    UNSUPPORTED = 1003
    NO_DATA = 1007
    POLICY = 1008
    FAILED = 1011


def head(opcode: Opcode, size: int, is_last: bool = True) -> bytes:
    """The bytes before a payload of `size` bytes."""
    first = opcode | (_FIN if is_last else 0)
    if size <= _SHORT_MAX:
        return struct.pack("!BB", first, size)
    if size <= _MEDIUM_MAX:
        return struct.pack("!BBH", first, _MEDIUM, size)
    return struct.pack("!BBQ", first, _LONG, size)


def frame(opcode: Opcode, payload: bytes, is_last: bool = True) -> bytes:
    return head(opcode, len(payload), is_last) + payload


_SWITCHING: Final = 101
_CONTROL: Final = (Kind.PING, Kind.PONG, Kind.CLOSE)
# Bytes parsed at once before their frames are counted; the smallest frame has 6.
_PIECE_BYTES: Final = 256
_PIECE_FRAMES_MAX: Final = _PIECE_BYTES // 6
# Fragments kept apart: each object costs more than the few bytes that it may hold.
_FRAGMENTS_MAX: Final = 1024
# The headers of a handshake that `websockets` checks.
_CHECKED: Final = ("Connection", "Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version")


class Socket:
    """One connection, from its handshake on."""

    def __init__(self, client: Client, protocol: ServerProtocol, answer: bytes) -> None:
        self._client = client
        self._protocol = protocol
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._on_leave: Callable[[], None] = self.abort
        self._unparsed = b""
        self._is_parsing_later = False
        self._fragments: list[bytes] = []
        self._is_text = False
        self._said: deque[str | bytes | None] = deque()
        self._said_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._has_ponged = False
        self._control = 0.0
        self._control_s = self._loop.time()
        self._last: list[bytes] = []
        self._has_closed = False
        self._is_over = False
        self.is_broken = False
        """Whether the client broke the protocol."""

    @classmethod
    def accept(cls, request: Request) -> "Socket":
        """Checks the handshake. Raises NoWebSocket, ForeignOrigin."""
        headers = Headers(
            (name, value) for name in _CHECKED for value in request.headers.getall(name, [])
        )
        protocol = ServerProtocol(state=State.OPEN, max_size=COMMAND_BYTES_MAX)
        accepted = protocol.accept(Handshake(request.path, headers))
        head = request.head
        if accepted.status_code != _SWITCHING or head.length != 0 or not head.is_http_1_1:
            raise NoWebSocket
        if request.is_foreign:
            # Browsers let any page open a WebSocket to any address and read from it.
            raise ForeignOrigin
        names = ("Upgrade", "Connection", "Sec-WebSocket-Accept")
        answer = head_of(_SWITCHING, {each: accepted.headers[each] for each in names}, 0)
        return cls(request.client, protocol, answer)

    def begin(self, on_leave: Callable[[], None]) -> None:
        """Answers the handshake; both sides send frames from here on. `on_leave` is called when the
        server drains.
        """
        self._on_leave = on_leave
        self._client.write(self._answer)
        self._client.upgrade(self)

    # Input

    def leave(self) -> None:
        self._on_leave()

    def came(self, data: bytes) -> None:
        if self._is_over:
            return
        self._unparsed = self._unparsed + data if self._unparsed else data
        self._parse()

    async def read(self) -> str | bytes | None:
        """The client's next command: text, or bytes if it sent a binary frame; "" for a control
        frame; None once it has closed or broken the protocol.
        """
        while not self._said:
            if self._is_over:
                return None
            self._reader = self._loop.create_future()
            await self._reader
        said = self._said.popleft()
        self._said_bytes -= len(said or "")
        self._parse()
        return said

    def _parse(self) -> None:
        """Parses a bounded number of frames; the rest in the loop's next turn."""
        data, at, count = self._unparsed, 0, 0
        most = FRAMED_PER_TURN_MAX - _PIECE_FRAMES_MAX
        while at < len(data) and count <= most and not self._waits():
            count += self._feed(data[at : at + _PIECE_BYTES])
            at += _PIECE_BYTES
        self._unparsed = b"" if self._is_over else data[at:]
        if self._unparsed and not self._waits() and not self._is_parsing_later:
            self._is_parsing_later = True
            self._loop.call_soon(self._parse_later)
        self._client.hold_up(bool(self._unparsed))

    def _parse_later(self) -> None:
        self._is_parsing_later = False
        self._parse()

    def _waits(self) -> bool:
        """Whether parsing pauses: commands wait, or the client pings and does not read."""
        self._has_ponged = self._has_ponged and self._client.is_full
        return (
            self._is_over
            or self._has_ponged
            or len(self._said) >= COMMANDS_IN_FLIGHT_MAX
            or self._said_bytes >= COMMAND_BYTES_MAX
        )

    def _feed(self, data: bytes) -> int:
        """Parses a piece and returns how many frames ended in it."""
        protocol = self._protocol
        protocol.receive_data(data)
        frames = [each for each in protocol.events_received() if isinstance(each, Frame)]
        for each in frames:
            self._heard(each)
            if self._is_over:
                return len(frames)
        writes = protocol.data_to_send()
        if protocol.state is not State.OPEN:
            self._end(writes, is_broken=not any(each.opcode is Kind.CLOSE for each in frames))
        elif writes:
            self.write(b"".join(writes))
        return len(frames)

    def _heard(self, part: Frame) -> None:
        if part.opcode in _CONTROL or not (part.data or part.fin):
            now_s = self._loop.time()
            faded = (now_s - self._control_s) * CONTROL_FRAMES_PER_S
            self._control, self._control_s = max(0.0, self._control - faded) + 1, now_s
            if self._control > CONTROL_FRAMES_MAX:
                self._end([_closing(CloseCode.POLICY, "too many control frames")], is_broken=True)
                return
        if part.opcode in _CONTROL:
            self._has_ponged = self._has_ponged or part.opcode is Kind.PING
            self._say("")
            return
        if part.opcode is not Kind.CONT:
            self._is_text = part.opcode is Kind.TEXT
        if len(self._fragments) == _FRAGMENTS_MAX:
            self._fragments = [b"".join(self._fragments)]
        self._fragments.append(bytes(part.data))
        if not part.fin:
            return
        whole = b"".join(self._fragments)
        self._fragments.clear()
        try:
            self._say(whole.decode() if self._is_text else whole)
        except UnicodeDecodeError:
            self._end([_closing(CloseCode.NO_DATA, "a text frame must be UTF-8")], is_broken=True)

    def _end(self, last: list[bytes], is_broken: bool) -> None:
        """Ends reading. This side's close frame follows the answers that are still to come."""
        self._last, self._is_over, self.is_broken = last, True, is_broken
        self._say(None)

    def _say(self, said: str | bytes | None) -> None:
        self._said.append(said)
        self._said_bytes += len(said or "")
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    # Output

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""
        transport = self._client.transport
        is_gone = transport is None or transport.is_closing()
        return not (self._has_closed or is_gone)

    @property
    def is_full(self) -> bool:
        """Whether the client has to read before more is written."""
        return self._client.is_full

    def write(self, data: bytes, held: object = None) -> None:
        """Sends whole frames, unless the connection is gone or closed. `held` is kept until they
        have left the process.
        """
        if self.is_open:
            self._client.write(data, held)

    def ping(self) -> None:
        """Pings the client, unless it has enough to read."""
        if not self.is_full:
            self.write(frame(Opcode.PING, b""))

    def close(self, code: CloseCode, reason: str = "") -> None:
        """Sends this side's close frame, as the answer to the client's if that has come and `code`
        is NORMAL. Input is still read.
        """
        answers = self._is_over and code is CloseCode.NORMAL
        self.write(b"".join(self._last) if answers else _closing(code, reason))
        self._has_closed = True

    async def linger(self) -> None:
        """Gives the client time to read the close frame: closing a connection with unread input
        resets it, and sent frames are lost. Input is dropped.
        """
        transport = self._client.transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():  # TLS cannot half-close.
            transport.write_eof()
        await asyncio.sleep(LINGERING_S)

    def abort(self) -> None:
        """Ends the connection at once; unsent bytes are lost."""
        if self._client.transport is not None:
            self._client.transport.abort()

    async def emptied(self) -> None:
        """Waits until the client has read enough. Raises ConnectionError when it is gone."""
        await self._client.drained()


def _closing(code: CloseCode, reason: str) -> bytes:
    return frame(Opcode.CLOSE, Close(code, reason).serialize())
