"""Clients that write down, in a disk's log, what they ask for and what they are told.

A mark of asking stands before the request is sent, a mark of an answer behind the answer. So
whatever the place of a cut, the marks before it are all that anyone may rely on.
"""

import asyncio
import contextlib
import io
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
from harness.messages import check_headers, make_body, make_headers, number_in
from harness.raw import raw_connection, raw_head

from mq.model.headers import FIRED_BY, GROUPED_BY
from mq.model.lifecycle import State
from mq.model.names import MessageId

QUEUE = "orders"
SIZES = (16, 300, 300, 300, 5000, 70_000)
PACK_SIZES = (16, 300, 5000)
LARGE = 1_300_000  # Streams to the disk.
PUBLISHERS, CONSUMERS = 8, 4


class Refused(Exception):
    """mq says that it cannot, for now."""


class Busy(Refused):
    """Another process is at the message: to be asked again."""


async def _check(response: aiohttp.ClientResponse, *expected: int) -> int:
    """The status, one of those that are expected."""
    if response.status == 503:
        text = await response.text()
        raise Busy(text) if "urn:mq:problem:message-busy" in text else Refused(text)
    assert response.status in expected, await response.text()
    return response.status


def _from_now_ms(seconds: float) -> int:
    return round((datetime.now(UTC).timestamp() + seconds) * 1000)


