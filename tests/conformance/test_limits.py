"""What clients may use up: heads that come slowly, connections, waiters, queues."""

import asyncio
import contextlib
import json
import socket

import aiohttp
import pytest
from harness.api import call
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.internals import broker, connections
from harness.raw import RawConnection, RawResponse, raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.broker.queue_room import QUEUES_COUNTED_S, QUEUES_FULL_S

LIVE = raw_head("GET", "/-/livez")
# Of a connection that was turned away a while ago.
GONE = (ConnectionError, asyncio.IncompleteReadError)


def problem_of(response: RawResponse, status: int, slug: str) -> dict[str, object]:
    assert response.status == status
    assert response.headers["content-type"] == "application/problem+json"
    members: dict[str, object] = response.json()
    assert members["type"] == f"urn:mq:problem:{slug}"
    return members


def waiters(server: Server) -> int:
    return broker(server).consuming.waiters


# Heads


@pytest.mark.parametrize(
    "begun", [b"G", b"GET /-/livez HTTP/1.1", b"GET /-/livez HTTP/1.1\r\nHost: mq\r\n", b"\r\nP"]
)
async def test_a_head_that_does_not_end_is_answered_and_hung_up_on(
    serve: Serve, begun: bytes
) -> None:
    server = await serve(head_s=0.2)
    async with raw_connection(server.port) as connection:
        await connection.send(begun)
        response = await connection.response()
        members = problem_of(response, 408, "head-too-slow")
        assert members["retryable"] is True
        assert response.headers["connection"] == "close"
        assert await connection.ended() == b""


async def test_a_head_that_begins_with_its_connection_is_minded_too(serve: Serve) -> None:
    server = await serve(head_s=0.2)
    # In one turn of the loop: mq sees both at once.
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /-/livez HTTP/1.1\r\n")
        client.setblocking(False)
        loop, said = asyncio.get_running_loop(), b""
        while found := await loop.sock_recv(client, 65536):
            said += found
    assert said.startswith(b"HTTP/1.1 408 ")


