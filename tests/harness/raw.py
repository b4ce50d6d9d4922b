"""HTTP by hand over a socket: for what a client library would refuse to send, or put right."""

import asyncio
import contextlib
import json
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
