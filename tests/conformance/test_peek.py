"""Looking at a queue's messages: lines of JSON, in order, page by page, nothing consumed."""

import base64
import json
import os
from typing import Any

import pytest
from harness.api import UNKNOWN_ID, assert_problem, call, delete, fetch, make_queue, publish
from harness.server import Serve, Server
from multidict import CIMultiDict

from mq.client.client import AsyncClient
from mq.model.limits import BATCH_MESSAGES_MAX, PEEK_BODY_BYTES
from mq.protocol.fetching import PEEK_MESSAGES_DEFAULT


async def peek(server: Server, query: str = "", queue: str = "q") -> list[dict[str, Any]]:
    reply = await call(server, "GET", f"/{queue}/peek{query}")
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    assert reply.headers["Cache-Control"] == "no-store"
    return [json.loads(line) for line in reply.body.splitlines()]


async def test_a_row_says_what_a_read_does(server: Server) -> None:
    await make_queue(server)
    headers = {"Content-Type": "application/json", "ce-id": "7", "Traceparent": "00-a-b-01"}
    message_id = await publish(server, b'{"a": "\xc3\xa4"}', headers=headers)
    read = (await call(server, "GET", f"/q/messages/{message_id}")).headers
    assert await peek(server) == [
        {
            "id": message_id,
            "state": "ready",
            "receives": 0,
            "published": read["X-Message-Published"],
            "due": read["X-Message-Due"],
            "headers": {
                "content-type": "application/json", "ce-id": "7", "traceparent": "00-a-b-01",
            },
            "size": 11,
            "body": '{"a": "ä"}',
        }
    ]  # fmt: skip


async def test_ready_ones_come_in_the_order_of_delivery(server: Server) -> None:
    await make_queue(server)
    late = {number: await publish(server, params={"priority": str(number)}) for number in (1, 9, 0)}
    expected = [late[9], late[1], late[0]]
    assert [row["id"] for row in await peek(server)] == expected
    assert [(await fetch(server)).id for _ in expected] == expected
    assert await peek(server) == []


async def test_each_state_comes_after_the_other(server: Server) -> None:
    await make_queue(server)
    await make_queue(server, "others")
    ids = [await publish(server, b"%d" % number) for number in range(6)]
    await publish(server, queue="others")
    for _ in range(4):
        await fetch(server)
    for message_id in ids[:2]:
        await delete(server, message_id)
    await fetch(server, "others")
    everything = [
        *((message_id, "ready") for message_id in ids[4:]),
        *((message_id, "removed") for message_id in ids[:2]),
        *((message_id, "delayed") for message_id in ids[2:4]),
    ]
    rows = await peek(server, "?state=ready,removed,delayed")
    assert [(row["id"], row["state"]) for row in rows] == everything
    assert [row["receives"] for row in rows] == [0, 0, 1, 1, 1, 1]
    rows = await peek(server, "?state=ready,removed,delayed&count=3")
    assert [(row["id"], row["state"]) for row in rows] == everything[:3]
    for state in ("ready", "delayed", "removed"):
        rows = await peek(server, f"?state={state}")
        assert [row["id"] for row in rows] == [each for each, its in everything if its == state]


async def test_pages_follow_each_other(serve: Serve) -> None:
    server = await serve(folder_max=3)
    await make_queue(server)
    ids = [await publish(server, params={"priority": str(number % 3)}) for number in range(20)]
    ordered = sorted(ids, key=lambda each: (-(ids.index(each) % 3), ids.index(each)))
    found: list[str] = []
    while rows := await peek(server, f"?count=7&after={found[-1]}" if found else "?count=7"):
        assert len(rows) == min(7, 20 - len(found))
        found += [row["id"] for row in rows]
    assert found == ordered
    # An id is a place in the order, whether its message is there or not.
    await delete(server, ordered[3])
    assert [row["id"] for row in await peek(server, f"?after={ordered[3]}")] == ordered[4:]


async def test_nothing_is_consumed(server: Server) -> None:
    await make_queue(server)
    ids = [await publish(server, b"%d" % number) for number in range(3)]
    for _ in range(2):
        assert [row["body"] for row in await peek(server)] == ["0", "1", "2"]
    assert [(await fetch(server)).id for _ in ids] == ids


