"""`POST /{queue}/messages?split=rows`: each row one message with attributes of its own."""

import base64
import errno
import itertools
import json
import tracemalloc
from typing import Any

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.faults import FaultyFiles, UntilTheYear2106
from harness.folders import message_files, nothing_anywhere
from harness.raw import raw_connection, raw_head
from harness.server import Serve, Server, commit_modes

from mq.broker.batches import BATCH_GROUP_MESSAGES
from mq.model.limits import BATCH_BYTES_MAX, ROW_BYTES_MAX, SPLIT_LINES_MAX
from mq.model.settings import QueueSettings

ROWS = "/q/messages?split=rows"


def lines(*rows: object) -> bytes:
    return b"".join(
        row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows
    )


async def post_rows(server: Server, *rows: object, **more: Any) -> list[dict[str, Any]]:
    """Publishes rows, those of bytes as they are; the rows of the answer."""
    reply = await call(server, "POST", ROWS, data=lines(*rows), **more)
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(row) for row in reply.body.splitlines()]


def slugs(answer: list[dict[str, Any]]) -> list[str]:
    """The ends of the rows' types of problems, `` for those with an id."""
    return [
        each["problem"]["type"].removeprefix("urn:mq:problem:") if "problem" in each else ""
        for each in answer
    ]


BODIES: list[tuple[dict[str, Any], bytes, str]] = [
    ({"body": "pizza, ü\n"}, "pizza, ü\n".encode(), "text/plain"),
    ({"body_base64": base64.b64encode(b"\x00\xff\n").decode()}, b"\x00\xff\n", ""),
    ({"json": {"n": [1, "ü"]}}, '{"n":[1,"ü"]}'.encode(), "application/json"),
    ({"body": "", "content_type": "a/b; c=d"}, b"", "a/b; c=d"),
]
ATTRIBUTES: list[dict[str, Any]] = [
    {},
    {"priority": 7, "visibility_s": 90},
    {"key": "{}"},
    {"idempotency_key": "{}"},
    {"key": "{}", "idempotency_key": "{}"},
    {"headers": {"X-Attribute-Kind": "b", "ce-type": "order.paid"}},
    {"group": "g{}", "ttl_s": 3600, "tags": ["a", "b c"]},
]
WHEN: list[dict[str, Any]] = [{}, {"delay_s": 60}, {"at": "2030-01-01T00:00:00Z"}]
BAD: list[tuple[object, str]] = [
    (b"no json\n", "bad-body"),
    ({"body": "x", "json": 1}, "bad-body"),
    ({"body": "x", "prioritty": 1}, "unknown-field"),
    ({"body": "x", "priority": 10}, "bad-priority"),
    ({"body": "x", "at": "2001-01-01T00:00:00Z"}, "bad-at"),
    ({"body": "x", "headers": {"X-Other": "1"}}, "bad-headers"),
    ({"body": "x", "headers": {"x-attribute-a": "x" * 9000}}, "headers-too-large"),
    ({"body": "x" * 1001}, "body-too-large"),
    ({"body": "x" * ROW_BYTES_MAX}, "body-too-large"),
    (b'{"json": ' + b"[" * 100_000 + b"\n", "bad-body"),
]


