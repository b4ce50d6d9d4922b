"""`POST /{queue}/messages/{id}/sideline`: out of the queue's way, by one rename."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness.api import UNKNOWN_ID, Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.folders import message_files, mtime_ns
from harness.internals import connections
from harness.leases import CONSUMER, LEASE_S
from harness.server import Serve, Server
from harness.upkeep import move_due
from harness.waiting import comes_true

from mq.model.message import Stamp
from mq.model.names import QUEUE_NAME_CHARS_MAX, QueueName
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import claim
from mq.store.opening import open_root

SIDELINE = "q_SIDELINE"


async def sideline(
    server: Server, message_id: str, query: str = "", queue: str = "q", **more: Any
) -> Reply:
    path = f"/{queue}/messages/{message_id}/sideline{query}"
    return await call(server, "POST", path, **more)


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
async def server(serve: Serve, clock: FakeClock, request: pytest.FixtureRequest) -> Server:
    """An mq with a queue, in the test's own time; what a test does happens in buckets too."""
    started = await serve(clock=clock, folder_max=request.param)
    await make_queue(started)
    return started


async def fetched(server: Server, queue: str = "q") -> str:
    message_id = await publish(server, queue=queue)
    assert (await fetch(server, queue)).id == message_id
    return message_id


async def test_a_fetched_message_goes_to_the_sideline_that_it_makes(
    server: Server, root: Path, clock: FakeClock
) -> None:
    message_id = await fetched(server)
    clock.advance(3)
    reply = await sideline(server, message_id)
    assert reply.status == 200, reply.body
    assert reply.json() == {
        "id": message_id, "queue": SIDELINE, "receives": 1, "reason": "rejected",
    }  # fmt: skip
    assert reply.headers["Location"] == f"/{SIDELINE}/messages/{message_id}"
    assert reply.headers["ETag"] == '"1"'
    (path,) = (root / "queues" / SIDELINE).rglob(message_id)
    assert Stamp.from_mtime_ns(mtime_ns(path)) == Stamp(clock.now_ms(), 1, 1)
    clock.advance(100)
    move_due(root, clock)
    assert (await fetch(server)).status == 204
    again = await fetch(server, SIDELINE)
    assert (again.id, again.body, again.headers["X-Message-Receives"]) == (
        message_id, b"hello", "2",
    )  # fmt: skip
    assert (await delete(server, message_id, SIDELINE)).status == 202
    assert_audits_clean(root, clock)


@pytest.mark.parametrize("query", ["", "?delay=60"])
async def test_what_nobody_has_fetched_goes_too(server: Server, query: str) -> None:
    message_id = (await call(server, "POST", f"/q/messages{query}", data=b"x")).id
    assert (await sideline(server, message_id)).json()["receives"] == 0
    assert (await fetch(server)).status == 204
    assert (await fetch(server, SIDELINE)).id == message_id


async def test_it_is_counted_peeked_at_and_read_there(server: Server) -> None:
    message_id = await fetched(server)
    await sideline(server, message_id, "?reason=exception")
    counts = (await call(server, "GET", "/q")).json()
    assert (counts["ready"], counts["in_flight"], counts["sidelined"]) == (0, 0, 1)
    assert (await call(server, "GET", f"/{SIDELINE}")).json()["ready"] == 1
    peeked = await call(server, "GET", f"/{SIDELINE}/peek")
    assert peeked.json()["id"] == message_id
    assert (await call(server, "GET", f"/{SIDELINE}/messages/{message_id}")).body == b"hello"
    for reply in (
        await call(server, "GET", f"/q/messages/{message_id}"),
        await delete(server, message_id),
    ):
        assert_problem(reply, 404, "message-not-found")


