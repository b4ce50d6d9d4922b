"""One memory budget: what finds no room passes through and is the same; and what is shown of it."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, fetch, make_queue, publish
from harness.faults import FaultyFiles
from harness.internals import interested
from harness.raw import raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.broker.memory import BODY_OVERHEAD_BYTES, MEMORY_IN_HAND_BYTES_MIN
from mq.broker.selections import SELECTIONS_PER_QUEUE_MAX
from mq.model.limits import KIB, MEMORY_BYTES_DEFAULT, MIB


async def memory(server: Server) -> dict[str, Any]:
    reply = await call(server, "GET", "/-/memory")
    assert reply.status == 200
    found: dict[str, Any] = reply.json()
    assert found["held_bytes"] == sum(each["bytes"] for each in found["holders"].values())
    return found


def body_of(number: int, size: int) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


async def unread(server: Server, stack: ExitStack, path: str = "/q/messages") -> socket.socket:
    """A client that asks and does not read; what it sends is sent."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", server.port))
    await loop.sock_sendall(client, raw_head("GET", path))
    return client


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """What is sent through its connections waits in mq's memory, not in the system's, however fast
    the one or slow the other is.
    """
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 * KIB)  # Each accepted one's too.
        yield made


async def test_nothing_is_held_at_first(server: Server) -> None:
    found = await memory(server)
    assert found["budget_bytes"] == MEMORY_BYTES_DEFAULT
    assert set(found["holders"]) == {"publishing", "kept", "delivering"}
    assert (found["held_bytes"], found["ids"], found["queues"]) == (0, 0, [])


async def test_what_is_published_is_kept_for_the_next_fetch_and_let_go_when_it_is_sent(
    server: Server,
) -> None:
    await make_queue(server)
    assert (await fetch(server)).status == 204
    await publish(server, b"x" * 1000, headers={"ce-id": "7"})
    found = await memory(server)
    assert found["held_bytes"] >= 1000 + BODY_OVERHEAD_BYTES
    assert [each["name"] for each in found["queues"]] == ["q"]
    assert found["ids"] == 1
    reply = await fetch(server)
    assert (reply.body, reply.headers["ce-id"]) == (b"x" * 1000, "7")
    assert (await memory(server))["hits"] == 1
    await comes_true(lambda: _holds_nothing(server))


async def _holds_nothing(server: Server) -> bool:
    return (await memory(server))["held_bytes"] == 0


async def test_without_a_budget_nothing_is_kept_and_all_works(serve: Serve) -> None:
    server = await serve(memory_bytes=0)
    await make_queue(server)
    await fetch(server)
    await publish(server, b"x" * 1000)
    assert (await memory(server))["queues_held"] == 0
    assert (await fetch(server)).body == b"x" * 1000
    assert (await memory(server))["hits"] == 0


async def test_what_gave_way_is_read_from_its_file(serve: Serve) -> None:
    server = await serve(memory_bytes=64 * KIB)
    bodies: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
    for name in bodies:
        await make_queue(server, name)
        await fetch(server, name)
    for number in range(60):
        name, body = "abc"[number % 3], body_of(number, 4 * KIB)
        await publish(server, body, name, headers={"x-attribute-n": str(number)})
        bodies[name].append(body)
    before = await memory(server)
    assert before["held_bytes"] <= 64 * KIB
    assert before["evicted"] > 0
    for name, expected in bodies.items():
        assert [(await fetch(server, name)).body for _ in expected] == expected
    after = await memory(server)
    assert after["hits"] > 0
    assert after["misses"] > 0


@pytest.mark.certificate
async def test_clients_that_do_not_read_hold_no_more_than_there_is_and_others_are_served(
    serve: Serve, listening: socket.socket
) -> None:
    server = await serve(memory_bytes=0, descriptors=(listening.fileno(),))
    await make_queue(server)
    for number in range(40):
        await publish(server, body_of(number, MIB))
    with ExitStack() as stack:
        for _ in range(24):
            await unread(server, stack)
        await comes_true(lambda: _has_refused(server))
        held = (await memory(server))["held_bytes"]
        assert held <= MEMORY_IN_HAND_BYTES_MIN
        reply = await fetch(server)
        assert reply.body == body_of(int.from_bytes(reply.body[:4], "big"), MIB)
        assert (await fetch(server, "q")).status == 200
        await publish(server, b"small")
        await publish(server, body_of(99, MIB))
    await comes_true(lambda: _holds_nothing(server))


