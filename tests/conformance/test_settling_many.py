"""`POST /{queue}/extensions`, `releases`, `sidelines` and `acks` of `messages`: a result each."""

import errno
import json
from collections.abc import Iterable
from typing import Any

import pytest
from harness.api import (
    UNKNOWN_ID,
    StillClock,
    assert_problem,
    call,
    delete,
    fetch,
    make_queue,
    publish,
    publish_lines,
    totals,
)
from harness.audits import assert_audits_clean
from harness.faults import FaultyFiles
from harness.folders import message_files, nothing_anywhere
from harness.server import Serve, Server, commit_modes

from mq.model.limits import BATCH_MESSAGES_MAX

KINDS = ("acks", "extensions", "releases", "sidelines")
NEEDED: dict[str, dict[str, Any]] = {"extensions": {"due_in_s": 60}}


async def post(server: Server, kind: str, said: object) -> Any:
    data = said if isinstance(said, bytes) else json.dumps(said).encode()
    headers = {"Content-Type": "application/json"}
    return await call(server, "POST", f"/q/{kind}", data=data, headers=headers)


async def settle(server: Server, kind: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    reply = await post(server, kind, {"messages": list(rows)})
    assert reply.status == 200, reply.body
    results: list[dict[str, Any]] = reply.json()["results"]
    assert [each["id"] for each in results] == [each["id"] for each in rows]
    for each in results:
        assert each.get("problem", each)["status"] == each["status"]
    return results


async def fetched(server: Server, count: int) -> list[str]:
    await publish_lines(server, [b"x"] * count)
    return [(await fetch(server)).id for _ in range(count)]


def statuses(results: Iterable[dict[str, Any]]) -> list[int]:
    return [each["status"] for each in results]


def rows_of(kind: str, ids: Iterable[str], **more: Any) -> list[dict[str, Any]]:
    return [{"id": each, **NEEDED.get(kind, {}), **more} for each in ids]


@commit_modes
@pytest.mark.parametrize("kind", KINDS)
async def test_each_message_has_its_result_in_their_order(
    serve: Serve, kind: str, commit: str
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    first, second, gone = await fetched(server, 3)
    assert (await delete(server, gone)).status == 202
    rows = rows_of(kind, [first, "no id", UNKNOWN_ID, second, first])
    done = 202 if kind == "acks" else 200
    results = await settle(server, kind, *rows)
    assert statuses(results) == [done, 400, 404, done, done]
    assert results[0] == results[4]
    assert (await settle(server, kind, rows[2]))[0]["problem"] == results[2]["problem"]
    where = {"acks": "remove", "extensions": "delay"}.get(kind, "queues")
    queue = "q_SIDELINE" if kind == "sidelines" else "q"
    assert {f"{queue}:{each}" for each in (first, second)} <= set(message_files(server.root)[where])
    counted = {"acks": "deleted", "extensions": "extended"}.get(kind, kind.removesuffix("s") + "d")
    assert (await totals(server))[counted] == 3 if kind == "acks" else 2
    assert_audits_clean(server.root)


@pytest.mark.parametrize("kind", KINDS)
async def test_receives_name_one_delivery(server: Server, kind: str) -> None:
    await make_queue(server)
    own, others = await fetched(server, 2)
    rows = [*rows_of(kind, [own], receives=1.0), *rows_of(kind, [others], receives=2)]
    good, bad = await settle(server, kind, *rows)
    assert good["status"] in (200, 202)
    assert (bad["status"], bad["problem"]["receives"]) == (412, 1)


async def test_a_result_says_what_the_request_for_one_would(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    ids = await fetched(server, 3)
    [extended] = await settle(server, "extensions", {"id": ids[0], "due_in_s": 60.5})
    assert extended == {
        "id": ids[0], "status": 200, "due": "2023-11-14T22:14:20.500Z", "receives": 1
    }  # fmt: skip
    [released] = await settle(server, "releases", {"id": ids[1], "due_in_s": 2})
    assert released["due"] == "2023-11-14T22:13:22.000Z"
    [moved] = await settle(server, "sidelines", {"id": ids[2], "reason": "exception"})
    assert moved == {
        "id": ids[2], "status": 200, "queue": "q_SIDELINE", "receives": 1, "reason": "exception"
    }  # fmt: skip


async def test_an_unhandled_delivery_is_no_attempt(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    await call(server, "PATCH", "/q/settings", json={"max_receives": 1})
    ids = await fetched(server, 2)
    rows = [{"id": each, "receives": 1, "unhandled": True} for each in ids]
    assert statuses(await settle(server, "releases", *rows)) == [200, 200]
    assert [(await fetch(server)).id for _ in ids] == ids
    assert statuses(await settle(server, "releases", *rows_of("releases", ids))) == [200, 200]
    assert (await fetch(server)).status == 204, "it was its last attempt"


@pytest.mark.parametrize("kind", KINDS)
async def test_many_go_together(serve: Serve, kind: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files, commit="fsync")
    await make_queue(server)
    ids = await fetched(server, 100)
    before = files.count("sync_folder")
    results = await settle(server, kind, *rows_of(kind, ids))
    assert len({*statuses(results)}) == 1
    assert files.count("sync_folder") - before <= 30
    assert len({each["id"] for each in results if "problem" not in each}) == 100


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_fails_fails_alone(serve: Serve, kind: str) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    ids = await fetched(server, 3)
    files.fail("stamp" if kind == "extensions" else "rename", errno.EIO, ids[1])
    if kind == "extensions":
        files.heal()
        files.fail("stamp", errno.EIO, times=1, after=1)
    results = await settle(server, kind, *rows_of(kind, ids))
    assert sorted("problem" in each for each in results) == [False, False, True]
    [problem] = [each["problem"] for each in results if "problem" in each]
    assert (problem["status"], problem["retryable"]) == (503, True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "said",
    [
        b"", b"[]", b"{", b"[" * 100_000, {}, {"messages": []}, {"messages": {}},
        {"messages": ["x"]}, {"messages": [{}]}, {"messages": [{"id": 1}]},
        {"messages": [{"id": "x"}], "more": 1},
        {"messages": [{"id": "x", "receives": -1, "due_in_s": 1}]},
        {"messages": [{"id": "x", "receives": 1000, "due_in_s": 1}]},
        {"messages": [{"id": "x", "receives": True, "due_in_s": 1}]},
        {"messages": [{"id": "x", "due_in_s": 1}, {"id": "x", "due_in_s": 1, "receives": 1}]},
        {"messages": [{"id": "x", "due_in_s": 1}] * (BATCH_MESSAGES_MAX + 1)},
    ],
)  # fmt: skip
async def test_a_bad_body_is_refused(server: Server, kind: str, said: object) -> None:
    await make_queue(server)
    if kind not in ("extensions", "releases") and isinstance(said, dict):
        said = json.loads(json.dumps(said).replace(', "due_in_s": 1', ""))
    assert_problem(await post(server, kind, said), 400, "bad-body")


@pytest.mark.parametrize(
    ("kind", "more", "slug"),
    [
        ("acks", {"due_in_s": 1}, "unknown-field"),
        ("extensions", {}, "bad-body"),
        ("extensions", {"due_in_s": -1}, "bad-body"),
        ("extensions", {"due_in_s": 1e300}, "bad-body"),
        ("extensions", {"due_in_s": "1"}, "bad-body"),
        ("extensions", {"due_in_s": 1, "unhandled": True}, "unknown-field"),
        ("extensions", {"duein_s": 1}, "unknown-field"),
        ("releases", {"unhandled": True}, "bad-body"),
        ("releases", {"unhandled": 1, "receives": 1}, "bad-body"),
        ("releases", {"unhandled": False, "receives": 1}, "bad-body"),
        ("acks", {"receives": None}, "bad-body"),
        ("acks", {"receives": 1.5}, "bad-body"),
        ("releases", {"unhandled": True, "receives": 1, "due_in_s": 1}, "bad-body"),
        ("extensions", {"reason": "x", "due_in_s": 1}, "unknown-field"),
        ("releases", {"reason": "x", "unhandled": True, "receives": 1}, "bad-body"),
        ("sidelines", {"reason": 1}, "bad-body"),
        ("sidelines", {"reason": []}, "bad-body"),
    ],
)
async def test_a_bad_field_is_refused_before_anything_is_done(
    server: Server, kind: str, more: dict[str, Any], slug: str
) -> None:
    await make_queue(server)
    ids = await fetched(server, 2)
    before = message_files(server.root)
    rows = [*rows_of(kind, ids[:1]), {"id": ids[1], **more}]
    problem = assert_problem(await post(server, kind, {"messages": rows}), 400, slug)
    if "duein_s" in more:
        assert "did you mean due_in_s?" in problem["detail"]
    assert message_files(server.root) == before


@pytest.mark.parametrize("kind", KINDS)
async def test_a_missing_queue_and_a_sideline_s_sideline_are_told(
    server: Server, kind: str
) -> None:
    said = {"messages": rows_of(kind, [UNKNOWN_ID])}
    assert_problem(await post(server, kind, said), 404, "queue-not-found")
    assert message_files(server.root) == nothing_anywhere()
    await make_queue(server, "q_SIDELINE")
    reply = await call(server, "POST", f"/q_SIDELINE/{kind}", json=said)
    assert reply.status == (409 if kind == "sidelines" else 200)


async def test_the_sideline_is_made_once_for_many(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    ids = await fetched(server, 50)
    before = files.count("mkdir")
    results = await settle(server, "sidelines", *rows_of("sidelines", ids))
    assert {each["status"] for each in results} == {200}
    assert files.count("mkdir") - before <= 10
    assert [(await fetch(server, "q_SIDELINE")).id for _ in ids] == ids


async def test_another_s_message_is_released_for_a_waiter(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id
    assert statuses(await settle(server, "releases", {"id": message_id})) == [200]
    assert (await fetch(server)).id == message_id
