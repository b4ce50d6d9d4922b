"""The settings `in_flight_max` and `deliveries_per_s_max`."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from harness.api import call, delete, fetch, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.processes import PATIENCE_S
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.broker.permits import CHECK_EVERY_S


async def limit(server: Server, **settings: float) -> None:
    reply = await call(server, "PATCH", "/q/settings", json=settings)
    assert reply.status == 200, reply.body


@pytest.fixture
def server(timed: Server) -> Server:
    return timed


async def _delete(server: Server, message_id: str, clock: FakeClock) -> None:
    assert (await delete(server, message_id)).status == 202


async def _delete_by_key(server: Server, message_id: str, clock: FakeClock) -> None:
    assert (await call(server, "DELETE", "/q/keys/k0")).status == 202


async def _release(server: Server, message_id: str, clock: FakeClock) -> None:
    path = f"/q/messages/{message_id}"
    assert (await call(server, "PATCH", path, json={"due_in_s": 0})).status == 200


async def _sideline(server: Server, message_id: str, clock: FakeClock) -> None:
    assert (await call(server, "POST", f"/q/messages/{message_id}/sideline")).status < 300


async def _lapse(server: Server, message_id: str, clock: FakeClock) -> None:
    clock.advance(31)


async def _lift(server: Server, message_id: str, clock: FakeClock) -> None:
    await limit(server, in_flight_max=0)


End = Callable[[Server, str, FakeClock], Awaitable[None]]


ENDS: tuple[End, ...] = (_delete, _delete_by_key, _release, _sideline, _lapse, _lift)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_no_more_are_in_flight_until_one_ends(
    server: Server, clock: FakeClock, end: End
) -> None:
    await limit(server, in_flight_max=2)
    ids = [await publish(server, b"x", params={"key": f"k{number}"}) for number in range(4)]
    assert [(await fetch(server)).id for _ in range(2)] == ids[:2]
    assert (await fetch(server)).status == 204
    assert (await call(server, "GET", "/q/messages?count=3")).status == 204
    # An extension goes on counting.
    path = f"/q/messages/{ids[0]}"
    assert (await call(server, "PATCH", path, json={"due_in_s": 30})).status == 200
    assert (await fetch(server)).status == 204
    await end(server, ids[0], clock)
    assert (await fetch(server)).status == 200
    assert_audits_clean(server.root)


@pytest.mark.parametrize("path", ["/q/messages", "/q"], ids=["purge", "deletion"])
async def test_messages_that_went_with_their_queue_count_no_more(server: Server, path: str) -> None:
    await limit(server, in_flight_max=1)
    await publish(server)
    assert (await fetch(server)).status == 200
    assert (await call(server, "DELETE", path)).status < 300
    assert (await call(server, "PUT", "/q")).status < 300
    await limit(server, in_flight_max=1)
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id
    assert (await fetch(server)).status == 204


@pytest.mark.parametrize("end", ENDS[:4], ids=lambda end: end.__name__)
async def test_what_another_mq_settles_counts_no_more(
    serve: Serve, server: Server, root: Path, clock: FakeClock, end: End
) -> None:
    await limit(server, in_flight_max=2)
    ids = [await publish(server, params={"key": f"k{number}"}) for number in range(4)]
    assert [(await fetch(server)).id for _ in range(2)] == ids[:2]
    other = await serve(root=root, clock=clock)
    await end(other, ids[0], clock)

    async def comes() -> bool:
        clock.advance(CHECK_EVERY_S / 2)
        return (await fetch(server, params={"visibility": "1000"})).status == 200

    await comes_true(comes)
    clock.advance(CHECK_EVERY_S)
    assert (await fetch(server)).status == 204
    assert_audits_clean(root, clock)


async def test_what_is_extended_counts_on(server: Server, clock: FakeClock) -> None:
    await limit(server, in_flight_max=1)
    message_id = await publish(server)
    await publish(server)
    assert (await fetch(server)).id == message_id
    path = f"/q/messages/{message_id}"
    assert (await call(server, "PATCH", path, json={"due_in_s": 3600})).status == 200
    for _ in range(4):
        clock.advance(CHECK_EVERY_S)
        assert (await fetch(server)).status == 204


async def test_a_restarted_mq_counts_what_consumers_have(
    serve: Serve, server: Server, root: Path, clock: FakeClock
) -> None:
    await limit(server, in_flight_max=2)
    ids = [await publish(server) for _ in range(5)]
    # Put off: these are with no consumer.
    await publish(server, params={"delay": "20"})
    assert (await fetch(server)).id == ids[0]
    body = {"due_in_s": 3600, "release": True}
    assert (await call(server, "PATCH", f"/q/messages/{ids[0]}", json=body)).status == 200
    assert [(await fetch(server)).id for _ in range(2)] == ids[1:3]
    again = await serve(root=root, clock=clock)
    assert (await fetch(again)).status == 204
    assert (await delete(again, ids[1])).status == 202
    assert (await fetch(again)).id == ids[3]
    assert (await fetch(again)).status == 204
    assert_audits_clean(root, clock)
    clock.advance(31)
    assert (await fetch(again)).status == 200


async def test_a_limit_counts_what_was_delivered_before_it(server: Server) -> None:
    for _ in range(3):
        await publish(server)
    first = await fetch(server)
    poll = asyncio.create_task(call(server, "GET", "/q/messages?wait=60&select=priority:9"))
    await limit(server, in_flight_max=1)
    assert (await fetch(server)).status == 204
    await publish(server, params={"priority": "9"})
    assert (await delete(server, first.id)).status == 202
    assert (await asyncio.wait_for(poll, PATIENCE_S)).status == 200


async def test_those_who_wait_are_served_as_others_end(server: Server) -> None:
    await limit(server, in_flight_max=3)
    async with consuming(server, "q", credit=7) as consumer:
        ids = [await publish(server) for _ in range(7)]
        came = [await consumer.message() for _ in range(3)]
        for _ in range(4):
            await consumer.statuses(ack=["unknown"])
            await consumer.statuses(ack=["unknown"])
            assert not consumer.messages
            assert await consumer.statuses(ack=[came[-1].id]) == [202]
            came.append(await consumer.message())
        assert [each.id for each in came] == ids
        await publish(server)
        poll = asyncio.create_task(call(server, "GET", "/q/messages?wait=60&priority=9"))
        await consumer.statuses(ack=["unknown"])
        assert not poll.done()
        assert await consumer.statuses(ack=[came[0].id]) == [202]
        polled = await asyncio.wait_for(poll, PATIENCE_S)
        assert polled.status == 200


async def test_deliveries_come_at_their_rate(server: Server, clock: FakeClock) -> None:
    await limit(server, deliveries_per_s_max=2)
    for _ in range(6):
        await publish(server)

    async def come() -> int:
        count = 0
        while (await fetch(server)).status == 200:
            count += 1
        return count

    assert await come() == 1
    clock.advance(0.4)
    assert await come() == 0
    clock.advance(0.1)
    assert await come() == 1
    # What was not used is not saved.
    clock.advance(60)
    assert await come() == 1
    await limit(server, deliveries_per_s_max=20)
    clock.advance(1)
    assert await come() == 2
    # A consumer that waits gets it when it may.
    await limit(server, deliveries_per_s_max=1)
    poll = asyncio.create_task(call(server, "GET", "/q/messages?wait=60"))
    await asyncio.sleep(0)
    clock.advance(1)
    assert (await asyncio.wait_for(poll, PATIENCE_S)).status == 200
