"""What one client sends or leaves unread costs a bounded amount of memory, and no other's turn."""

import asyncio
import contextlib
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable

import pytest
from harness.access import Tokens
from harness.api import call, id_at, make_queue, publish
from harness.internals import protocols
from harness.raw import (
    RawConnection,
    RawResponse,
    raw_connection,
    raw_frame,
    raw_head,
    raw_request,
    raw_websocket,
)
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.http.acceptor import UNPARSED_BYTES_MAX
from mq.http.connection import REQUESTS_PER_TURN_MAX
from mq.http.consume.socket import CONTROL_FRAMES_MAX, CONTROL_FRAMES_PER_S
from mq.http.request import FRAMED_PER_TURN_MAX, HEAD_BYTES_MAX
from mq.model.limits import KIB, MIB

LIVE = raw_head("GET", "/-/livez")
PING, PONG, TEXT, CONTINUATION = 9, 10, 1, 0
MANY = 20 * CONTROL_FRAMES_MAX


def problem_of(response: RawResponse, status: int, slug: str) -> None:
    assert response.status == status
    assert response.json()["type"] == f"urn:mq:problem:{slug}"
    assert response.headers["connection"] == "close"


def connections(server: Server) -> tuple[int, int]:
    """How many there are, and how many of them are WebSockets."""
    return server.daemon.service.scrapes.connections()  # type: ignore[union-attr]


@contextlib.asynccontextmanager
async def turns() -> AsyncIterator[Callable[[], int]]:
    """How many turns the loop has had."""
    count = 0

    async def turn() -> None:
        nonlocal count
        while True:
            await asyncio.sleep(0)
            count += 1

    task = asyncio.create_task(turn())
    yield lambda: count
    task.cancel()


# WebSockets


@pytest.mark.parametrize(
    "frames",
    [
        raw_frame(b"x" * 125, PING) * MANY,
        raw_frame(b"", PING) * MANY,
        raw_frame(b"", PONG) * MANY,
        raw_frame(b"", TEXT, is_last=False) + raw_frame(b"", CONTINUATION, is_last=False) * MANY,
    ],
    ids=["pings", "empty pings", "pongs", "empty fragments"],
)
async def test_a_websocket_that_says_nothing_too_often_is_closed(
    server: Server, frames: bytes
) -> None:
    async with raw_websocket(server.port) as connection:
        began_s = asyncio.get_running_loop().time()
        await connection.send(frames)
        code, pongs = await connection.close_code()
        took_s = asyncio.get_running_loop().time() - began_s
        assert code == 1008
        assert pongs <= CONTROL_FRAMES_MAX + took_s * CONTROL_FRAMES_PER_S
        assert await connection.ended() == b""
    assert (await call(server, "GET", "/-/livez")).status == 200