async def test_a_second_time_it_is_as_it_was(serve: Serve, server: Server) -> None:
    message_id = await fetched(server)
    first = await sideline(server, message_id, "?reason=exception")
    assert first.json()["reason"] == "exception"
    other = await serve()
    for process in (server, other):
        again = await sideline(process, message_id)
        assert (again.status, again.json()) == (200, first.json())
    assert (await fetch(other, SIDELINE)).id == message_id
    again = await sideline(server, message_id)
    assert (again.status, again.json()["receives"]) == (200, 2)
    await delete(server, message_id, SIDELINE)
    assert_problem(await sideline(server, message_id), 404, "message-not-found")


async def test_many_at_once_make_one_sideline(server: Server, root: Path) -> None:
    ids = [await fetched(server) for _ in range(20)]
    replies = await asyncio.gather(*(sideline(server, each) for each in (*ids, *ids[:5])))
    for reply in replies:  # Of two at one message, one may be told to try again.
        if reply.status != 200:
            assert_problem(reply, 503, "message-busy")
    assert [reply.status for reply in replies].count(200) >= len(ids)
    assert sorted(message_files(root)["queues"]) == sorted(f"{SIDELINE}:{each}" for each in ids)


@pytest.mark.parametrize("folder_max", [10_000, 1], ids=["flat", "in buckets"])
async def test_who_waits_at_the_sideline_hears_of_it(serve: Serve, folder_max: int) -> None:
    # In the machine's time: in one that stands, who is told a moment too early is told no more.
    server = await serve(folder_max=folder_max)
    await make_queue(server)
    await make_queue(server, SIDELINE)
    message_id = await fetched(server)
    waiting = asyncio.create_task(call(server, "GET", f"/{SIDELINE}/messages?wait=30"))
    await comes_true(lambda: connections(server) >= 1, "its connection")
    for _ in range(3):  # Whoever came before it has asked before it.
        assert (await fetch(server, SIDELINE)).status == 204
    await sideline(server, message_id)
    assert (await waiting).id == message_id


async def test_whoever_was_too_slow_hears_so(server: Server, root: Path, clock: FakeClock) -> None:
    message_id = await fetched(server)
    clock.advance(31)
    move_due(root, clock)
    await fetch(server)
    reply = await sideline(server, message_id, headers={"If-Match": '"1"'})
    assert assert_problem(reply, 412, "delivered-again")["receives"] == 2
    assert (await sideline(server, message_id, headers={"If-Match": '"2"'})).status == 200


async def test_its_key_is_free(server: Server) -> None:
    for _ in range(2):
        message_id = (await call(server, "POST", "/q/messages?key=k", data=b"x")).id
        assert (await call(server, "POST", "/q/messages?key=k", data=b"x")).status == 409
        assert (await sideline(server, message_id)).status == 200
        for queue in ("q", SIDELINE):
            reply = await call(server, "GET", f"/{queue}/keys/k")
            assert_problem(reply, 404, "key-not-found")


async def test_what_it_is_not(server: Server, root: Path, clock: FakeClock) -> None:
    for queue in ("q", SIDELINE):
        reply = await sideline(server, UNKNOWN_ID, queue=queue)
        slug = "message-not-found" if queue == "q" else "already-sideline"
        assert_problem(reply, 404 if queue == "q" else 409, slug)
    assert not (root / "queues" / SIDELINE).exists(), "it is made for a message alone"
    assert_problem(await sideline(server, UNKNOWN_ID, queue="none"), 404, "queue-not-found")
    assert_problem(await sideline(server, "x"), 400, "bad-name")
    message_id = await publish(server)
    reply = await sideline(server, message_id, "?reason=unknown")
    assert_problem(reply, 400, "bad-reason")
    assert_problem(await sideline(server, message_id, "?why=so"), 400, "unknown-parameter")
    reply = await sideline(server, message_id, headers={"If-Match": "1"})
    assert_problem(reply, 400, "bad-if-match")
    assert (await fetch(server)).id == message_id
    await publish(server)
    place = open_root(str(root), Files(), clock)
    lease = run_alone(claim(place, CONSUMER, [QueueName("q")], 1, LEASE_S), NoFlusher())
    assert lease is not None
    (leased,) = Path(lease.folder).iterdir()
    reply = await sideline(server, leased.name.partition(":")[2])
    assert_problem(reply, 409, "message-leased")