async def test_a_page_has_a_hundred_when_nothing_is_said(server: Server) -> None:
    await make_queue(server)
    ids = [await publish(server) for _ in range(PEEK_MESSAGES_DEFAULT + 1)]
    assert [row["id"] for row in await peek(server)] == ids[:-1]
    assert [row["id"] for row in await peek(server, f"?count={BATCH_MESSAGES_MAX}")] == ids


async def test_bodies_are_cut(server: Server) -> None:
    await make_queue(server)
    binary = bytes(range(256)) * PEEK_BODY_BYTES
    text = ("x" + "ä" * PEEK_BODY_BYTES).encode()
    streamed = b"y" * (2 << 20)
    for body in (binary, text, streamed, b"\xff", b"", b"z" * PEEK_BODY_BYTES):
        await publish(server, body, headers={"x-attribute-a": "b"})
    rows = await peek(server)
    sizes = [len(binary), len(text), len(streamed), 1, 0, PEEK_BODY_BYTES]
    assert [row["size"] for row in rows] == sizes
    assert base64.b64decode(rows[0]["body_base64"]) == binary[:PEEK_BODY_BYTES]
    assert rows[1]["body"].encode() == text[: PEEK_BODY_BYTES - 1]  # An ä has two bytes.
    assert rows[2]["body"] == "y" * PEEK_BODY_BYTES
    assert base64.b64decode(rows[3]["body_base64"]) == b"\xff"
    assert [row["body"] for row in rows[4:]] == ["", "z" * PEEK_BODY_BYTES]
    assert all(("body" in row) != ("body_base64" in row) for row in rows)


async def test_a_header_that_stands_there_twice_is_one_value(server: Server) -> None:
    await make_queue(server)
    await publish(server, headers=CIMultiDict([("X-Attribute-A", "1"), ("X-Attribute-A", "2")]))
    (row,) = await peek(server)
    assert row["headers"]["x-attribute-a"] == "1, 2"


async def test_a_damaged_file_hides_no_other(server: Server) -> None:
    await make_queue(server)
    damaged = await publish(server, headers={"x-attribute-a": "b" * 50})
    other = await publish(server, b"well")
    os.truncate(server.root / "queues" / "q" / damaged, 10)
    rows = await peek(server)
    assert [(row["id"], row["size"], row.get("body")) for row in rows] == [
        (damaged, 0, None),
        (other, 4, "well"),
    ]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("state=gone", "state"), ("state=", "state"), ("state=new", "state"),
        ("state=ready,ready", "state"), ("state=ready,", "state"), ("state=READY", "state"),
        ("state=ready&state=delayed", "state"),
        ("count=0", "count"), (f"count={BATCH_MESSAGES_MAX + 1}", "count"), ("count=-1", "count"),
        ("count=x", "count"), ("count=", "count"), ("count=1&count=1", "count"),
        ("after=", "after"), ("after=no-id", "after"), (f"after={UNKNOWN_ID}.no", "after"),
        (f"after={UNKNOWN_ID}&after={UNKNOWN_ID}", "after"),
        (f"state=ready,delayed&after={UNKNOWN_ID}", "after"),
    ],
)  # fmt: skip
async def test_each_bad_value_is_named(server: Server, query: str, parameter: str) -> None:
    await make_queue(server)
    reply = await call(server, "GET", f"/q/peek?{query}")
    assert assert_problem(reply, 400, f"bad-{parameter}")["parameter"] == parameter


async def test_what_is_not_there(server: Server) -> None:
    for query in ("", "?state=delayed", "?state=removed"):
        assert_problem(await call(server, "GET", f"/none/peek{query}"), 404, "queue-not-found")
    await make_queue(server)
    assert await peek(server, "?state=ready,delayed,removed") == []
    assert_problem(await call(server, "GET", "/q/peek?states=ready"), 400, "unknown-parameter")
    assert_problem(await call(server, "DELETE", "/q/peek"), 405, "method-not-allowed")


