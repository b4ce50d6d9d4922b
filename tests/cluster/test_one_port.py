"""The processes of `mq --processes` as peers: whichever of them answers, it is one queue."""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from harness.folders import message_files
from harness.messages import make_body, number_in
from harness.processes import Process, Processes
from harness.raw import RawConnection, RawResponse, raw_head, raw_request
from harness.siblings import connection_to_each, served, started
from harness.waiting import comes_true

from mq import AsyncClient
from mq.client.values import FollowedMessage

MESSAGES = 300
CLIENTS = 8


@pytest.fixture
async def mq(daemons: Processes, root: Path) -> Process:
    """Two processes with all that belongs to a root, and a queue."""
    flags = ("--processes", "2", "--standalone", "--visibility", "600")
    process = await asyncio.to_thread(daemons.mq, root, *flags)
    assert (await raw_request(process.port, raw_head("PUT", "/orders"))).status == 201
    return process


@pytest.fixture
async def each(mq: Process) -> AsyncIterator[list[RawConnection]]:
    """A connection to each process."""
    async with connection_to_each(mq.port, 2) as connections:
        yield connections


async def _ask(connection: RawConnection, method: str, path: str, body: bytes = b"") -> RawResponse:
    await connection.send(raw_head(method, path, f"Content-Length: {len(body)}") + body)
    return await connection.response()


async def _publish(connection: RawConnection, body: bytes, queue: str = "orders") -> str:
    response = await _ask(connection, "POST", f"/{queue}/messages", body)
    assert response.status == 201
    return response.headers["x-message-id"]


async def test_what_one_publishes_another_fetches_and_the_first_deletes(
    each: list[RawConnection],
) -> None:
    for number in range(40):
        publisher, fetcher = each[number % 2], each[1 - number % 2]
        assert (await _ask(fetcher, "GET", "/orders/messages")).status == 204
        published = await _publish(publisher, make_body(number))
        fetched = await _ask(fetcher, "GET", "/orders/messages")
        assert fetched.headers["x-message-id"] == published
        assert number_in(fetched.body) == number
        assert (await _ask(publisher, "GET", "/orders/messages")).status == 204
        gone = await _ask(publisher, "DELETE", f"/orders/messages/{published}")
        assert gone.status == 202