@commit_modes
async def test_each_row_has_what_it_says_and_bad_ones_are_refused_alone(
    serve: Serve, commit: str
) -> None:
    server = await serve(commit=commit, queue=QueueSettings(body_bytes_max=1000))
    await make_queue(server)
    rows: list[Any] = []
    wanted: list[Any] = []
    bad = itertools.cycle(BAD)
    for number, (said, attributes, when) in enumerate(itertools.product(BODIES, ATTRIBUTES, WHEN)):
        own = {
            name: value.format(number) if isinstance(value, str) else value
            for name, value in attributes.items()
        }
        rows.append({**said[0], **own, **when})
        wanted.append((said, own, when))
        if number % 3 == 0:
            rows.append((refused := next(bad))[0])
            wanted.append(refused[1])
    answer = await post_rows(server, *rows)
    assert len(answer) == len(wanted)
    for row, want in zip(answer, wanted, strict=True):
        if isinstance(want, str):
            assert slugs([row]) == [want]
            continue
        (_, body, content_type), own, when = want
        reply = await call(server, "GET", f"/q/messages/{row['id']}")
        assert reply.body == body
        assert reply.headers["Content-Type"] == (content_type or "application/octet-stream")
        assert reply.headers["X-Message-State"] == ("delayed" if when else "ready")
        for name, value in own.get("headers", {}).items():
            assert reply.headers[name] == value
        assert (",p=7" in row["id"]) == (",v=90" in row["id"]) == ("priority" in own)
        assert reply.headers.get("X-Message-Group") == own.get("group")
        assert reply.headers.get("X-Message-Tags") == ("a, b=20c" if "tags" in own else None)
        assert (",e=3600" in row["id"]) == ("ttl_s" in own)
        if "key" in own:
            assert (await call(server, "GET", f"/q/keys/{own['key']}")).id == row["id"]
    ids = [row["id"] for row in answer if "id" in row]
    assert len(set(ids)) == len(ids) == len(BODIES) * len(ATTRIBUTES) * len(WHEN)
    assert [each[:36] for each in ids] == sorted(each[:36] for each in ids)
    assert_audits_clean(server.root)


async def test_a_row_and_a_publish_are_answered_alike(server: Server) -> None:
    await make_queue(server)
    [row] = await post_rows(server, {"body": "x", "priority": 10})
    assert row["problem"] == (await call(server, "POST", "/q/messages?priority=10")).json()


async def test_one_key_is_one_publish_within_a_batch_and_across(server: Server) -> None:
    await make_queue(server)
    before = await publish(server, b"x", headers={"Idempotency-Key": "42"})
    again = {"body": "x", "idempotency_key": "42"}
    twice = {"body": "y", "idempotency_key": "43"}
    answer = await post_rows(server, again, twice, {"body": "z"}, twice, again)
    ids = [row["id"] for row in answer]
    assert ids[0] == ids[4] == before
    assert ids[1] == ids[3]
    assert await post_rows(server, twice) == [answer[1]]
    assert len(message_files(server.root)["queues"]) == 3


async def test_one_lookup_key_is_one_message_s(server: Server) -> None:
    await make_queue(server)
    answer = await post_rows(server, *[{"body": str(n), "key": "k"} for n in range(3)])
    assert slugs(answer) == ["", "key-taken", "key-taken"]
    assert {row["problem"]["id"] for row in answer[1:]} == {answer[0]["id"]}
    assert slugs(await post_rows(server, {"body": "x", "key": "k"})) == ["key-taken"]
    assert (await delete(server, answer[0]["id"])).status == 202
    assert slugs(await post_rows(server, {"body": "x", "key": "k"})) == [""]


async def test_rows_are_delivered_in_their_order(server: Server) -> None:
    await make_queue(server)
    count = 2 * BATCH_GROUP_MESSAGES + 3
    ends = ({}, {"headers": {"ce-id": "1"}}, {"idempotency_key": "{}"})
    rows = [
        {"body": str(n), **{k: v if k == "headers" else str(n) for k, v in ends[n % 3].items()}}
        for n in range(count)
    ]
    ids = [row["id"] for row in await post_rows(server, *rows)]
    assert [(await fetch(server)).id for _ in range(count)] == ids


async def test_a_waiter_of_a_selection_gets_its_row(server: Server) -> None:
    """The headers of each row are its own, also where the process adds them to its lists."""
    await make_queue(server)
    assert (await fetch(server, params={"select": "header:ce-type=b"})).status == 204
    rows = [{"body": kind, "headers": {"ce-type": kind}} for kind in "abab"]
    await post_rows(server, *rows)
    found = [await fetch(server, params={"select": "header:ce-type=b"}) for _ in range(3)]
    assert [(reply.status, reply.body) for reply in found] == [(200, b"b"), (200, b"b"), (204, b"")]


