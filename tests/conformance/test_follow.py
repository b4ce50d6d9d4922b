"""Following a queue over `/-/consume`: new messages are seen, and not consumed."""

import asyncio
from typing import Any

import pytest
from harness.access import Tokens
from harness.api import call, fetch, make_queue, publish, publish_lines
from harness.consuming import Consumer, consuming
from harness.internals import broker
from harness.processes import PATIENCE_S
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.broker import tailing
from mq.protocol.consume.frames import FOLLOWS_MAX, LAST_MAX


async def follow(consumer: Consumer, queue: str = "q", **more: Any) -> None:
    assert await consumer.statuses(follow=[{"queue": queue, **more}]) == [200]


async def seen(consumer: Consumer, count: int) -> list[dict[str, Any]]:
    """The next messages that are seen, of which none was dropped."""
    found = []
    for _ in range(count):
        event = await consumer.event()
        assert (event["event"], event["dropped"]) == ("message", 0), event
        found.append(event["message"])
    return found


@pytest.mark.parametrize("inotify", [True, False])
async def test_all_that_is_published_is_seen_and_stays(serve: Serve, inotify: bool) -> None:
    one, other = [await serve(inotify=inotify) for _ in range(2)]
    await make_queue(one)
    old = await publish(one, b"old")
    async with consuming(one) as consumer:
        await follow(consumer)
        ids = [await publish(server, b"%d" % at) for at, server in enumerate((one, other, one))]
        rows = sorted(await seen(consumer, 3), key=lambda row: str(row["body"]))
        assert [(row["id"], row["body"]) for row in rows] == list(zip(ids, "012", strict=True))
        assert {row["state"] for row in rows} == {"ready"}
        assert (await fetch(other)).id == old
        # What is ready again is seen again.
        taken = await fetch(other)
        assert taken.id == min(ids)
        if inotify:
            path = f"/q/messages/{taken.id}"
            assert (await call(one, "PATCH", path, json={"due_in_s": 0})).status == 200
            [again] = await seen(consumer, 1)
            assert (again["id"], again["receives"]) == (taken.id, 1)
        assert await consumer.statuses(unfollow=["q"]) == [200]
        assert await consumer.statuses(unfollow=["q"]) == [404]
    assert (broker(one).consuming.waiters, bool(broker(one).used("q").tails)) == (0, False)  # type: ignore[union-attr]


async def test_what_is_consumed_at_once_is_seen(serve: Serve) -> None:
    one, other = [await serve() for _ in range(2)]
    await make_queue(one)
    async with consuming(one) as follower, consuming(other, "q", credit=1000) as consumer:
        await follow(follower)
        bodies = [b"%d" % number for number in range(200)]
        await publish_lines(other, bodies)
        ids = [(await consumer.message()).id for _ in bodies]
        assert await consumer.statuses(ack=ids) == [202] * len(ids)
        rows = await seen(follower, len(ids))
        assert {row["id"] for row in rows} == set(ids)


@pytest.mark.certificate
async def test_what_comes_to_buckets_is_seen(serve: Serve) -> None:
    one, other = [await serve(folder_max=10) for _ in range(2)]
    await make_queue(one)
    await publish_lines(one, [b"old"] * 30)
    async with consuming(one) as consumer:
        await follow(consumer)
        ids = await publish_lines(other, [b"new"] * 5) + await publish_lines(one, [b"new"] * 5)
        rows = await seen(consumer, 10)
        assert {row["id"] for row in rows} == set(ids)


async def test_past_messages_and_selections(server: Server) -> None:
    await make_queue(server)
    for number in range(6):
        kind = "paid" if number % 2 else "made"
        await publish(server, b"%d" % number, headers={"ce-type": kind})
    async with consuming(server) as consumer:
        await follow(consumer, last=2)
        assert [row["body"] for row in await seen(consumer, 2)] == ["4", "5"]
        assert await consumer.statuses(unfollow=["q"]) == [200]
        await follow(consumer, last=2, select="header:ce-type=paid")
        assert [row["body"] for row in await seen(consumer, 2)] == ["3", "5"]
        await publish(server, b"no", headers={"ce-type": "made"})
        await publish(server, b"\xff" * 5000, headers={"ce-type": "paid"})
        [row] = await seen(consumer, 1)
        assert (row["size"], row["headers"]["ce-type"]) == (5000, "paid")
        assert 4000 < len(row["body_base64"]) * 3 / 4 < 4200
        whole = await call(server, "GET", f"/q/messages/{row['id']}")
        assert len(whole.body) == 5000


@pytest.mark.certificate
async def test_a_slow_client_misses_messages_and_learns_how_many(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "TAIL_IDS_MAX", 5)
    await make_queue(server)
    async with consuming(server) as consumer:
        await follow(consumer)
        count = 3000
        for _ in range(3):
            await publish_lines(server, [b"x" * 3000] * (count // 3))
        got = dropped = 0
        async with asyncio.timeout(PATIENCE_S):
            while got + dropped < count:
                event = await consumer.event()
                got, dropped = got + 1, dropped + event["dropped"]
        assert got + dropped == count
        assert dropped > 0
    assert (await call(server, "GET", "/q")).json()["ready"] == count


async def test_the_bounds_and_the_end_of_a_queue(server: Server) -> None:
    await make_queue(server)
    async with consuming(server) as consumer:
        await follow(consumer)
        twice, no_queue, bad, name = await consumer.results(
            follow=[
                {"queue": "q"},
                {"queue": "none"},
                {"queue": "q2", "select": "colour:red"},
                {"queue": "?"},
            ]
        )
        assert [each["status"] for each in (twice, no_queue, bad, name)] == [409, 404, 400, 400]
        for number in range(FOLLOWS_MAX - 1):
            await make_queue(server, f"q{number}")
            await follow(consumer, f"q{number}")
        await make_queue(server, "more")
        assert await consumer.statuses(follow=[{"queue": "more"}]) == [409]
        await consumer.socket.send_json({"follow": [{"queue": "q", "last": LAST_MAX + 1}]})
        assert ((await consumer.frame()) or {})["problem"]["status"] == 400
        assert (await call(server, "DELETE", "/q")).status == 200
        gone = await consumer.event()
        assert (gone["event"], gone["queue"]) == ("unsubscribed", "q")
        await follow(consumer, "more")


async def test_only_who_may_consume_follows(serve: Serve, tokens: Tokens) -> None:
    server = await serve(tokens=tokens.path, ping_s=0.1)
    root = tokens.header("root")
    for queue in ("orders", "events"):
        assert (await call(server, "PUT", f"/{queue}", headers=root)).status == 201
    server.session.headers.update(tokens.header("consumer"))
    async with consuming(server) as consumer:
        wanted = [{"queue": "orders"}, {"queue": "events"}]
        assert await consumer.statuses(follow=wanted) == [200, 403]
        assert broker(server).consuming.waiters == 1
        tokens.grant("consumer", "events:consume")
        await server.daemon.reload()
        assert (await consumer.event())["problem"]["status"] == 403
        await comes_true(lambda: broker(server).consuming.waiters == 0, "the end")