async def test_what_another_published_long_ago_is_fetched_in_order(
    each: list[RawConnection],
) -> None:
    ids = [await _publish(each[number % 2], make_body(number)) for number in range(20)]
    fetched = [await _ask(each[number // 2 % 2], "GET", "/orders/messages") for number in range(20)]
    # Of one millisecond the ids decide, which two processes draw each for itself.
    assert [response.headers["x-message-id"] for response in fetched] == sorted(ids)


async def test_a_queue_that_one_makes_or_deletes_is_so_for_all(each: list[RawConnection]) -> None:
    for number in range(10):
        one, other = each[number % 2], each[1 - number % 2]
        assert (await _ask(other, "GET", "/returns/messages")).status == 404
        assert (await _ask(one, "PUT", "/returns")).status == 201
        assert (await _ask(other, "PUT", "/returns")).status == 200
        ids = [await _publish(other, make_body(number), "returns") for _ in range(3)]
        assert (await _ask(one, "GET", "/returns/messages")).headers["x-message-id"] == ids[0]
        assert (await _ask(other, "DELETE", "/returns")).status == 200
        assert (await _ask(one, "POST", "/returns/messages", b"x")).status == 404
        for message_id in ids:
            assert (await _ask(one, "DELETE", f"/returns/messages/{message_id}")).status == 404
        assert (await _ask(one, "DELETE", "/returns")).status == 404


async def test_what_one_purges_is_purged_for_all(each: list[RawConnection]) -> None:
    for number in range(10):
        one, other = each[number % 2], each[1 - number % 2]
        ids = [await _publish(each[n % 2], make_body(n)) for n in range(6)]
        assert (await _ask(other, "GET", "/orders/messages")).status == 200
        assert (await _ask(one, "DELETE", "/orders/messages")).status == 202
        assert (await _ask(other, "GET", "/orders/messages")).status == 204
        for message_id in ids:
            assert (await _ask(other, "DELETE", f"/orders/messages/{message_id}")).status == 404
        kept = await _publish_again(other, make_body(number))
        fetched = await _ask(one, "GET", "/orders/messages")
        assert fetched.headers["x-message-id"] == kept
        assert (await _ask(other, "DELETE", f"/orders/messages/{kept}")).status == 202


async def _publish_again(process: RawConnection, body: bytes) -> str:
    """Where its id may be of the very millisecond of a purge: that is refused, once."""
    response = await _ask(process, "POST", "/orders/messages", body)
    if response.status == 503:
        return await _publish(process, body)
    return response.headers["x-message-id"]


async def test_settings_that_one_changes_are_so_for_all(each: list[RawConnection]) -> None:
    for number in range(1, 5):
        one, other = each[number % 2], each[1 - number % 2]
        await _publish(other, b"x")
        patch = b'{"priority_default": %d}' % number
        kind = "Content-Type: application/merge-patch+json"
        head = raw_head("PATCH", "/orders/settings", kind, f"Content-Length: {len(patch)}")
        await one.send(head + patch)
        assert (await one.response()).status == 200
        assert f",p={number}" in await _publish(one, b"x")

        async def is_seen(other: RawConnection = other, priority: int = number) -> bool:
            return f",p={priority}" in await _publish(other, b"x")

        await comes_true(is_seen, "the other's settings")
        described = await _ask(other, "GET", "/orders")
        assert json.loads(described.body)["settings"]["priority_default"] == number


class _Load:
    """Clients with a connection a request: the system gives each to whichever process."""

    def __init__(self, mq: Process, session: aiohttp.ClientSession) -> None:
        self.messages = f"{mq.url}/orders/messages"
        self.published: dict[str, int] = {}
        self.deliveries: list[tuple[str, int, int]] = []
        self.deleted: set[str] = set()
        self.unanswered = 0
        self._session = session
        self._numbers = iter(range(MESSAGES))

    async def publish(self) -> None:
        """Publishes, all publishers together MESSAGES; what was not answered is counted."""
        for number in self._numbers:
            try:
                async with self._session.post(self.messages, data=make_body(number)) as response:
                    assert response.status == 201
                    self.published[response.headers["X-Message-Id"]] = number
            except aiohttp.ClientError:
                self.unanswered += 1

    async def consume(self, until_deleted: int) -> None:
        """Fetches and deletes until so many are."""
        while len(self.deleted) < until_deleted:
            try:
                async with self._session.get(self.messages) as response:
                    if response.status == 204:
                        continue
                    assert response.status == 200
                    number = number_in(await response.read())
                    fetched = response.headers["X-Message-Id"]
                    receives = int(response.headers["X-Message-Receives"])
            except aiohttp.ClientError:
                self.unanswered += 1
                continue
            self.deliveries.append((fetched, number, receives))
            await self._delete(fetched)

    async def _delete(self, message_id: str) -> None:
        while message_id not in self.deleted:
            try:
                async with self._session.delete(f"{self.messages}/{message_id}") as response:
                    # 404: the answer to an earlier one was lost, and the reaper was there.
                    assert response.status in (202, 404)
                    self.deleted.add(message_id)
            except aiohttp.ClientError:
                self.unanswered += 1


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))


async def test_each_message_is_delivered_once_whoever_answers(mq: Process, root: Path) -> None:
    async with _session() as session:
        load = _Load(mq, session)
        await asyncio.gather(
            *(load.publish() for _ in range(CLIENTS)),
            *(load.consume(MESSAGES) for _ in range(CLIENTS)),
        )
    assert load.unanswered == 0
    assert sorted(load.published.values()) == list(range(MESSAGES))
    assert len(load.deliveries) == MESSAGES
    assert set(load.deliveries) == {(id_, number, 1) for id_, number in load.published.items()}
    async with connection_to_each(mq.port, 2) as connections:
        totals = [(await _ask(each, "GET", "/orders")).json()["totals"] for each in connections]
    assert all(of_one["published"] and of_one["fetched"] for of_one in totals)
    for what in ("published", "fetched", "deleted"):
        assert sum(of_one[what] for of_one in totals) == MESSAGES
    nothing = {"new": [], "queues": [], "delay": [], "remove": []}
    await comes_true(lambda: message_files(root) == nothing, "the reaper's end")


@pytest.mark.certificate
async def test_kills_lose_no_message_and_give_none_to_two(daemons: Processes, root: Path) -> None:
    flags = ("--processes", "2", "--standalone", "--visibility", "2")
    mq = await asyncio.to_thread(daemons.mq, root, *flags)
    assert (await raw_request(mq.port, raw_head("PUT", "/orders"))).status == 201
    chance = random.Random(7)

    async def kill(times: int) -> None:
        for count in range(1, times + 1):
            index = chance.randrange(2)
            before = served(mq, index)
            enough = MESSAGES * count // (times + 1)
            await comes_true(lambda enough=enough: len(load.deliveries) >= enough, "deliveries")
            os.kill(started(mq, f"mq-{index}")[-1], signal.SIGKILL)
            await comes_true(
                lambda index=index, before=before: served(mq, index) > before, "its next start"
            )

    def nothing_is_left() -> bool:
        files = message_files(root)
        return not (files["queues"] or files["delay"])

    async with _session() as session:
        load = _Load(mq, session)
        killing = asyncio.create_task(kill(5))
        consuming = [asyncio.create_task(load.consume(2 * MESSAGES)) for _ in range(CLIENTS)]
        await asyncio.gather(*(load.publish() for _ in range(CLIENTS)))
        await killing
        await comes_true(nothing_is_left, "the last delivery", patience_s=60)
        for task in consuming:
            task.cancel()
        ends = await asyncio.gather(*consuming, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}, ends
    # A publish that nobody answered may be there all the same.
    delivered = {(message_id, number) for message_id, number, _ in load.deliveries}
    assert set(load.published.items()) - delivered == set()
    assert len({number for _, number in delivered}) == len(delivered)
    # Again only after its time, with the next receives: no delivery twice.
    assert max(Counter(load.deliveries).values()) == 1
    assert load.unanswered > 0
    assert not mq.logged("Traceback")


async def test_each_lists_the_consumers_of_all_and_ends_those_of_others(
    each: list[RawConnection], mq: Process
) -> None:
    async with aiohttp.ClientSession() as session:
        poll = asyncio.create_task(session.get(f"{mq.url}/orders/messages?wait=60"))

        async def is_listed_by_each() -> list[str]:
            found = [(await _ask(one, "GET", "/orders/consumers")).json() for one in each]
            assert all(answer["complete"] for answer in found)
            ids = [[row["id"] for row in answer["consumers"]] for answer in found]
            return ids[0] if ids[0] == ids[1] else []

        await comes_true(is_listed_by_each, "the poll, as each process sees it")
        [consumer] = await is_listed_by_each()
        statuses = [
            (await _ask(one, "DELETE", f"/orders/consumers/{consumer}")).status for one in each
        ]
        assert statuses == [200, 404]
        assert (await poll).status == 410


async def test_what_others_consume_at_once_is_seen_by_who_follows(
    each: list[RawConnection], mq: Process
) -> None:
    async with AsyncClient(mq.url) as client:
        queue = client.queue("orders")
        follows = [queue.follow() for _ in range(4)]  # By either process, or nearly so.
        first = [asyncio.ensure_future(anext(one)) for one in follows]

        async def seen(follow: AsyncIterator[FollowedMessage]) -> set[str]:
            """What one saw of those that were published once all follow."""
            ids: set[str] = set()
            async for message in follow:
                ids |= {message.id} if message.body != b"try" else set()
                if len(ids) == MESSAGES:
                    break
            return ids

        async def all_follow() -> bool:
            await queue.publish("try")
            return all(one.done() for one in first)

        await comes_true(all_follow, "their first message")
        await queue.purge()
        seeing = [asyncio.create_task(seen(each)) for each in follows]
        async with queue.consume(prefetch=100) as consumer:
            published = asyncio.create_task(
                queue.publish_many([b"%d" % number for number in range(MESSAGES)])
            )
            for _ in range(MESSAGES):
                await (await consumer.next()).delete()
        ids = {one.id for one in await published}
        assert [await one for one in seeing] == [ids] * len(follows)
