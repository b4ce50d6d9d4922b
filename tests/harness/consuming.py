"""A client of `/-/consume` for tests: commands that wait for answers, messages as they come."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from jsonschema_rs import Draft202012Validator

from harness.documented import DOCUMENT
from harness.processes import PATIENCE_S
from harness.server import Server

PATH = "/-/consume"
_COMPONENTS = {"components": DOCUMENT["components"]}
_FRAMES = DOCUMENT["paths"][PATH]["get"]["x-text-frames"]
COMMAND = Draft202012Validator({**_FRAMES["client"], **_COMPONENTS})
FRAME = Draft202012Validator({**_FRAMES["server"], **_COMPONENTS})


@dataclass(frozen=True)
class Message:
    """A message as it came."""

    queue: str
    id: str
    receives: int
    body: bytes
    said: dict[str, Any]


class Consumer:
    """One connection. Whatever the server says must be documented."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.messages: deque[Message] = deque()
        self.events: list[dict[str, Any]] = []
        self._refs = itertools.count(1)

    async def subscribe(self, *queues: str, **more: Any) -> None:
        """Subscribes to queues, all with this credit and so on, which must succeed."""
        wanted = [{"queue": each, **more} for each in queues]
        assert await self.statuses(subscribe=wanted) == [200] * len(queues)

    async def credit(self, queue: str, count: int) -> None:
        assert await self.statuses(credit={queue: count}) == [200]

    async def statuses(self, **command: Any) -> list[int]:
        return [result["status"] for result in await self.results(**command)]

    async def results(self, **command: Any) -> list[dict[str, Any]]:
        """What a command is answered."""
        ref = await self.send(**command)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                said = await self.frame()
                if said is not None and said.get("ref") == ref:
                    found: list[dict[str, Any]] = said["results"]
                    return found

    async def send(self, **command: Any) -> int:
        """Sends a command; its ref."""
        ref = next(self._refs)
        COMMAND.validate({**command, "ref": ref})
        await self.socket.send_json({**command, "ref": ref})
        return ref

    async def message(self) -> Message:
        """The next message."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.messages:
                await self.frame()
        return self.messages.popleft()

    async def bodies(self, count: int) -> list[bytes]:
        """Those of the next messages."""
        return [(await self.message()).body for _ in range(count)]

    async def event(self) -> dict[str, Any]:
        """What else the server has to say."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.events:
                await self.frame()
        return self.events.pop(0)

    async def frame(self) -> dict[str, Any] | None:
        """What comes next, None for a message, which is kept."""
        said = json.loads(await self.socket.receive_str())
        FRAME.validate(said)
        if "id" in said:
            body = await self.socket.receive_bytes()
            assert len(body) == said["size"]
            self.messages.append(Message(said["queue"], said["id"], said["receives"], body, said))
            return None
        if "event" in said:
            self.events.append(said)
        return dict(said)

    def hang_up(self) -> None:
        """Goes without a word, whatever is on its way."""
        self.socket.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def close_code(self) -> int | None:
        """Reads to the end; the code with which the server closed."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.socket.receive()
                if message.type in (
                    aiohttp.WSMsgType.CLOSE,
                    aiohttp.WSMsgType.CLOSING,
                    aiohttp.WSMsgType.CLOSED,
                ):
                    return self.socket.close_code


@contextlib.asynccontextmanager
async def consuming(server: Server, *queues: str, **more: Any) -> AsyncIterator[Consumer]:
    """A connection that is subscribed to these queues."""
    async with server.session.ws_connect(server.url + PATH, max_msg_size=0) as socket:
        consumer = Consumer(socket)
        if queues:
            await consumer.subscribe(*queues, **more)
        yield consumer
