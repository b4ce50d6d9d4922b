"""The six endpoints in a line each, and what tests expect of every problem."""

import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.documented import assert_documented
from harness.server import Server

PROBLEM_MEDIA_TYPE = "application/problem+json"
UNKNOWN_ID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"

STILL_MS = 1_700_000_000_000

_TYPE = re.compile(r"urn:mq:problem:[a-z0-9]+(?:-[a-z0-9]+)*")


class StillClock:
    """A clock that stands at STILL_MS; its steady time goes on when told."""

    def __init__(self) -> None:
        self.now = STILL_MS
        self.steady = 1000.0

    def now_ms(self) -> int:
        return self.now

    def steady_s(self) -> float:
        return self.steady


def id_at(ms: int = STILL_MS, n: int = 0) -> str:
    """An id as of that time, milliseconds since the epoch; those of one time in order of n."""
    digits = f"{ms:012x}7{n:03x}8{n:015x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@dataclass(frozen=True)
class Reply:
    """A response with its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["X-Message-Id"]

    def json(self) -> Any:
        return json.loads(self.body)


async def call(server: Server, method: str, path: str, **more: Any) -> Reply:
    """Sends a request and reads all of the response, which must be one that is documented."""
    if isinstance(more.get("data"), bytes):
        more["data"] = io.BytesIO(more["data"])  # aiohttp warns of large bytes.
        more.setdefault("headers", {}).setdefault("Content-Type", "application/octet-stream")
    async with server.request(method, path, **more) as response:
        reply = Reply(response.status, response.headers, await response.read())
    assert_documented(method, path, reply.status, reply.headers, reply.body)
    return reply


async def make_queue(server: Server, name: str = "q") -> None:
    assert (await call(server, "PUT", f"/{name}")).status in (200, 201)


async def publish(server: Server, body: Any = b"hello", queue: str = "q", **more: Any) -> str:
    """Publishes; the id."""
    reply = await call(server, "POST", f"/{queue}/messages", data=body, **more)
    assert reply.status == 201, reply.body
    return reply.id


async def publish_lines(server: Server, bodies: Iterable[bytes], queue: str = "q") -> list[str]:
    """Publishes many at once; their ids."""
    reply = await call(server, "POST", f"/{queue}/messages?split=lines", data=b"\n".join(bodies))
    return [json.loads(line)["id"] for line in reply.body.splitlines()]


async def post(server: Server, body: bytes = b"hello", queue: str = "q") -> Reply:
    """Publishes, whatever comes of it."""
    return await call(server, "POST", f"/{queue}/messages", data=body)


async def fetch(server: Server, queue: str = "q", **more: Any) -> Reply:
    return await call(server, "GET", f"/{queue}/messages", **more)


async def totals(server: Server, queue: str = "q") -> dict[str, int]:
    """What the server's process did with the queue, as it says itself."""
    found: dict[str, int] = (await call(server, "GET", f"/{queue}")).json()["totals"]
    return found


async def delete(server: Server, message_id: str, queue: str = "q", **more: Any) -> Reply:
    return await call(server, "DELETE", f"/{queue}/messages/{message_id}", **more)


async def assert_works(server: Server, queue: str = "q") -> None:
    """That a message passes through the whole of its life."""
    message_id = await publish(server, b"works", queue)
    reply = await fetch(server, queue)
    assert (reply.id, reply.body) == (message_id, b"works")
    assert (await delete(server, message_id, queue)).status == 202


def assert_problem(reply: Any, status: int, slug: str) -> dict[str, Any]:
    """That the reply is this problem, with all that every problem has; its members."""
    assert reply.status == status, reply.body
    headers = {name.lower(): value for name, value in reply.headers.items()}
    assert headers["content-type"].partition(";")[0] == PROBLEM_MEDIA_TYPE
    members: dict[str, Any] = json.loads(reply.body)
    assert members["type"] == f"urn:mq:problem:{slug}"
    assert _TYPE.fullmatch(members["type"])
    assert members["status"] == status
    assert members["title"]
    assert members["detail"]
    assert isinstance(members["retryable"], bool)
    if status == 503:
        assert int(headers["retry-after"]) > 0
        assert members["retryable"]
    return members