async def test_a_folder_that_is_away_is_no_empty_page(server: Server) -> None:
    await make_queue(server)
    for folder, state in (("delay", "delayed"), ("remove", "removed"), ("queues", "ready")):
        (server.root / folder).rename(server.root / "elsewhere")
        reply = await call(server, "GET", f"/q/peek?state={state}")
        assert_problem(reply, 503, "storage-failed")
        (server.root / "elsewhere").rename(server.root / folder)


async def test_a_selection_of_any_state(server: Server) -> None:
    await make_queue(server)
    headers = [{"ce-type": "paid"}, {"ce-type": "new"}, {"ce-type": "paid"}]
    ids = [await publish(server, headers=each) for each in headers]
    late = await publish(server, headers=headers[0], params={"delay": "60", "priority": "5"})
    select = "select=header:ce-type=paid"
    assert [row["id"] for row in await peek(server, f"?{select}")] == [ids[0], ids[2]]
    assert [row["id"] for row in await peek(server, f"?{select}&count=1")] == [ids[0]]
    rows = await peek(server, f"?{select}&count=1&after={ids[0]}")
    assert [row["id"] for row in rows] == [ids[2]]
    rows = await peek(server, f"?{select}&select=priority:5..&state=delayed")
    assert [row["id"] for row in rows] == [late]
    assert await peek(server, "?select=priority:9") == []
    for query, parameter in (
        ("select=colour:red", "select"), (f"{select}&state=ready,delayed", "select"),
        ("tag=%00", "tag"),
    ):  # fmt: skip
        reply = await call(server, "GET", f"/q/peek?{query}")
        assert assert_problem(reply, 400, f"bad-{parameter}")["parameter"] == parameter


@pytest.mark.parametrize("select", ["priority:5", "header:ce-type=paid"])
async def test_what_does_not_match_is_looked_through_in_pages(
    server: Server, monkeypatch: pytest.MonkeyPatch, select: str
) -> None:
    """A page ends where its work does, and says behind which message the next begins."""
    monkeypatch.setattr("mq.store.operations.peek.PEEK_WORK_MAX", 40)
    monkeypatch.setattr("mq.store.operations.peek.PEEK_LISTED_MAX", 7)
    await make_queue(server)
    for _ in range(50):
        await publish(server, headers={"ce-type": "new"})
    wanted = {"header": {"ce-type": "paid"}, "priority": {}}[select.partition(":")[0]]
    params = {"priority": "5"} if not wanted else {}
    ids = [await publish(server, headers=wanted, params=params) for _ in range(2)]
    found: list[str] = []
    after, pages = "", 0
    while True:
        query = f"select={select}{after and f'&after={after}'}"
        reply = await call(server, "GET", f"/q/peek?{query}")
        found += [json.loads(line)["id"] for line in reply.body.splitlines()]
        pages += 1
        after = reply.headers.get("X-Peek-After", "")
        if not after:
            break
    assert found == ids
    assert pages >= 2
    async with AsyncClient(server.url) as client:
        assert [each.id for each in await client.queue("q").peek(select=select)] == ids
        assert [each.id for each in await client.queue("q").peek(select=select, count=1)] == ids[:1]


async def test_messages_of_a_tag_with_their_bodies(server: Server) -> None:
    await make_queue(server)
    tagged = [
        await publish(server, b"%d" % number, params={"tag": "eu", "priority": str(number)})
        for number in range(3)
    ]
    await publish(server)
    late = await publish(server, params={"tag": "eu", "delay": "60"})
    rows = await peek(server, "?tag=eu")
    assert [(row["id"], row["body"]) for row in rows] == [
        (each, str(number)) for number, each in enumerate(tagged)
    ]
    rows = await peek(server, "?tag=eu&state=ready,delayed")
    assert [row["id"] for row in rows] == [*tagged, late]
    rows = await peek(server, f"?tag=eu&state=ready,delayed&count=2&after={tagged[1]}")
    assert [row["id"] for row in rows] == [tagged[2], late]
    rows = await peek(server, "?tag=eu&select=priority:1..")
    assert [row["id"] for row in rows] == tagged[1:]
    assert await peek(server, "?tag=us") == []
