"""What servers may read differently is refused, and ends its connection."""

import json

import pytest
from harness.api import call, make_queue, publish
from harness.raw import raw_connection, raw_frame, raw_head, raw_request, raw_websocket
from harness.server import Server

from mq.http.consume.socket import COMMAND_BYTES_MAX

LIVE = raw_head("GET", "/-/livez")
SMUGGLED = raw_head("PUT", "/smuggled")


@pytest.mark.parametrize("behind", [b"", SMUGGLED], ids=["alone", "before another"])
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"CONNECT mq:80 HTTP/1.1\r\nHost: mq\r\nContent-Length: 40\r\n\r\n",
        b"CONNECT mq:80 HTTP/1.1\r\nHost: mq\r\n\r\n",
        raw_head("POST", "/q/messages", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
        raw_head("POST", "/q/messages", "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
        raw_head("POST", "/q/messages", "Transfer-Encoding:", "Content-Length: 0"),
        raw_head("POST", "/q/messages", "Transfer-Encoding:"),
        raw_head("POST", "/q/messages", "Content-Length:"),
        b"POST /q/messages HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /-/livez RTSP/1.0\r\nHost: mq\r\n\r\n",
        b"OPTIONS /-/livez RTSP/1.0\r\nHost: mq\r\n\r\n",
        b"GET /-/livez ICE/1.0\r\nHost: mq\r\n\r\n",
        b"GET /-/livez HTTP/2.0\r\nHost: mq\r\n\r\n",
        b"GET /-/livez HTTP/0.9\r\nHost: mq\r\n\r\n",
        b"GET /-/livez HTTP/1.2\r\nHost: mq\r\n\r\n",
        b"GET  /-/livez HTTP/1.1\r\nHost: mq\r\n\r\n",
        b"GET /-/livez  HTTP/1.1\r\nHost: mq\r\n\r\n",
        b"GET /-/livez HTTP/1.1 \r\nHost: mq\r\n\r\n",
        b"GET\t/-/livez HTTP/1.1\r\nHost: mq\r\n\r\n",
        b"GET /-/livez\r\n\r\n",
        b"GET /-/livez HTTP/1.1\nHost: mq\n\n",
        b"GET /-/livez HTTP/1.1\r\nHost: mq\r\nX: a\r\n b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_request_of_http_1_is_400_and_the_end(
    server: Server, request_bytes: bytes, behind: bytes
) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(request_bytes + behind)
        response = await connection.response()
        assert response.status == 400
        assert response.json()["type"] == "urn:mq:problem:bad-request"
        assert await connection.ended() == b""
    assert (await call(server, "GET", "/smuggled")).status == 404


async def test_a_request_behind_one_that_is_answered_is_looked_at_as_strictly(
    server: Server,
) -> None:
    async with raw_connection(server.port) as connection:
        await connection.send(LIVE + b"GET  /-/livez HTTP/1.1\r\nHost: mq\r\n\r\n" + SMUGGLED)
        assert (await connection.response()).status == 200
        assert (await connection.response()).status == 400
        assert await connection.ended() == b""


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "h2c, websocket"])
@pytest.mark.parametrize("body", [b"", b"hello"])
async def test_a_request_behind_an_upgrade_that_is_not_done_is_answered(
    server: Server, upgrade: str, body: bytes
) -> None:
    await make_queue(server)
    offer = (
        "Connection: Upgrade, HTTP2-Settings",
        f"Upgrade: {upgrade}",
        "HTTP2-Settings: AAMAAABk",
    )
    first = raw_head("POST", "/q/messages", *offer, f"Content-Length: {len(body)}") + body
    async with raw_connection(server.port) as connection:
        await connection.send(first + LIVE + first)
        statuses = [(await connection.response()).status for _ in range(3)]
    assert statuses == [201, 200, 201]


async def test_a_client_of_http_1_0_is_sent_no_interim_answer(server: Server) -> None:
    await make_queue(server)
    head = b"POST /q/messages HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    assert (await raw_request(server.port, head + b"hello")).status == 201


@pytest.mark.parametrize("extension_bytes", [2_000, 9_000])
async def test_a_chunk_with_a_long_extension_is_400(server: Server, extension_bytes: int) -> None:
    await make_queue(server)
    head = raw_head("POST", "/q/messages", "Transfer-Encoding: chunked")
    chunks = b"5;" + b"x" * extension_bytes + b"\r\nhello\r\n0\r\n\r\n"
    async with raw_connection(server.port) as connection:
        await connection.send(head + chunks + SMUGGLED)
        response = await connection.response()
        assert response.status == 400
        assert response.json()["type"] == "urn:mq:problem:body-unreadable"
        assert await connection.ended() == b""


async def test_a_chunk_with_an_extension_and_trailers_is_taken(server: Server) -> None:
    await make_queue(server)
    head = raw_head("POST", "/q/messages", "Transfer-Encoding: chunked")
    chunks = b'5;name="value"\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n'
    async with raw_connection(server.port) as connection:
        for byte in head + chunks:
            await connection.send(bytes((byte,)))
        assert (await connection.response()).status == 201
        await connection.send(head + chunks + LIVE)
        assert [(await connection.response()).status for _ in range(2)] == [201, 200]
    assert (await call(server, "GET", "/q/messages")).body == b"hello"


# WebSockets


async def test_frames_without_a_mask_end_a_websocket(server: Server) -> None:
    command = json.dumps({"subscribe": [{"queue": "q"}], "ref": 1}).encode()
    async with raw_websocket(server.port) as socket:
        await socket.send(raw_frame(command) + raw_frame(command, is_masked=False))
        assert (await socket.close_code())[0] == 1002
        assert await socket.ended() == b""


async def test_a_command_may_have_all_the_bytes_that_it_may_have(server: Server) -> None:
    await make_queue(server)
    command = json.dumps({"subscribe": [{"queue": "q"}], "ref": 1}).encode()
    longest = command.ljust(COMMAND_BYTES_MAX)
    async with raw_websocket(server.port) as socket:
        await socket.send(raw_frame(longest))
        opcode, answer = await socket.frame()
        assert (opcode, json.loads(answer)["results"][0]["status"]) == (1, 200)
        half = COMMAND_BYTES_MAX // 2
        await socket.send(raw_frame(longest[:half], is_last=False) + raw_frame(longest[half:], 0))
        opcode, answer = await socket.frame()
        assert (opcode, json.loads(answer)["results"][0]["status"]) == (1, 409)
        await socket.send(raw_frame(longest + b" "))
        assert await socket.close_code() == (1009, 0)


# What answers say


async def test_a_message_is_not_for_pages_of_other_origins(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, b"<svg/>")
    await publish(server, b"<svg/>")
    for method, path in (
        ("GET", f"/q/messages/{message_id}"),
        ("HEAD", f"/q/messages/{message_id}"),
        ("GET", "/q/peek"),
        ("GET", "/q/messages"),
        ("GET", "/q/messages?count=2"),
    ):
        reply = await call(server, method, path)
        assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin", (method, path)
