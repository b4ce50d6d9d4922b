"""Clients that publish, fetch and delete at random, and write down what they did and were told."""

import asyncio
import contextlib
import io
import itertools
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import aiohttp

from harness.history import Delete, Fetch, Operation, Publish, Reschedule
from harness.messages import make_body, number_in
from harness.process_faults import Member
from harness.processes import PATIENCE_S
from harness.raw import raw_connection, raw_head
from mq.model.limits import BODY_HELD_BYTES_MAX

QUEUE = "orders"
ALIVE_MAX = 60
STREAMED_BYTES = BODY_HELD_BYTES_MAX + 9
SIP_BYTES = 1000
# Where the queue takes packs: the share of publishes that are packs, and the bodies of each.
PACKS = 0.15
PACK_MESSAGES = 4
# Released, cut short, extended: the visibility is a second.
DUE_IN_S = (0, 0.4, 2.5)

NO_ANSWER = (aiohttp.ClientError, ConnectionError, TimeoutError)


def _epoch_us(time: str) -> int:
    """The time that was told, which has whole milliseconds."""
    return round(datetime.fromisoformat(time).timestamp() * 1000) * 1000


def now_us() -> int:
    """The wall clock, as the daemons read it."""
    return time.time_ns() // 1000


async def allow_packs(session: aiohttp.ClientSession, url: str) -> None:
    settings = {"pack_messages_max": 100}
    async with session.patch(f"{url}/{QUEUE}/settings", json=settings) as changed:
        assert changed.status == 200


@dataclass
class Recorder:
    """The operations, as they end, and the bodies that were published."""

    operations: list[Operation] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    to_delete_later: deque[Fetch] = field(default_factory=deque)
    alive: int = 0
    """How many messages are there, about: those acknowledged less those deleted."""

    def count(self) -> int:
        return len(self.operations)

    def number_of(self, body: bytes) -> int | None:
        """The number of a body that was published; None for any other bytes."""
        try:
            number = number_in(body)
        except (AssertionError, ValueError):
            return None
        return number if self.bodies.get(number, body) == body else None


