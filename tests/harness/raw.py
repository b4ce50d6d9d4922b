"""HTTP by hand over a socket: for what a client library would refuse to send, or put right."""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from harness.processes import PATIENCE_S


@dataclass(frozen=True)
class RawResponse:
    """A response as it came; the header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """One connection; whoever sends decides about every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def response(self, head_only: bool = False) -> RawResponse:
        """The next response, interim ones included."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status_line, *lines = head.rstrip("\r\n").split("\r\n")
            headers = {}
            for line in lines:
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
            length = 0 if head_only else int(headers.get("content-length", "0"))
            body = await self._reader.readexactly(length)
        return RawResponse(int(status_line.split(" ")[1]), headers, body)

    async def ended(self) -> bytes:
        """What comes until the other side closes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read()

    async def frame(self) -> tuple[int, bytes]:
        """The opcode and the payload of a WebSocket's next frame."""
        async with asyncio.timeout(PATIENCE_S):
            first, size = await self._reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", await self._reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
            return first & 0x0F, await self._reader.readexactly(size)

    async def close_code(self) -> tuple[int, int]:
        """Reads a WebSocket's frames to the last one: its code, and how many came before it."""
        count = 0
        while (found := await self.frame())[0] != 8:
            count += 1
        return struct.unpack("!H", found[1][:2])[0], count

    def abort(self) -> None:
        """Ends the connection at once, whatever is still to be sent."""
        self._writer.transport.abort()

    def half_close(self) -> None:
        """Says that nothing more comes from here; what comes from there is still read."""
        self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def raw_connection(port: int) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = RawConnection(reader, writer)
    try:
        yield connection
    finally:
        await connection.close()


async def raw_request(port: int, data: bytes) -> RawResponse:
    """The response to these bytes, on a connection of their own."""
    async with raw_connection(port) as connection:
        await connection.send(data)
        return await connection.response()


def raw_head(method: str, path: bytes | str, *headers: str) -> bytes:
    """A request's head with this very path."""
    target = path if isinstance(path, bytes) else path.encode()
    lines = "".join(f"{header}\r\n" for header in headers)
    return method.encode() + b" " + target + f" HTTP/1.1\r\nHost: mq\r\n{lines}\r\n".encode()


HANDSHAKE = (
    b"GET /-/consume HTTP/1.1\r\nHost: mq\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@contextlib.asynccontextmanager
async def raw_websocket(port: int) -> AsyncIterator[RawConnection]:
    """A WebSocket after its handshake."""
    async with raw_connection(port) as connection:
        await connection.send(HANDSHAKE)
        assert (await connection.response()).status == 101
        yield connection


def raw_frame(
    payload: bytes,
    opcode: int = 1,
    is_last: bool = True,
    is_masked: bool = True,
    said_bytes: int | None = None,
) -> bytes:
    """A client's frame; `said_bytes`: the size that it says of its payload."""
    size = len(payload) if said_bytes is None else said_bytes
    first, mask_bit = opcode | (0x80 if is_last else 0), 0x80 if is_masked else 0
    if size < 126:
        head = struct.pack("!BB", first, mask_bit | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, mask_bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, size)
    if not is_masked:
        return head + payload
    mask = b"\x17\x2a\x00\xff"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return head + mask + masked