@pytest.mark.certificate
async def test_a_websocket_that_pings_and_takes_nothing_is_hung_up_on(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        server = await serve(descriptors=(listening.fileno(),), unread_s=0.5)
        await make_queue(server)
        for _ in range(4):
            await publish(server, b"x" * MIB)
        subscribe = json.dumps({"subscribe": [{"queue": "q", "credit": 4}]}).encode()
        async with raw_websocket(server.port) as connection:
            await connection.send(raw_frame(subscribe))

            async def is_gone() -> bool:
                with contextlib.suppress(ConnectionError):
                    await connection.send(raw_frame(b"?", PING))
                await asyncio.sleep(0.1)
                return connections(server)[1] == 0

            await comes_true(is_gone)
        assert (await call(server, "GET", "/-/livez")).status == 200


async def test_small_fragments_leave_the_loop_its_turns(server: Server) -> None:
    count = 40 * FRAMED_PER_TURN_MAX
    fragments = raw_frame(b" ", TEXT, is_last=False)
    fragments += raw_frame(b" ", CONTINUATION, is_last=False) * count
    fragments += raw_frame(b"{}", CONTINUATION)
    async with raw_websocket(server.port) as connection, turns() as had:
        before = had()
        await connection.send(fragments)
        assert json.loads((await connection.frame())[1])["problem"]["status"] == 400
        assert had() - before >= count // FRAMED_PER_TURN_MAX


@pytest.mark.certificate
async def test_a_command_in_the_smallest_fragments_takes_little_more_than_its_bytes(
    server: Server,
) -> None:
    await make_queue(server)
    text = json.dumps({"subscribe": [{"queue": "q"}], "ref": 1}).encode()
    command = text.rjust(64 * KIB)
    parts = [command[at : at + 2] for at in range(0, len(command), 2)]
    frames = [raw_frame(part, CONTINUATION, is_last=False) for part in parts[1:-1]]
    first = raw_frame(parts[0], TEXT, is_last=False)
    all_but_last = first + b"".join(frames) + raw_frame(b"?", PING)
    async with raw_websocket(server.port) as connection:
        tracemalloc.start()
        try:
            await connection.send(all_but_last)
            assert (await connection.frame())[0] == PONG
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await connection.send(raw_frame(parts[-1], CONTINUATION))
        answer = json.loads((await connection.frame())[1])
    assert (answer["ref"], answer["results"][0]["status"]) == (1, 200)
    assert held < 8 * len(command)


# Answers


@pytest.mark.certificate
async def test_a_client_that_leaves_a_small_last_answer_unread_is_hung_up_on(serve: Serve) -> None:
    """So little waits for it that its transport never paused."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as unread:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        server = await serve(descriptors=(listening.fileno(),), unread_s=0.3)
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(unread, ("127.0.0.1", server.port))

        async def waits() -> bool:
            await loop.sock_sendall(unread, LIVE)
            return any(
                each.transport is not None and each.transport.get_write_buffer_size()
                for each in protocols(server)
            )

        await comes_true(waits)
        await loop.sock_sendall(unread, raw_head("GET", "/-/livez", "Connection: close"))
        assert not any(each.is_full for each in protocols(server))
        await comes_true(lambda: not protocols(server), "the connection is gone")


# Requests


async def test_many_requests_at_once_leave_the_loop_its_turns(server: Server) -> None:
    count = 60 * REQUESTS_PER_TURN_MAX
    async with raw_connection(server.port) as connection, turns() as had:
        await connection.send(LIVE)
        assert (await connection.response()).status == 200
        before = had()
        await connection.send(LIVE * count)
        for _ in range(count):
            assert (await connection.response()).status == 200
        assert had() - before >= count // REQUESTS_PER_TURN_MAX


# Bodies


async def test_small_chunks_leave_the_loop_its_turns(server: Server) -> None:
    await make_queue(server)
    count = 80 * FRAMED_PER_TURN_MAX
    chunks = b"1\r\nx\r\n" * count + b"0\r\n\r\n"
    # What is no JSON waits for no disk.
    coding, kind = "Transfer-Encoding: chunked", "Content-Type: application/json"
    refused = raw_head("POST", "/q/acks", coding, kind) + chunks
    async with raw_connection(server.port) as connection, turns() as had:
        await connection.send(raw_head("POST", "/q/acks", "Content-Length: 1", kind) + b"x")
        assert (await connection.response()).status == 400
        before = had()
        await connection.send(refused)
        assert (await connection.response()).status == 400
        assert had() - before >= count // FRAMED_PER_TURN_MAX
        await connection.send(raw_head("POST", "/q/messages", coding) + chunks + LIVE)
        assert (await connection.response()).status == 201
        assert (await connection.response()).status == 200
    assert (await call(server, "GET", "/q/messages")).body == b"x" * count


@pytest.mark.certificate
@pytest.mark.parametrize("header", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_a_body_that_trickles_is_408_though_it_never_pauses(
    serve: Serve, header: str
) -> None:
    server = await serve(body_idle_s=0.5)
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", "/q/messages", header))
        answer = asyncio.create_task(connection.response())

        async def is_answered() -> bool:
            with contextlib.suppress(ConnectionError):
                await connection.send(b"1\r\nx\r\n" if "chunked" in header else b"x")
            await asyncio.wait((answer,), timeout=0.1)
            return answer.done()

        await comes_true(is_answered)
        problem_of(answer.result(), 408, "body-too-slow")


@pytest.mark.certificate
async def test_a_slow_line_has_the_time_that_its_bytes_take(serve: Serve) -> None:
    server = await serve(body_idle_s=0.5)
    await make_queue(server)
    parts = 15
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", "/q/messages", f"Content-Length: {parts * KIB}"))
        for _ in range(parts):
            await asyncio.sleep(0.1)
            await connection.send(b"x" * KIB)
        assert (await connection.response()).status == 201


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/q/acks"),
        ("PATCH", "/q/settings"),
        ("PATCH", f"/q/messages/{id_at()}"),
        ("PUT", "/q/schedules/s?every=60"),
    ],
)
async def test_bodies_that_are_held_count_in_the_budget(
    serve: Serve, method: str, path: str
) -> None:
    server = await serve(memory_bytes=0)
    await make_queue(server)
    head = raw_head(method, path, "Content-Type: application/json", f"Content-Length: {MIB}")
    async with contextlib.AsyncExitStack() as stack:
        answers = []
        for _ in range(20):
            connection = await stack.enter_async_context(raw_connection(server.port))
            await connection.send(head + b" " * (MIB - 1))
            answers.append(asyncio.create_task(connection.response()))
        await comes_true(lambda: any(each.done() for each in answers))
        for each in answers:
            if each.done():
                assert each.result().status == 503
                assert each.result().json()["type"] == "urn:mq:problem:no-memory"
            each.cancel()


# Heads


async def test_a_head_has_a_bound_in_all_whether_it_ends_or_not(server: Server) -> None:
    fields = [f"X-{number}: {'x' * 1000}" for number in range(40)]
    whole = raw_head("GET", "/-/livez", *fields)
    for head in (whole[:-2], whole, whole * 2):
        async with raw_connection(server.port) as connection:
            await connection.send(head)
            problem_of(await connection.response(), 431, "headers-too-large")
            assert await connection.ended() == b""
    short = raw_head("GET", "/-/livez", *fields[: (HEAD_BYTES_MAX - KIB) // KIB])
    assert (await raw_request(server.port, short)).status == 200


async def test_a_head_without_an_end_is_refused_before_who_asks_is_known(
    serve: Serve, tokens: Tokens
) -> None:
    server = await serve(tokens=tokens.path)
    async with raw_connection(server.port) as connection:
        await connection.send(b"GET /-/memory HTTP/1.1\r\nHost: mq\r\nX: " + b"x" * MIB)
        problem_of(await connection.response(), 431, "headers-too-large")


@pytest.mark.certificate
async def test_what_waits_to_be_parsed_has_a_bound_in_all(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    part = 256 * KIB
    async with contextlib.AsyncExitStack() as stack:

        async def behind() -> RawConnection:
            """A connection that waits for a message, and has sent more behind that."""
            connection = await stack.enter_async_context(raw_connection(server.port))
            poll = raw_head("GET", "/q/messages?wait=60")
            await connection.send(poll + raw_head("POST", "/q/messages", f"Content-Length: {MIB}"))
            await connection.send(b"x" * part)
            return connection

        async def has_no_room() -> bool:
            waiting.extend([await behind() for _ in range(20)])
            async with raw_connection(server.port) as unfinished:
                await unfinished.send(LIVE[:-2] + b"X: " + b"x" * 8 * KIB)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        problem_of(await unfinished.response(), 503, "no-memory")
                        return True
            return False

        waiting: list[RawConnection] = []
        await comes_true(has_no_room)
        assert len(waiting) * 32 * KIB <= UNPARSED_BYTES_MAX
        # What comes whole waits for nothing, and who waits has its answer.
        assert (await raw_request(server.port, LIVE)).status == 200
        await make_queue(server, "other")
        assert (await call(server, "DELETE", "/q")).status == 200
        assert {(await each.response()).status for each in waiting} == {404}
    await comes_true(lambda: connections(server)[0] <= 1)
    async with raw_connection(server.port) as connection:
        await connection.send(LIVE[:-2])
        await connection.send(LIVE[-2:])
        assert (await connection.response()).status == 200


@pytest.mark.parametrize("first", [LIVE, raw_head("GET", "/q/messages")], ids=["long", "direct"])
async def test_a_head_that_begins_behind_a_request_has_its_time_too(
    serve: Serve, first: bytes
) -> None:
    server = await serve(head_s=0.2)
    await make_queue(server)
    await call(server, "GET", "/q/messages")
    async with raw_connection(server.port) as connection:
        await connection.send(first + LIVE[:-2])
        assert (await connection.response()).status in (200, 204)
        problem_of(await connection.response(), 408, "head-too-slow")
        assert await connection.ended() == b""
