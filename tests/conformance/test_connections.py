"""A connection: its requests in their order, who does not read, who waits, who goes, and drains."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from harness.api import call, fetch, make_queue, publish
from harness.faults import FaultyFiles, Gate
from harness.internals import connections, consumers, goes_as_it_is_answered, protocols
from harness.raw import RawConnection, raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

MEBIBYTE = 1 << 20


def publish_bytes(body: bytes, *headers: str) -> bytes:
    return raw_head("POST", "/q/messages", f"Content-Length: {len(body)}", *headers) + body


async def test_requests_that_come_at_once_are_answered_in_their_order(server: Server) -> None:
    await make_queue(server)
    bodies = [b"first", b"second", b"third"]
    requests = [publish_bytes(body) for body in bodies]
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        await connection.response()
        # One alone, which is in hand when the next two come together.
        await connection.send(requests[0])
        await connection.send(requests[1] + requests[2] + raw_head("GET", "/-/livez"))
        ids = [(await connection.response()).json()["id"] for _ in bodies]
        assert (await connection.response()).json() == {"alive": True}
    assert [(reply.id, reply.body) for reply in [await fetch(server) for _ in bodies]] == list(
        zip(ids, bodies, strict=True)
    )


async def test_a_request_may_come_in_any_two_pieces(server: Server) -> None:
    await make_queue(server)
    request = publish_bytes(b"hello, world", "Content-Type: text/plain")
    async with raw_connection(server.port) as connection:
        for end in range(1, len(request)):
            await connection.send(request[:end])
            # A turn of the loop, which the server shares: two pieces, not one.
            await asyncio.sleep(0)
            await connection.send(request[end:])
            assert (await connection.response()).status == 201
    counts = (await call(server, "GET", "/q")).json()
    assert counts["ready"] == len(request) - 1


async def test_a_body_that_is_streamed_out_leaves_the_connection_usable(server: Server) -> None:
    await make_queue(server)
    body = b"0123456789abcdef" * (3 * MEBIBYTE // 16)
    await publish(server, body)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        await connection.response()
        await connection.send(raw_head("GET", "/q/messages"))
        await connection.send(raw_head("GET", "/q/messages"))
        assert (await connection.response()).body == body
        assert (await connection.response(head_only=True)).status == 204
        await connection.send(publish_bytes(b"more"))
        assert (await connection.response()).status == 201


async def test_a_client_that_does_not_read_gets_no_more_than_its_buffers_hold(
    server: Server,
) -> None:
    """Else it could have a server hold all that is in a queue."""
    await make_queue(server)
    for _ in range(30):
        await publish(server, b"x" * MEBIBYTE)
    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        unread.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(unread, ("127.0.0.1", server.port))
        await loop.sock_sendall(unread, raw_head("GET", "/-/livez"))
        assert b"alive" in await loop.sock_recv(unread, 4096)
        while not any(each.is_full for each in protocols(server)):
            await loop.sock_sendall(unread, raw_head("GET", "/q/messages"))
            await fetch(server)
        before = await ready_now(server)
        for _ in range(5):
            await loop.sock_sendall(unread, raw_head("GET", "/q/messages"))
            # Served after that one, had it been begun.
            assert (await fetch(server)).status == 200
        # One may have been on its way while the last look was taken.
        assert await ready_now(server) >= before - 5 - 1


async def in_hand(
    serve: Serve, request: bytes
) -> tuple[Server, Gate, AbstractAsyncContextManager[RawConnection]]:
    """A server that has a publish in hand, whose flush waits at the gate; and the publish's
    connection.
    """
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    gate = files.hold("sync", "/new/")

    @asynccontextmanager
    async def opened() -> AsyncIterator[RawConnection]:
        async with raw_connection(server.port) as connection:
            await connection.send(raw_head("GET", "/q"))
            await connection.response()
            await connection.send(request)
            await comes_true(gate.reached.is_set)
            yield connection

    return server, gate, opened()


@asynccontextmanager
async def idle(server: Server) -> AsyncIterator[RawConnection]:
    """A connection that was answered, and asks nothing more."""
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        assert (await connection.response()).status == 200
        yield connection


async def test_a_connection_that_has_ended_makes_no_room_by_ending_once_more(
    server: Server,
) -> None:
    """Its bytes may be on their way for long: while they are, another would come in each time."""
    async with raw_connection(server.port) as raw:
        await raw.send(raw_head("GET", "/-/livez"))
        await raw.response()
        [connection] = protocols(server)
        assert connection.idle_since_s is not None
        connection.close()
        assert connection.idle_since_s is None


async def test_who_waits_for_an_answer_is_not_idle(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.http.connection.KEEPALIVE_S", 0.2)
    server, gate, opened = await in_hand(serve, publish_bytes(b"x"))
    async with opened as connection:
        async with idle(server) as later:
            # By now both have had no new request for as long as one may be idle.
            assert await later.ended() == b""
        gate.open()
        assert (await connection.response()).status == 201
        assert await connection.ended() == b""


async def test_a_poll_with_a_body_hears_its_client_hang_up(server: Server) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        poll = raw_head("GET", "/q/messages?wait=20", "Content-Length: 200000")
        await connection.send(poll + bytes(200_000))
        await comes_true(lambda: consumers(server, "q") == 1, "it waits")
    await comes_true(lambda: consumers(server, "q") == 0, "it is gone", patience_s=10)
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id


async def test_a_drain_answers_what_is_in_hand_and_closes(serve: Serve) -> None:
    server, gate, opened = await in_hand(serve, publish_bytes(b"x"))
    async with opened as connection, idle(server) as other:
        draining = asyncio.create_task(server.daemon.drain())
        # The drain closes all connections at once; one in hand stays until it is answered.
        assert await other.ended() == b""
        gate.open()
        assert (await connection.response()).status == 201
        assert await connection.ended() == b""
    await draining


@pytest.mark.certificate
async def test_a_client_that_goes_with_requests_held_back_leaves_nothing(serve: Serve) -> None:
    server, gate, opened = await in_hand(serve, publish_bytes(b"first"))
    async with opened as connection:
        await connection.send(publish_bytes(b"second"))
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    gate.open()
    # The first was begun, and is finished; the second never was.
    assert (await comes_true(lambda: ready(server))) == 1


async def test_a_client_that_goes_when_its_streamed_answer_would_begin_leaves_nothing(
    serve: Serve,
) -> None:
    """No descriptor, and no message that waits until it is due."""
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    await publish(server, b"x" * (2 * MEBIBYTE))
    gate = files.hold("sync", "/q/")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        await connection.response()
        await connection.send(raw_head("GET", "/q/messages"))
        await comes_true(gate.reached.is_set)
        goes_as_it_is_answered(server)
        gate.open()
        await connection.ended()
    await comes_true(lambda: ready(server), "the message is released")
    assert files.open_paths("/q/") == []


async def test_a_drain_ends_what_is_streamed_to_one_who_does_not_read(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, drain_s=0.1)
    await make_queue(server)
    await publish(server, b"x" * (20 * MEBIBYTE))
    with socket.socket() as unread:
        unread.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(unread, ("127.0.0.1", server.port))
        await loop.sock_sendall(unread, raw_head("GET", "/-/livez"))
        assert b"alive" in await loop.sock_recv(unread, 4096)
        await loop.sock_sendall(unread, raw_head("GET", "/q/messages"))
        await comes_true(lambda: any(each.is_full for each in protocols(server)))
        await server.daemon.drain()
        # Though its transport still tries to send.
        await comes_true(lambda: not files.open_paths("/q/"), "the body is closed", 1.0)
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_client_that_goes_during_a_drain_is_no_error(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    gate = files.hold("sync", "/new/")
    async with idle(server) as other, raw_connection(server.port) as connection:
        await connection.send(publish_bytes(b"x"))
        await comes_true(gate.reached.is_set)
        draining = asyncio.create_task(server.daemon.drain())
        # The drain waits for the request from here on.
        assert await other.ended() == b""
    await comes_true(lambda: not connections(server), "no connection is left")
    gate.open()
    await draining
    assert not [each for each in caplog.records if each.exc_info]


async def ready_now(server: Server) -> int:
    return len(list((server.root / "queues" / "q").iterdir()))


async def ready(server: Server) -> int:
    count: int = (await call(server, "GET", "/q")).json()["ready"]
    return count
