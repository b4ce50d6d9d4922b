"""Whoever waits and hangs up claims nothing, on either way of answering and behind a proxy."""

import asyncio
import errno
import json
from datetime import datetime
from pathlib import Path

import pytest
from harness.api import Reply, StillClock, assert_problem, call, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.internals import connections, interested
from harness.proxy import nginx
from harness.raw import RawConnection, raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.store.core.facts import SETTINGS_AGE_S

# The first goes the direct way, once the queue is known, the second the long one.
WAYS = ["wait=60", "wait=60&visibility=30"]


@pytest.fixture
async def server(serve: Serve) -> Server:
    """An mq with an empty queue, whose waits are ended by no clock."""
    started = await serve(clock=StillClock())
    await make_queue(started)
    assert (await fetch(started)).status == 204
    return started


async def begin(server: Server, connection: RawConnection, query: str, count: int = 1) -> None:
    """A poll that has found nothing, and waits."""
    await connection.send(raw_head("GET", f"/q/messages?{query}"))
    await comes_true(lambda: interested(server, "q") == count, "somebody who waits")


async def assert_nobody_claimed(server: Server) -> None:
    await comes_true(lambda: interested(server, "q") == 0, "nobody waits")
    message_id = await publish(server)
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "1")


@pytest.mark.parametrize("query", WAYS)
async def test_a_half_closed_connection_claims_nothing(server: Server, query: str) -> None:
    async with raw_connection(server.port) as connection:
        await begin(server, connection, query)
        connection.half_close()
        assert await connection.ended() == b""
        await assert_nobody_claimed(server)


@pytest.mark.parametrize("query", WAYS)
async def test_a_connection_that_is_gone_claims_nothing(server: Server, query: str) -> None:
    async with raw_connection(server.port) as connection:
        await begin(server, connection, query)
    await assert_nobody_claimed(server)


@pytest.mark.certificate
@pytest.mark.parametrize("query", WAYS)
async def test_a_client_behind_a_proxy_that_is_gone_claims_nothing(
    server: Server, tmp_path: Path, query: str
) -> None:
    work = tmp_path / "nginx"
    work.mkdir()
    async with nginx(server.port, work) as port:
        async with raw_connection(port) as connection:
            await begin(server, connection, query)
            message_id = await publish(server)
            assert (await connection.response()).headers["x-message-id"] == message_id
            await begin(server, connection, query)
        await assert_nobody_claimed(server)


@pytest.mark.parametrize("query", WAYS)
async def test_what_is_claimed_for_one_who_goes_is_released_at_once(
    serve: Serve, query: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, clock=StillClock())
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await begin(server, connection, query)
        claim = files.hold("lock", "/queues/q/")
        # The claim may hold the commit thread before the publish is flushed.
        publishing = asyncio.create_task(publish(server))
        await comes_true(claim.reached.is_set, "a claim")
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    claim.open()
    message_id = await publishing
    reply = await comes_true(lambda: _found(server), "it is back")
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "2")


async def _found(server: Server) -> Reply | None:
    reply = await fetch(server)
    return reply if reply.status == 200 else None


@pytest.mark.parametrize("query", WAYS)
async def test_of_many_who_go_none_claims_and_who_stays_is_served(
    server: Server, query: str
) -> None:
    async with raw_connection(server.port) as stays:
        async with raw_connection(server.port) as first, raw_connection(server.port) as second:
            await begin(server, first, query)
            await begin(server, second, query, 2)
            await begin(server, stays, query, 3)
        await comes_true(lambda: interested(server, "q") == 1, "one is left")
        message_id = await publish(server)
        answer = await stays.response()
        assert answer.headers["x-message-id"] == message_id
        assert answer.headers["x-message-receives"] == "1"


