"""A WebSocket's client for benches, as small as it can be."""

import json
import socket
import struct
from typing import Final, Self

from deploy.bench.load import BenchError

BINARY: Final = 2
_TEXT, _PING, _PONG = 1, 9, 10
_PATIENCE_S: Final = 60.0
_RECEIVED_BYTES_MAX: Final = 1 << 18


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
