"""What stands between a client and its mq and misbehaves, over real sockets, as it is told to."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum, auto


class Fault(Enum):
    """What becomes of a request, when it does not just pass."""

    LOSE = auto()
    """mq does it, and its answer does not come: the connection ends."""
    END = auto()
    """The connection ends before mq hears of it."""
    HANG = auto()
    """mq does not hear of it, and nothing ever comes."""
    CUT = auto()
    """mq does it, and half of its answer's body comes."""
    DEAF = auto()
    """Nothing is read any more, not even the rest of the request."""


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Lossy:
    """Passes requests on to a port of this machine, but for what `faults` say of the next ones: a
    Fault, or the bytes of an answer; None passes.
    """

    upstream: int
    faults: deque[Fault | bytes | None] = field(default_factory=deque)
    upgrades: Fault | bytes | None = None
    """The same of each request for a WebSocket."""
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _is_deaf: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def requests(self, method: str) -> list[Seen]:
        return [each for each in self.seen if each.method == method]

    def handlers(self) -> "set[asyncio.Task[None]]":
        """The tasks of its own connections."""
        return {task for task in asyncio.all_tasks() if "Lossy." in repr(task.get_coro())}

    def cut(self) -> None:
        """Ends all connections, of both sides, at once."""
        for writer in list(self._writers):
            writer.transport.abort()

    def deafen(self) -> None:
        """What goes on passes nothing any more, and stays open."""
        self._is_deaf = True
        for task in self._tasks:
            task.cancel()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._pass_one(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass
        finally:
            if not self._is_deaf:
                self._writers.discard(writer)
                writer.close()

    async def _pass_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = lines[0].split(" ")
        pairs = [line.partition(":") for line in lines[1:]]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        is_upgrade = "upgrade" in headers
        fault = self.upgrades if is_upgrade else None
        if not is_upgrade and self.faults:
            fault = self.faults.popleft()
        if fault is Fault.DEAF:
            self.seen.append(Seen(method, path, headers, b""))
            await asyncio.get_running_loop().create_future()
        body, raw = await _body(reader, headers)
        self.seen.append(Seen(method, path, headers, body))
        if fault is Fault.END:
            return False
        if fault is Fault.HANG:
            await asyncio.get_running_loop().create_future()
        if isinstance(fault, bytes):
            writer.write(fault)
            await writer.drain()
            return b"connection: close" not in fault.lower()
        if is_upgrade:
            await self._tunnel(head, reader, writer)
            return False
        answer = await self._ask(head + raw, method)
        if fault is Fault.LOSE:
            return False
        if fault is Fault.CUT:
            writer.write(answer[: answer.index(b"\r\n\r\n") + 6])
            await writer.drain()
            return False
        writer.write(answer)
        await writer.drain()
        return True

    async def _ask(self, request: bytes, method: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        self._writers.add(writer)
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
            pairs = [line.partition(":") for line in lines[1:]]
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            if method == "HEAD":
                return head
            return head + (await _body(reader, headers))[1]
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _tunnel(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.upstream)
        self._writers.add(back)
        back.write(head)
        both = [asyncio.create_task(_pump(reader, back)), asyncio.create_task(_pump(there, writer))]
        self._tasks.update(both)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._is_deaf:
                await asyncio.get_running_loop().create_future()
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._tasks.difference_update(both)
            self._writers.discard(back)
            back.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> tuple[bytes, bytes]:
    """A message's body, and the bytes that it came in."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return body, body
    body = raw = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        piece = await reader.readexactly(int(line, 16) + 2)
        body, raw = body + piece[:-2], raw + line + piece
        if piece == b"\r\n":
            return body, raw


@contextlib.asynccontextmanager
async def lossy(upstream: int) -> AsyncIterator[Lossy]:
    """Between clients and the mq at this port."""
    made = Lossy(upstream)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.cut()
        ours = made.handlers()
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)
        await server.wait_closed()


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    """The bytes of an answer."""
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def problem(slug: str, status: int, *headers: str, retryable: bool = True) -> bytes:
    """The bytes of a problem, as mq would say it."""
    said = f'{{"type": "urn:mq:problem:{slug}", "title": "T", "status": {status}, "detail": "D", '
    said += f'"retryable": {str(retryable).lower()}}}'
    kind = "Content-Type: application/problem+json"
    return answer(f"{status} Problem", said.encode(), kind, *headers)
