"""`POST /{queue}/messages`: the body's bytes on the disk before 201, or nothing at all."""

import asyncio
import errno
import gc
import gzip
import hashlib
import logging
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.api import (
    STILL_MS,
    Reply,
    StillClock,
    assert_problem,
    call,
    fetch,
    make_queue,
    publish,
)
from harness.faults import FaultyFiles
from harness.folders import message_files, mtime_ns, nothing_anywhere
from harness.internals import connections
from harness.raw import RawConnection, raw_connection, raw_head, raw_request
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.limits import BODY_HELD_BYTES_MAX, CHUNK_BYTES
from mq.model.settings import QueueSettings

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
CHUNKED = "Transfer-Encoding: chunked"
MIB = 1024 * 1024

TYPES = {
    "application/json": ".json",
    "text/plain": ".txt",
    "application/x-ndjson": ".ndjson",
    "application/xml": ".xml",
    "application/x-protobuf": ".pb",
    "application/avro": ".avro",
    "application/vnd.apache.parquet": ".parquet",
    "image/png": ".png",
}


def patterned(size: int) -> bytes:
    """Bytes that tell where they belong."""
    return b"".join(n.to_bytes(8, "big") for n in range(size // 8 + 1))[:size]


async def in_pieces(body: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def assert_nothing_is_left(server: Server) -> None:
    """That new/ comes to be empty, and that nothing was delivered."""
    await comes_true(lambda: not message_files(server.root)["new"], "new/ is empty")
    assert message_files(server.root) == nothing_anywhere()
    assert (await fetch(server)).status == 204


# The answer


async def test_a_publish_answers_201_with_id_and_location(server: Server, root: Path) -> None:
    await make_queue(server)
    reply = await call(server, "POST", "/q/messages", data=b"hello")
    assert reply.status == 201
    assert UUID7.fullmatch(reply.id)
    assert reply.headers["Location"] == f"/q/messages/{reply.id}"
    assert (await call(server, "DELETE", reply.headers["Location"])).status == 202


async def test_a_message_is_one_plain_file(serve: Serve, root: Path) -> None:
    server = await serve(clock=StillClock())
    await make_queue(server)
    message_id = await publish(server, b"hello")
    file = root / "queues" / "q" / message_id
    assert file.read_bytes() == b"hello"
    assert file.stat().st_mode & 0o7777 == 0o600
    assert file.stat().st_nlink == 1
    # The due time in whole milliseconds, and no receives in the microseconds.
    assert mtime_ns(file) == STILL_MS * 1_000_000
    assert int(message_id.replace("-", "")[:12], 16) == STILL_MS


async def test_only_the_owner_can_enter_the_folders(server: Server, root: Path) -> None:
    await make_queue(server)
    for folder in ("new", "queues", "queues/q", "delay", "remove", "deleted"):
        assert (root / folder).stat().st_mode & 0o7777 == 0o700


async def test_ids_rise_in_the_order_of_the_answers(serve: Serve) -> None:
    # The clock stands, so only the count within a millisecond can tell them apart.
    server = await serve(clock=StillClock())
    await make_queue(server)
    ids = [await publish(server) for _ in range(20)]
    assert ids == sorted(set(ids))


# Content types


@pytest.mark.parametrize(("content_type", "extension"), TYPES.items())
async def test_a_common_type_is_the_names_extension(
    server: Server, root: Path, content_type: str, extension: str
) -> None:
    await make_queue(server)
    message_id = await publish(server, b"x", headers={"Content-Type": content_type})
    assert message_id.endswith(extension)
    assert UUID7.fullmatch(message_id.removesuffix(extension))
    assert message_files(root)["queues"] == [f"q:{message_id}"]
    assert (await fetch(server)).headers["Content-Type"] == content_type


@pytest.mark.parametrize("content_type", ["Application/JSON", " application/json "])
async def test_a_type_may_be_written_in_other_ways(server: Server, content_type: str) -> None:
    await make_queue(server)
    reply = await raw_request(
        server.port,
        raw_head("POST", "/q/messages", f"Content-Type: {content_type}", "Content-Length: 2")
        + b"{}",
    )
    assert reply.headers["x-message-id"].endswith(".json")


@pytest.mark.parametrize(
    "content_type",
    [
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        "application/x-unheard-of",
        "text/plain; charset=latin-1",
    ],
)
async def test_any_other_type_gives_no_extension(
    server: Server, root: Path, content_type: str
) -> None:
    await make_queue(server)
    message_id = await publish(server, b"x", headers={"Content-Type": content_type})
    assert "." not in message_id
    assert message_files(root)["queues"] == [f"q:{message_id}"]


@pytest.mark.parametrize("content_type", ["../../json", "json", "/", ";"])
async def test_what_is_no_media_type_is_refused(
    server: Server, root: Path, content_type: str
) -> None:
    await make_queue(server)
    reply = await call(
        server, "POST", "/q/messages", data=b"x", headers={"Content-Type": content_type}
    )
    assert_problem(reply, 400, "bad-headers")
    assert message_files(root) == nothing_anywhere()


@pytest.mark.parametrize("header", [[], ["Content-Type: application/x-www-form-urlencoded"]])
async def test_what_curl_sends_is_served_as_octets(server: Server, header: list[str]) -> None:
    await make_queue(server)
    reply = await raw_request(
        server.port, raw_head("POST", "/q/messages", "Content-Length: 1", *header) + b"x"
    )
    assert UUID7.fullmatch(reply.headers["x-message-id"])
    assert (await fetch(server)).headers["Content-Type"] == "application/octet-stream"


# The bytes


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\0" * 10_000, bytes(range(256)), b"\r\n\r\n0\r\n\r\n", "žluťoučký".encode()],
    ids=["empty", "a NUL", "NULs", "every byte", "line ends", "UTF-8"],
)
async def test_a_body_comes_back_byte_by_byte(server: Server, root: Path, body: bytes) -> None:
    await make_queue(server)
    message_id = await publish(server, body)
    assert (root / "queues" / "q" / message_id).read_bytes() == body
    assert (await fetch(server)).body == body


@pytest.mark.parametrize("body", [gzip.compress(b"hello"), b"no gzip at all"], ids=["gzip", "none"])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_an_encoded_body_is_not_decoded(
    server: Server, root: Path, body: bytes, coding: str
) -> None:
    await make_queue(server)
    reply = await raw_request(
        server.port,
        raw_head(
            "POST", "/q/messages", f"Content-Encoding: {coding}", f"Content-Length: {len(body)}"
        )
        + body,
    )
    assert reply.status == 201
    [file] = (root / "queues" / "q").iterdir()
    assert file.read_bytes().endswith(body)
    assert (await fetch(server)).body == body


@pytest.mark.parametrize(
    "size",
    [
        1,
        CHUNK_BYTES,
        BODY_HELD_BYTES_MAX - 1,
        BODY_HELD_BYTES_MAX,
        BODY_HELD_BYTES_MAX + 1,
        3 * BODY_HELD_BYTES_MAX + 7,
    ],
)
@pytest.mark.parametrize("chunked", [False, True], ids=["by length", "chunked"])
async def test_a_body_of_any_size_is_stored_whole(
    server: Server, root: Path, size: int, chunked: bool
) -> None:
    await make_queue(server)
    body = patterned(size)
    message_id = await publish(server, in_pieces(body) if chunked else body)
    stored = (root / "queues" / "q" / message_id).read_bytes()
    assert hashlib.sha256(stored).digest() == hashlib.sha256(body).digest()
    assert message_files(root)["new"] == []
    assert hashlib.sha256((await fetch(server)).body).digest() == hashlib.sha256(body).digest()


async def test_a_streamed_message_is_stamped_like_any(serve: Serve, root: Path) -> None:
    server = await serve(clock=StillClock())
    await make_queue(server)
    message_id = await publish(server, patterned(2 * MIB))
    file = root / "queues" / "q" / message_id
    assert mtime_ns(file) == STILL_MS * 1_000_000
    assert file.stat().st_mode & 0o7777 == 0o600


async def test_an_upgrade_that_is_offered_is_no_reason_to_lose_the_body(server: Server) -> None:
    await make_queue(server)
    reply = await raw_request(
        server.port,
        raw_head(
            "POST",
            "/q/messages",
            "Connection: Upgrade, HTTP2-Settings",
            "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
            "Content-Length: 5",
        )
        + b"hello",
    )
    assert reply.status == 201
    assert (await fetch(server)).body == b"hello"


# Refused


async def test_the_longest_body_is_taken_and_one_byte_more_is_413(serve: Serve) -> None:
    server = await serve(queue=QueueSettings(body_bytes_max=1000))
    await make_queue(server)
    await publish(server, b"x" * 1000)
    reply = await call(server, "POST", "/q/messages", data=b"x" * 1001)
    assert assert_problem(reply, 413, "body-too-large")["bytes_max"] == 1000
    await fetch(server)
    assert (await fetch(server)).status == 204


@pytest.mark.parametrize("expect", [[], ["Expect: 100-continue"]], ids=["", "expecting"])
async def test_a_length_over_the_limit_is_413_before_any_byte_of_the_body(
    serve: Serve, expect: list[str]
) -> None:
    server = await serve(queue=QueueSettings(body_bytes_max=2 * MIB))
    await make_queue(server)
    head = raw_head("POST", "/q/messages", f"Content-Length: {3 * MIB}", *expect)
    assert_problem(await raw_request(server.port, head), 413, "body-too-large")
    await assert_nothing_is_left(server)


@pytest.mark.parametrize("limit", [100_000, 2 * MIB], ids=["held", "streamed"])
async def test_a_chunked_body_over_the_limit_is_413_and_leaves_nothing(
    serve: Serve, limit: int
) -> None:
    server = await serve(queue=QueueSettings(body_bytes_max=limit))
    await make_queue(server)
    reply = await call(server, "POST", "/q/messages", data=in_pieces(patterned(limit + 1)))
    assert_problem(reply, 413, "body-too-large")
    await assert_nothing_is_left(server)


@pytest.mark.parametrize("sent", [0, 2, 3 * MIB // 2], ids=["nothing", "some", "streamed"])
async def test_a_body_that_stops_coming_is_408(serve: Serve, sent: int) -> None:
    server = await serve(body_idle_s=0.2)
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", "/q/messages", f"Content-Length: {2 * MIB}"))
        await connection.send(b"x" * sent)
        members = assert_problem(await connection.response(), 408, "body-too-slow")
    assert members["retryable"]
    await assert_nothing_is_left(server)


MALFORMED = {
    "size": b"zz\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "too long": b"3\r\nabcdef\r\n0\r\n\r\n",
    "huge": b"ffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_chunks_with_the_head_are_400(server: Server, body: bytes) -> None:
    await make_queue(server)
    reply = await raw_request(server.port, raw_head("POST", "/q/messages", CHUNKED) + body)
    assert_problem(reply, 400, reply.json()["type"].removeprefix("urn:mq:problem:"))
    await assert_nothing_is_left(server)


@pytest.mark.parametrize("good", [0, 1, 15], ids=["first", "second", "streamed"])
async def test_malformed_chunks_after_the_head_are_400(serve: Serve, good: int) -> None:
    # The limit only bounds how long a daemon that overlooks it keeps this test.
    server = await serve(body_idle_s=2.0)
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", "/q/messages", CHUNKED, "Expect: 100-continue"))
        assert (await connection.response()).status == 100
        for _ in range(good):
            await connection.send(b"%x\r\n" % 100_000 + b"x" * 100_000 + b"\r\n")
        if good > 10:
            await comes_true(lambda: message_files(server.root)["new"])
        await connection.send(b"zz\r\nabc\r\n")
        assert_problem(await connection.response(), 400, "body-unreadable")
    await assert_nothing_is_left(server)


# Cut short


@pytest.mark.parametrize("header", ["Content-Length: 100", CHUNKED], ids=["by length", "chunked"])
async def test_a_small_body_cut_short_leaves_nothing(server: Server, header: str) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", "/q/messages", header, "Expect: 100-continue"))
        assert (await connection.response()).status == 100
        await connection.send(b"a\r\n0123456789\r\n")
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    await assert_nothing_is_left(server)


async def send_half(connection: RawConnection, server: Server, header: str) -> None:
    """Sends the half of a body that streams, until its file is in new/."""
    await connection.send(raw_head("POST", "/q/messages", header))
    for _ in range(3):
        await connection.send(b"80000\r\n" + b"x" * 0x80000 + b"\r\n")
    await comes_true(lambda: message_files(server.root)["new"], "the file is in new/")


@pytest.mark.parametrize(
    "header", [f"Content-Length: {2 * MIB}", CHUNKED], ids=["by length", "chunked"]
)
async def test_a_large_body_cut_short_leaves_nothing(serve: Serve, root: Path, header: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await send_half(connection, server, header)
    await assert_nothing_is_left(server)
    assert files.open_paths("/new/q:") == []


async def test_a_client_that_goes_while_the_file_is_made_leaves_nothing(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    gate = files.hold("create", "/new/q:")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", "/q/messages", f"Content-Length: {2 * MIB}"))
        await comes_true(gate.reached.is_set)
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    gate.open()
    await comes_true(lambda: files.count("unlink", "/new/q:"), "the file is taken away")
    await assert_nothing_is_left(server)
    assert files.open_paths("/new/q:") == []


@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n", b"5\r\nab"], ids=["malformed", "cut short"])
async def test_a_clients_broken_body_is_no_error_of_the_daemons(
    server: Server, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", "/q/messages", CHUNKED, "Expect: 100-continue"))
        assert (await connection.response()).status == 100
        await connection.send(body)
        if body.startswith(b"zz"):
            assert (await connection.response()).status == 400
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    # Whoever watches the log for errors must not be woken by anybody who can send bytes.
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == []


HALF_A_BODY = raw_head("POST", "/q/messages", f"Content-Length: {2 * MIB}") + b"x" * MIB


@pytest.mark.certificate
@pytest.mark.parametrize(
    ("sent", "step"),
    [(HALF_A_BODY, "write"), (HALF_A_BODY, "create"), (raw_head("PUT", "/other"), "mkdir")],
    ids=["writing", "staging", "making a queue"],
)
async def test_a_failure_that_nobody_waits_for_is_no_error_of_the_daemons(
    serve: Serve, caplog: pytest.LogCaptureFixture, sent: bytes, step: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    gate = files.hold(step)
    failed = files.fail(step, errno.EIO)
    async with raw_connection(server.port) as connection:
        await connection.send(sent)
        await comes_true(gate.reached.is_set)
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    gate.open()
    await comes_true(lambda: failed.hits, "the failure")
    await server.daemon.drain()
    gc.collect()  # Who asked for a task's exception is known when the task is gone.
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == []


# Queues that are not there


async def test_a_missing_queue_is_404_before_the_body_is_read(server: Server) -> None:
    for header in ("Content-Length: 10000000", CHUNKED):
        reply = await raw_request(server.port, raw_head("POST", "/q/messages", header))
        assert_problem(reply, 404, "queue-not-found")
    assert message_files(server.root) == nothing_anywhere()


async def test_a_missing_queue_is_404_and_not_100(server: Server) -> None:
    head = raw_head("POST", "/q/messages", "Content-Length: 5", "Expect: 100-continue")
    assert_problem(await raw_request(server.port, head), 404, "queue-not-found")


async def finish(connection: RawConnection) -> Reply:
    """Sends the rest of the body that `send_half` began, chunked."""
    await connection.send(b"0\r\n\r\n")
    reply = await connection.response()
    return Reply(reply.status, reply.headers, reply.body)


async def test_a_queue_deleted_while_a_body_comes_is_404(server: Server) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await send_half(connection, server, CHUNKED)
        assert (await call(server, "DELETE", "/q")).status == 200
        assert_problem(await finish(connection), 404, "queue-not-found")
    await make_queue(server)
    files = message_files(server.root)
    assert (files["new"], files["queues"]) == ([], [])


async def test_a_queues_folder_gone_while_a_body_comes_is_404(server: Server) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await send_half(connection, server, CHUNKED)
        shutil.rmtree(server.root / "queues" / "q")
        assert_problem(await finish(connection), 404, "queue-not-found")
    assert message_files(server.root) == nothing_anywhere()


async def test_a_publish_whose_file_was_taken_for_forgotten_is_503(server: Server) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await send_half(connection, server, CHUNKED)
        [name] = message_files(server.root)["new"]
        (server.root / "new" / name).rename(server.root / "remove" / name)
        assert_problem(await finish(connection), 503, "publish-forgotten")
    assert (await fetch(server)).status == 204


# Expectations


@pytest.mark.parametrize("value", ["100-continue", "100-Continue"])
async def test_who_expects_100_is_told_to_go_on(server: Server, value: str) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(
            raw_head("POST", "/q/messages", "Content-Length: 5", f"Expect: {value}")
        )
        assert (await connection.response()).status == 100
        await connection.send(b"hello")
        assert (await connection.response()).status == 201
    assert (await fetch(server)).body == b"hello"


async def test_an_unknown_expectation_is_417(server: Server) -> None:
    await make_queue(server)
    head = raw_head("POST", "/q/messages", "Content-Length: 5", "Expect: a-miracle")
    assert_problem(await raw_request(server.port, head), 417, "expectation-unknown")
    await assert_nothing_is_left(server)


# Many


async def test_concurrent_publishes_are_each_stored_once(server: Server, root: Path) -> None:
    await make_queue(server)
    bodies = [f"body {n}".encode() for n in range(64)]
    ids = await asyncio.gather(*(publish(server, body) for body in bodies))
    assert len(set(ids)) == len(bodies)
    stored = [(root / "queues" / "q" / message_id).read_bytes() for message_id in ids]
    assert stored == bodies


async def test_a_connection_is_used_again(server: Server) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        for n in range(3):
            await connection.send(
                raw_head("POST", "/q/messages", "Content-Length: 1") + str(n).encode()
            )
            assert (await connection.response()).status == 201


async def test_pipelined_publishes_are_answered_in_their_order(server: Server) -> None:
    await make_queue(server)
    one = raw_head("POST", "/q/messages", "Content-Length: 1")
    async with raw_connection(server.port) as connection:
        await connection.send(one + b"1" + one + b"2" + one + b"3")
        ids = [(await connection.response()).headers["x-message-id"] for _ in range(3)]
    assert ids == sorted(ids)
    assert [(await fetch(server)).body for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("query", ["?colour=red", "?colour", "?colour=red&delay=1"])
async def test_an_unknown_query_parameter_is_400(server: Server, query: str) -> None:
    await make_queue(server)
    reply = await call(server, "POST", f"/q/messages{query}", data=b"x")
    assert assert_problem(reply, 400, "unknown-parameter")["parameter"] == "colour"
    assert message_files(server.root) == nothing_anywhere()


async def test_a_body_that_was_expected_and_not_read_is_not_taken_for_a_request(
    server: Server,
) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        head = raw_head("POST", "/missing/messages", "Content-Length: 1", "Expect: 100-continue")
        await connection.send(head)
        reply = await connection.response()
        assert (reply.status, reply.headers["connection"]) == (404, "close")
