"""`POST /{queue}/messages?split=lines`: each line one message, and an end for each."""

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from harness.api import (
    StillClock,
    assert_problem,
    assert_works,
    call,
    delete,
    fetch,
    make_queue,
    publish,
)
from harness.faults import FaultyFiles
from harness.folders import message_files, nothing_anywhere
from harness.internals import connections
from harness.raw import raw_connection, raw_head, raw_request
from harness.server import Serve, Server, commit_modes
from harness.waiting import comes_true

from mq.broker.batches import BATCH_GROUP_MESSAGES
from mq.model.limits import BATCH_BYTES_MAX, MIB, SPLIT_LINES_MAX
from mq.model.settings import QueueSettings

SPLIT = "/q/messages?split=lines"


async def split(server: Server, body: bytes, query: str = "", **more: Any) -> list[dict[str, Any]]:
    """Publishes a body of lines; the rows of the answer."""
    reply = await call(server, "POST", SPLIT + query, data=body, **more)
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(row) for row in reply.body.splitlines()]


async def drained(server: Server) -> list[bytes]:
    bodies = []
    while (reply := await fetch(server)).status == 200:
        bodies.append(reply.body)
        assert (await delete(server, reply.id)).status == 202
    return bodies


@commit_modes
async def test_each_line_is_a_message_in_their_order(serve: Serve, commit: str) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    rows = await split(server, b'{"n": 1}\ntwo\r\n\n\r\n \n\xff\nlast')
    ids = [row["id"] for row in rows]
    assert ids == sorted(ids)
    assert message_files(server.root)["queues"] == [f"q:{each}" for each in ids]
    replies = [await fetch(server) for _ in ids]
    assert [reply.id for reply in replies] == ids
    assert [reply.body for reply in replies] == [b'{"n": 1}', b"two", b" ", b"\xff", b"last"]


@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n\n\r"])
async def test_a_body_without_lines_publishes_nothing(server: Server, body: bytes) -> None:
    await make_queue(server)
    assert await split(server, body) == []
    assert message_files(server.root) == nothing_anywhere()


@pytest.mark.certificate
async def test_more_than_a_group_goes_in_order(server: Server) -> None:
    await make_queue(server)
    count = 2 * BATCH_GROUP_MESSAGES + 3
    rows = await split(server, b"".join(b"%d\n" % n for n in range(count)))
    assert len(rows) == count
    assert await drained(server) == [b"%d" % n for n in range(count)]
    totals = (await call(server, "GET", "/q")).json()["totals"]
    assert (totals["published"], totals["fetched"], totals["deleted"]) == (count,) * 3


async def test_more_than_a_folder_holds_goes_to_buckets(serve: Serve) -> None:
    server = await serve(folder_max=20)
    await make_queue(server)
    for first in range(0, 90, 30):
        await split(server, b"".join(b"%d\n" % n for n in range(first, first + 30)))
    assert await drained(server) == [b"%d" % n for n in range(90)]