@pytest.mark.parametrize("query", WAYS)
async def test_who_loses_a_race_waits_on(serve: Serve, query: str) -> None:
    files = FaultyFiles()
    server, other = await serve(files=files, clock=StillClock()), await serve()
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await begin(server, connection, query)
        claim = files.hold("open_claimed", "/queues/q/")
        # The claim may hold the commit thread before the publish is flushed.
        publishing = asyncio.create_task(publish(server))
        await comes_true(claim.reached.is_set, "a claim")
        fetched = await fetch(other)
        claim.open()
        first = await publishing
        assert fetched.id == first
        await comes_true(lambda: interested(server, "q") == 1, "it waits again")
        second = await publish(server)
        assert (await connection.response()).headers["x-message-id"] == second


@pytest.mark.parametrize("query", WAYS)
async def test_a_claim_that_fails_is_told_to_who_waits(
    serve: Serve, root: Path, query: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, clock=StillClock())
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await begin(server, connection, query)
        files.fail("stamp", errno.EIO, "/queues/q/")
        files.fail("stamp", errno.EIO, "/delay/")
        message_id = await publish(server)
        answer = await connection.response()
        assert (answer.status, answer.json()["type"]) == (503, "urn:mq:problem:storage-failed")
    assert message_files(root)["delay"] == [f"q:{message_id}"]


@pytest.mark.parametrize("query", ["wait=60", "wait=60&count=1"])
async def test_settings_that_changed_meanwhile_count(serve: Serve, query: str) -> None:
    clock = FakeClock()
    server, other = await serve(clock=clock), await serve(clock=clock)
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await begin(server, connection, query)
        patch = {"visibility_s": 600}
        assert (await call(other, "PATCH", "/q/settings", json=patch)).status == 200
        clock.advance(SETTINGS_AGE_S)
        await publish(other)
        answer = await connection.response()
        assert answer.status == 200
        [row] = (await call(server, "GET", "/q/peek?state=delayed")).body.splitlines()
        due = datetime.fromisoformat(json.loads(row)["due"])
        assert due.timestamp() == pytest.approx(clock.now_ms() / 1000 + 600, abs=0.01, rel=0)


async def test_settings_that_changed_before_count(serve: Serve) -> None:
    clock = FakeClock()
    server, other = await serve(clock=clock), await serve(clock=clock)
    await make_queue(server)
    assert (await fetch(server)).status == 204
    patch = {"visibility_s": 600}
    assert (await call(other, "PATCH", "/q/settings", json=patch)).status == 200
    clock.advance(SETTINGS_AGE_S)
    for _ in range(3):
        await publish(other)
    async with raw_connection(server.port) as first, raw_connection(server.port) as second:
        for connection in (first, second):
            await connection.send(raw_head("GET", "/q/messages?wait=60"))
        for connection in (first, second):
            due = datetime.fromisoformat((await connection.response()).headers["x-message-due"])
            assert due.timestamp() == pytest.approx(clock.now_ms() / 1000 + 600, abs=0.01, rel=0)


async def test_a_queue_that_was_deleted_meanwhile_is_404(serve: Serve) -> None:
    clock = FakeClock()
    server, other = await serve(clock=clock), await serve(clock=clock)
    await make_queue(server)
    clock.advance(SETTINGS_AGE_S)
    assert (await call(other, "DELETE", "/q")).status == 200
    assert_problem(await call(server, "GET", "/q/messages?wait=60"), 404, "queue-not-found")


@pytest.mark.certificate
async def test_waits_end_each_at_its_own_time(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    waits = (20, 5, 60, 0.05, 40)
    tasks = [asyncio.create_task(call(server, "GET", f"/q/messages?wait={s}")) for s in waits]
    await comes_true(lambda: interested(server, "q") == len(waits), "all wait")
    for ended, wait_s in enumerate(sorted(waits)):
        clock.steady = 1000 + wait_s
        task = tasks[waits.index(wait_s)]
        assert (await task).status == 204
        assert interested(server, "q") == len(waits) - ended - 1


async def test_a_drain_answers_all_who_wait(serve: Serve, server: Server) -> None:
    async with raw_connection(server.port) as direct, raw_connection(server.port) as other:
        await begin(server, direct, WAYS[0])
        await begin(server, other, WAYS[1], 2)
        await server.daemon.drain()
        assert [(await each.response()).status for each in (direct, other)] == [204, 204]
