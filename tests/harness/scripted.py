"""A server that says what a test has it say: WebSockets, and answers to requests beside them."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from harness.processes import PATIENCE_S
from mq.model.clock import SystemClock, rfc3339


@dataclass
class Scripted:
    """`/-/consume` is a WebSocket, whose commands the test reads and answers; of other requests
    each is noted, and answered 200 (a PATCH), 202 (a DELETE), or by what `problems` says of it.
    """

    url: str = ""
    sockets: "asyncio.Queue[web.WebSocketResponse]" = field(default_factory=asyncio.Queue)
    commands: "asyncio.Queue[dict[str, Any]]" = field(default_factory=asyncio.Queue)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and If-Match."""
    problems: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By method: status and slug."""

    async def connected(self) -> web.WebSocketResponse:
        """The next WebSocket, once it has subscribed and was told so."""
        async with asyncio.timeout(PATIENCE_S):
            socket = await self.sockets.get()
            said = await self.command()
        await done(socket, said, len(said["subscribe"]))
        return socket

    async def command(self) -> dict[str, Any]:
        """The next command."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.commands.get()

    async def consume(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.put_nowait(socket)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                said = json.loads(message.data)
                if "begin" not in said:  # It is not answered.
                    self.commands.put_nowait(said)
        return socket

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path, request.headers.get("If-Match")))
        if request.method in self.problems:
            status, slug = self.problems[request.method]
            said = {"type": f"urn:mq:problem:{slug}", "status": status, "retryable": False}
            return web.json_response(said, status=status, content_type="application/problem+json")
        if request.method == "PATCH":
            due = rfc3339(SystemClock().now_ms() + 60_000)
            said = {"id": request.path.rsplit("/", 1)[-1], "due": due, "receives": 1}
            return web.json_response(said)
        return web.Response(status=202)


async def brings(
    socket: web.WebSocketResponse,
    message_id: str,
    body: bytes = b"x",
    receives: int = 1,
    due_in_s: float = 60,
    queue: str = "orders",
) -> None:
    """Sends a message."""
    now_ms = SystemClock().now_ms()
    header = {
        "queue": queue,
        "id": message_id,
        "receives": receives,
        "published": rfc3339(now_ms),
        "due": rfc3339(now_ms + round(due_in_s * 1000)),
        "headers": {"content-type": "text/plain"},
        "size": len(body),
    }
    await socket.send_str(json.dumps(header))
    await socket.send_bytes(body)


async def done(socket: web.WebSocketResponse, said: dict[str, Any], count: int = 1) -> None:
    """Answers a command: all of it is done."""
    results = [{"queue": "q", "id": "i", "status": 200}] * count
    await socket.send_str(json.dumps({"ref": said["ref"], "results": results}))


async def refused(
    socket: web.WebSocketResponse, said: dict[str, Any], slug: str, status: int
) -> None:
    """Answers a command of one: it is not."""
    problem = {"type": f"urn:mq:problem:{slug}", "status": status, "retryable": status >= 500}
    results = [{"id": "i", "status": status, "problem": problem}]
    await socket.send_str(json.dumps({"ref": said["ref"], "results": results}))


async def scripted(serve: AiohttpServer) -> Scripted:
    """One that serves until the test's end."""
    made = Scripted()
    app = web.Application()
    app.router.add_get("/-/consume", made.consume)
    app.router.add_route("*", "/{rest:.*}", made.answer)
    made.url = str((await serve(app, shutdown_timeout=0.1)).make_url("")).rstrip("/")
    return made