class Client:
    """One client, at home at one server; some deletes go to others. One operation at a time."""

    def __init__(
        self,
        recorder: Recorder,
        session: aiohttp.ClientSession,
        servers: list[Member],
        home: Member,
        chance: random.Random,
        hasty: float = 0.0,
        queue: str = QUEUE,
        prompt: float = 0.6,
        giving: float = 0.45,
    ) -> None:
        """`hasty`: how many of its requests it gives up, many of them at once; 0 for a client
        that waits. `prompt`: how many of its deliveries it deletes at once.
        `giving`: how many of its operations publish.
        """
        self._recorder = recorder
        self._session = session
        self._servers = servers
        self.home = home
        self._chance = chance
        self._hasty = hasty
        self._queue = queue
        self._prompt = prompt
        self._giving = giving

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Publishes, fetches and deletes until it is over."""
        while not is_over():
            await self.home.is_up.wait()
            if self._recorder.alive < ALIVE_MAX and self._chance.random() < self._giving:
                await self._give()
            elif self._is_late() and self._chance.random() < 0.3:
                await self._delete_late()
            else:
                await self.consume()

    async def _give(self) -> None:
        if self._chance.random() < self._hasty / 10:
            await self.hang_up()
        elif self._chance.random() < PACKS:
            await self.publish_pack()
        else:
            await self.publish()

    def _is_late(self) -> bool:
        """Whether what was kept to delete it later is just due again, and somebody is at it."""
        kept = self._recorder.to_delete_later
        return bool(kept) and kept[0].due_us <= now_us()

    async def _delete_late(self) -> None:
        fetched = self._recorder.to_delete_later.popleft()
        await self.delete(fetched, self._anywhere())

    async def consume(self) -> None:
        """Fetches; then deletes what it got, or keeps it to delete it later, or forgets it."""
        fetched = await self.fetch()
        if fetched is not None:
            what = self._chance.random()
            if what < self._prompt:
                await self.delete(fetched, self._anywhere())
            elif what < self._prompt + 0.25 * (1 - self._prompt):
                self._recorder.to_delete_later.append(fetched)
            elif what < self._prompt + 0.6 * (1 - self._prompt):
                await self.reschedule(fetched, self._anywhere(), self._chance.choice(DUE_IN_S))

    def _anywhere(self) -> Member:
        """Where to delete: at home mostly, since elsewhere a stopped server keeps it waiting."""
        return self.home if self._chance.random() < 0.7 else self._chance.choice(self._servers)

    async def publish(self) -> None:
        """Publishes a new body."""
        size = self._chance.choice([16] * 8 + [300] * 20 + [70_000] * 3 + [STREAMED_BYTES])
        number, body = self._body(size)
        began_us, status, message_id = now_us(), None, None
        try:
            async with self._session.post(
                self._messages(self.home), data=io.BytesIO(body), timeout=self._timeout()
            ) as response:
                await response.read()
                status, message_id = response.status, response.headers.get("X-Message-Id")
        except NO_ANSWER:
            pass
        self._recorder.operations.append(
            Publish(number, self.home.name, began_us, now_us(), status, message_id)
        )
        self._recorder.alive += status == 201

    async def publish_pack(self) -> None:
        """Publishes a few bodies in one request, which share a file where the queue takes packs."""
        made = [self._body(self._chance.choice([16, 300])) for _ in range(PACK_MESSAGES)]
        began_us = now_us()
        ids: list[str | None] = [None] * len(made)
        try:
            async with self._session.post(
                f"{self._messages(self.home)}?split=lines&pack=true",
                data=io.BytesIO(b"\n".join(body for _, body in made)),
                timeout=self._timeout(),
            ) as response:
                rows = (await response.read()).splitlines()
                if response.status == 200:
                    ids = [json.loads(row).get("id") for row in rows]
        except NO_ANSWER:
            pass
        ended_us = now_us()
        for (number, _), message_id in zip(made, ids, strict=True):
            status = None if message_id is None else 201
            self._recorder.operations.append(
                Publish(number, self.home.name, began_us, ended_us, status, message_id)
            )
            self._recorder.alive += status == 201

    async def hang_up(self) -> None:
        """Publishes the half of a body, and goes."""
        number, body = self._body(self._chance.choice([300, 70_000, STREAMED_BYTES]))
        began_us = now_us()
        length = f"Content-Length: {len(body)}"
        with contextlib.suppress(*NO_ANSWER):
            async with raw_connection(self.home.process.port) as connection:
                await connection.send(raw_head("POST", f"/{self._queue}/messages", length))
                await connection.send(body[: len(body) // 2])
        self._recorder.operations.append(Publish(number, self.home.name, began_us, now_us(), None))

    def _body(self, size: int) -> tuple[int, bytes]:
        number = next(self._recorder.numbers)
        body = self._recorder.bodies[number] = make_body(number, size)
        return number, body

    async def fetch(self) -> Fetch | None:
        """The delivery, when there was one. Some hasty clients go in the middle of a body."""
        began_us = now_us()
        fetched = Fetch(self.home.name, began_us, began_us, None)
        try:
            async with self._session.get(
                self._messages(self.home), timeout=self._timeout()
            ) as response:
                if self._chance.random() < self._hasty / 3:
                    await response.content.read(SIP_BYTES)
                    raise ConnectionError("by its own will")
                body = await response.read()
                fetched = self._fetched(began_us, response, body)
        except NO_ANSWER:
            fetched = Fetch(self.home.name, began_us, now_us(), None)
        self._recorder.operations.append(fetched)
        return fetched if fetched.is_delivery else None

    def _fetched(self, began_us: int, response: aiohttp.ClientResponse, body: bytes) -> Fetch:
        ended_us = now_us()
        if response.status != 200:
            return Fetch(self.home.name, began_us, ended_us, response.status)
        return Fetch(
            self.home.name,
            began_us,
            ended_us,
            200,
            response.headers["X-Message-Id"],
            self._recorder.number_of(body),
            int(response.headers["X-Message-Receives"]),
            _epoch_us(response.headers["X-Message-Due"]),
        )

    async def delete(self, fetched: Fetch, at: Member, surely: bool = False) -> bool:
        """Deletes what was fetched; whether it is gone. Now and then with If-Match, unless
        `surely`.
        """
        assert fetched.id is not None
        conditional = not surely and self._chance.random() < 0.4
        headers = {"If-Match": f'"{fetched.receives}"'} if conditional else {}
        began_us, status = now_us(), None
        try:
            async with self._session.delete(
                f"{self._messages(at)}/{fetched.id}", headers=headers, timeout=self._timeout()
            ) as response:
                await response.read()
                status = response.status
        except NO_ANSWER:
            pass
        receives = fetched.receives if conditional else None
        self._recorder.operations.append(
            Delete(fetched.id, at.name, began_us, now_us(), status, receives)
        )
        self._recorder.alive -= status == 202
        return status in (202, 404)

    async def reschedule(self, fetched: Fetch, at: Member, due_in_s: float) -> None:
        """Releases, extends or cuts short what was fetched, if it is still this delivery."""
        assert fetched.id is not None
        began_us, status, due_us = now_us(), None, 0
        try:
            async with self._session.patch(
                f"{self._messages(at)}/{fetched.id}",
                json={"due_in_s": due_in_s},
                headers={"If-Match": f'"{fetched.receives}"'},
                timeout=self._timeout(),
            ) as response:
                said = await response.json(content_type=None)
                status = response.status
                due_us = _epoch_us(said["due"]) if status == 200 else 0
        except NO_ANSWER:
            pass
        due_in_us = round(due_in_s * 1_000_000)
        self._recorder.operations.append(
            Reschedule(
                *(fetched.id, at.name, began_us, now_us(), status),
                *(fetched.receives, due_in_us, due_us),
            )
        )

    def _messages(self, server: Member) -> str:
        return f"{server.url}/{self._queue}/messages"

    def _timeout(self) -> aiohttp.ClientTimeout:
        patience_s = PATIENCE_S
        if self._chance.random() < self._hasty:
            patience_s = self._chance.choice([self._chance.uniform(0.001, 0.012), 0.5, 1.0])
        return aiohttp.ClientTimeout(total=patience_s)


async def work(session: aiohttp.ClientSession, numbers: Iterator[int], ended: asyncio.Event) -> int:
    """Publishes, with keys too, fetches, deletes, sidelines, until it is the end; how often."""
    done = 0
    while not ended.is_set():
        number = next(numbers)
        path = "/q/messages" if number % 2 else f"/q/messages?key=k{number}"
        async with session.post(path, data=b"x") as published:
            assert published.status == 201
        async with session.get("/q/messages?visibility=5") as fetched:
            message_id = fetched.headers.get("X-Message-Id")
        if message_id is not None and number % 3:
            async with session.delete(f"/q/messages/{message_id}") as deleted:
                assert deleted.status == 202
        done += 1
    return done


def once_session() -> aiohttp.ClientSession:
    """A connection a request, and each request once: aiohttp would send a delete again by itself
    when its connection was cut, and no history would have the first.
    """
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    return aiohttp.ClientSession(connector=connector, middlewares=(_once,))


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        # Which aiohttp does not try again.
        raise aiohttp.ClientConnectionError(str(error)) from error
