"""`POST /{queue}/acks`: many messages deleted, a result each."""

import errno
import json
from typing import Any

import pytest
from harness.api import UNKNOWN_ID, Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.raw import raw_connection, raw_head
from harness.server import Serve, Server, commit_modes

from mq.http.bodies import JSON_BYTES_MAX
from mq.model.limits import BATCH_MESSAGES_MAX

JSON = {"Content-Type": "application/json"}


async def post_acks(server: Server, content: object, **more: Any) -> Reply:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return await call(server, "POST", "/q/acks", data=body, **{"headers": dict(JSON), **more})


async def acks(server: Server, *ids: str) -> list[tuple[str, int]]:
    reply = await post_acks(server, {"ids": list(ids)})
    assert reply.status == 200, reply.body
    results = reply.json()["results"]
    for result in results:
        problem = result.get("problem", {"status": 202})
        assert problem["status"] == result["status"]
    return [(result["id"], result["status"]) for result in results]


@commit_modes
async def test_each_id_has_its_result_in_their_order(serve: Serve, commit: str) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    fetched, ready, gone = [await publish(server, body) for body in (b"1", b"2", b"3")]
    assert (await fetch(server)).id == fetched
    assert (await delete(server, gone)).status == 202
    asked = [ready, "no id", UNKNOWN_ID, fetched, gone, ready, ""]
    statuses = [202, 400, 404, 202, 202, 202, 400]
    assert await acks(server, *asked) == list(zip(asked, statuses, strict=True))
    assert len(message_files(server.root)["remove"]) == 3
    totals = (await call(server, "GET", "/q")).json()["totals"]
    assert totals["deleted"] == 3


async def test_a_problem_is_what_the_delete_alone_would_be_answered(server: Server) -> None:
    await make_queue(server)
    [result] = (await post_acks(server, {"ids": [UNKNOWN_ID]})).json()["results"]
    assert result["problem"] == (await delete(server, UNKNOWN_ID)).json()


async def test_many_go_together(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    ids = [await publish(server, b"x") for _ in range(100)]
    before = files.count("sync_folder")
    assert {status for _, status in await acks(server, *ids)} == {202}
    assert files.count("sync_folder") - before <= 20
    assert message_files(server.root)["queues"] == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"ids": []}',
        b'{"ids": {}}',
        b'{"ids": [1]}',
        b'{"ids": "x"}',
        b'{"id": ["x"]}',
        b'{"ids": ["x"], "more": 1}',
        b'{"ids": [null]}',
        b"[" * 100_000,
        json.dumps({"ids": ["x"] * (BATCH_MESSAGES_MAX + 1)}).encode(),
    ],
)
async def test_a_bad_body_is_refused(server: Server, content: bytes) -> None:
    await make_queue(server)
    assert_problem(await post_acks(server, content), 400, "bad-body")


async def test_as_many_as_are_allowed(server: Server) -> None:
    await make_queue(server)
    told = await acks(server, *[UNKNOWN_ID] * BATCH_MESSAGES_MAX)
    assert told == [(UNKNOWN_ID, 404)] * BATCH_MESSAGES_MAX


async def test_what_is_no_json_is_refused(server: Server) -> None:
    await make_queue(server)
    reply = await post_acks(server, b"{}", headers={"Content-Type": "text/plain"})
    assert_problem(reply, 415, "media-type-unknown")


async def test_a_body_that_is_too_large_is_refused(server: Server) -> None:
    await make_queue(server)
    reply = await post_acks(server, b" " * (JSON_BYTES_MAX + 1))
    assert_problem(reply, 413, "body-too-large")


async def test_a_body_that_is_cut_short_deletes_nothing(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    begun = json.dumps({"ids": [message_id]}).encode()
    async with raw_connection(server.port) as connection:
        head = raw_head("POST", "/q/acks", "Content-Length: 999", "Content-Type: application/json")
        await connection.send(head + begun)
    assert (await fetch(server)).id == message_id


async def test_a_missing_queue_and_other_methods_are_told(server: Server) -> None:
    assert_problem(await post_acks(server, {"ids": [UNKNOWN_ID]}), 404, "queue-not-found")
    await make_queue(server)
    reply = await call(server, "GET", "/q/acks")
    assert_problem(reply, 405, "method-not-allowed")
    assert reply.headers["Allow"] == "OPTIONS, POST"
    assert_problem(await call(server, "POST", "/q/acks?x=1"), 400, "unknown-parameter")


async def test_one_that_fails_fails_alone(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    ids = [await publish(server, b"x") for _ in range(3)]
    files.fail("rename", errno.EIO, ids[1])
    assert [status for _, status in await acks(server, *ids)] == [202, 503, 202]
    files.heal()
    assert await acks(server, *ids) == [(each, 202) for each in ids]
