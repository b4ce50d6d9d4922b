"""Deliveries that are given back unhandled: they do not count towards `max_receives`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, fetch, make_queue, publish, publish_lines
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.message import RETURNED_MAX
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.full_passes import FIRST_SIGHT_S
from mq_mover.mover import Mover


async def served(serve: Serve, max_receives: int, **more: Any) -> Server:
    started = await serve(**more)
    await make_queue(started)
    reply = await call(started, "PATCH", "/q/settings", json={"max_receives": max_receives})
    assert reply.status == 200
    return started


async def give_back(server: Server, message_id: str, **headers: str) -> Reply:
    body = {"due_in_s": 0, "unhandled": True}
    path = f"/q/messages/{message_id}"
    return await call(server, "PATCH", path, json=body, headers=headers)


async def fetched(server: Server) -> tuple[str, str]:
    """The next message's id, and its entity tag."""
    reply = await fetch(server)
    assert reply.status == 200
    return reply.id, reply.headers["ETag"]


def move_released(root: Path, clock: FakeClock) -> None:
    """What was due when it last changed a mover leaves alone at first sight, for a second."""
    mover = Mover(open_root(str(root), Files(), clock), NoFlusher(), Timer())
    mover.run_once()
    clock.advance(FIRST_SIGHT_S)
    mover.run_once()


async def test_a_returned_delivery_is_no_attempt(
    serve: Serve, root: Path, clock: FakeClock
) -> None:
    server = await served(serve, 1, clock=clock)
    await publish(server)
    for receives in range(1, RETURNED_MAX + 1):
        message_id, etag = await fetched(server)
        assert etag == f'"{receives}"'
        reply = await give_back(server, message_id, **{"If-Match": etag})
        assert (reply.status, reply.headers["ETag"]) == (200, etag)
        assert reply.json()["receives"] == receives
        # The answer was lost, perhaps: the same again counts nothing twice.
        assert (await give_back(server, message_id, **{"If-Match": etag})).status == 200
    message_id, etag = await fetched(server)
    assert (await give_back(server, message_id, **{"If-Match": etag})).status == 200
    move_released(root, clock)
    counts = (await call(server, "GET", "/q")).json()
    assert (counts["ready"], counts["sidelined"]) == (0, 1)
    assert_audits_clean(root, clock)


async def test_a_message_says_its_attempts_where_some_deliveries_were_none(serve: Serve) -> None:
    server = await served(serve, 0)
    await publish(server)
    reply = await fetch(server)
    assert "X-Message-Attempts" not in reply.headers
    assert reply.headers["X-Message-Receives"] == "1"
    await give_back(server, reply.id, **{"If-Match": '"1"'})
    for path in ("/q/peek", "/q/messages?count=1&visibility=1"):
        row = json.loads((await call(server, "GET", path)).body)
        assert (row["attempts"], row["receives"]) in ((0, 1), (1, 2))
    read = await call(server, "GET", f"/q/messages/{reply.id}")
    assert (read.headers["X-Message-Attempts"], read.headers["X-Message-Receives"]) == ("1", "2")


async def test_what_has_lapsed_counts(serve: Serve, root: Path, clock: FakeClock) -> None:
    server = await served(serve, 1, clock=clock)
    await publish(server)
    message_id, etag = await fetched(server)
    clock.advance(31)
    assert (await give_back(server, message_id, **{"If-Match": etag})).status == 200
    move_released(root, clock)
    assert (await call(server, "GET", "/q")).json()["sidelined"] == 1


async def test_a_stale_consumer_returns_nothing(serve: Serve) -> None:
    server = await served(serve, 2)
    await publish(server)
    message_id, first = await fetched(server)
    assert (await give_back(server, message_id, **{"If-Match": first})).status == 200
    assert (await fetched(server))[1] == '"2"'
    reply = await give_back(server, message_id, **{"If-Match": first})
    assert_problem(reply, 412, "delivered-again")


@pytest.mark.parametrize("headers", [{}, {"If-Match": "*"}])
async def test_the_delivery_has_to_be_named(serve: Serve, headers: dict[str, str]) -> None:
    server = await served(serve, 2)
    await publish(server)
    message_id, _ = await fetched(server)
    assert_problem(await give_back(server, message_id, **headers), 400, "bad-body")


