"""Why a message was released or sidelined, as its consumer says: kept with it, and shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.faults import FaultyFiles
from harness.server import Serve, Server

from mq.model.failure import FAILURE_BYTES_MAX, FAILURES_MAX
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.store.core.failures import FailureSweep
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.store.operations.reap import reap

SAID = {
    "type": "ValueError",
    "text": "no such customer: Jörg\nsecond line",
    "trace": "Traceback\n  line 1",
    "handler": "app.bill",
}
LINE = "ValueError: no such customer: Jörg second line"


@pytest.fixture
def server(timed: Server) -> Server:
    return timed


async def release(server: Server, message_id: str, reason: object, due_in_s: float = 0) -> Reply:
    body = {"due_in_s": due_in_s, "release": True, "reason": reason}
    return await call(server, "PATCH", f"/q/messages/{message_id}", json=body)


async def failures(server: Server, message_id: str, queue: str = "q") -> list[dict[str, Any]]:
    reply = await call(server, "GET", f"/{queue}/messages/{message_id}/failures")
    assert reply.status == 200
    assert reply.json()["id"] == message_id
    found: list[dict[str, Any]] = reply.json()["failures"]
    return found


def rows(reply: Reply) -> list[dict[str, Any]]:
    return [json.loads(line) for line in reply.body.splitlines()]


def shown(reply: Reply) -> str | None:
    return reply.headers.get("X-Message-Reason")


async def test_a_release_is_kept_with_its_reason(server: Server, root: Path, clock: Any) -> None:
    await publish(server)
    first = await fetch(server)
    assert shown(first) is None
    assert (await release(server, first.id, SAID)).status == 200
    # The answer was lost, perhaps: the same again is kept once.
    assert (await release(server, first.id, SAID)).status == 200
    for reply in (await fetch(server), await call(server, "GET", f"/q/messages/{first.id}")):
        assert shown(reply) == LINE
    [row] = rows(await call(server, "GET", "/q/peek?state=delayed"))
    assert row["reason"] == LINE
    [found] = await failures(server, first.id)
    assert {name: found[name] for name in SAID} == SAID
    assert (found["event"], found["queue"], found["receives"]) == ("released", "q", 1)
    assert_audits_clean(root, clock)


async def test_where_no_message_has_any_none_are_looked_for(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    for _ in range(2):
        assert (await fetch(server)).id == message_id
        body = {"due_in_s": 0, "release": True}
        assert (await call(server, "PATCH", f"/q/messages/{message_id}", json=body)).status == 200
    assert [path for _, path in files.calls if "/failures/" in path] == []


@pytest.mark.certificate
async def test_the_newest_follow_it_to_the_sideline_and_back(server: Server) -> None:
    await publish(server)
    for n in range(FAILURES_MAX + 1):
        reply = await fetch(server)
        assert (await release(server, reply.id, f"try {n}")).status == 200
    assert [each["text"] for each in await failures(server, reply.id)] == [
        f"try {n}" for n in range(1, FAILURES_MAX + 1)
    ]
    await fetch(server)
    path = f"/q/messages/{reply.id}/sideline?reason=exception"
    assert (await call(server, "POST", path, json={"reason": SAID})).status == 200
    found = await failures(server, reply.id, "q_SIDELINE")
    assert (found[-1]["event"], found[-1]["type"]) == ("sidelined", "ValueError")
    [row] = rows(await call(server, "GET", "/q_SIDELINE/peek"))
    assert (row["reason"], row["sidelined"]["reason"]) == (LINE, "exception")
    async with consuming(server, "q_SIDELINE", credit=1) as consumer:
        assert (await consumer.message()).said["reason"] == LINE
    assert (await call(server, "POST", "/q/shovel")).status == 202
    assert shown(await call(server, "GET", "/q/messages?wait=10")) == LINE


async def test_many_have_a_reason_each(server: Server) -> None:
    ids = []
    for _ in range(4):
        await publish(server)
        ids.append((await fetch(server)).id)
    said = [{"id": ids[0], "reason": "x"}, {"id": ids[1], "due_in_s": 60, "reason": SAID}]
    assert (await call(server, "POST", "/q/releases", json={"messages": said})).status == 200
    said = [{"id": ids[2], "reason": SAID}, {"id": ids[3], "reason": "exception"}]
    reply = await call(server, "POST", "/q/sidelines", json={"messages": said})
    assert [each["reason"] for each in reply.json()["results"]] == ["exception", "exception"]
    assert [each["text"] for each in await failures(server, ids[0])] == ["x"]
    assert [each["type"] for each in await failures(server, ids[1])] == ["ValueError"]
    [found] = await failures(server, ids[2], "q_SIDELINE")
    assert (found["event"], found["text"]) == ("sidelined", SAID["text"])
    assert await failures(server, ids[3], "q_SIDELINE") == []


async def test_a_consumer_says_why_by_its_commands(
    server: Server, root: Path, clock: FakeClock
) -> None:
    for _ in range(4):
        await publish(server)
    async with consuming(server, "q", credit=4) as consumer:
        ids = [(await consumer.message()).id for _ in range(4)]
        assert await consumer.statuses(release=ids[:2], reason=SAID) == [200, 200]
        assert await consumer.statuses(sideline=ids[2:3], reason="spoilt") == [200]
        assert await consumer.statuses(sideline=ids[3:], reason="exception") == [200]
    for each in ids[:2]:
        [found] = await failures(server, each)
        assert (found["event"], found["type"]) == ("released", "ValueError")
    [found] = await failures(server, ids[2], "q_SIDELINE")
    assert (found["event"], found["text"]) == ("sidelined", "spoilt")
    aside = rows(await call(server, "GET", "/q_SIDELINE/peek"))
    assert [(row["sidelined"]["reason"], row.get("reason")) for row in aside] == [
        ("rejected", "spoilt"),
        ("exception", None),
    ]
    assert_audits_clean(root, clock)


@pytest.mark.parametrize(
    "reason",
    ["", {}, 5, None, [], {"text": 5}, {"more": "x"}, {"text": ""}, "x" * (FAILURE_BYTES_MAX + 1)],
)
async def test_what_is_malformed_changes_nothing(server: Server, reason: object) -> None:
    await publish(server)
    message_id = (await fetch(server)).id
    assert_problem(await release(server, message_id, reason), 400, "bad-body")
    sideline = f"/q/messages/{message_id}/sideline"
    assert_problem(await call(server, "POST", sideline, json={"reason": reason}), 400, "bad-body")
    for body in (
        {"due_in_s": 60, "reason": "x"},
        {"due_in_s": 0, "unhandled": True, "release": True, "reason": "x"},
    ):
        path = f"/q/messages/{message_id}"
        reply = await call(server, "PATCH", path, json=body, headers={"If-Match": '"1"'})
        assert_problem(reply, 400, "bad-body")
    assert await failures(server, message_id) == []
    assert (await call(server, "GET", "/q")).json()["in_flight"] == 1


async def test_a_late_consumer_s_reason_is_not_kept(server: Server) -> None:
    await publish(server)
    message_id = (await fetch(server)).id
    path = f"/q/messages/{message_id}"
    body = {"due_in_s": 0, "release": True, "reason": "late"}
    reply = await call(server, "PATCH", path, json=body, headers={"If-Match": '"7"'})
    assert_problem(reply, 412, "delivered-again")
    sideline = await call(
        server, "POST", f"{path}/sideline", json={"reason": "x"}, headers={"If-Match": '"7"'}
    )
    assert_problem(sideline, 412, "delivered-again")
    assert await failures(server, message_id) == []
    unknown = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
    reply = await call(server, "GET", f"/q/messages/{unknown}/failures")
    assert_problem(reply, 404, "message-not-found")


def files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "failures").rglob("*") if path.is_file())


async def test_they_go_with_their_message(server: Server, root: Path, clock: FakeClock) -> None:
    ids = []
    for _ in range(2):
        await publish(server)
        reply = await fetch(server)
        assert (await release(server, reply.id, "x", due_in_s=1000)).status == 200
        ids.append(reply.id)
    assert len(files(root)) == 2
    assert (await call(server, "DELETE", f"/q/messages/{ids[0]}")).status == 202
    clock.advance(2 * FORGOTTEN_AFTER_S)
    opened = open_root(str(root), Files(), clock)
    assert reap(Files(), str(root / "remove"), clock.now_ms(), 0, root=opened).files == 1
    [left] = files(root)
    assert json.loads(left.read_text())["id"] == ids[1]
    # What a reaper left, or a crash, a mover takes: but nothing that is of a message.
    (left.parent / f".{left.name}.0123456789abcdef").touch()
    orphan = root / "failures" / "ff" / "0192f3a2-7c4e-7d2a-9b1e-0123456789ff"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_text(json.dumps({"queue": "q", "id": orphan.name}) + "\n")
    sweep = FailureSweep(opened)
    for _ in range(256):
        sweep.sweep()
    assert files(root) == [left]