@pytest.mark.parametrize(
    ("query", "headers", "parameter"),
    [
        ("&priority=1", {}, "priority"),
        ("&key=k", {}, "key"),
        ("&delay=1", {}, "delay"),
        ("", {"Idempotency-Key": "k"}, "idempotency-key"),
        ("", {"X-Attribute-Kind": "b"}, "headers"),
        ("", {"Content-Encoding": "gzip"}, "headers"),
    ],
)
async def test_attributes_beside_the_rows_are_refused(
    server: Server, query: str, headers: dict[str, str], parameter: str
) -> None:
    await make_queue(server)
    reply = await call(server, "POST", ROWS + query, data=lines({"body": "x"}), headers=headers)
    assert_problem(reply, 400, f"bad-{parameter}")
    assert message_files(server.root) == nothing_anywhere()


async def test_a_batch_that_is_too_large_publishes_nothing(server: Server) -> None:
    await make_queue(server)
    row = lines({"body": "x"})
    for body in (row * (SPLIT_LINES_MAX + 1), b"x" * (BATCH_BYTES_MAX + 1)):
        assert_problem(await call(server, "POST", ROWS, data=body), 413, "batch-too-large")
    assert message_files(server.root) == nothing_anywhere()


async def test_a_line_that_never_ends_is_refused(serve: Serve) -> None:
    server = await serve(body_idle_s=0.1)
    await make_queue(server)
    async with raw_connection(server.port) as connection:
        head = raw_head("POST", ROWS, "Transfer-Encoding: chunked")
        await connection.send(head + b'10\r\n{"body": "xxxxxx\r\n')
        assert_problem(await connection.response(), 408, "body-too-slow")
    assert message_files(server.root) == nothing_anywhere()


@pytest.mark.certificate
async def test_large_rows_are_held_one_at_a_time(serve: Serve) -> None:
    """A value of JSON takes twenty times its bytes in memory: of eight rows as large as can be,
    and of one line that is as large as a batch, no more than one is such values at a time.
    """
    server = await serve(queue=QueueSettings(body_bytes_max=BATCH_BYTES_MAX))
    await make_queue(server)
    start, end = b'{"json": [[]', b"]}\n"
    most = start + b",[]" * ((ROW_BYTES_MAX - len(start) - len(end)) // 3) + end
    whole = start + b",[]" * ((BATCH_BYTES_MAX - 100) // 3) + end
    for body, found in ((most * 7, [""] * 7), (whole, ["body-too-large"])):
        tracemalloc.start()
        try:
            assert slugs(await post_rows(server, body)) == found
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 10 * BATCH_BYTES_MAX


async def test_a_missing_queue_is_told(server: Server) -> None:
    reply = await call(server, "POST", ROWS, data=lines({"body": "x"}))
    assert_problem(reply, 404, "queue-not-found")


@commit_modes
@pytest.mark.parametrize("failing", ["create", "write", "stamp", "rename"])
async def test_one_row_that_cannot_be_stored_is_refused_alone(
    serve: Serve, commit: str, failing: str
) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit=commit)
    await make_queue(server)
    files.fail(failing, errno.EIO, "/new/", times=1, after=1)
    rows = [{"body": str(n), "headers": {"ce-id": str(n)}} for n in range(4)]
    assert slugs(await post_rows(server, *rows)) == ["", "storage-failed", "", ""]
    assert message_files(server.root)["new"] == []
    assert [(await fetch(server)).body for _ in range(3)] == [b"0", b"2", b"3"]


async def test_a_due_time_that_cannot_be_stored_refuses_its_row_alone(serve: Serve) -> None:
    server = await serve(files=UntilTheYear2106())
    await make_queue(server)
    rows = [{"body": "x", "at": "2107-01-01T00:00:00Z"}, {"body": "y", "delay_s": 60}]
    assert slugs(await post_rows(server, *rows)) == ["due-too-far", ""]
    assert message_files(server.root)["new"] == []
