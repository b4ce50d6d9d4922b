"""`GET /{queue}/messages?wait=S`: a fetch that is held until there is something."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.api import Reply, StillClock, assert_problem, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.internals import connections, fetches_waiting
from harness.processes import PATIENCE_S, Processes
from harness.raw import raw_connection, raw_head, raw_request
from harness.server import Serve, Server
from harness.upkeep import move_due
from harness.waiting import comes_true


async def wait(server: Server, query: str = "wait=60") -> Reply:
    """A fetch that waits."""
    async with asyncio.timeout(PATIENCE_S):
        return await call(server, "GET", f"/q/messages?{query}")


@contextlib.asynccontextmanager
async def waiting(
    server: Server, count: int = 1, query: str = "wait=60"
) -> AsyncIterator[list["asyncio.Task[Reply]"]]:
    """Clients that wait for a message, and have found none."""
    tasks = [asyncio.create_task(wait(server, query)) for _ in range(count)]
    await comes_true(lambda: connections(server) >= count, "their connections")
    for _ in range(3):  # Whoever came before it has asked before it.
        assert (await fetch(server)).status == 204
    assert not any(task.done() for task in tasks)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


@pytest.fixture
async def server(serve: Serve) -> Server:
    """An mq with an empty queue, whose waits are ended by no clock."""
    started = await serve(clock=StillClock())
    await make_queue(started)
    return started


async def test_a_publish_wakes_who_waits(server: Server) -> None:
    async with waiting(server) as [task]:
        message_id = await publish(server)
        reply = await task
        assert (reply.status, reply.id, reply.body) == (200, message_id, b"hello")


async def test_what_is_there_is_not_waited_for(server: Server) -> None:
    message_id = await publish(server)
    assert (await wait(server)).id == message_id


async def test_a_release_wakes_who_waits(server: Server) -> None:
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id
    async with waiting(server) as [task]:
        reply = await call(server, "PATCH", f"/q/messages/{message_id}", json={"due_in_s": 0})
        assert reply.status == 200
        assert (await task).headers["X-Message-Receives"] == "2"


async def test_another_process_s_publish_is_found(serve: Serve, server: Server) -> None:
    other = await serve()
    async with waiting(server) as [task]:
        message_id = await publish(other)
        assert (await task).id == message_id


async def test_a_redelivery_is_found(serve: Serve, root: Path) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id
    async with waiting(server) as [task]:
        clock.advance(31)
        assert move_due(root, clock) == 1
        reply = await task
        assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "2")


async def test_a_message_goes_to_one_of_many(server: Server) -> None:
    async with waiting(server, 20) as tasks:
        ids = set()
        for left in range(20, 0, -1):
            ids.add(await publish(server))
            await comes_true(lambda left=left: sum(not task.done() for task in tasks) < left)
            assert sum(not task.done() for task in tasks) == left - 1
        assert {task.result().id for task in tasks} == ids


async def test_each_who_waits_has_it_for_as_long_as_it_asked(server: Server) -> None:
    async with waiting(server, query="wait=60&visibility=7") as [task]:
        await publish(server)
        assert (await task).headers["X-Message-Due"] == "2023-11-14T22:13:27.000Z"


async def test_a_queue_that_is_deleted_meanwhile_is_404(serve: Serve, server: Server) -> None:
    for deleting in (server, await serve()):
        await make_queue(server)
        async with waiting(server, 2) as tasks:
            assert (await call(deleting, "DELETE", "/q")).status == 200
            for task in tasks:
                assert_problem(await task, 404, "queue-not-found")


@pytest.mark.certificate
async def test_a_wait_ends(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    assert (await wait(server, "wait=0")).status == 204
    async with waiting(server) as [task]:
        clock.steady += 59.9
        assert (await fetch(server)).status == 204
        assert not task.done()
        clock.steady += 0.1
        reply = await task
        assert (reply.status, reply.body) == (204, b"")


async def test_who_hung_up_claims_nothing(serve: Serve, root: Path) -> None:
    server = await serve(clock=StillClock())
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/q/messages?wait=60"))
        await comes_true(lambda: connections(server) == 2, "its connection")
        assert (await fetch(server)).status == 204
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    message_id = await publish(server)
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "1")


@pytest.mark.parametrize("header", ["wait=60", "respond-async, wait=60", 'x="y"; wait = "99999"'])
async def test_a_preference_is_a_wait(server: Server, header: str) -> None:
    async with asyncio.timeout(PATIENCE_S), raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/q/messages", f"Prefer: {header}"))
        await comes_true(lambda: connections(server) == 2, "its connection")
        assert (await fetch(server)).status == 204
        message_id = await publish(server)
        assert (await connection.response()).headers["x-message-id"] == message_id


@pytest.mark.parametrize("header", ["wait", "wait=", "wait=x", "wait=-1", "await=60", "wait=0"])
async def test_what_is_no_preference_is_passed_over(server: Server, header: str) -> None:
    reply = await raw_request(server.port, raw_head("GET", "/q/messages", f"Prefer: {header}"))
    assert reply.status == 204


@pytest.mark.certificate
async def test_a_preference_is_cut_and_the_parameter_goes_before_it(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    head = raw_head("GET", "/q/messages", "Prefer: wait=3600")
    task = asyncio.create_task(raw_request(server.port, head))
    await comes_true(lambda: connections(server) == 1, "its connection")
    assert (await fetch(server)).status == 204
    clock.steady += 60
    assert (await task).status == 204
    head = raw_head("GET", "/q/messages?wait=0", "Prefer: wait=60")
    assert (await raw_request(server.port, head)).status == 204


@pytest.mark.parametrize("value", ["61", "60.001", "-1", "", "x", "1e1", "inf", "0.0001"])
async def test_a_malformed_wait_fetches_nothing(server: Server, value: str) -> None:
    message_id = await publish(server)
    reply = await call(server, "GET", "/q/messages", params={"wait": value})
    assert assert_problem(reply, 400, "bad-wait")["parameter"] == "wait"
    assert (await fetch(server)).id == message_id


async def test_an_unknown_queue_is_404_at_once(server: Server) -> None:
    assert_problem(await call(server, "GET", "/none/messages?wait=60"), 404, "queue-not-found")


@pytest.mark.certificate
async def test_a_drain_answers_who_waits(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--drain-timeout", "60")
    assert (await raw_request(mq.port, raw_head("PUT", "/q"))).status == 201
    async with raw_connection(mq.port) as connection:
        await connection.send(raw_head("GET", "/q/messages?wait=60"))
        await connection.send(raw_head("GET", "/-/livez"))  # Answered after the first.
        async with raw_connection(mq.port) as other:
            await other.send(raw_head("GET", "/q/messages"))
            assert (await other.response()).status == 204
        mq.popen.send_signal(signal.SIGTERM)
        assert (await connection.response()).status == 204
    assert await asyncio.to_thread(mq.popen.wait, PATIENCE_S) == 0


@pytest.mark.certificate
async def test_a_scheduled_message_comes_to_who_waits(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    assert (await raw_request(mq.port, raw_head("PUT", "/q"))).status == 201
    head = raw_head("POST", "/q/messages?delay=1", "Content-Length: 5")
    published = await raw_request(mq.port, head + b"later")
    assert (await raw_request(mq.port, raw_head("GET", "/q/messages"))).status == 204
    reply = await raw_request(mq.port, raw_head("GET", "/q/messages?wait=60"))
    assert reply.body == b"later"
    head = raw_head(
        "PATCH",
        f"/q/messages/{published.headers['x-message-id']}",
        "Content-Type: application/json",
        "Content-Length: 15",
    )
    assert (await raw_request(mq.port, head + b'{"due_in_s": 1}')).status == 200
    reply = await raw_request(mq.port, raw_head("GET", "/q/messages?wait=60"))
    assert reply.headers["x-message-receives"] == "2"


# Whose a message is that was claimed for another


@contextlib.asynccontextmanager
async def inheriting(
    server: Server, files: FaultyFiles, message_id: str, gone: str, heir: str
) -> AsyncIterator["asyncio.Task[Reply]"]:
    """One who waits for a message that is being claimed for another, who has gone meanwhile."""
    look, claim = files.hold("entries", "/queues/q"), files.hold("lock", f"/queues/q/{message_id}")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", f"/q/messages{gone}"))
        await comes_true(look.reached.is_set, "a look")
        asking = asyncio.create_task(call(server, "GET", f"/q/messages{heir}"))
        await comes_true(lambda: fetches_waiting(server, "q") == 2, "another who waits")
        look.open()
        await comes_true(claim.reached.is_set, "a claim, for the first of the two")
    await comes_true(lambda: fetches_waiting(server, "q") == 1, "the first one is gone")
    yield asking
    claim.open()


async def test_who_waits_behind_one_whose_message_moved_on_gets_the_next(
    serve: Serve, root: Path
) -> None:
    files = FaultyFiles()
    server, other = await serve(files=files, clock=StillClock()), await serve()
    await make_queue(server)
    first, second = [await publish(server) for _ in range(2)]
    async with inheriting(server, files, first, "?visibility=600", "") as asking:
        gate = files.hold("open_claimed", f"/delay/q:{first}")
    assert (await asking).id == second
    await comes_true(gate.reached.is_set, "its release")
    assert (await delete(other, first)).status == 202
    gate.open()


@pytest.mark.parametrize("size", [5, 2 * 1024 * 1024], ids=["held", "streamed"])
@pytest.mark.parametrize(
    ("gone", "heir", "due"),
    [
        ("?visibility=600", "?wait=60", "22:13:50.000Z"),
        ("", "?wait=60&visibility=600", "22:23:20.000Z"),
        ("?visibility=600", "?wait=60&visibility=5", "22:13:25.000Z"),
    ],
)
async def test_who_waits_gets_what_was_claimed_for_one_who_went(
    serve: Serve, root: Path, gone: str, heir: str, due: str, size: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, clock=StillClock())
    await make_queue(server)
    message_id = await publish(server, b"x" * size)
    async with inheriting(server, files, message_id, gone, heir) as asking:
        pass
    reply = await asking
    assert reply.id == message_id
    assert reply.headers["X-Message-Due"] == f"2023-11-14T{due}"
    assert reply.headers["X-Message-Receives"] == "2"
    assert len(reply.body) == size
    assert (await delete(server, message_id)).status == 202
    await comes_true(lambda: not files.open_paths("/q"), "the file is closed")
