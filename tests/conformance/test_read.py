"""Reading a message by its id: as it is, in any state, nothing consumed; whole, or a range."""

import asyncio
import os
from datetime import datetime
from pathlib import Path

import pytest
from harness.api import UNKNOWN_ID, Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.faults import FaultyFiles
from harness.folders import tree
from harness.raw import raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

MEBIBYTE = 1 << 20
LARGE = bytes(range(256)) * (3 * MEBIBYTE // 256) + b"end"
SHARED = (
    "X-Message-Id", "X-Message-Receives", "X-Message-Published", "X-Message-Due", "ETag",
    "Content-Type", "Cache-Control", "X-Content-Type-Options", "traceparent",
)  # fmt: skip


async def read(server: Server, message_id: str, method: str = "GET", **headers: str) -> Reply:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call(server, method, f"/q/messages/{message_id}", headers=sent)


def disk(root: Path) -> dict[str, tuple[str, int]]:
    """Every path below, what it is, and its mtime."""
    times = {path: (root / path).lstat().st_mtime_ns for path in tree(root)}
    return {path: (what, times[path]) for path, what in tree(root).items()}


async def test_a_message_is_read_in_every_state_and_nothing_changes(server: Server) -> None:
    await make_queue(server)
    kept = {"Content-Type": "application/json", "traceparent": "00-aa-bb-01"}
    message_id = await publish(server, b'{"a": 1}', headers=kept)

    async def expect(state: str, receives: int) -> Reply:
        before = disk(server.root)
        for method in ("GET", "HEAD"):
            reply = await read(server, message_id, method)
            assert reply.status == 200
            assert reply.headers["X-Message-State"] == state
            assert reply.headers["X-Message-Receives"] == str(receives)
            assert reply.headers["Accept-Ranges"] == "bytes"
            assert reply.headers["Content-Length"] == "8"
            assert reply.body == (b'{"a": 1}' if method == "GET" else b"")
        assert disk(server.root) == before
        return reply

    await expect("ready", 0)
    fetched = await fetch(server)
    seen = await expect("delayed", 1)
    assert {name: seen.headers[name] for name in SHARED} == {
        name: fetched.headers[name] for name in SHARED
    }
    assert (await delete(server, message_id)).status == 202
    await expect("removed", 1)


async def test_a_message_that_was_read_is_fetched_as_if_it_was_not(server: Server) -> None:
    await make_queue(server)
    ids = [await publish(server, body) for body in (b"one", b"two")]
    for message_id in reversed(ids):
        assert (await read(server, message_id)).status == 200
    replies = [await fetch(server) for _ in ids]
    assert [(each.id, each.headers["X-Message-Receives"]) for each in replies] == [
        (message_id, "1") for message_id in ids
    ]


async def test_a_scheduled_message_says_when_it_is_due(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, params={"delay": "3600"})
    reply = await read(server, message_id)
    assert reply.headers["X-Message-State"] == "delayed"
    waits = datetime.fromisoformat(reply.headers["X-Message-Due"]) - datetime.fromisoformat(
        reply.headers["X-Message-Published"]
    )
    assert abs(waits.total_seconds() - 3600) < 60


async def test_what_is_not_there_is_not_found(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    await delete(server, message_id)
    for path in (server.root / "remove").iterdir():
        path.unlink()
    for missing in (message_id, UNKNOWN_ID):
        assert_problem(await read(server, missing), 404, "message-not-found")
        assert (await read(server, missing, "HEAD")).status == 404
    assert_problem(await read(server, "no-id"), 400, "bad-name")
    reply = await call(server, "GET", f"/none/messages/{UNKNOWN_ID}")
    assert_problem(reply, 404, "queue-not-found")
    assert_problem(
        await call(server, "GET", f"/q/messages/{UNKNOWN_ID}?visibility=3"),
        400, "unknown-parameter",
    )  # fmt: skip


async def test_a_message_of_a_deleted_queue_is_out_of_reach(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    await fetch(server)
    await call(server, "DELETE", "/q")
    assert_problem(await read(server, message_id), 404, "queue-not-found")


async def test_a_file_that_was_never_delivered_is_not_read(server: Server) -> None:
    await make_queue(server)
    (server.root / "new" / f"q:{UNKNOWN_ID}").write_bytes(b"half")
    assert_problem(await read(server, UNKNOWN_ID), 404, "message-not-found")


async def test_what_is_foreign_is_not_read(server: Server) -> None:
    await make_queue(server)
    (server.root / "secret").write_bytes(b"secret")
    place = server.root / "queues" / "q" / UNKNOWN_ID
    place.symlink_to(server.root / "secret")
    assert_problem(await read(server, UNKNOWN_ID), 404, "message-not-found")
    place.unlink()
    os.mkfifo(place)
    assert_problem(await read(server, UNKNOWN_ID), 404, "message-not-found")


async def test_a_folder_that_is_away_is_no_404(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    await fetch(server)
    (server.root / "delay").rename(server.root / "elsewhere")
    assert_problem(await read(server, message_id), 503, "storage-failed")
    (server.root / "elsewhere").rename(server.root / "delay")
    assert (await read(server, message_id)).status == 200


@pytest.mark.parametrize("call_name", ["status", "open_read"])
async def test_a_message_that_moves_meanwhile_is_found_where_it_went(
    serve: Serve, call_name: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    gate = files.hold(call_name, f"/queues/q/{message_id}")
    reading = asyncio.create_task(read(server, message_id))
    await comes_true(gate.reached.is_set)
    source = server.root / "queues" / "q" / message_id
    source.rename(server.root / "delay" / f"q:{message_id}")
    gate.open()
    reply = await reading
    assert (reply.status, reply.headers["X-Message-State"]) == (200, "delayed")
    await comes_true(lambda: files.open_paths(message_id) == [])


async def test_a_message_in_a_bucket_is_found(serve: Serve) -> None:
    server = await serve(folder_max=1)
    await make_queue(server)
    ids = [await publish(server, b"%d" % number) for number in range(6)]
    for _ in range(3):
        await fetch(server)
    for message_id in ids[:2]:
        await delete(server, message_id)
    replies = [await read(server, message_id) for message_id in ids]
    assert [reply.body for reply in replies] == [b"%d" % number for number in range(6)]
    assert [reply.headers["X-Message-State"] for reply in replies] == (
        ["removed"] * 2 + ["delayed"] + ["ready"] * 3
    )


RANGES = [
    ("bytes=0-0", 0, 1),
    ("bytes=2-4", 2, 5),
    ("bytes=7-", 7, 10),
    ("bytes=-3", 7, 10),
    ("bytes=-30", 0, 10),
    ("bytes=5-500", 5, 10),
    ("bytes=5-18446744073709551615", 5, 10),
    ("bytes=-18446744073709551615", 0, 10),
    ("bytes=0-", 0, 10),
    ("Bytes= 2-4 ,", 2, 5),
]


@pytest.mark.parametrize(("asked", "first", "end"), RANGES)
async def test_a_range_of_the_body(server: Server, asked: str, first: int, end: int) -> None:
    await make_queue(server)
    body = b"0123456789"
    # Behind a header block, which is no part of the body.
    message_id = await publish(server, body, headers={"x-attribute-a": "b" * 50})
    reply = await read(server, message_id, Range=asked)
    assert (reply.status, reply.body) == (206, body[first:end])
    assert reply.headers["Content-Range"] == f"bytes {first}-{end - 1}/10"
    assert reply.headers["Content-Length"] == str(end - first)
    assert reply.headers["x-attribute-a"] == "b" * 50


@pytest.mark.parametrize(
    "asked", ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=18446744073709551615-"]
)
async def test_a_range_behind_the_end(server: Server, asked: str) -> None:
    await make_queue(server)
    message_id = await publish(server, b"0123456789")
    reply = await read(server, message_id, Range=asked)
    assert assert_problem(reply, 416, "range-unsatisfiable")["size"] == 10
    assert reply.headers["Content-Range"] == "bytes */10"


@pytest.mark.parametrize(
    "asked",
    ["bytes=0-1,4-5", "bytes=4-2", "bytes=-", "bytes=x-1", "bytes", "items=0-1", "", "bytes=1-2-3",
     "bytes=" + "9" * 5000 + "-", "bytes=\u0661-2"],
)  # fmt: skip
async def test_what_is_no_single_range_is_passed_over(server: Server, asked: str) -> None:
    await make_queue(server)
    message_id = await publish(server, b"0123456789")
    reply = await read(server, message_id, Range=asked)
    assert (reply.status, reply.body) == (200, b"0123456789")
    assert "Content-Range" not in reply.headers


async def test_the_end_of_an_empty_body_is_all_of_it(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, b"")
    assert (await read(server, message_id, Range="bytes=-5")).status == 200
    assert_problem(await read(server, message_id, Range="bytes=0-"), 416, "range-unsatisfiable")


async def test_a_range_only_of_what_if_range_names(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, b"0123456789")
    await fetch(server)
    for tag in ('"0"', 'W/"1"', "Tue, 15 Nov 1994 12:45:26 GMT"):
        assert (await read(server, message_id, Range="bytes=1-2", If_Range=tag)).status == 200
        # Also one that could not be served.
        assert (await read(server, message_id, Range="bytes=99-", If_Range=tag)).status == 200
    reply = await read(server, message_id, Range="bytes=1-2", If_Range='"1"')
    assert (reply.status, reply.body) == (206, b"12")


async def test_a_head_has_no_range(server: Server) -> None:
    """RFC 9110 defines ranges for GET alone."""
    await make_queue(server)
    message_id = await publish(server, b"0123456789")
    for asked in ("bytes=1-2", "bytes=99-"):
        reply = await read(server, message_id, "HEAD", Range=asked)
        assert (reply.status, reply.headers["Content-Length"]) == (200, "10")
        assert "Content-Range" not in reply.headers


async def test_a_large_body_streams_whole_and_in_part(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server, LARGE, headers={"x-attribute-a": "b"})
    reply = await read(server, message_id)
    assert reply.body == LARGE
    assert reply.headers["X-Message-State"] == "ready"
    for first, end in ((5, len(LARGE)), (MEBIBYTE, 3 * MEBIBYTE), (10, 20)):
        reply = await read(server, message_id, Range=f"bytes={first}-{end - 1}")
        assert (reply.status, reply.body) == (206, LARGE[first:end])
        assert reply.headers["Content-Length"] == str(end - first)
        assert reply.headers["Content-Range"] == f"bytes {first}-{end - 1}/{len(LARGE)}"
    opened = files.count("read", message_id)
    reply = await read(server, message_id, "HEAD")
    assert reply.headers["Content-Length"] == str(len(LARGE))
    assert reply.body == b""
    assert files.count("read", message_id) == opened + 1  # The header block alone.
    assert files.open_paths(message_id) == []


async def test_a_head_leaves_the_connection_usable(server: Server) -> None:
    await make_queue(server)
    small, large = await publish(server, b"hello"), await publish(server, LARGE)
    async with raw_connection(server.port) as connection:
        for message_id, size in ((small, 5), (large, len(LARGE))):
            await connection.send(raw_head("HEAD", f"/q/messages/{message_id}"))
            reply = await connection.response(head_only=True)
            assert reply.headers["content-length"] == str(size)
        await connection.send(raw_head("GET", f"/q/messages/{small}"))
        assert (await connection.response()).body == b"hello"


async def test_a_client_that_goes_while_it_is_read_leaves_nothing_open(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server, LARGE)
    gate = files.hold("open_read", message_id)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", f"/q/messages/{message_id}"))
        await comes_true(gate.reached.is_set)
    gate.open()
    await comes_true(lambda: files.count("open_read", message_id) == 1)
    await comes_true(lambda: files.open_paths(message_id) == [])
    assert (await fetch(server)).body == LARGE


async def test_a_file_shorter_than_it_says_is_a_503(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server, b"", headers={"x-attribute-a": "b" * 50})
    path = server.root / "queues" / "q" / message_id
    os.truncate(path, 10)
    assert_problem(await read(server, message_id), 503, "unavailable")
