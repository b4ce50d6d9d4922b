"""`/-/consume`: what is malformed, who does not read or is silent, drains, and sudden ends."""

import asyncio
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.api import call, fetch, make_queue, publish, publish_lines
from harness.consuming import PATH, Consumer, consuming
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.internals import consumers
from harness.processes import PATIENCE_S, Processes
from harness.raw import RawConnection, raw_connection, raw_head, raw_request
from harness.server import Serve, Server
from harness.waiting import comes_true
from websockets.frames import Frame, Opcode

from mq.http.consume.connection import CLOSE_ANSWER_S
from mq.http.consume.socket import COMMAND_BYTES_MAX, COMMANDS_IN_FLIGHT_MAX

HANDSHAKE = raw_head(
    "GET",
    PATH,
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
)


def masked(opcode: Opcode, payload: bytes, is_last: bool = True) -> bytes:
    return Frame(opcode, payload, is_last).serialize(mask=True)


def said(**command: Any) -> bytes:
    return masked(Opcode.TEXT, json.dumps(command).encode())


@contextlib.asynccontextmanager
async def by_hand(server: Server) -> AsyncIterator[RawConnection]:
    """A connection whose client decides about every byte, and reads when it likes."""
    async with raw_connection(server.port) as connection:
        await connection.send(HANDSHAKE)
        response = await connection.response()
        assert response.status == 101
        assert response.headers["upgrade"] == "websocket"
        yield connection


def close_code(ended: bytes) -> int:
    """That of the last frame that a server sent."""
    position, found = 0, -1
    while position < len(ended):
        opcode, size = ended[position] & 15, ended[position + 1]
        width = {126: 2, 127: 8}.get(size, 0)
        if width:
            size = int.from_bytes(ended[position + 2 : position + 2 + width], "big")
        start = position + 2 + width
        if opcode == Opcode.CLOSE:
            found = int.from_bytes(ended[start : start + 2], "big")
        position = start + size
    return found


# What is malformed


@pytest.mark.parametrize(
    ("command", "ref"),
    [
        ({"nack": ["x"], "ref": "r"}, "r"),
        ({"ack": [], "ref": 7}, 7),
        ({"subscribe": [{"queue": "q", "credit": -1}]}, None),
        ({"ack": ["x"], "ref": 1.5}, None),
        ([], None),
    ],
)
async def test_what_is_no_command_is_told_and_the_connection_stays(
    server: Server, command: Any, ref: Any
) -> None:
    await make_queue(server)
    async with consuming(server) as consumer:
        await consumer.socket.send_json(command)
        answer = await consumer.frame()
        assert answer is not None
        assert (answer["ref"], answer["problem"]["status"]) == (ref, 400)
        assert answer["problem"]["type"] == "urn:mq:problem:malformed-frame"
        await consumer.subscribe("q")


@pytest.mark.parametrize("text", ["", "{", "subscribe"])
async def test_what_is_no_json_is_told_and_ends_the_connection(server: Server, text: str) -> None:
    async with consuming(server) as consumer:
        # An empty frame says nothing at all.
        await consumer.socket.send_str(text or " ")
        answer = await consumer.frame()
        assert answer is not None
        assert answer["problem"]["type"] == "urn:mq:problem:malformed-frame"
        assert await consumer.close_code() == 1007


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked(Opcode.BINARY, b'{"ack": ["x"]}'), 1003),
        (masked(Opcode.TEXT, b"\xff"), 1007),
        (masked(Opcode.TEXT, b" " * (COMMAND_BYTES_MAX + 1)), 1009),
        (masked(Opcode.TEXT, b" " * COMMAND_BYTES_MAX, False) + masked(Opcode.CONT, b"xx"), 1009),
        (b"\xf1\x80\0\0\0\0", 1002),  # Reserved bits.
        (b"\x83\x80\0\0\0\0", 1002),  # An opcode that there is not.
        (masked(Opcode.CONT, b"x"), 1002),
        (b"\x89\xfe\x01\x00\0\0\0\0" + bytes(256), 1002),  # A ping that is too long.
    ],
    ids=["binary", "utf-8", "large", "fragments", "reserved", "opcode", "continuation", "ping"],
)
async def test_what_breaks_the_protocol_ends_the_connection(
    server: Server, data: bytes, code: int
) -> None:
    await make_queue(server)
    message_id = await publish(server)
    async with by_hand(server) as connection:
        await connection.send(said(subscribe=[{"queue": "q"}]))
        await comes_true(lambda: message_files(server.root)["delay"] == [f"q:{message_id}"])
        await connection.send(data + masked(Opcode.CLOSE, b"\x03\xe8"))
        assert close_code(await connection.ended()) == code
    # And what it held is anybody's.
    await comes_true(lambda: message_files(server.root)["queues"] == [f"q:{message_id}"])


async def test_a_command_in_fragments_is_one(server: Server) -> None:
    await make_queue(server)
    async with by_hand(server) as connection:
        text = json.dumps({"subscribe": [{"queue": "q"}], "ref": 1}).encode()
        parts = [masked(Opcode.TEXT, text[:9], False), masked(Opcode.PING, b"?")]
        for each in (*parts, masked(Opcode.CONT, text[9:]), masked(Opcode.CLOSE, b"")):
            await connection.send(each)
        ended = await connection.ended()
        assert masked(Opcode.PONG, b"?")[:1] in ended
        assert b'"status": 200' in ended