async def test_what_is_said_of_the_request_is_said_of_each(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    headers = {"Content-Type": "application/json", "X-Attribute-Kind": "b"}
    rows = await split(server, b"1\n2\n", "&priority=7&visibility=90", headers=headers)
    assert all(",p=7,v=90,h=" in row["id"] and row["id"].endswith(".json") for row in rows)
    reply = await fetch(server)
    assert (reply.body, reply.headers["Content-Type"]) == (b"1", "application/json")
    assert reply.headers["X-Attribute-Kind"] == "b"
    assert reply.headers["X-Message-Due"] == "2023-11-14T22:14:50.000Z"


async def test_a_delay_is_each_one_s(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    rows = await split(server, b"1\n2\n", "&delay=60")
    assert message_files(server.root)["delay"] == [f"q:{row['id']}" for row in rows]
    assert {path.stat().st_mtime_ns for path in (server.root / "delay").iterdir()} == {
        (clock.now + 60_000) * 10**6
    }
    assert (await fetch(server)).status == 204


@pytest.mark.parametrize(
    ("query", "headers", "parameter"),
    [
        ("split=", {}, "split"),
        ("split=line", {}, "split"),
        ("split=lines&split=lines", {}, "split"),
        ("split=lines&key=k", {}, "key"),
        ("split=lines", {"Idempotency-Key": "k"}, "idempotency-key"),
        ("split=lines&priority=10", {}, "priority"),
        ("split=lines&delay=-1", {}, "delay"),
    ],
)
async def test_what_a_batch_cannot_have_is_refused(
    server: Server, query: str, headers: dict[str, str], parameter: str
) -> None:
    await make_queue(server)
    reply = await call(server, "POST", f"/q/messages?{query}", data=b"1\n2\n", headers=headers)
    assert assert_problem(reply, 400, f"bad-{parameter}")["parameter"] == parameter
    assert message_files(server.root) == nothing_anywhere()


async def test_a_missing_queue_is_told(server: Server) -> None:
    assert_problem(await call(server, "POST", SPLIT, data=b"1\n"), 404, "queue-not-found")


async def test_a_queue_that_another_deleted_is_told(server: Server, root: Path) -> None:
    await make_queue(server)
    await publish(server)
    (root / "queues" / "q").rename(root / "remove" / "q:0192f3a2-7c4e-7d2a-9b1e-0123456789ab.d")
    assert_problem(await call(server, "POST", SPLIT, data=b"1\n2\n"), 404, "queue-not-found")
    assert message_files(root)["new"] == []


@pytest.mark.parametrize("said", [True, False], ids=["length", "chunked"])
async def test_a_batch_that_is_too_large_publishes_nothing(server: Server, said: bool) -> None:
    await make_queue(server)
    body = (b"x" * 1023 + b"\n") * (BATCH_BYTES_MAX // 1024) + b"x"
    if said:
        length = f"Content-Length: {len(body)}"
        reply: Any = await raw_request(server.port, raw_head("POST", SPLIT, length))
    else:

        async def chunks() -> Any:
            for start in range(0, len(body), MIB):
                yield body[start : start + MIB]

        reply = await call(server, "POST", SPLIT, data=chunks())
    members = assert_problem(reply, 413, "batch-too-large")
    assert members["bytes_max"] == BATCH_BYTES_MAX
    assert members["messages_max"] == SPLIT_LINES_MAX
    assert message_files(server.root) == nothing_anywhere()


async def test_too_many_lines_publish_nothing(server: Server) -> None:
    await make_queue(server)
    reply = await call(server, "POST", SPLIT, data=b"\n1\r\n" * (SPLIT_LINES_MAX + 1))
    assert_problem(reply, 413, "batch-too-large")
    assert message_files(server.root) == nothing_anywhere()


async def test_a_line_that_is_too_large_is_refused_alone(serve: Serve) -> None:
    server = await serve(queue=QueueSettings(body_bytes_max=5))
    await make_queue(server)
    rows = await split(server, b"12345\n123456\r\n12345\r\n")
    assert [set(row) for row in rows] == [{"id"}, {"problem"}, {"id"}]
    problem = rows[1]["problem"]
    assert problem["type"] == "urn:mq:problem:body-too-large"
    assert (problem["status"], problem["retryable"], problem["bytes_max"]) == (413, False, 5)
    assert await drained(server) == [b"12345", b"12345"]


async def test_a_body_that_is_cut_short_publishes_nothing(server: Server) -> None:
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", SPLIT, "Content-Length: 100") + b"1\n2\n")
    await comes_true(lambda: connections(server) <= 1)
    assert message_files(server.root) == nothing_anywhere()
    await assert_works(server)


async def test_a_body_that_comes_too_slowly_publishes_nothing(serve: Serve) -> None:
    server = await serve(body_idle_s=0.1)
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("POST", SPLIT, "Content-Length: 100") + b"1\n2\n")
        assert_problem(await connection.response(), 408, "body-too-slow")
    assert message_files(server.root) == nothing_anywhere()


# What fails


@commit_modes
async def test_one_line_whose_fsync_fails_is_refused_alone(serve: Serve, commit: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    files.fail("sync_file_system", errno.EIO)
    files.fail("sync", errno.EIO, "the third")
    rows = await split(server, b"the first\nthe second\nthe third\nthe fourth\n")
    assert [set(row) for row in rows] == [{"id"}, {"id"}, {"problem"}, {"id"}]
    problem = rows[2]["problem"]
    assert problem["type"] == "urn:mq:problem:storage-failed"
    assert (problem["status"], problem["retryable"]) == (503, True)
    assert files.retried == []
    assert message_files(server.root)["new"] == []
    await comes_true(lambda: files.open_paths() == [])
    files.heal()
    assert await drained(server) == [b"the first", b"the second", b"the fourth"]


@commit_modes
async def test_a_disk_that_fills_in_the_middle_refuses_the_rest(serve: Serve, commit: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    files.fail("write", errno.ENOSPC, "/new/", after=2)
    rows = await split(server, b"1\n2\n3\n4\n")
    assert [set(row) for row in rows] == [{"id"}, {"id"}, {"problem"}, {"problem"}]
    assert {row["problem"]["type"] for row in rows[2:]} == {"urn:mq:problem:no-space"}
    assert message_files(server.root)["new"] == []
    files.heal()
    assert await drained(server) == [b"1", b"2"]


@pytest.mark.parametrize("call_name", ["create", "write", "stamp", "rename"])
async def test_one_line_that_cannot_be_written_is_refused_alone(
    serve: Serve, call_name: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail(call_name, errno.EIO, "/new/", times=1, after=1)
    rows = await split(server, b"1\n2\n3\n")
    assert [set(row) for row in rows] == [{"id"}, {"problem"}, {"id"}]
    assert message_files(server.root)["new"] == []
    assert await drained(server) == [b"1", b"3"]


async def test_a_rename_whose_answer_was_lost_is_done(serve: Serve) -> None:
    """As over NFS."""
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail("rename", errno.ENOENT, "/new/", times=1, after=1, performed=True)
    rows = await split(server, b"1\n2\n3\n")
    assert [set(row) for row in rows] == [{"id"}] * 3
    assert await drained(server) == [b"1", b"2", b"3"]


async def test_a_file_that_was_taken_for_forgotten_is_refused_alone(
    serve: Serve, root: Path
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    flush = files.hold("sync", "/new/")
    asked = asyncio.create_task(split(server, b"1\n2\n"))
    await comes_true(lambda: flush.arrivals == 2)
    first = min((root / "new").iterdir())
    first.rename(root / "remove" / first.name)
    flush.open()
    rows = await asked
    assert rows[0]["problem"]["type"] == "urn:mq:problem:publish-forgotten"
    assert await drained(server) == [b"2"]


@commit_modes
async def test_a_folder_s_flush_that_fails_fails_all(serve: Serve, commit: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    await publish(server, b"before")
    files.fail("sync_file_system", errno.EIO)
    files.fail("sync_folder", errno.EIO, "/queues/q")
    rows = await split(server, b"1\n2\n3\n")
    assert [row["problem"]["status"] for row in rows] == [503] * 3
    files.heal()
    assert set(await drained(server)) >= {b"before"}


async def test_below_the_reserve_each_line_is_refused(serve: Serve, root: Path) -> None:
    server = await serve(reserve_bytes=2**60)
    await make_queue(server)
    rows = await split(server, b"1\n2\n")
    assert [row["problem"]["type"] for row in rows] == ["urn:mq:problem:no-space"] * 2
    assert message_files(root) == nothing_anywhere()


async def test_batches_side_by_side_hold_a_bounded_number_of_files_open(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    flush = files.hold("sync", "/new/")
    body = b"x\n" * BATCH_GROUP_MESSAGES
    asked = [asyncio.create_task(split(server, body)) for _ in range(5)]
    await comes_true(flush.reached.is_set)
    await comes_true(lambda: len(files.open_paths("/new/")) >= BATCH_GROUP_MESSAGES)
    assert len(files.open_paths("/new/")) <= 3 * BATCH_GROUP_MESSAGES
    flush.open()
    answered = await asyncio.gather(*asked)
    assert [len(rows) for rows in answered] == [BATCH_GROUP_MESSAGES] * 5