def _time(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _epoch_ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


class Clients:
    """Requests to mqs, each with its marks. Raises Refused, or what aiohttp raises."""

    def __init__(
        self, mark: Callable[..., None], session: aiohttp.ClientSession, ports: list[int]
    ) -> None:
        self.redelivered = 0
        """How many answers to a fetch had a message that had been fetched before."""
        self._mark = mark
        self._session = session
        self._ports = ports
        self._turns = itertools.count()
        self._numbers = itertools.count()
        self._said: dict[str, int] = {}

    def _url(self, *path: str) -> str:
        return "/".join((f"http://127.0.0.1:{self._port()}", *path))

    def _port(self) -> int:
        """The next one in turn; whoever gave the list may change it."""
        return self._ports[next(self._turns) % len(self._ports)]

    async def make(self, queue: str, shape: str = "") -> None:
        """`shape` is the request's query: `?shards=2`."""
        self._mark("make_asked", queue=queue)
        async with self._session.put(self._url(queue) + shape) as response:
            made = "made_anew" if await _check(response, 200, 201) == 201 else "made"
        self._mark(made, queue=queue)

    async def drop(self, queue: str) -> None:
        self._mark("drop_asked", queue=queue)
        async with self._session.delete(self._url(queue)) as response:
            await _check(response, 200)
        self._mark("dropped", queue=queue)

    async def configure(self, visibility_s: float | None, queue: str = QUEUE) -> None:
        """None: as by default."""
        self._mark("configure_asked", queue=queue, visibility_s=visibility_s)
        url, patch = self._url(queue, "settings"), {"visibility_s": visibility_s}
        async with self._session.patch(url, json=patch) as response:
            await _check(response, 200)
        self._mark("configured", queue=queue, visibility_s=visibility_s)

    async def allow_packs(self, queue: str = QUEUE) -> None:
        url = self._url(queue, "settings")
        async with self._session.patch(url, json={"pack_messages_max": 100}) as response:
            await _check(response, 200)

    async def publish_pack(self, sizes: Sequence[int], queue: str = QUEUE) -> None:
        await self.publish_lines(sizes, queue, more={"pack": "true"})

    async def consume_packs(self, chance: random.Random, queue: str = QUEUE) -> None:
        """Fetches whole packs, or singly what they hold, and acknowledges all of it, some or
        none.
        """
        ids = await self.fetch_many(8, queue, packs=chance.random() < 0.7)
        ids = ids[: chance.choice([0, 1, 3, 100, 100])]
        if ids:
            await self.acknowledge(ids, queue)

    async def purge(self, queue: str = QUEUE) -> None:
        self._mark("purge_asked", queue=queue)
        async with self._session.delete(self._url(queue, "messages")) as response:
            await _check(response, 202)
        self._mark("purged", queue=queue)

    async def publish(
        self, size: int, queue: str = QUEUE, with_headers: bool = False, due_in_s: int = 0
    ) -> str:
        """`due_in_s`: for so long after now; 0: at once."""
        number = next(self._numbers)
        body = io.BytesIO(make_body(number, size))
        headers = dict(make_headers(number)) if with_headers else {}
        due_ms = _from_now_ms(due_in_s) if due_in_s else 0
        url = self._url(queue, "messages") + (f"?at={_time(due_ms)}" if due_in_s else "")
        async with self._session.post(url, data=body, headers=headers) as response:
            await _check(response, 201)
            message_id = response.headers["X-Message-Id"]
        self._mark("published", queue=queue, id=message_id, number=number, due_ms=due_ms)
        return message_id

    async def publish_keyed(
        self, size: int, key: str = "", idempotency: str = "", more: str = "", queue: str = QUEUE
    ) -> str:
        """With keys; `more` are other parameters. The message that has them then, whoever
        published it. What is said with one idempotency key is always the same.
        """
        number = self._said.setdefault(idempotency or f"{key} {next(self._turns)}", len(self._said))
        body = io.BytesIO(make_body(number, size))
        query = "&".join([*([f"key={key}"] if key else []), *([more] if more else [])])
        headers = {"Idempotency-Key": idempotency} if idempotency else {}
        self._mark("publish_asked", queue=queue, key=key, idempotency=idempotency)
        url = f"{self._url(queue, 'messages')}?{query}"
        async with self._session.post(url, data=body, headers=headers) as response:
            status = await _check(response, 201, 409)
            message_id = response.headers["X-Message-Id"]
        if status == 201:
            facts = {"number": number, "idempotency": idempotency}
            self._mark("published", queue=queue, id=message_id, **facts)
        else:
            self._mark("taken", queue=queue, id=message_id)
        return message_id

    def say(self, idempotency: str, number: int) -> None:
        """What is said with this idempotency key from here on."""
        self._said[idempotency] = number

    async def delete_by_key(self, key: str, message_id: str, queue: str = QUEUE) -> None:
        """`message_id` is who has the key."""
        self._mark("delete_asked", queue=queue, id=message_id)
        async with self._session.delete(self._url(queue, "keys", key)) as response:
            await _check(response, 202, 404)
        self._mark("deleted", queue=queue, id=message_id)

    async def delete_tagged(self, tag: str, ids: Sequence[str], queue: str = QUEUE) -> None:
        """`ids` are those that have the tag."""
        for message_id in ids:
            self._mark("delete_asked", queue=queue, id=message_id)
        async with self._session.delete(self._url(queue, "tags", tag)) as response:
            await _check(response, 200)
        for message_id in ids:
            self._mark("deleted", queue=queue, id=message_id)

    async def post(self, path: str) -> None:
        """A request without a body."""
        async with self._session.post(self._url(*path.strip("/").split("/"))) as response:
            await _check(response, 200)

    async def publish_lines(
        self,
        sizes: Sequence[int],
        queue: str = QUEUE,
        due_in_s: int = 0,
        as_rows: bool = False,
        more: Mapping[str, object] | None = None,
    ) -> list[str]:
        """A line of each size; the ids of those that were published. `as_rows`: every second one
        has headers. `more`: what else is said of each, by the names of a row or of parameters.
        """
        numbers = [next(self._numbers) for _ in sizes]
        bodies = [make_body(number, size) for number, size in zip(numbers, sizes, strict=True)]
        due_ms = _from_now_ms(due_in_s) if due_in_s else 0
        query = f"?split=lines{f'&at={_time(due_ms)}' if due_in_s else ''}"
        query += "".join(f"&{name}={value}" for name, value in (more or {}).items())
        if as_rows:
            query, at = "?split=rows", {"at": _time(due_ms)} if due_in_s else {}
            said = [{"body": body.decode(), **at, **(more or {})} for body in bodies]
            for row, number in list(zip(said, numbers, strict=True))[1::2]:
                row["headers"] = dict(make_headers(number))
            bodies = [json.dumps(row).encode() for row in said]
        url = self._url(queue, "messages") + query
        async with self._session.post(url, data=io.BytesIO(b"\n".join(bodies))) as response:
            await _check(response, 200)
            rows = [json.loads(row) for row in (await response.read()).splitlines()]
        published = [
            (row["id"], number) for row, number in zip(rows, numbers, strict=True) if "id" in row
        ]
        for message_id, number in published:
            self._mark("published", queue=queue, id=message_id, number=number, due_ms=due_ms)
        return [message_id for message_id, _ in published]

    async def fetch_many(self, count: int, queue: str = QUEUE, packs: bool = False) -> list[str]:
        query = f"?count={count}" + ("&packs=true" if packs else "")
        async with self._session.get(self._url(queue, "messages") + query) as response:
            await _check(response, 200, 204)
            rows = [json.loads(row) for row in (await response.read()).splitlines()]
        for row in rows:
            number_in(row["body"].encode())
            self._mark(
                "fetched",
                queue=queue,
                id=row["id"],
                receives=row["receives"],
                due_ms=_epoch_ms(row["due"]),
            )
            self.redelivered += row["receives"] > 1
        return [row["id"] for row in rows]

    async def acknowledge(self, ids: Sequence[str], queue: str = QUEUE) -> None:
        for message_id in ids:
            self._mark("delete_asked", queue=queue, id=message_id)
        async with self._session.post(self._url(queue, "acks"), json={"ids": ids}) as response:
            await _check(response, 200)
            results = (await response.json())["results"]
        for result in results:
            assert result["status"] in (202, 404, 503), result
            if result["status"] != 503:
                self._mark("deleted", queue=queue, id=result["id"])

    async def reschedule(
        self, message_id: str, due_in_s: int, queue: str = QUEUE, said: str = ""
    ) -> None:
        """PATCH: a message that is not found is deleted. `said`: what is kept of its failure."""
        body = {"due_in_s": due_in_s, **({"release": True, "reason": said} if said else {})}
        facts = {"queue": queue, "id": message_id}
        self._mark("reschedule_asked", **facts, due_ms=_from_now_ms(due_in_s))
        url = self._url(queue, "messages", message_id)
        async with self._session.patch(url, json=body) as response:
            if await _check(response, 200, 404) == 404:
                self._mark("deleted", **facts)
                return
            due_ms = _epoch_ms((await response.json())["due"])
        to = {} if due_in_s else {"to": State.READY.value}
        self._mark("rescheduled", **facts, due_ms=due_ms, **to)
        if said:
            self._mark("failed", **facts, said=said)

    async def sideline(
        self,
        message_id: str,
        queue: str = QUEUE,
        is_timeless: bool = False,
        said: str = "",
        into: str = "",
    ) -> None:
        """`is_timeless`: another has moved it, and perhaps not set its time. `said`: what is kept
        of its failure. `into`: a sideline that the queue shares.
        """
        self._mark("sideline_asked", queue=queue, id=message_id, into=into)
        url = self._url(queue, "messages", message_id, "sideline")
        more = {"json": {"reason": said}} if said else {}
        async with self._session.post(url, **more) as response:
            await _check(response, 200)
        facts = {"is_timeless": is_timeless, "into": into}
        self._mark("sidelined", queue=queue, id=message_id, **facts)
        if said:
            self._mark("failed", queue=queue, id=message_id, said=said)

    async def fetch(self, queue: str = QUEUE, wait_s: int = 0) -> str | None:
        query = f"?wait={wait_s}" if wait_s else ""
        async with self._session.get(self._url(queue, "messages") + query) as response:
            if await _check(response, 200, 204) == 204:
                return None
            number, facts = number_in(await response.read()), response.headers
            has_others = FIRED_BY in facts or GROUPED_BY in facts
            if MessageId.parse(facts["X-Message-Id"]).header_bytes and not has_others:
                expected = {name: facts.get(name, "") for name, _ in make_headers(number)}
                check_headers(tuple(expected.items()), number)
        message_id, receives = facts["X-Message-Id"], int(facts["X-Message-Receives"])
        due_ms = _epoch_ms(facts["X-Message-Due"])
        self._mark("fetched", queue=queue, id=message_id, receives=receives, due_ms=due_ms)
        self.redelivered += receives > 1
        return message_id

    async def delete(self, message_id: str, queue: str = QUEUE) -> None:
        self._mark("delete_asked", queue=queue, id=message_id)
        async with self._session.delete(self._url(queue, "messages", message_id)) as response:
            await _check(response, 202, 404)  # Not found: by another delete, and reaped.
        self._mark("deleted", queue=queue, id=message_id)

    async def hang_up(self, queue: str = QUEUE) -> None:
        """A fetch whose client is gone before the answer."""
        async with raw_connection(self._port()) as connection:
            await connection.send(raw_head("GET", f"/{queue}/messages"))


@dataclass
class Load:
    """Every operation side by side; `amount` scales their number, and it goes on until so many
    messages were `redelivered`.

    `sync` makes all that is there older than a commit of the file system: before the load, and
    again and again during it.
    """

    clients: Clients
    amount: int
    redelivered: int
    sync: Callable[[], None]
    chance: random.Random

    async def run(self) -> None:
        await self.clients.make(QUEUE)
        await self.clients.allow_packs()
        await asyncio.gather(*(self.clients.publish(self._size()) for _ in range(2 * self.amount)))
        await asyncio.to_thread(self.sync)
        await asyncio.gather(
            *(self._publish() for _ in range(PUBLISHERS)),
            *(self._consume() for _ in range(CONSUMERS)),
            self._keep("short-lived"),
            self._keep("fleeting"),
        )

    def _size(self) -> int:
        return self.chance.choice(SIZES)

    async def _publish(self) -> None:
        for n in range(self.amount // 2):
            size = LARGE if n == self.amount // 4 else self._size()
            message_id = await self.clients.publish(size)
            if n % 4 == 0:
                await self.clients.publish_pack(PACK_SIZES)
            if self.chance.random() < 0.15:
                await self._delete(message_id)

    async def _consume(self) -> None:
        for n in itertools.count():
            if n >= self.amount and self.clients.redelivered >= self.redelivered:
                return
            if n % 4 == 0:
                with contextlib.suppress(Busy):
                    await self.clients.consume_packs(self.chance)
            message_id = await self.clients.fetch()
            if message_id is not None and self.chance.random() < 0.7:
                times = self.chance.choice([1, 1, 1, 2])
                await asyncio.gather(*(self._delete(message_id) for _ in range(times)))
            if n % 8 == 0:
                await self.clients.hang_up()
            if n % 16 == 0:
                await asyncio.to_thread(self.sync)

    async def _delete(self, message_id: str) -> None:
        """Two deletes in two processes, or one and the mover, may be at a message at a time."""
        while True:
            with contextlib.suppress(Busy):
                return await self.clients.delete(message_id)

    async def _keep(self, queue: str) -> None:
        """Makes a queue and deletes it, with messages in every state, again and again."""
        for n in range(self.amount // 6):
            await self.clients.make(queue)
            message_ids = [await self.clients.publish(300, queue) for _ in range(1 + n % 3)]
            await self.clients.fetch(queue)
            await self.clients.delete(message_ids[0], queue)
            await self.clients.drop(queue)
