"""The setting `active_consumer`: one consumer of a queue gets its messages alone, and take-over."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import Consumer, consuming
from harness.internals import consumers
from harness.processes import PATIENCE_S
from harness.server import Serve, Server
from harness.siblings import siblings
from harness.waiting import comes_true

from mq.broker.active import BELIEVED_S, LINGER_S
from mq.model.limits import TURN_SILENT_S
from mq.model.names import QueueName
from mq.store.operations.taking_over import take_over

WAITS = "/q/messages?wait=60"


async def single(server: Server, value: str = "single") -> None:
    reply = await call(server, "PATCH", "/q/settings", json={"active_consumer": value})
    assert (reply.status, reply.json()["active_consumer"]) == (200, value)


async def listed(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await call(server, "GET", "/q/consumers")).json()["consumers"]
    return found


async def active(server: Server) -> list[bool]:
    """Whether each of the queue's consumers is the active one, the oldest first."""
    return [each["active"] for each in await listed(server)]


async def becomes(server: Server, *wanted: bool) -> None:
    async def is_so() -> bool:
        return await active(server) == list(wanted)

    await comes_true(is_so, f"{wanted}")


@pytest.fixture
async def server(timed: Server) -> Server:
    await single(timed)
    return timed


async def _unsubscribes(server: Server, consumer: Consumer) -> None:
    assert await consumer.statuses(unsubscribe=["q"]) == [200]


async def _hangs_up(server: Server, consumer: Consumer) -> None:
    consumer.hang_up()


async def _is_ended(server: Server, consumer: Consumer) -> None:
    [one] = [each["id"] for each in await listed(server) if each["active"]]
    assert (await call(server, "DELETE", f"/q/consumers/{one}")).status == 200


End = Callable[[Server, Consumer], Awaitable[None]]


@pytest.mark.parametrize("end", [_unsubscribes, _hangs_up, _is_ended])
async def test_one_gets_all_and_the_next_what_it_held_first(server: Server, end: End) -> None:
    async with consuming(server, "q", credit=4) as first:
        await becomes(server, True)
        async with consuming(server, "q", credit=9) as second:
            bodies = [b"%d" % number for number in range(8)]
            for each in bodies:
                await publish(server, each)
            held = [await first.message() for _ in range(4)]
            assert [each.body for each in held] == bodies[:4]
            assert await first.statuses(ack=[held[1].id]) == [202]
            assert await active(server) == [True, False]
            assert await second.statuses(ack=["unknown"]) == [404]
            assert not second.messages
            await end(server, first)
            if end is _unsubscribes:
                # What it was sent is its own: the next one begins once it is done with.
                assert await second.statuses(ack=["unknown"]) == [404]
                assert not second.messages
                ids = [each.id for each in held if each is not held[1]]
                assert await first.statuses(release=ids) == [200] * 3
            left = [each for each in bodies if each != bodies[1]]
            assert await second.bodies(7) == left
            assert await active(server) == [True]
    assert_audits_clean(server.root)


async def test_the_highest_priority_takes_over(server: Server) -> None:
    async with consuming(server, "q") as first:
        await becomes(server, True)
        low = asyncio.create_task(call(server, "GET", WAITS))
        await comes_true(lambda: consumers(server, "q") == 2)
        async with consuming(server, "q", priority=5) as high:
            assert await first.statuses(unsubscribe=["q"]) == [200]
            await becomes(server, False, True)
            message_id = await publish(server)
            assert (await high.message()).id == message_id
            assert await high.statuses(ack=[message_id]) == [202]
        await becomes(server, True)
        message_id = await publish(server)
        assert (await low).id == message_id