@pytest.mark.parametrize("kept", [1, 3, 7, 20])
async def test_a_frame_that_is_cut_short_does_nothing(server: Server, kept: int) -> None:
    await make_queue(server)
    message_id = await publish(server)
    async with by_hand(server) as connection:
        await connection.send(said(subscribe=[{"queue": "q"}]))
        await comes_true(lambda: message_files(server.root)["delay"] == [f"q:{message_id}"])
        await connection.send(said(ack=[message_id])[:kept])
    await comes_true(lambda: message_files(server.root)["queues"] == [f"q:{message_id}"])


async def test_more_commands_than_go_on_at_once_are_all_answered(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    count = COMMANDS_IN_FLIGHT_MAX * 3
    ids = await publish_lines(server, [b"x"] * count)
    async with consuming(server, "q", credit=count) as consumer:
        await consumer.bodies(count)
        gate = files.hold("rename", f"/delay/q:{ids[0]}")
        refs = [await consumer.send(ack=[each]) for each in ids]
        await comes_true(gate.reached.is_set, "an ack")
        gate.open()
        answers = [await consumer.frame() for _ in refs]
    assert sorted(answer["ref"] for answer in answers if answer) == refs
    assert {answer["results"][0]["status"] for answer in answers if answer} == {202}


async def test_an_ack_for_which_there_is_no_storage_can_be_tried_again(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    async with consuming(server, "q") as consumer:
        await consumer.message()
        files.fail("rename", errno.EIO, message_id)
        assert await consumer.statuses(ack=[message_id]) == [503]
        files.heal()
        assert await consumer.statuses(ack=[message_id]) == [202]


async def test_a_body_that_cannot_be_read_ends_the_connection_or_is_left_out(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server, bytes(3 * 1024 * 1024))
    async with consuming(server, "q", visibility_s=600) as consumer:
        files.fail("read", errno.EIO)
        await comes_true(lambda: message_files(server.root)["delay"] == [f"q:{message_id}"])
        await comes_true(lambda: not files.open_paths("/q"), "the file is closed")
        files.heal()
        assert not consumer.messages
        assert await consumer.statuses(ack=[message_id]) == [202]


# Who does not read, and who is silent


@pytest.mark.certificate
async def test_what_is_not_read_goes_to_others(server: Server) -> None:
    await make_queue(server)
    count = 150
    async with by_hand(server) as connection:
        await connection.send(said(subscribe=[{"queue": "q", "credit": 10_000}]))
        await comes_true(lambda: consumers(server, "q") == 1)
        for _ in range(count // 50):
            await publish_lines(server, [b"x" * 100_000] * 50)

        async def released() -> int:
            described = (await call(server, "GET", "/q")).json()
            return int(described["totals"]["released"])

        # What was claimed for it and lies in no buffer of a socket.
        given_back = await comes_true(released, "what is not read is given back")
        async with consuming(server, "q", credit=count) as consumer:
            await consumer.bodies(given_back)
            assert await released() == given_back, "nothing more was claimed for who does not read"
    await comes_true(lambda: len(message_files(server.root)["queues"]) == count, "all are ready")


@pytest.mark.certificate
async def test_answers_that_are_not_read_stop_the_commands(server: Server) -> None:
    async with by_hand(server) as connection:
        command = said(ack=["x" * 100] * 900)
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await connection.send(command)
                sent += 1

        sending = asyncio.create_task(send())
        # Until the buffers of both directions are full, whatever the machine has for those.
        before = -1
        while sent != before:
            before = sent
            await asyncio.wait([sending], timeout=0.5)
        assert not sending.done()
        assert sent < 2000
        sending.cancel()
        connection.abort()


@pytest.mark.certificate
async def test_a_client_that_answers_no_ping_is_gone(serve: Serve) -> None:
    server = await serve(ping_s=0.05)
    await make_queue(server)
    message_id = await publish(server)
    async with by_hand(server) as connection:
        await connection.send(said(subscribe=[{"queue": "q"}]))
        ended = await connection.ended()
        assert close_code(ended) == 1011
        assert b"\x89\x00" in ended
    await comes_true(lambda: message_files(server.root)["queues"] == [f"q:{message_id}"])


async def test_a_client_that_answers_pings_stays(serve: Serve) -> None:
    server = await serve(ping_s=0.05)
    await make_queue(server)
    async with server.session.ws_connect(server.url + PATH, autoping=False) as socket:
        await socket.send_json({"subscribe": [{"queue": "q"}]})
        pings = 0
        while pings < 8:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.PING:
                pings += 1
                await socket.pong(message.data)
        message_id = await publish(server)
        while (message := await socket.receive()).type is not aiohttp.WSMsgType.BINARY:
            await socket.pong()
        await socket.send_json({"ack": [message_id]})
        await comes_true(lambda: message_files(server.root)["remove"] == [f"q:{message_id}"])


async def test_a_ping_is_answered(server: Server) -> None:
    async with server.session.ws_connect(server.url + PATH, autoping=False) as socket:
        await socket.ping(b"there?")
        message = await socket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.PONG, b"there?")


# Ends


@pytest.mark.certificate
async def test_who_goes_on_talking_after_the_close_is_hung_up_on(server: Server) -> None:
    async with by_hand(server) as connection:
        ending = asyncio.create_task(connection.ended())
        with contextlib.suppress(ConnectionError):
            while not ending.done():
                await connection.send(masked(Opcode.BINARY, b"no text"))  # 1003
                await asyncio.wait((ending,), timeout=CLOSE_ANSWER_S / 8)
        assert close_code(await ending) == 1003


async def test_a_client_s_close_is_answered(server: Server) -> None:
    async with by_hand(server) as connection:
        await connection.send(masked(Opcode.CLOSE, (1000).to_bytes(2, "big")))
        assert close_code(await connection.ended()) == 1000


async def test_a_drain_answers_what_is_in_hand_and_then_closes(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    acked, held, left = [await publish(server) for _ in range(3)]
    async with consuming(server, "q", credit=2) as consumer, consuming(server) as idle:
        await consumer.bodies(2)
        gate = files.hold("rename", f"/delay/q:{acked}")
        ref = await consumer.send(ack=[acked])
        await comes_true(gate.reached.is_set, "the ack")
        draining = asyncio.create_task(server.daemon.drain())
        assert await idle.close_code() == 1001
        gate.open()
        answer = await consumer.frame()
        assert answer is not None
        assert (answer["ref"], answer["results"][0]["status"]) == (ref, 202)
        assert await consumer.close_code() == 1001
        await draining
    files_left = message_files(server.root)
    assert files_left["remove"] == [f"q:{acked}"]
    assert sorted(files_left["queues"]) == sorted([f"q:{held}", f"q:{left}"])


@pytest.mark.certificate
async def test_a_drain_does_not_wait_for_who_does_not_read(serve: Serve) -> None:
    server = await serve(drain_s=0.5)
    await make_queue(server)
    for _ in range(2):
        await publish_lines(server, [b"x" * 100_000] * 50)
    async with by_hand(server) as connection:
        await connection.send(said(subscribe=[{"queue": "q", "credit": 100}]))
        await comes_true(lambda: message_files(server.root)["delay"])
        async with asyncio.timeout(PATIENCE_S):
            await server.daemon.drain()
        assert len(message_files(server.root)["queues"]) == 100


CLIENT = """
import asyncio, sys, aiohttp
async def main(url, queue):
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_json({"subscribe": [{"queue": queue, "credit": 1000}]})
        count = 0
        async for frame in socket:
            if frame.type is aiohttp.WSMsgType.BINARY:
                count += 1
                print(count, flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_client_held_is_released(server: Server) -> None:
    await make_queue(server)
    await publish_lines(server, [b"x"] * 300)
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, server.url + PATH, "q"], stdout=subprocess.PIPE, text=True
    ) as client:
        await comes_true(lambda: len(message_files(server.root)["delay"]) == 300, "it holds all")
        os.kill(client.pid, signal.SIGKILL)
        await comes_true(lambda: len(message_files(server.root)["queues"]) == 300, "all are ready")
    async with consuming(server, "q", credit=300) as consumer:
        assert {(await consumer.message()).receives for _ in range(300)} == {2}


@pytest.mark.certificate
async def test_what_a_killed_mq_had_given_comes_back(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root)
    daemons.mover("--root", str(root))
    assert (await raw_request(mq.port, raw_head("PUT", "/q"))).status == 201
    for n in range(20):
        head = raw_head("POST", "/q/messages", "Content-Length: 2")
        assert (await raw_request(mq.port, head + b"%02d" % n)).status == 201
    wanted = {"queue": "q", "credit": 20, "visibility_s": 1}
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(mq.url + PATH) as socket:
            consumer = Consumer(socket)
            assert await consumer.statuses(subscribe=[wanted]) == [200]
            ids = [(await consumer.message()).id for _ in range(20)]
            assert await consumer.statuses(ack=ids[:10]) == [202] * 10
            mq.kill()
            assert await consumer.close_code() == 1006
        again = daemons.mq(root)
        async with session.ws_connect(again.url + PATH) as socket:
            consumer = Consumer(socket)
            assert await consumer.statuses(subscribe=[wanted]) == [200]
            messages = [await consumer.message() for _ in range(10)]
            assert {each.id for each in messages} == set(ids[10:])
            assert {each.receives for each in messages} == {2}
            assert await consumer.statuses(ack=[each.id for each in messages]) == [202] * 10


async def test_a_network_that_breaks_in_the_handshake_leaves_nothing(server: Server) -> None:
    for length in (10, len(HANDSHAKE) - 1, len(HANDSHAKE)):
        async with raw_connection(server.port) as connection:
            await connection.send(HANDSHAKE[:length])
    await make_queue(server)
    assert (await fetch(server)).status == 204
    assert (await call(server, "GET", "/-/livez")).status == 200