@pytest.mark.parametrize(
    "body",
    [
        {"due_in_s": 1, "unhandled": True},
        {"due_in_s": 0, "unhandled": 1},
        {"unhandled": True},
        {"due_in_s": 0, "unhandled": True, "x": 1},
    ],
)
async def test_what_is_malformed_changes_nothing(serve: Serve, body: dict[str, object]) -> None:
    server = await served(serve, 2)
    await publish(server)
    message_id, etag = await fetched(server)
    path = f"/q/messages/{message_id}"
    reply = await call(server, "PATCH", path, json=body, headers={"If-Match": etag})
    assert_problem(reply, 400, "bad-body")


async def test_a_connection_gives_back_what_was_not_begun(serve: Serve) -> None:
    server = await served(serve, 1)
    await publish_lines(server, [b"0", b"1", b"2", b"3"])
    async with consuming(server) as consumer:
        await consumer.socket.send_json({"begin": []})
        await consumer.subscribe("q", credit=4)
        first, second, third, _ = [await consumer.message() for _ in range(4)]
        await consumer.socket.send_json({"begin": [first.id]})
        assert await consumer.statuses(ack=[second.id]) == [202]
        assert await consumer.statuses(release=[third.id], unhandled=True) == [200]

    async def counts() -> bool:
        found = (await call(server, "GET", "/q")).json()
        return (found["ready"], found["in_flight"]) == (2, 1) or found["sidelined"] == 1

    await comes_true(counts)
    assert {(await fetched(server))[1] for _ in range(2)} == {'"2"'}


async def test_a_connection_that_tells_nothing_has_handled_all(serve: Serve) -> None:
    server = await served(serve, 1)
    await publish_lines(server, [b"0", b"1"])
    async with consuming(server, "q", credit=2) as consumer:
        await consumer.bodies(2)

    async def is_over() -> bool:
        found = (await call(server, "GET", "/q")).json()
        return bool(found["in_flight"] + found["sidelined"] == 2 and found["ready"] == 0)

    await comes_true(is_over)


async def test_what_was_prefetched_by_requests_and_not_begun_is_returned(serve: Serve) -> None:
    server = await served(serve, 1)
    await publish_lines(server, [b"0", b"1", b"2", b"3"])
    (begun, _), (waiting, _), (released, etag), (unknown, _) = [
        await fetched(server) for _ in range(4)
    ]
    async with consuming(server) as consumer:
        named = [{"queue": "q", "id": each, "receives": 1} for each in (begun, waiting, released)]
        stale = {"queue": "q", "id": unknown, "receives": 2}
        await consumer.socket.send_json({"prefetched": [*named, stale]})
        await consumer.socket.send_json({"begin": [begun]})
        reply = await give_back(server, released, **{"If-Match": etag})
        assert reply.status == 200

    async def is_back() -> bool:
        found = (await call(server, "GET", "/q")).json()
        return (found["ready"], found["in_flight"]) == (2, 2)

    await comes_true(is_back)
    again = dict([await fetched(server) for _ in range(2)])
    assert again == {waiting: '"2"', released: '"2"'}


PROGRAM = """
import sys, time
from mq import Client
with Client(sys.argv[1]) as client, client.queue("q").consume(prefetch=10) as messages:
    message = messages.next()
    print(message.id, flush=True)
    sys.stdin.read()
"""


@pytest.mark.certificate
async def test_a_killed_program_costs_attempts_of_what_it_had(serve: Serve) -> None:
    server = await served(serve, 3)
    await publish_lines(server, [b"x"] * 10)
    for taken in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program:

            async def has_all(left: int = 10 - taken) -> bool:
                return bool((await call(server, "GET", "/q")).json()["in_flight"] == left)

            await comes_true(has_all)
            assert program.stdout is not None
            message_id = program.stdout.readline().strip()
            os.kill(program.pid, signal.SIGKILL)

        async def is_back(left: int = 10 - taken) -> bool:
            return bool((await call(server, "GET", "/q")).json()["ready"] == left)

        await comes_true(is_back)
        assert (await call(server, "DELETE", f"/q/messages/{message_id}")).status == 202
    assert {(await fetched(server))[1] for _ in range(6)} == {'"5"'}
