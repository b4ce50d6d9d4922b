"""A fake and a live server that are asked the same, and what makes their answers comparable."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.upkeep import fire_due, move_due
from mq.client.fake import FakeClock, FakeMq
from mq.client.fake.transport import FakeTransport
from mq.client.http_transport import HttpTransport
from mq.client.transport import Answer, Limits, Request
from mq.daemon.daemon import Daemon
from mq.model.clock import SystemClock
from mq.model.limits import IDEMPOTENCY_S_MAX, LOOK_PAUSE_S_MAX
from mq.model.settings import QueueSettings
from mq.runtime.server_settings import ServerSettings

LIMITS = Limits(5.0, 30.0)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Which process it was, and which of its ids was the last one.
_ONE_S_OWN = re.compile(r'"(process|purged_before)": "[^"]+"')
# What is of the connection, or of the moment that it was sent in.
_PASSED_OVER = {"date", "server", "connection", "content-length", "transfer-encoding"}
_ATTEMPT_S = 20
_AHEAD_S = 60
# Publishes of one key are one for longer than the times of file systems and of the test can differ.
_SETTINGS = QueueSettings(idempotency_s=IDEMPOTENCY_S_MAX)


class StandingClock:
    """The live server's: its wall time moves when told, and is the fake's; the steady one runs, as
    whatever is looked at again after a while needs.
    """

    def __init__(self, fake: FakeClock) -> None:
        self._fake = fake
        self._machine = SystemClock()
        self.ahead_s = 0.0
        """What the steady time is ahead of the machine's."""

    def now_ms(self) -> int:
        return self._fake.now_ms()

    def steady_s(self) -> float:
        return self._machine.steady_s() + self.ahead_s


@dataclass
class Twins:
    """Both, with one time. What is named by one's ids is named to the other by its own."""

    fake: FakeMq
    live_root: Path
    clock: StandingClock
    live: HttpTransport
    mocked: FakeTransport
    uuids: dict[str, str] = field(default_factory=dict)
    """Those of the live server, by those of the fake."""

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Asks both the same, which must answer the same; the fake's answer."""
        pairs = tuple((name, str(value)) for name, value in (query or {}).items())
        said = tuple((headers or {}).items())
        request = Request(method, path, pairs, said, body)
        found = await self.mocked.request(request, LIMITS)
        other = await self._live(request, found)
        if method == "POST" and path.endswith("/shovel"):
            # A run takes its time there: what comes next is to be after its end.
            while b'"running"' in (await self._live(Request("GET", path), found)).body:
                pass
        self._learn(found, other)
        assert self._seen(other, is_live=True) == self._seen(found), (request, other, found)
        return found

    async def _live(self, request: Request, found: Answer) -> Answer:
        query = request.query
        is_fetch = request.method == "GET" and request.path.endswith("/messages")
        if is_fetch and found.status == 200 and all(name != "wait" for name, _ in query):
            # What another process brought back is found soon.
            query = (*query, ("wait", str(_ATTEMPT_S)))
        body = self._translated(request.body if isinstance(request.body, bytes) else b"")
        path = self._translated(request.path.encode()).decode()
        translated = tuple((n, self._translated(v.encode()).decode()) for n, v in query)
        return await self.live.request(
            Request(request.method, path, translated, request.headers, body), LIMITS
        )

    def _translated(self, text: bytes) -> bytes:
        for ours, theirs in self.uuids.items():
            text = text.replace(ours.encode(), theirs.encode())
        return text

    def theirs(self, text: str) -> str:
        """What is said to the fake, as it is said to the live server."""
        return self._translated(text.encode()).decode()

    def ours(self, text: str) -> str:
        """What the live server says, as the fake says it."""
        back = {its: mine for mine, its in self.uuids.items()}
        return _UUID.sub(lambda match: back.get(match[0], match[0]), text)

    def _learn(self, found: Answer, other: Answer) -> None:
        """What was made by the same request is the same."""
        ours, theirs = _named(found), _named(other)
        if len(ours) == len(theirs):
            known = set(self.uuids.values())
            for mine, its in zip(ours, theirs, strict=True):
                if mine not in self.uuids and its not in known:
                    self.uuids[mine] = its

    def _seen(self, answer: Answer, *, is_live: bool = False) -> tuple[int, list[Any], Any]:
        def plain(text: str) -> str:
            text = self.ours(text) if is_live else text
            return _ONE_S_OWN.sub(r'"\1": ""', text)

        headers = sorted(
            (name.lower(), plain(value))
            for name, value in answer.headers
            if name.lower() not in _PASSED_OVER
        )
        text = plain(answer.body.decode("latin-1"))
        return answer.status, headers, _rows(text)

    async def advance(self, seconds: float) -> None:
        """Moves both on; what is due there is moved by a mover."""
        self.fake.clock.advance(seconds)
        await asyncio.to_thread(move_due, self.live_root, self.clock)
        await asyncio.to_thread(fire_due, self.live_root, self.clock)
        self.clock.ahead_s += LOOK_PAUSE_S_MAX

    async def close(self) -> None:
        await self.live.close()
        await self.mocked.close()


def _named(answer: Answer) -> list[str]:
    text = "\n".join(value for _, value in answer.headers) + answer.body.decode("latin-1")
    return list(dict.fromkeys(_UUID.findall(text)))


def _rows(text: str) -> Any:
    """A body's lines of JSON; of another body the text."""
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return text


def twin_clock() -> tuple[FakeClock, StandingClock]:
    """One time for both, which stands. It is ahead of the file system's: a mover leaves alone what
    has just come.
    """
    start = datetime.fromtimestamp(SystemClock().now_ms() // 1000 + _AHEAD_S, UTC)
    clock = FakeClock(start, stands=True)
    return clock, StandingClock(clock)


@contextmanager
def live_twins(root: Path, runner: asyncio.Runner) -> Iterator[Twins]:
    """A live server with its twin, in the runner's loop."""
    clock, standing = twin_clock()
    daemon = Daemon(ServerSettings(root=root, port=0, drain_s=5, queue=_SETTINGS), clock=standing)
    port = runner.run(daemon.start())
    fake = FakeMq(clock=clock, settings=_SETTINGS)

    async def transports() -> Twins:
        live = HttpTransport(f"http://127.0.0.1:{port}", 10)
        return Twins(fake, root, standing, live, fake.transport())

    twins = runner.run(transports())
    try:
        yield twins
    finally:
        runner.run(twins.close())
        runner.run(daemon.drain())