@pytest.mark.certificate
async def test_polls_of_one_name_are_one_consumer(server: Server, clock: FakeClock) -> None:
    ids = [await publish(server, b"%d" % number) for number in range(6)]

    async def poll(name: str, query: str = "") -> Reply:
        return await call(server, "GET", f"/q/messages?consumer={name}{query}")

    assert (await poll("a")).id == ids[0]
    assert (await poll("b")).status == 204
    assert (await poll("b", "&count=9")).status == 204
    late = asyncio.create_task(poll("b", "&wait=1&count=9"))
    await comes_true(lambda: consumers(server, "q") == 1)
    clock.advance(1)
    assert (await asyncio.wait_for(late, PATIENCE_S)).status == 204
    rows = [json.loads(line) for line in (await poll("a", "&count=2")).body.splitlines()]
    assert [row["id"] for row in rows] == ids[1:3]
    # It has nothing any more, but may go on.
    for each in ids[:3]:
        assert (await delete(server, each)).status == 202
    assert (await poll("b")).status == 204
    assert (await poll("a")).id == ids[3]
    waits = asyncio.create_task(poll("b", "&wait=60"))
    await comes_true(lambda: consumers(server, "q") == 1)
    clock.advance(LINGER_S)
    assert await active(server) == [False]
    assert (await delete(server, ids[3])).status == 202
    assert (await asyncio.wait_for(waits, PATIENCE_S)).id == ids[4]
    assert (await poll("a")).status == 204
    assert_audits_clean(server.root)


async def test_a_name_s_polls_may_reach_any_process(serve: Serve, clock: FakeClock) -> None:
    async with siblings(serve, clock=clock) as (one, other):
        await make_queue(one)
        await single(one)
        ids = [await publish(one, b"%d" % number) for number in range(3)]
        for server, message_id in zip((one, other, one), ids, strict=True):
            query = "/q/messages?consumer=a&wait=60"
            assert (await asyncio.wait_for(call(server, "GET", query), PATIENCE_S)).id == message_id
            for each in (one, other):
                assert (await call(each, "GET", "/q/messages?consumer=b")).status == 204


@pytest.mark.certificate
async def test_a_process_that_stood_still_claims_nothing(serve: Serve, clock: FakeClock) -> None:
    """Another has taken its turn meanwhile, and has it until it ends."""
    one, other = await serve(clock=clock), await serve(clock=clock)
    await make_queue(one)
    await single(one)
    async with consuming(one, "q", credit=9) as stopped:
        await becomes(one, True)
        clock.advance(BELIEVED_S)
        held = await publish(one)
        assert (await stopped.message()).id == held
        assert await stopped.statuses(ack=[held]) == [202]
        assert other.daemon.service is not None
        root, queue = other.daemon.service.broker.root, QueueName("q")
        assert take_over(root, queue) is None
        clock.advance(TURN_SILENT_S)
        turn = take_over(root, queue)
        assert turn is not None
        await publish(one)
        await becomes(one, False)
        assert await stopped.statuses(ack=["unknown"]) == [404]
        assert not stopped.messages
        turn.end()
        assert (await stopped.message()).receives == 1
    assert_audits_clean(one.root)


async def test_a_connection_without_a_name_is_a_consumer(server: Server) -> None:
    async with consuming(server, "q") as first:
        await becomes(server, True)
        await publish(server)
        assert (await first.message()).receives == 1
        assert (await fetch(server)).status == 204
        assert (await fetch(server)).status == 204
        reply = await call(server, "GET", "/q/messages?consumer=a%20b")
        assert assert_problem(reply, 400, "bad-consumer")["parameter"] == "consumer"


async def test_the_setting_changes_while_they_consume(timed: Server) -> None:
    server = timed
    held = await publish(server)
    async with consuming(server, "q", credit=1) as one, consuming(server) as other:
        assert (await one.message()).id == held
        await other.subscribe("q", credit=5)
        assert await active(server) == [True, True]
        await single(server)
        poll = asyncio.create_task(call(server, "GET", WAITS))
        await comes_true(lambda: consumers(server, "q") == 3)
        # What was delivered before is done with first.
        assert await active(server) == [False, False, False]
        message_id = await publish(server)
        assert await one.statuses(ack=[held]) == [202]
        await becomes(server, True, False, False)
        assert await one.statuses(credit={"q": 1}) == [200]
        assert (await one.message()).id == message_id
        await single(server, "any")
        assert await active(server) == [True, True, True]
        others = {await publish(server) for _ in range(3)}
        found = {(await poll).id} | {(await other.message()).id for _ in range(2)}
        assert found == others


async def test_no_message_is_lost_where_the_queue_goes(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    await single(server)
    async with consuming(server, "q"):
        await becomes(server, True)
        poll = asyncio.create_task(call(server, "GET", WAITS))
        await comes_true(lambda: consumers(server, "q") == 2)
        assert (await call(server, "DELETE", "/q")).status == 200
        assert_problem(await poll, 404, "queue-not-found")
        await make_queue(server)
        message_id = await publish(server)
        assert (await fetch(server)).id == message_id