@pytest.mark.certificate
async def test_a_sideline_that_was_purged_takes_what_is_older_once_that_is_forgotten(
    server: Server, clock: FakeClock
) -> None:
    await sideline(server, await fetched(server))
    message_id = await publish(server)
    clock.advance(1)
    assert (await call(server, "DELETE", f"/{SIDELINE}/messages")).status == 202
    assert_problem(await sideline(server, message_id), 503, "sideline-purged")
    assert (await fetch(server)).id == message_id
    clock.advance(1)
    assert (await sideline(server, await fetched(server))).status == 200


async def test_it_outlives_its_queue(server: Server) -> None:
    message_id = await fetched(server)
    await sideline(server, message_id)
    assert (await call(server, "DELETE", "/q")).status == 200
    assert_problem(await sideline(server, message_id), 404, "queue-not-found")
    assert (await fetch(server, SIDELINE)).id == message_id
    assert (await call(server, "DELETE", f"/{SIDELINE}")).status == 200
    await make_queue(server)
    message_id = await fetched(server)
    assert (await sideline(server, message_id)).status == 200, "it is made anew"
    assert (await fetch(server, SIDELINE)).id == message_id


async def test_a_sideline_that_another_process_deleted_is_made_anew(
    serve: Serve, server: Server
) -> None:
    await sideline(server, await fetched(server))
    assert (await call(await serve(), "DELETE", f"/{SIDELINE}")).status == 200
    message_id = await fetched(server)
    assert (await sideline(server, message_id)).status == 200
    assert (await fetch(server, SIDELINE)).id == message_id


@pytest.mark.parametrize("in_one_request", [False, True])
async def test_many_at_once_make_a_deleted_sideline_anew(
    server: Server, root: Path, clock: FakeClock, in_one_request: bool
) -> None:
    """Each may have to wait until another has moved what the old one left in delay/."""
    await sideline(server, await fetched(server))
    left = (await fetch(server, SIDELINE)).id
    assert (await call(server, "DELETE", f"/{SIDELINE}")).status == 200
    ids = [await fetched(server) for _ in range(20)]
    if in_one_request:
        asked = {"messages": [{"id": each} for each in ids]}
        reply = await call(server, "POST", "/q/sidelines", json=asked)
        assert [each["status"] for each in reply.json()["results"]] == [200] * len(ids)
    else:
        replies = await asyncio.gather(*(sideline(server, each) for each in ids))
        assert [reply.status for reply in replies] == [200] * len(ids)
    clock.advance(60)
    move_due(root, clock)
    assert sorted(message_files(root)["queues"]) == sorted(f"{SIDELINE}:{each}" for each in ids)
    assert f"{SIDELINE}:{left}" in message_files(root)["remove"]


async def test_the_longest_name_has_a_sideline(server: Server) -> None:
    queue = "q" * QUEUE_NAME_CHARS_MAX
    await make_queue(server, queue)
    query = f"?key={'k' * 64}&priority=7&visibility=604800"
    headers = {"Content-Type": "application/vnd.apache.parquet", "ce-id": "7"}
    path = f"/{queue}/messages{query}"
    message_id = (await call(server, "POST", path, data=b"x", headers=headers)).id
    assert (await sideline(server, message_id, queue=queue)).status == 200
    assert (await fetch(server, f"{queue}_SIDELINE")).id == message_id


async def test_its_history_ends_there(server: Server) -> None:
    await call(server, "PATCH", "/q/settings", json={"history": True})
    message_id = await fetched(server)
    await sideline(server, message_id)

    async def told() -> bool:
        reply = await call(server, "GET", f"/q/messages/{message_id}/history")
        events = reply.json().get("events", [])
        return [event["event"] for event in events] == ["published", "fetched", "sidelined"]

    await comes_true(told, "its history")