async def test_who_takes_nothing_of_its_answers_is_hung_up_on(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        server = await serve(descriptors=(listening.fileno(),), unread_s=0.2)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            asking = asyncio.create_task(
                loop.sock_sendall(client, raw_head("GET", "/-/openapi.json") * 50)
            )
            await comes_true(lambda: connections(server) == 1)
            await comes_true(lambda: connections(server) == 0)
            with contextlib.suppress(ConnectionError):
                await asking
        assert (await call(server, "GET", "/-/livez")).status == 200


@pytest.mark.certificate
async def test_heads_that_end_in_time_are_not_late_though_each_comes_with_the_next(
    serve: Serve,
) -> None:
    server = await serve(head_s=0.2)
    request = raw_head("GET", "/-/livez")
    now_s = asyncio.get_running_loop().time
    async with raw_connection(server.port) as connection:
        await connection.send(request[:20])
        until_s = now_s() + 3 * 0.2
        while now_s() < until_s:
            await connection.send(request[20:] + request[:20])
            assert (await connection.response()).status == 200


async def test_bytes_that_trickle_do_not_help_a_slow_head(serve: Serve) -> None:
    server = await serve(head_s=0.3)
    async with raw_connection(server.port) as connection:
        answer = asyncio.create_task(connection.response())
        for byte in b"GET /-/livez HTTP/1.1\r\n" + b"X-A: b\r\n" * 1000:
            with contextlib.suppress(ConnectionError):
                await connection.send(bytes((byte,)))
            done, _ = await asyncio.wait((answer,), timeout=0.05)
            if done:
                break
        problem_of(answer.result(), 408, "head-too-slow")


async def test_a_second_head_is_minded_like_the_first(serve: Serve) -> None:
    server = await serve(head_s=0.2)
    async with raw_connection(server.port) as connection:
        for path in ("/-/livez", "/none/messages"):
            await connection.send(raw_head("GET", path))
            assert (await connection.response()).status in (200, 404)
        await connection.send(LIVE[:-2])
        problem_of(await connection.response(), 408, "head-too-slow")


@pytest.mark.certificate
async def test_a_head_in_pieces_is_whole_in_time_and_then_takes_its_time(serve: Serve) -> None:
    server = await serve(head_s=1)
    await call(server, "PUT", "/orders")
    async with raw_connection(server.port) as connection:
        request = raw_head("GET", "/orders/messages?wait=1.5")
        for piece in (b"\r\n", request[:9], request[9:-1], request[-1:]):
            await connection.send(piece)
        # The wait is longer than a head may take, and so is what the connection is idle for.
        assert (await connection.response()).status == 204
        idle = asyncio.create_task(connection.ended())
        await asyncio.wait((idle,), timeout=1.3)
        assert not idle.done()
        idle.cancel()


# Connections


async def asked(connection: RawConnection) -> RawResponse:
    await connection.send(LIVE)
    return await connection.response()


async def test_one_connection_too_many_is_told_so_before_it_asks(serve: Serve) -> None:
    server = await serve(connections_max=2)
    async with raw_connection(server.port) as one, raw_connection(server.port) as two:
        assert (await asked(one)).status == (await asked(two)).status == 200
        async with raw_connection(server.port) as three:
            response = await three.response()
            members = problem_of(response, 503, "too-many-connections")
            assert members["connections_max"] == 2
            assert members["retryable"] is True
            assert response.headers["retry-after"] == "1"
            assert response.headers["connection"] == "close"
            assert await three.ended() == b""
        assert (await asked(one)).status == (await asked(two)).status == 200
        await one.close()

        async def has_room() -> bool:
            with contextlib.suppress(*GONE):
                async with raw_connection(server.port) as another:
                    return (await asked(another)).status == 200
            return False

        await comes_true(has_room)


@pytest.mark.certificate
async def test_an_idle_connection_goes_for_a_new_one_and_one_that_waits_stays(serve: Serve) -> None:
    server = await serve(connections_max=2)
    async with raw_connection(server.port) as waiting, raw_connection(server.port) as idle:
        await waiting.send(raw_head("PUT", "/orders"))
        assert (await waiting.response()).status == 201
        await waiting.send(raw_head("GET", "/orders/messages?wait=60"))
        await comes_true(lambda: waiters(server) == 1)
        assert (await asked(idle)).status == 200

        async def is_let_in() -> bool:
            with contextlib.suppress(*GONE):
                async with raw_connection(server.port) as another:
                    await another.send(raw_head("POST", "/orders/messages", "Content-Length: 0"))
                    return (await another.response()).status == 201
            return False

        await comes_true(is_let_in)
        assert await idle.ended() == b""
        assert (await waiting.response()).status == 200


async def test_who_asked_before_it_was_turned_away_sees_why(serve: Serve) -> None:
    server = await serve(connections_max=1)
    async with raw_connection(server.port) as kept:
        assert (await asked(kept)).status == 200
        # The server's loop is this one, and has no turn before all is sent.
        plain = socket.create_connection(("127.0.0.1", server.port))
        plain.sendall(LIVE)
        early = RawConnection(*await asyncio.open_connection(sock=plain))
        problem_of(await early.response(), 503, "too-many-connections")
        assert await early.ended() == b""
        await early.close()


async def test_many_that_are_turned_away_cost_nobody_else(serve: Serve) -> None:
    server = await serve(connections_max=1)
    async with raw_connection(server.port) as kept:
        assert (await asked(kept)).status == 200

        async def turned_away() -> int:
            async with raw_connection(server.port) as connection:
                return (await connection.response()).status

        statuses = await asyncio.gather(*(turned_away() for _ in range(50)))
        assert set(statuses) == {503}
        assert (await asked(kept)).status == 200


# Waiters


async def test_one_waiter_too_many_is_refused_both_ways_and_may_fetch_without_waiting(
    serve: Serve,
) -> None:
    server = await serve(waiters_max=2)
    await call(server, "PUT", "/orders")
    polls = [asyncio.create_task(call(server, "GET", "/orders/messages?wait=60")) for _ in range(2)]
    await comes_true(lambda: waiters(server) == 2)
    # The direct way, the long one, and that of several.
    for path in ("wait=1", "wait=1&visibility=5", "wait=1&count=3"):
        reply = await call(server, "GET", f"/orders/messages?{path}")
        assert reply.status == 503, path
        assert reply.headers["Retry-After"] == "1"
        members = reply.json()
        assert members["type"] == "urn:mq:problem:too-many-waiters"
        assert (members["waiters_max"], members["retryable"]) == (2, True)
    assert (await call(server, "GET", "/orders/messages")).status == 204
    for number in range(2):
        await call(server, "POST", "/orders/messages", data=b"%d" % number)
    assert {(await poll).body for poll in polls} == {b"0", b"1"}
    await comes_true(lambda: waiters(server) == 0)
    assert (await call(server, "GET", "/orders/messages?wait=0.01")).status == 204
    assert waiters(server) == 0


async def test_a_waiter_that_hangs_up_makes_room(serve: Serve) -> None:
    server = await serve(waiters_max=1)
    await call(server, "PUT", "/orders")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/orders/messages?wait=60"))
        await comes_true(lambda: waiters(server) == 1)
        connection.abort()
        await comes_true(lambda: waiters(server) == 0)
    assert (await call(server, "GET", "/orders/messages?wait=0.01")).status == 204


async def test_waiters_of_a_queue_that_goes_are_waiters_no_more(serve: Serve) -> None:
    server = await serve(waiters_max=2)
    await call(server, "PUT", "/orders")
    polls = [
        asyncio.create_task(call(server, "GET", f"/orders/messages?wait=60{more}"))
        for more in ("", "&visibility=3")
    ]
    await comes_true(lambda: waiters(server) == 2)
    await call(server, "DELETE", "/orders")
    assert [(await poll).status for poll in polls] == [404, 404]
    assert waiters(server) == 0


async def test_a_subscription_too_many_is_refused_on_its_socket(serve: Serve) -> None:
    server = await serve(waiters_max=1)
    for queue in ("orders", "invoices"):
        await call(server, "PUT", f"/{queue}")
    async with server.session.ws_connect(server.url + "/-/consume") as socket:

        async def statuses(**frame: object) -> list[int]:
            await socket.send_str(json.dumps({**frame, "ref": 1}))
            message = await socket.receive(30)
            assert message.type is aiohttp.WSMsgType.TEXT
            return [result["status"] for result in json.loads(message.data)["results"]]

        both = [{"queue": "orders"}, {"queue": "invoices"}]
        assert await statuses(subscribe=both) == [200, 503]
        assert waiters(server) == 1
        assert await statuses(unsubscribe=["orders"]) == [200]
        assert waiters(server) == 0
        assert await statuses(subscribe=both[1:]) == [200]
    await comes_true(lambda: waiters(server) == 0)


# Queues


async def test_one_queue_too_many_is_not_made_until_another_goes(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(queues_max=2, clock=clock)
    assert [(await call(server, "PUT", f"/{name}")).status for name in "ab"] == [201, 201]
    reply = await call(server, "PUT", "/c")
    assert reply.status == 429
    members = reply.json()
    assert members["type"] == "urn:mq:problem:too-many-queues"
    assert (members["queues_max"], members["retryable"]) == (2, False)
    assert (await call(server, "GET", "/c")).status == 404
    # One that is there is, however many there are.
    assert (await call(server, "PUT", "/a")).status == 200
    await call(server, "DELETE", "/a")
    clock.advance(QUEUES_FULL_S)
    assert (await call(server, "PUT", "/c")).status == 201
    assert (await call(server, "PUT", "/d")).status == 429


async def test_queues_of_other_processes_count_within_a_minute(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(queues_max=3, clock=clock)
    other = await serve()
    await call(server, "PUT", "/a")
    for name in "bc":
        assert (await call(other, "PUT", f"/{name}")).status == 201
    clock.advance(QUEUES_COUNTED_S)
    assert (await call(server, "PUT", "/d")).status == 429


async def test_many_that_make_queues_at_once_make_no_more_than_there_may_be(serve: Serve) -> None:
    server = await serve(queues_max=5)
    replies = await asyncio.gather(*(call(server, "PUT", f"/q{n}") for n in range(20)))
    assert sorted(reply.status for reply in replies) == [201] * 5 + [429] * 15


async def test_who_hangs_up_has_made_its_queue_all_the_same(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(queues_max=3, files=files)
    await call(server, "PUT", "/a")
    for name in "bc":
        gate = files.hold("mkdir")
        async with raw_connection(server.port) as connection:
            await connection.send(raw_head("PUT", f"/{name}"))
            await comes_true(gate.reached.is_set)
        gate.open()
        await comes_true(lambda name=name: _is_there(server, name))
    assert (await call(server, "PUT", "/d")).status == 429


async def _is_there(server: Server, name: str) -> bool:
    return (await call(server, "GET", f"/{name}")).status == 200


async def test_a_sideline_is_made_however_many_queues_there_are(serve: Serve) -> None:
    server = await serve(queues_max=1)
    await call(server, "PUT", "/orders")
    sent = await call(server, "POST", "/orders/messages", data=b"bad")
    path = f"/orders/messages/{sent.id}/sideline"
    assert (await call(server, "POST", path)).status in (200, 202)
    assert (await call(server, "GET", "/orders_SIDELINE")).status == 200
