"""`/{queue}/consumers`: who consumes a queue, in all processes of one mq, and the end of one."""

import asyncio
import contextlib
from typing import Any

import pytest
from harness.access import Tokens
from harness.api import call, fetch, make_queue, publish
from harness.consuming import consuming
from harness.internals import consumers
from harness.server import Serve, Server
from harness.siblings import siblings
from harness.waiting import comes_true

from mq.client.client import AsyncClient
from mq.client.errors import Problem
from mq.runtime import exchange


async def listed(server: Server, queue: str = "q") -> list[dict[str, Any]]:
    reply = await call(server, "GET", f"/{queue}/consumers")
    assert (reply.status, reply.json()["complete"]) == (200, True)
    found: list[dict[str, Any]] = reply.json()["consumers"]
    assert all(each.pop("deliveries_per_s") >= 0 for each in found)  # It falls as time passes.
    return found


async def end(server: Server, consumer: str, queue: str = "q") -> tuple[int, str]:
    reply = await call(server, "DELETE", f"/{queue}/consumers/{consumer}")
    return reply.status, reply.json().get("type", "").rpartition(":")[2]


async def test_consumers_of_all_processes_are_listed_and_ended_from_any(serve: Serve) -> None:
    async with siblings(serve) as (one, other):
        await make_queue(one)
        for number in range(3):
            await publish(one, b"%d" % number)
        wanted = {"priority": 3, "credit": 2, "select": "priority:0"}
        async with consuming(one, "q", **wanted) as consumer:
            await consumer.bodies(2)
            poll = asyncio.create_task(call(other, "GET", "/q/messages?wait=60&select=priority:9"))
            await comes_true(lambda: consumers(other, "q") == 1, "the poll")
            by_one, by_other = await listed(one), await listed(other)
            assert by_one == by_other
            first, second = by_one
            told = ("process", "via", "priority", "credit", "in_flight", "delivered", "select")
            assert [first[name] for name in told] == [0, "websocket", 3, 0, 2, 2, "priority:0"]
            assert [second[name] for name in told] == [1, "poll", 0, 1, 0, 0, "priority:9"]
            assert first["address"].startswith("127.0.0.1 port ")
            assert (first["caller"], second["caller"]) == (None, None)
            assert await end(other, first["id"], "q") == (200, "")
            gone = await consumer.event()
            assert (gone["event"], gone["queue"]) == ("unsubscribed", "q")
            assert gone["problem"]["type"] == "urn:mq:problem:consumer-ended"
            assert await consumer.close_code() == 1008
            # What it held is ready: in order, and before what it was never given.
            fetched = [await fetch(each) for each in (one, other, one)]
            assert [reply.body for reply in fetched] == [b"0", b"1", b"2"]
            assert await end(one, second["id"]) == (200, "")
            assert (await poll).json()["type"] == "urn:mq:problem:consumer-ended"
            assert await listed(one) == []
            for ended in (first["id"], second["id"], "x", "0-0"):
                assert await end(one, ended) == (404, "consumer-not-found")


async def test_one_queue_s_end_leaves_the_connection_s_others(server: Server) -> None:
    await make_queue(server, "q")
    await make_queue(server, "other")
    await publish(server, b"of q", queue="q")
    await publish(server, b"of other", queue="other")
    async with consuming(server, "q", "other", credit=5) as consumer:
        held = {(await consumer.message()).queue: None for _ in range(2)}
        assert set(held) == {"q", "other"}
        [row] = await listed(server, "q")
        assert await end(server, row["id"], "other") == (404, "consumer-not-found")
        assert await end(server, row["id"], "q") == (200, "")
        assert (await consumer.event())["queue"] == "q"
        assert (await fetch(server, "q")).body == b"of q"
        [row] = await listed(server, "other")
        assert (row["in_flight"], row["credit"]) == (1, 4)
        await consumer.subscribe("q")


async def test_a_process_that_does_not_answer_is_said(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ANSWER_S", 0.05)
    async with siblings(serve) as (one, other):
        await make_queue(one)
        assert other.daemon.service is not None
        other.daemon.service.roster.end()
        reply = await call(one, "GET", "/q/consumers")
        assert (reply.status, reply.json()) == (200, {"consumers": [], "complete": False})


async def test_many_consumers_are_listed_in_parts_and_to_a_bound(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.broker.roster.CONSUMERS_LISTED_MAX", 60)
    async with siblings(serve) as (one, other):
        await make_queue(one)
        long = f"header:ce-a={'é' * 1000}"
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(61):
                await stack.enter_async_context(consuming(other, "q", select=long))
            reply = (await call(one, "GET", "/q/consumers")).json()
            assert (len(reply["consumers"]), reply["complete"]) == (60, False)
            assert len({each["id"] for each in reply["consumers"]}) == 60


async def test_who_may_list_and_who_may_end(serve: Serve, tokens: Tokens) -> None:
    server = await serve(tokens=tokens.path)
    admin, consumes = tokens.header("root"), tokens.header("consumer")
    assert (await call(server, "PUT", "/orders", headers=admin)).status == 201
    poll = asyncio.create_task(call(server, "GET", "/orders/messages?wait=60", headers=consumes))
    await comes_true(lambda: consumers(server, "orders") == 1, "the poll")
    rows = await call(server, "GET", "/orders/consumers", headers=consumes)
    [row] = rows.json()["consumers"]
    assert row["caller"] == "consumer"
    path = f"/orders/consumers/{row['id']}"
    assert (await call(server, "DELETE", path, headers=consumes)).status == 403
    assert (await call(server, "DELETE", path, headers=admin)).status == 200
    assert (await poll).status == 410


@pytest.mark.parametrize("via", ["websocket", "poll"])
async def test_the_client_s_consumer_ends_with_a_problem(server: Server, via: Any) -> None:
    async with AsyncClient(server.url) as client:
        queue = client.queue("q")
        await queue.create()
        async with queue.consume(via=via, prefetch=7) as consumer:
            waiting = asyncio.create_task(consumer.next())
            await comes_true(lambda: consumers(server, "q") == 1, "the consumer")
            found = await queue.consumers()
            assert found.complete
            [row] = found.consumers
            assert (row.via, row.credit) == (via, 7 if via == "websocket" else 1)
            await queue.end_consumer(row.id)
            with pytest.raises(Problem, match="ended by request"):
                await waiting
            with pytest.raises(Problem, match="has no consumer"):
                await queue.end_consumer(row.id)
