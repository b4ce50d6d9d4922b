"""`GET /{queue}/messages?count=N`: the next messages, a line of JSON each."""

import asyncio
import base64
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from harness.api import StillClock, assert_problem, call, make_queue, publish, totals
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.internals import background_work, connections
from harness.raw import raw_connection, raw_head
from harness.server import STREAMED_BYTES, Serve, Server, commit_modes
from harness.waiting import comes_true

from mq.broker.fetching import COHORT_FIRST, COHORT_MAX
from mq.model.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MIB

COUNT = "/q/messages?count="


async def count(server: Server, wanted: int | str, **more: Any) -> list[dict[str, Any]]:
    """Fetches so many; the rows of the answer."""
    reply = await call(server, "GET", f"{COUNT}{wanted}", **more)
    if reply.status == 204:
        assert reply.body == b""
        return []
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    assert reply.headers["Cache-Control"] == "no-store"
    return [json.loads(row) for row in reply.body.splitlines()]


async def fill(server: Server, messages: int, size: int = 0) -> list[str]:
    await make_queue(server)
    bodies = [b"%d" % n + b" " * size for n in range(messages)]
    return [await publish(server, body) for body in bodies]


async def test_a_row_has_all_that_is_known(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    headers = {"Content-Type": "application/json", "ce-id": "7"}
    text = await publish(server, '{"ä": 1}'.encode(), headers=headers)
    binary = await publish(server, b"\xff\x00")
    clock.now += 1000
    facts = {
        "receives": 1,
        "published": "2023-11-14T22:13:20.000Z",
        "due": "2023-11-14T22:13:51.000Z",
    }
    kinds = [{"content-type": "application/json", "ce-id": "7"}]
    kinds.append({"content-type": "application/octet-stream"})
    assert await count(server, 5) == [
        {"id": text, **facts, "headers": kinds[0], "body": '{"ä": 1}'},
        {"id": binary, **facts, "headers": kinds[1], "body_base64": "/wA="},
    ]


@commit_modes
@pytest.mark.parametrize("messages", [1, COHORT_FIRST, COHORT_FIRST + COHORT_MAX + 3])
async def test_messages_come_in_order_and_once(serve: Serve, commit: str, messages: int) -> None:
    server = await serve(commit=commit)
    ids = await fill(server, messages)
    first = await count(server, messages - messages // 3)
    rest = await count(server, BATCH_MESSAGES_MAX)
    assert [row["id"] for row in first + rest] == ids
    assert await count(server, 1) == []
    assert message_files(server.root)["delay"] == sorted(f"q:{each}" for each in ids)
    assert (await totals(server))["fetched"] == messages


async def test_urgent_ones_come_first(server: Server) -> None:
    await make_queue(server)
    for priority in (0, 9, 5):
        for n in range(2):
            path = f"/q/messages?priority={priority}"
            assert (await call(server, "POST", path, data=b"%d.%d" % (priority, n))).status == 201
    rows = await count(server, 10)
    assert [row["body"] for row in rows] == ["9.0", "9.1", "5.0", "5.1", "0.0", "0.1"]


async def test_one_visibility_is_for_all(serve: Serve) -> None:
    server = await serve(clock=StillClock())
    await fill(server, 3)
    rows = await count(server, "3&visibility=90.5")
    assert {row["due"] for row in rows} == {"2023-11-14T22:14:50.500Z"}


@pytest.mark.parametrize(
    "value", ["", "0", "-1", "1.5", "x", str(BATCH_MESSAGES_MAX + 1), "1&count=1"]
)
async def test_a_bad_count_is_refused(server: Server, value: str) -> None:
    await make_queue(server)
    reply = await call(server, "GET", f"{COUNT}{value}")
    assert assert_problem(reply, 400, "bad-count")["parameter"] == "count"


async def test_a_missing_queue_is_told(server: Server) -> None:
    assert_problem(await call(server, "GET", f"{COUNT}2"), 404, "queue-not-found")


async def test_who_waits_is_answered_once_there_is_one(server: Server) -> None:
    await make_queue(server)
    waiting = asyncio.create_task(count(server, "5&wait=60"))
    await comes_true(lambda: connections(server) >= 1)
    message_id = await publish(server, b"at last")
    assert [row["id"] for row in await waiting] == [message_id]
    assert await count(server, "5&wait=0.01") == []


# Large bodies


@pytest.mark.parametrize("kind", ["text", "binary", "nearly text"])
async def test_a_large_body_comes_whole(server: Server, kind: str) -> None:
    await make_queue(server)
    body = {
        "text": 'ä\n"€\U0001f600'.encode() * (STREAMED_BYTES // 10),
        "binary": bytes(range(256)) * (STREAMED_BYTES // 256) + b"x",
        "nearly text": b"x" * STREAMED_BYTES + b"\xe2\x82",
    }[kind]
    await publish(server, b"before")
    large = await publish(server, body)
    await publish(server, b"after")
    rows = await count(server, 3)
    assert [row.get("body") for row in rows][::2] == ["before", "after"]
    assert rows[1]["id"] == large
    if kind == "text":
        assert rows[1]["body"].encode() == body
    else:
        assert base64.b64decode(rows[1]["body_base64"]) == body


@pytest.mark.certificate
async def test_a_batch_ends_when_its_bodies_are_many_bytes(server: Server) -> None:
    messages = 2 * COHORT_FIRST
    await fill(server, messages, size=MIB - 10)
    found = []
    while rows := await count(server, BATCH_MESSAGES_MAX):
        assert len(rows) * MIB <= BATCH_BYTES_MAX + COHORT_FIRST * MIB
        found += rows
    assert len(found) == messages


# Who goes, and what fails


async def test_what_was_claimed_for_a_client_that_hung_up_is_released(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    ids = await fill(server, 5)
    claim = files.hold("rename", "/delay/q:")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", f"{COUNT}5"))
        await comes_true(claim.reached.is_set)
    await comes_true(lambda: connections(server) <= 1)
    claim.open()

    async def is_released() -> bool:
        return (await totals(server))["released"] == len(ids)

    await comes_true(is_released)
    await comes_true(lambda: not background_work(server))
    assert message_files(server.root)["queues"] == [f"q:{each}" for each in ids]
    assert [row["id"] for row in await count(server, 5)] == ids


async def test_what_was_not_sent_to_a_client_that_hung_up_is_released(
    serve: Serve, root: Path
) -> None:
    """It stops reading in the middle of the rows, and then it is gone."""
    files = FaultyFiles()
    server = await serve(files=files)
    ids = await fill(server, 6, size=4 * MIB)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", f"{COUNT}6"))
        await comes_true(lambda: len(message_files(root)["delay"]) == 6)
    await comes_true(lambda: connections(server) <= 1)
    await comes_true(lambda: len(message_files(root)["queues"]) >= 4)
    await comes_true(lambda: files.open_paths() == [])
    ready = message_files(root)["queues"]
    assert ready == [f"q:{each}" for each in ids][-len(ready) :]


async def test_what_was_claimed_is_answered_though_a_claim_failed(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    ids = await fill(server, 4)
    files.fail("sync", errno.EIO, ids[2], times=1)
    rows = await count(server, 4)
    assert [row["id"] for row in rows] == [ids[0], ids[1], ids[3]]


async def test_a_failure_without_any_claim_is_told(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await fill(server, 2)
    files.fail("sync", errno.EIO, "/queues/q/")
    reply = await call(server, "GET", f"{COUNT}2")
    assert_problem(reply, 503, "storage-failed")


async def test_a_body_that_cannot_be_read_cuts_the_answer_short(serve: Serve, root: Path) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    ids = await fill(server, 2, size=STREAMED_BYTES)
    files.fail("read", errno.EIO, ids[0])
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", f"{COUNT}2"))
        assert not (await connection.ended()).endswith(b"0\r\n\r\n")
    await comes_true(lambda: message_files(root)["queues"] == [f"q:{each}" for each in ids])
    await comes_true(lambda: files.open_paths() == [])
