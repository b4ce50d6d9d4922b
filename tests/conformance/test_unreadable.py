"""Messages whose files cannot be what was published: they go to the sideline, in nobody's way."""

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest
from harness.api import assert_problem, call, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.faults import FaultyFiles
from harness.internals import connections
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.store.audit.findings import Breach

SIDELINE = "q_SIDELINE"
HEADERS = {"x-attribute-a": "b" * 50}


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
async def server(
    serve: Serve, files: FaultyFiles, clock: FakeClock, request: pytest.FixtureRequest
) -> Server:
    """It keeps no bodies in memory: what it fetches it reads."""
    server = await serve(clock=clock, files=files, folder_max=request.param, memory_bytes=0)
    await make_queue(server)
    return server


async def damaged(server: Server, how: str = "short", queue: str = "q") -> str:
    """A ready message that is not what was published."""
    message_id = await publish(server, b"hello", queue, headers=HEADERS)
    (path,) = (server.root / "queues" / queue).rglob(message_id)
    content = path.read_bytes()
    stamp = path.stat().st_mtime_ns
    path.write_bytes(content[:10] if how == "short" else bytes(len(content)))
    os.utime(path, ns=(stamp, stamp))
    return message_id


async def sidelined(server: Server) -> list[tuple[str, str]]:
    reply = await call(server, "GET", f"/{SIDELINE}/peek")
    if reply.status != 200:
        return []
    found = [json.loads(line) for line in reply.body.splitlines()]
    return [(row["id"], row["sidelined"]["reason"]) for row in found]


async def comes_there(server: Server, *ids: str) -> None:
    async def are_there() -> bool:
        return await sidelined(server) == [(each, "unreadable") for each in ids]

    await comes_true(are_there, "they are sidelined")


@pytest.mark.parametrize("how", ["short", "zeros"])
async def test_a_fetch_goes_on_to_the_next(
    server: Server, root: Path, clock: FakeClock, how: str
) -> None:
    bad = [await damaged(server, how) for _ in range(3)]
    good = await publish(server)
    assert (await fetch(server)).id == good
    clock.advance(1)

    async def all_are_gone() -> bool:
        clock.advance(0.1)
        assert (await fetch(server)).status == 204
        return [each for each, _ in await sidelined(server)] == bad

    await comes_true(all_are_gone, "the others are found too")
    assert await sidelined(server) == [(each, "unreadable") for each in bad]
    said = (await call(server, "GET", "/q")).json()
    assert (said["ready"], said["sidelined"], said["totals"]["sidelined"]) == (0, 3, 3)
    assert_audits_clean(root, clock, frozenset({Breach.SHORT}))


async def test_its_receives_are_those_of_before_and_a_header_says_why(server: Server) -> None:
    bad = await damaged(server, "zeros")
    await make_queue(server, SIDELINE)
    assert (await fetch(server)).status == 204
    reply = await fetch(server, SIDELINE)
    assert reply.id == bad
    assert reply.headers["X-Message-Receives"] == "1"
    assert reply.headers["X-Message-Sidelined"] == "unreadable"


async def test_a_batch_goes_on(server: Server) -> None:
    await make_queue(server, SIDELINE)
    ids = [await (damaged(server) if n % 2 else publish(server)) for n in range(6)]
    reply = await call(server, "GET", "/q/messages?count=10")
    found = [line for line in reply.body.splitlines() if line]
    assert [each in line.decode() for each, line in zip(ids[::2], found, strict=True)] == [True] * 3
    await comes_there(server, *ids[1::2])


async def test_who_waits_waits_on(server: Server) -> None:
    waiting = asyncio.create_task(call(server, "GET", "/q/messages?wait=30"))
    await comes_true(lambda: connections(server) >= 1, "its connection")
    bad = await put_damaged_by_hand(server)
    await comes_there(server, bad)
    good = await publish(server)
    assert (await waiting).id == good


async def put_damaged_by_hand(server: Server) -> str:
    """As from a process that died in a way that it may not."""
    await make_queue(server, "other")
    message_id = await damaged(server, queue="other")
    (path,) = (server.root / "queues" / "other").rglob(message_id)
    path.rename(server.root / "queues" / "q" / message_id)
    return message_id


async def test_a_websocket_s_consumer_gets_the_next(server: Server) -> None:
    bad = await damaged(server)
    good = await publish(server)
    async with consuming(server, "q", credit=5) as consumer:
        assert (await consumer.message()).id == good
        await comes_there(server, bad)


async def test_an_error_of_the_storage_is_no_such_thing(
    server: Server, files: FaultyFiles, clock: FakeClock
) -> None:
    message_id = await publish(server, headers=HEADERS)
    files.fail("read", errno.EIO, message_id)
    assert_problem(await fetch(server), 503, "storage-failed")
    files.heal()
    assert await sidelined(server) == []
    reply = await call(server, "GET", f"/q/messages/{message_id}")
    assert reply.headers["X-Message-State"] == "delayed", "redelivery brings it back"


async def test_in_a_sideline_it_is_as_ever(server: Server) -> None:
    bad = await damaged(server)
    await make_queue(server, SIDELINE)
    assert (await fetch(server)).status == 204
    assert_problem(await fetch(server, SIDELINE), 503, "unavailable")
    assert (await call(server, "GET", f"/{SIDELINE}/peek?state=delayed")).json()["id"] == bad


async def test_without_a_sideline_it_stays_and_others_go_first(
    server: Server, clock: FakeClock
) -> None:
    (server.root / "queues" / SIDELINE).write_text("not a folder")
    bad = await damaged(server)
    for _ in range(3):
        good = await publish(server)
        assert (await fetch(server)).id == good
    assert list((server.root / "queues" / "q").rglob(bad)), "it is where it was"
    (server.root / "queues" / SIDELINE).unlink()

    async def is_sidelined() -> bool:
        clock.advance(1)  # For a moment it is put aside.
        await fetch(server)
        return [each for each, _ in await sidelined(server)] == [bad]

    await comes_true(is_sidelined, "it goes there")
