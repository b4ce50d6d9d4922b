"""An HTTP connection with one request at a time, and a WebSocket: as small as a client can be."""

import json
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from deploy.bench.load import BenchError

BINARY: Final = 2
_TEXT, _PING, _PONG = 1, 9, 10
_RECEIVED_BYTES_MAX: Final = 1 << 18
_PATIENCE_S: Final = 120.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_ID: Final = re.compile(rb"\r\nx-message-id: *([^\r]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered; the head is all before the body, as it came."""

    status: int
    head: bytes
    body: bytes

    @property
    def id(self) -> str:
        """The message's id. Raises BenchError when it has none."""
        if (match := _ID.search(self.head)) is None:
            raise BenchError(f"an answer {self.status} without an id: {self.body!r}")
        return match.group(1).decode()


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """A request as it is sent."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection:
    """A keep-alive connection to a port of this machine. Close it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, asked: bytes, expected: int) -> Answer:
        """Sends a request and waits for all of its answer. Raises BenchError for another status
        than the expected one.
        """
        answer = self.ask_any(asked)
        if answer.status != expected:
            raise BenchError(f"{asked[:60]!r} was answered {answer.status}: {answer.body[:200]!r}")
        return answer

    def ask_any(self, asked: bytes) -> Answer:
        """The same, whatever the status."""
        self.send(asked)
        return self._answer()

    def send(self, asked: bytes) -> None:
        """Sends a request, and does not wait."""
        self._socket.sendall(asked)

    def receive(self, expected: int) -> Answer:
        """Waits for all of the answer to what was sent. Raises BenchError for another status."""
        answer = self._answer()
        if answer.status != expected:
            raise BenchError(f"the answer was {answer.status}: {answer.body[:200]!r}")
        return answer

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def _answer(self) -> Answer:
        held = b""
        while (end := held.find(b"\r\n\r\n")) < 0:
            held += self._receive()
        head, parts = held[: end + 2], [held[end + 4 :]]
        if _CHUNKED.search(head):
            return Answer(int(head[9:12]), head, self._chunks(parts[0]))
        length = _LENGTH.search(head)
        left = int(length.group(1)) - len(parts[0]) if length else 0
        parts.extend(self._body(left))
        return Answer(int(head[9:12]), head, b"".join(parts))

    def _chunks(self, held: bytes) -> bytes:
        """A body in chunks, without trailers, of which some was received."""
        body: list[bytes] = []
        while True:
            while (end := held.find(b"\r\n")) < 0:
                held += self._receive()
            size = int(held[:end], 16)
            parts = [held[end + 2 :]]
            parts.extend(self._body(size + 2 - len(parts[0])))
            chunk = b"".join(parts)
            body.append(chunk[:size])
            held = chunk[size + 2 :]
            if size == 0:
                return b"".join(body)

    def _body(self, left: int) -> Iterator[bytes]:
        while left > 0:
            part = self._receive()
            left -= len(part)
            yield part

    def _receive(self) -> bytes:
        part = self._socket.recv(_RECEIVED_BYTES_MAX)
        if not part:
            raise BenchError("the server closed the connection")
        return part


class WebSocket:
    """A client that takes frames apart and does no more. Close it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        self._at = 0
        self._socket.sendall(
            b"GET /-/consume HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            self._held += self._receive()
        if not self._held.startswith(b"HTTP/1.1 101"):
            raise BenchError(f"no WebSocket: {self._held[:60]!r}")
        self._at = end + 4

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, without a last frame."""
        self._socket.close()

    def command(self, **said: object) -> None:
        """Sends a command, masked with zeros."""
        self._send(_TEXT, json.dumps(said).encode())

    def frame(self) -> tuple[int, bytes]:
        """The next frame that is no ping: its opcode and its payload."""
        while True:
            first, size = self._take(2)
            if size == 126:
                [size] = struct.unpack("!H", self._take(2))
            elif size == 127:
                [size] = struct.unpack("!Q", self._take(8))
            payload = self._take(size)
            if first & 15 != _PING:
                return first & 15, payload
            self._send(_PONG, payload)

    def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | min(size, 126))
        if size > 125:
            head = struct.pack("!BBH", 0x80 | opcode, 0xFE, size)
        self._socket.sendall(head + b"\0\0\0\0" + payload)

    def _take(self, size: int) -> bytes:
        if len(self._held) - self._at < size:
            parts, left = [self._held[self._at :]], size - (len(self._held) - self._at)
            while left > 0:
                parts.append(self._receive())
                left -= len(parts[-1])
            self._held, self._at = b"".join(parts), 0
        self._at += size
        return self._held[self._at - size : self._at]

    def _receive(self) -> bytes:
        part = self._socket.recv(_RECEIVED_BYTES_MAX)
        if not part:
            raise BenchError("the server closed the WebSocket")
        return part