async def _has_refused(server: Server) -> bool:
    return bool((await memory(server))["refused"])


@pytest.mark.certificate
@pytest.mark.parametrize("size", [100 * KIB, MIB])
async def test_a_batch_ends_where_there_is_no_room_and_its_bodies_are_right(
    serve: Serve, listening: socket.socket, size: int
) -> None:
    server = await serve(memory_bytes=0, descriptors=(listening.fileno(),))
    await make_queue(server)
    for number in range(24):
        await publish(server, body_of(number, size))
    found: list[bytes] = []
    with ExitStack() as stack:
        if size == MIB:
            for _ in range(16):
                await unread(server, stack)
        while (reply := await call(server, "GET", "/q/messages?count=24")).status == 200:
            found += [_body(json.loads(line)) for line in reply.body.splitlines()]
    for body in found:
        assert body == body_of(int.from_bytes(body[:4], "big"), size)
    assert len(found) >= 24 - 16
    await comes_true(lambda: _holds_nothing(server))


def _body(row: dict[str, Any]) -> bytes:
    return str(row["body"]).encode()


@pytest.mark.parametrize("split", ["lines", "rows"])
async def test_lines_that_must_be_held_and_find_no_room_are_refused(
    serve: Serve, split: str
) -> None:
    server = await serve(memory_bytes=0)
    await make_queue(server)
    part = b"x" * (7 * MIB)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = raw_head("POST", f"/q/messages?split={split}", f"Content-Length: {len(part) + 1}")
    writer.write(head + part)
    await comes_true(lambda: _publishes(server, len(part)))
    refused = await call(server, "POST", f"/q/messages?split={split}", data=part)
    assert_problem(refused, 503, "no-memory")
    assert await publish(server, b"meanwhile")
    writer.write(b"\n")
    assert b" 200 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def _publishes(server: Server, size: int) -> bool:
    return bool((await memory(server))["holders"]["publishing"]["bytes"] >= size)


async def ids(server: Server) -> int:
    """How many ids the process knows of ready messages: by both pages, which agree."""
    shown = (await memory(server))["ids"]
    metrics = (await call(server, "GET", "/-/metrics")).body.decode()
    assert f"\nmq_memory_ids {shown}" in metrics or f"\nmq_memory_ids {float(shown)}" in metrics
    return int(shown)


@pytest.mark.certificate
async def test_deleted_queues_leave_their_share_of_ids_to_those_that_stay(server: Server) -> None:
    for number in range(600):
        name = f"q{number}"
        await make_queue(server, name)
        assert (await fetch(server, name)).status == 204
        await publish(server, b"x", name)
        assert (await call(server, "DELETE", f"/{name}")).status == 200
    assert await ids(server) == 0
    assert (await memory(server))["queues_held"] == 0
    await make_queue(server)
    lines = b"\n".join(b"%d" % number for number in range(1000))
    assert (await call(server, "POST", "/q/messages?split=lines", data=lines)).status == 200
    assert (await fetch(server)).status == 200
    assert await ids(server) >= 999


async def test_queues_that_are_used_up_leave_their_share_of_ids_to_others(server: Server) -> None:
    for number in range(10):
        name = f"q{number}"
        await make_queue(server, name)
        assert (await fetch(server, name)).status == 204
        await publish(server, b"x", name)
        assert (await fetch(server, name)).status == 200
    assert await ids(server) == 0


@pytest.mark.certificate
async def test_selections_that_ended_leave_their_share_of_ids_to_others(server: Server) -> None:
    await make_queue(server)
    count = SELECTIONS_PER_QUEUE_MAX + 10
    for number in range(2 * count):
        await publish(server, b"x", headers={"ce-type": f"t{number // 2}"})
    for number in range(count):
        reply = await call(server, "GET", f"/q/messages?select=header:ce-type%3Dt{number}")
        assert reply.status == 200
    assert 0 < await ids(server) <= 2 * SELECTIONS_PER_QUEUE_MAX
    assert (await call(server, "DELETE", "/q")).status == 200
    assert await ids(server) == 0


