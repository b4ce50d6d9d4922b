"""Plain requests go the direct way, all others the long way: nobody can tell by the answer."""

import asyncio
import errno
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from harness.api import UNKNOWN_ID, call, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles, Gate
from harness.internals import (
    connections,
    goes_as_it_is_answered,
    in_hand_directly,
    protocols,
)
from harness.raw import RawConnection, RawResponse, raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.limits import SETTINGS_AGE_S
from mq.model.settings import QueueSettings

LONG_WAY = "X-Unlisted: 1"
MEBIBYTE = 1 << 20


def publish_bytes(body: bytes, *headers: str) -> bytes:
    return raw_head("POST", "/q/messages", f"Content-Length: {len(body)}", *headers) + body


def comparable(answer: RawResponse) -> tuple[int, list[tuple[str, str]], bytes]:
    """The answer without what differs between two messages: ids and times."""

    def plain(text: str) -> str:
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}", "ID", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME", text)
        return re.sub(r"\w{3}, \d\d \w{3} \d{4} [0-9:]+ GMT", "DATE", text)

    headers = [(name, plain(value)) for name, value in answer.headers.items()]
    return answer.status, headers, plain(answer.body.decode("latin-1")).encode("latin-1")


async def both(server: Server, first: bytes, second: bytes) -> list[RawResponse]:
    """The answers to a request in its plain form and in its other."""
    answers = []
    for request in (first, second):
        async with raw_connection(server.port) as connection:
            # The queue's settings are known then, and aiohttp waits for the next request.
            await connection.send(raw_head("GET", "/q"))
            await connection.response()
            await connection.send(request)
            answers.append(await connection.response())
    return answers


@pytest.mark.parametrize(
    "made",
    [
        lambda *more: publish_bytes(b"hello", *more),
        lambda *more: publish_bytes(b"", *more),
        lambda *more: publish_bytes(b"{}", "Content-Type: application/json", *more),
        lambda *more: publish_bytes(b"{}", "content-type: text/weird; a=b", *more),
        lambda *more: publish_bytes(b"{}", "ce-id: 1", "X-Attribute-A: b", *more),
        lambda *more: raw_head("GET", f"/q/messages/{UNKNOWN_ID}", *more),
        lambda *more: raw_head("GET", "/q/messages", *more),
        lambda *more: raw_head("GET", "/empty/messages", *more),
        lambda *more: raw_head("GET", "/none/messages", *more),
        lambda *more: raw_head("DELETE", f"/q/messages/{UNKNOWN_ID}", *more),
        lambda *more: raw_head("DELETE", "/q/messages/no-id", *more),
        lambda *more: raw_head("PATCH", "/q/messages", *more),
        lambda *more: raw_head("GET", "/q/messages?wait=x", *more),
        lambda *more: raw_head("GET", "/q//messages", *more),
        lambda *more: publish_bytes(b"x" * 2000, *more),
    ],
)
async def test_both_ways_give_the_same_answer(serve: Serve, made: Callable[..., bytes]) -> None:
    server = await serve(queue=QueueSettings(body_bytes_max=1000))
    await make_queue(server)
    await make_queue(server, "empty")
    for body in (b"one", b"two", b"one", b"two"):
        await publish(server, body)
    plain, other = await both(server, made(), made(LONG_WAY))
    seen, expected = comparable(plain), comparable(other)
    if plain.status == 200 and made() == raw_head("GET", "/q/messages"):
        assert {plain.body, other.body} == {b"one", b"two"}
        seen, expected = seen[:2], expected[:2]
    assert seen == expected


async def test_a_delete_is_the_same_both_ways(server: Server) -> None:
    await make_queue(server)
    ids = [await publish(server) for _ in range(2)]
    plain, other = await both(
        server,
        raw_head("DELETE", f"/q/messages/{ids[0]}"),
        raw_head("DELETE", f"/q/messages/{ids[1]}", LONG_WAY),
    )
    assert comparable(plain) == comparable(other)
    assert plain.status == 202


async def test_a_failure_is_the_same_both_ways(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    files.fail("sync", errno.EIO, times=2)
    plain, other = await both(server, publish_bytes(b"x"), publish_bytes(b"x", LONG_WAY))
    assert comparable(plain) == comparable(other)
    assert plain.status == 503


@pytest.mark.parametrize("long_way", [(), (0,), (1,), (2,), (0, 2)])
async def test_requests_that_come_at_once_are_answered_in_their_order(
    server: Server, long_way: tuple[int, ...]
) -> None:
    await make_queue(server)
    bodies = [b"first", b"second", b"third"]
    requests = [
        publish_bytes(body, *([LONG_WAY] if place in long_way else []))
        for place, body in enumerate(bodies)
    ]
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
        while not any(each.writing_paused for each in protocols(server)):
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
    """A server that has a publish in hand by the direct way, whose flush waits at the gate; and the
    connection that it came by.
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
            assert in_hand_directly(server)
            yield connection

    return server, gate, opened()


async def test_a_delete_goes_the_direct_way_whatever_is_known_of_settings(serve: Serve) -> None:
    files, clock = FaultyFiles(), FakeClock()
    server = await serve(files=files, clock=clock, commit="fsync")
    await make_queue(server)
    message_id = await publish(server)
    clock.advance(SETTINGS_AGE_S)
    gate = files.hold("rename", "/remove/")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        await connection.response()
        await connection.send(raw_head("DELETE", f"/q/messages/{message_id}"))
        await comes_true(gate.reached.is_set)
        is_direct = in_hand_directly(server)
        gate.open()
        assert is_direct
        assert (await connection.response()).status == 202


@asynccontextmanager
async def idle(server: Server) -> AsyncIterator[RawConnection]:
    """A connection that was answered, and asks nothing more."""
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        assert (await connection.response()).status == 200
        yield connection


async def test_who_waits_for_an_answer_is_not_idle(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.http.app.KEEPALIVE_S", 0.2)
    server, gate, opened = await in_hand(serve, publish_bytes(b"x"))
    async with opened as connection:
        async with idle(server) as later:
            # By now both have had no new request for as long as one may be idle.
            assert await later.ended() == b""
        gate.open()
        assert (await connection.response()).status == 201
        assert await connection.ended() == b""


async def test_a_drain_answers_what_went_the_direct_way_and_closes(serve: Serve) -> None:
    server, gate, opened = await in_hand(serve, publish_bytes(b"x"))
    async with opened as connection, idle(server) as other:
        draining = asyncio.create_task(server.daemon.drain())
        # The drain closes all connections at once; one in hand stays until it is answered.
        assert await other.ended() == b""
        gate.open()
        assert (await connection.response()).status == 201
        assert await connection.ended() == b""
    await draining


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


@pytest.mark.parametrize("more", [(), (LONG_WAY,)])
async def test_a_drain_ends_what_is_streamed_to_one_who_does_not_read(
    serve: Serve, more: tuple[str, ...], caplog: pytest.LogCaptureFixture
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
        await loop.sock_sendall(unread, raw_head("GET", "/q/messages", *more))
        await comes_true(lambda: any(each.writing_paused for each in protocols(server)))
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
        await connection.send(publish_bytes(b"x", LONG_WAY))
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
