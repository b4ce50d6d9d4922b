"""The setting `paused`: publishes that are refused, deliveries that rest, and what goes on."""

import asyncio
import json
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean, looked_at
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.processes import PATIENCE_S
from harness.server import STREAMED_BYTES, Serve, Server
from harness.upkeep import fire_due, move_due

from mq.model.names import ConsumerName, QueueName
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import claim


async def pause(server: Server, what: str, queue: str = "q") -> None:
    reply = await call(server, "PATCH", f"/{queue}/settings", json={"paused": what})
    assert reply.status == 200, reply.body
    assert reply.json()["paused"] == what


async def post(server: Server, query: str = "", body: bytes = b"hello") -> Reply:
    return await call(server, "POST", f"/q/messages{query}", data=body)


async def described(server: Server) -> dict[str, Any]:
    said: dict[str, Any] = (await call(server, "GET", "/q")).json()
    return said


@pytest.fixture
async def server(serve: Serve) -> Server:
    started = await serve()
    await make_queue(started)
    return started


@pytest.mark.parametrize("what", ["publishes", "both"])
async def test_publishes_are_refused(server: Server, what: str) -> None:
    await pause(server, what)
    for query, body in (
        ("", b"hello"), ("", b"x" * STREAMED_BYTES), ("?key=k", b"a"), ("?delay=60", b"later"),
    ):  # fmt: skip
        reply = await post(server, query, body)
        problem = assert_problem(reply, 503, "queue-paused")
        assert problem["retryable"] is True
        assert "Retry-After" in reply.headers
    assert_problem(await post(server, "?split=lines", b"a\nb"), 503, "queue-paused")
    await pause(server, "none")
    assert (await post(server, "?key=k")).status == 201
    assert (await call(server, "GET", "/q/keys/k")).body == b"hello"
    assert_audits_clean(server.root)


async def test_without_publishes_messages_are_delivered(server: Server) -> None:
    message_id = await publish(server)
    await pause(server, "publishes")
    assert (await fetch(server)).id == message_id


@pytest.mark.parametrize("what", ["deliveries", "both"])
async def test_deliveries_rest(server: Server, what: str) -> None:
    ids = [await publish(server, b"%d" % n) for n in range(3)]
    held = await fetch(server)
    assert held.id == ids[0]
    await pause(server, what)
    assert (await fetch(server)).status == 204
    assert (await call(server, "GET", "/q/messages?count=10")).status == 204
    assert (await call(server, "GET", "/q/messages?wait=0.2")).status == 204
    # What was delivered before goes on; what is ready is counted, found and read.
    assert (await delete(server, ids[0])).status == 202
    assert (await described(server))["ready"] == 2
    assert len((await call(server, "GET", "/q/peek")).body.splitlines()) == 2
    assert (await call(server, "GET", f"/q/messages/{ids[1]}")).body == b"1"
    await pause(server, "none")
    assert [(await fetch(server)).id for _ in ids[1:]] == ids[1:]
    assert_audits_clean(server.root)


async def test_while_deliveries_rest_messages_are_published(server: Server) -> None:
    await pause(server, "deliveries")
    ids = [await publish(server) for _ in range(3)]
    assert (await fetch(server)).status == 204
    await pause(server, "publishes")
    assert [(await fetch(server)).id for _ in ids] == ids


async def test_no_lease_takes_what_rests(server: Server) -> None:
    await publish(server)
    await pause(server, "deliveries")
    root = looked_at(server.root)
    taken = claim(root, ConsumerName.parse("c"), [QueueName.parse("q")], 10, 60)
    assert run_alone(taken, NoFlusher()) is None


async def test_a_long_poll_waits_for_the_end_of_the_pause(server: Server) -> None:
    message_id = await publish(server)
    await pause(server, "deliveries")
    polls = [asyncio.create_task(call(server, "GET", "/q/messages?wait=60")) for _ in range(2)]
    later = await publish(server)
    assert (await fetch(server)).status == 204
    assert not any(each.done() for each in polls)
    await pause(server, "none")
    async with asyncio.timeout(PATIENCE_S):
        assert {(await each).id for each in polls} == {message_id, later}


async def test_a_consumer_gets_nothing_before_the_end_of_the_pause(server: Server) -> None:
    async with consuming(server, "q", credit=10) as consumer:
        await pause(server, "deliveries")
        sent = [await publish(server, b"%d" % n) for n in range(3)]
        await consumer.statuses(ack=["unknown"])
        await consumer.statuses(ack=["unknown"])
        assert not consumer.messages
        await pause(server, "none")
        assert await consumer.bodies(3) == [b"0", b"1", b"2"]
        await pause(server, "deliveries")
        # What it holds is its to acknowledge.
        assert await consumer.statuses(ack=sent) == [202, 202, 202]
    assert_audits_clean(server.root)


@pytest.mark.certificate
async def test_another_process_hears_of_the_pause_and_of_its_end(serve: Serve) -> None:
    first, second = await serve(), await serve()
    await make_queue(first)
    poll = asyncio.create_task(call(second, "GET", "/q/messages?wait=60"))
    assert (await fetch(second)).status == 204
    await pause(first, "both")
    async with asyncio.timeout(PATIENCE_S):
        while (await post(second)).status != 503:
            pass
        await pause(first, "deliveries")
        while (refused := await post(second)).status == 503:
            await asyncio.sleep(0)
        assert refused.status == 201
        await pause(first, "none")
        assert (await poll).status == 200


async def test_what_is_due_becomes_ready_while_deliveries_rest(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    later = await publish(server, params={"delay": "10"})
    again = await publish(server)
    assert (await fetch(server)).id == again
    await pause(server, "deliveries")
    clock.advance(60)
    assert move_due(server.root, clock) == 2
    assert (await described(server))["ready"] == 2
    await pause(server, "none")
    assert {(await fetch(server)).id for _ in range(2)} == {later, again}


async def test_a_schedule_fires_once_the_queue_takes_messages(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    reply = await call(server, "PUT", "/q/schedules/s?every=60&delay=0", data=b"again")
    assert reply.status == 201
    await pause(server, "publishes")
    clock.advance(1)
    assert fire_due(server.root, clock) == 0
    await pause(server, "none")
    clock.advance(120)
    assert fire_due(server.root, clock) == 1
    assert json.loads((await call(server, "GET", "/q/schedules/s")).body)["fired"] == 1


async def test_what_is_no_pause_is_refused(server: Server) -> None:
    for wrong in ("all", True, 1, ""):
        reply = await call(server, "PATCH", "/q/settings", json={"paused": wrong})
        assert_problem(reply, 422, "bad-setting")