async def test_a_publish_and_a_look_that_end_after_the_deletion_leave_nothing(
    server: Server,
) -> None:
    for number in range(30):
        name = f"q{number}"
        await make_queue(server, name)
        assert (await fetch(server, name)).status == 204
        requests = [publish_or_not(server, name) for _ in range(4)]
        requests += [call(server, "GET", f"/{name}/messages") for _ in range(2)]
        requests.append(call(server, "DELETE", f"/{name}"))
        await asyncio.gather(*requests)
    assert await ids(server) == 0
    assert (await memory(server))["queues_held"] == 0


async def publish_or_not(server: Server, name: str) -> Reply:
    return await call(server, "POST", f"/{name}/messages", data=b"x")


async def test_what_is_published_while_a_consumer_waits_is_served_from_memory(
    server: Server,
) -> None:
    await make_queue(server)
    for number in range(20):
        body = body_of(number, 4 * KIB)
        waiting = asyncio.create_task(call(server, "GET", "/q/messages?wait=60"))
        await comes_true(lambda: interested(server, "q") == 1, "somebody who waits")
        await publish(server, body, headers={"ce-id": str(number)})
        reply = await waiting
        assert (reply.body, reply.headers["ce-id"]) == (body, str(number))
    found = await memory(server)
    assert (found["hits"], found["misses"]) == (20, 0)
    await comes_true(lambda: _holds_nothing(server))


async def test_what_is_published_is_kept_for_the_selection_that_takes_it(server: Server) -> None:
    await make_queue(server)
    select = "/q/messages?select=header:ce-type%3Dpaid"
    assert (await call(server, "GET", select)).status == 204
    for number in range(10):
        await publish(server, body_of(number, 4 * KIB), headers={"ce-type": "paid"})
        await publish(server, b"of no selection", headers={"ce-type": "sent"})
    for number in range(10):
        assert (await call(server, "GET", select)).body == body_of(number, 4 * KIB)
    found = await memory(server)
    assert (found["hits"], found["misses"]) == (10, 0)
    await comes_true(lambda: _holds_nothing(server))


async def test_what_other_processes_took_is_kept_no_more_after_the_next_scan(serve: Serve) -> None:
    server, other = await serve(), await serve()
    await make_queue(server)
    assert (await fetch(server)).status == 204
    for number in range(5):
        await publish(server, body_of(number, 4 * KIB))
    assert (await memory(server))["holders"]["kept"]["bodies"] == 5
    for _ in range(5):
        assert (await fetch(other)).status == 200
    assert (await fetch(server)).status == 204
    await comes_true(lambda: _holds_nothing(server))


@pytest.mark.parametrize("is_fetched", [False, True])
async def test_what_is_on_its_way_to_the_disk_counts_until_it_is_there(
    serve: Serve, is_fetched: bool
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    if is_fetched:
        assert (await fetch(server)).status == 204
    await publish(server, b"the queue is known from here on")
    gate = files.hold("create", "/new/")
    publishing = asyncio.create_task(publish(server, b"x" * 1000))
    await comes_true(gate.reached.is_set, "a publish")
    held = (await memory(server))["holders"]["publishing"]
    assert (held["bodies"], held["bytes"]) == (1, 1000 + BODY_OVERHEAD_BYTES)
    gate.open()
    await publishing
    assert (await memory(server))["holders"]["publishing"]["bodies"] == 0


async def test_of_a_queue_that_no_client_fetches_from_nothing_is_kept(server: Server) -> None:
    await make_queue(server)
    for number in range(5):
        await publish(server, body_of(number, 4 * KIB))
    await comes_true(lambda: _holds_nothing(server))


async def test_a_publish_that_is_refused_serves_nobody_and_holds_nothing(server: Server) -> None:
    await make_queue(server)
    await publish(server, b"first", params={"key": "k", "delay": "60"})
    waiting = asyncio.create_task(call(server, "GET", "/q/messages?wait=60"))
    await comes_true(lambda: interested(server, "q") == 1, "somebody who waits")
    refused = await call(server, "POST", "/q/messages?key=k", data=b"second")
    assert refused.status == 409
    await publish(server, b"third")
    assert (await waiting).body == b"third"
    await comes_true(lambda: _holds_nothing(server))
