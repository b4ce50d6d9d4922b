"""A queue's history: which events are written down, what is read of them, and what stays out of an
answer's way.
"""

import asyncio
import errno
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
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
)
from harness.audits import looked_at
from harness.faults import FaultyFiles
from harness.processes import Processes
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.clock import SystemClock
from mq.model.names import ConsumerName, QueueName
from mq.store.core.facts import SETTINGS_AGE_S
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.leases.lease import acknowledge, claim
from mq.store.leases.releasing import release

JSON = {"Content-Type": "application/json"}


async def record(server: Server, queue: str = "q", **more: object) -> None:
    """Makes a queue, with a history."""
    await make_queue(server, queue)
    await change(server, queue, history=True, **more)


async def change(server: Server, queue: str = "q", **wanted: object) -> None:
    reply = await call(
        server, "PATCH", f"/{queue}/settings", data=json.dumps(wanted).encode(), headers=JSON
    )
    assert reply.status == 200, reply.body


async def past(server: Server, message_id: str, queue: str = "q") -> list[dict[str, Any]]:
    reply = await call(server, "GET", f"/{queue}/messages/{message_id}/history")
    assert reply.status == 200, reply.body
    found = reply.json()
    assert found["id"] == message_id
    assert found["left_out"] == 0
    times = [event["time"] for event in found["events"]]
    assert times == sorted(times)
    events: list[dict[str, Any]] = found["events"]
    return events


async def told(server: Server, message_id: str, queue: str = "q") -> list[str]:
    """What became of a message, in short: the event, and its receives."""
    return [
        f"{event['event']} {event.get('receives', '-')}"
        for event in await past(server, message_id, queue)
    ]


def files_of(root: Path, queue: str = "q") -> list[Path]:
    return sorted((root / "history" / queue).glob("*/*.ndjson"))


def lines_of(root: Path, queue: str = "q") -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in files_of(root, queue) for line in path.read_text().splitlines()
    ]


async def patched(server: Server, message_id: str, due_in_s: float) -> None:
    reply = await call(
        server,
        "PATCH",
        f"/q/messages/{message_id}",
        data=json.dumps({"due_in_s": due_in_s}).encode(),
        headers=JSON,
    )
    assert reply.status == 200, reply.body


async def test_nothing_is_recorded_unless_it_was_asked_for(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    reply = await call(server, "GET", f"/q/messages/{message_id}/history")
    assert reply.json() == {"id": message_id, "recording": False, "left_out": 0, "events": []}
    assert reply.headers["Cache-Control"] == "no-store"
    assert not (server.root / "history").exists()


async def test_a_message_of_which_nothing_is_known_is_not_found(server: Server) -> None:
    await record(server)
    for method in ("GET", "HEAD"):
        reply = await call(server, method, f"/q/messages/{UNKNOWN_ID}/history")
        assert reply.status == 404
    reply = await call(server, "GET", f"/q/messages/{UNKNOWN_ID}/history")
    assert_problem(reply, 404, "message-not-found")
    assert_problem(await call(server, "GET", "/q/messages/x/history"), 400, "bad-name")
    reply = await call(server, "GET", f"/no/messages/{UNKNOWN_ID}/history")
    assert_problem(reply, 404, "queue-not-found")
    reply = await call(server, "GET", f"/q/messages/{UNKNOWN_ID}/history?x=1")
    assert_problem(reply, 400, "unknown-parameter")


async def test_a_life_is_told_event_by_event(server: Server) -> None:
    await record(server)
    message_id = await publish(server)
    fetched = await fetch(server)
    await patched(server, message_id, 100)
    await patched(server, message_id, 0)
    await patched(server, message_id, 0)  # It is ready: nothing becomes of it.
    await patched(server, message_id, 50)
    await delete(server, message_id)
    await delete(server, message_id)
    assert await told(server, message_id) == [
        "published 0", "fetched 1", "extended 1", "released 1", "extended 1", "removed 1",
    ]  # fmt: skip
    events = await past(server, message_id)
    assert events[1]["due"] == fetched.headers["X-Message-Due"]
    assert "due" not in events[0]
    assert len({event["process"] for event in events}) == 1
    (path,) = files_of(server.root)
    assert path.stem == events[0]["process"]
    assert path.parent.name == events[0]["time"][:10]
    head = await call(server, "HEAD", f"/q/messages/{message_id}/history")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("is_fetched", [False, True])
async def test_a_release_is_told_as_one_whoever_has_the_message(
    server: Server, is_fetched: bool
) -> None:
    await record(server)
    message_id = await publish(server)
    if is_fetched:
        await fetch(server)
    body = {"due_in_s": 60, "release": True, "reason": "not now"}
    reply = await call(server, "PATCH", f"/q/messages/{message_id}", json=body)
    assert reply.status == 200
    assert (await past(server, message_id))[-1]["event"] == "released"
    reply = await call(server, "GET", f"/q/messages/{message_id}/failures")
    assert [each["event"] for each in reply.json()["failures"]] == ["released"]
    totals = (await call(server, "GET", "/q")).json()["totals"]
    assert (totals["released"], totals["extended"]) == (1, 0)


async def test_a_scheduled_message_says_when_it_is_due(server: Server) -> None:
    await record(server)
    message_id = await publish(server, params={"delay": "3600"})
    (event,) = await past(server, message_id)
    assert event["event"] == "published"
    ahead = datetime.fromisoformat(event["due"]) - datetime.fromisoformat(event["time"])
    assert timedelta(minutes=59) < ahead <= timedelta(hours=1)


async def test_every_way_to_publish_and_to_delete_is_recorded(server: Server) -> None:
    await record(server)
    large = await publish(server, b"x" * (3 << 20))
    by_key = await publish(server, params={"key": "a"})
    again = {"headers": {"Idempotency-Key": "b"}}
    once = await publish(server, **again)
    assert await publish(server, **again) == once
    split = await call(server, "POST", "/q/messages?split=lines", data=b"1\n2\n3\n")
    ids = [json.loads(row)["id"] for row in split.body.splitlines()]
    assert (await call(server, "DELETE", "/q/keys/a")).status == 202
    acks = json.dumps({"ids": ids}).encode()
    assert (await call(server, "POST", "/q/acks", data=acks, headers=JSON)).status == 200
    for message_id in (large, once):
        assert await told(server, message_id) == ["published 0"]
    for message_id in (by_key, *ids):
        assert await told(server, message_id) == ["published 0", "removed 0"]


async def test_messages_of_a_batch_are_fetched(server: Server) -> None:
    await record(server)
    ids = [await publish(server) for _ in range(3)]
    assert (await fetch(server, params={"count": "3"})).status == 200
    for message_id in ids:
        assert await told(server, message_id) == ["published 0", "fetched 1"]


async def test_a_lease_is_told_of(server: Server) -> None:
    await record(server)
    back, gone = [await publish(server) for _ in range(2)]
    root = looked_at(server.root)
    consumer, queue = ConsumerName.parse("c"), QueueName.parse("q")

    def claimed(limit: int) -> Any:
        lease = run_alone(claim(root, consumer, [queue], limit, 60), NoFlusher())
        assert lease is not None
        return lease.name

    run_alone(release(root, claimed(1)), NoFlusher())
    lease = claimed(2)
    run_alone(acknowledge(root, lease), NoFlusher())
    root.history.end()
    assert await told(server, back) == [
        "published 0", "leased 1", "released 1", "leased 2", "removed 2",
    ]  # fmt: skip
    assert await told(server, gone) == ["published 0", "leased 1", "removed 1"]
    assert [event.get("lease") for event in await past(server, back)] == [
        None, "c.1", "c.1", "c.2", "c.2",
    ]  # fmt: skip


@pytest.mark.certificate
@pytest.mark.parametrize("tiny", [False, True], ids=["flat", "buckets"])
async def test_what_a_purge_takes_away_is_told_of(
    serve: Serve, tiny: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StillClock()
    server = await serve(clock=clock, **({"folder_max": 2} if tiny else {}))
    await make_queue(server)
    await change(server, history=True)
    ids = [await publish(server) for _ in range(6)]
    clock.now += 10_000_000
    assert (await call(server, "DELETE", "/q/messages")).status == 202

    async def are_all_told() -> bool:
        return all([(await told(server, each))[1:] == ["removed 0"] for each in ids])

    await comes_true(are_all_told, "all are removed")


async def test_a_history_is_turned_on_and_off_while_messages_come(server: Server) -> None:
    await make_queue(server)
    before = await publish(server)
    await change(server, history=True)
    during = await publish(server)
    await delete(server, before)
    await change(server, history=None)
    after = await publish(server)
    await delete(server, during)
    assert await told(server, before) == ["removed 0"]
    assert await told(server, during) == ["published 0"]
    assert await told(server, after) == []


async def test_a_peer_hears_of_the_setting(serve: Serve) -> None:
    clock = StillClock()
    clock.now = SystemClock().now_ms()
    one, other = await serve(), await serve(clock=clock)
    await make_queue(one)
    unrecorded = await publish(other)
    await change(one, history=True)
    clock.steady += SETTINGS_AGE_S
    message_id = await publish(one)
    await delete(other, message_id)
    assert await told(other, unrecorded) == []
    # What the peer holds is written when it is asked, or a moment later.
    assert "removed 0" in await told(other, message_id)


async def test_lines_that_are_torn_or_foreign_are_passed_over(server: Server) -> None:
    await record(server)
    message_id = await publish(server)
    assert await told(server, message_id) == ["published 0"]
    (path,) = files_of(server.root)
    whole = path.read_bytes()
    (path.parent / "mq-00000000000000aa.ndjson").write_bytes(whole[:-20])
    (path.parent / "mq-00000000000000ab.ndjson").write_bytes(
        f'["id": "{message_id}"]\n{{"id": "{message_id}", "time": 5, "event": "x"}}\n\n'.encode()
        + b"\xff\n" + b"x" * 100_000 + whole
    )  # fmt: skip
    (path.parent / "notes.txt").write_bytes(whole)
    (path.parent.parent / "notes").mkdir()
    assert await told(server, message_id) == ["published 0"]
    (path.parent / "mq-00000000000000ac.ndjson").write_bytes(whole[:40] + b"\n" + whole)
    assert await told(server, message_id) == ["published 0"] * 2


@pytest.mark.certificate
async def test_a_file_is_followed_by_the_next(server: Server) -> None:
    await record(server, history_bytes_max=1 << 20)
    ids: list[str] = []
    while len(files_of(server.root)) < 3:
        split = await call(server, "POST", "/q/messages?split=lines", data=b"1\n" * 1000)
        ids += [json.loads(row)["id"] for row in split.body.splitlines()]
        assert await told(server, ids[-1]) == ["published 0"]
    assert await told(server, ids[0]) == ["published 0"]
    names = [path.name for path in files_of(server.root)]
    process = lines_of(server.root)[0]["process"]
    later = [f"{process}-{number}.ndjson" for number in range(1, len(names))]
    assert names == sorted([*later, f"{process}.ndjson"])
    assert len(lines_of(server.root)) == len(ids)


FAILURES: Sequence[tuple[str, int]] = [
    ("open_append", errno.EACCES),
    ("mkdir", errno.ENOSPC),
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
]


@pytest.mark.parametrize(("name", "code"), FAILURES)
async def test_a_history_that_cannot_be_written_is_in_nobodys_way(
    serve: Serve, name: str, code: int
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await record(server)
    files.fail(name, code, "/history")
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id
    assert await told(server, message_id) == []
    files.heal()
    assert (await delete(server, message_id)).status == 202
    assert await told(server, message_id) == ["removed 1"]
    dropped = [line for line in lines_of(server.root) if line["event"] == "dropped"]
    assert [line["count"] for line in dropped] == [2]


async def test_a_writer_that_hangs_is_in_nobodys_way(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await record(server)
    gate = files.hold("write", "/history")
    try:
        first = await publish(server)
        assert await asyncio.to_thread(gate.reached.wait, 30)
        assert (await fetch(server)).id == first
        assert (await delete(server, first)).status == 202
    finally:
        gate.open()
    assert await told(server, first) == ["published 0", "fetched 1", "removed 1"]


async def test_below_the_reserve_nothing_is_written(serve: Serve) -> None:
    one = await serve()
    await record(one)
    message_id = await publish(one)
    assert await told(one, message_id) == ["published 0"]
    full = await serve(reserve_bytes=2**60)
    assert (await fetch(full)).id == message_id
    assert (await delete(full, message_id)).status == 202
    assert await told(full, message_id) == ["published 0"]
    assert await told(one, message_id) == ["published 0"]


async def test_a_history_survives_its_message_and_a_queue_of_the_same_name(server: Server) -> None:
    await record(server)
    message_id = await publish(server)
    await delete(server, message_id)
    (path,) = await comes_true(lambda: list((server.root / "remove").glob("q:*")))
    path.unlink()
    assert await told(server, message_id) == ["published 0", "removed 0"]
    assert (await call(server, "DELETE", "/q")).status == 200
    await make_queue(server)
    assert await told(server, message_id) == ["published 0", "removed 0"]


async def test_a_history_that_cannot_be_read_is_asked_for_again(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await record(server)
    message_id = await publish(server)
    assert await told(server, message_id) == ["published 0"]
    files.fail("open_read", errno.EIO, "/history")
    reply = await call(server, "GET", f"/q/messages/{message_id}/history")
    assert assert_problem(reply, 503, "storage-failed")["retryable"]
    files.heal()
    assert await told(server, message_id) == ["published 0"]


async def test_the_latest_events_are_told(server: Server) -> None:
    await record(server)
    message_id = await publish(server)
    assert await told(server, message_id) == ["published 0"]
    (path,) = files_of(server.root)
    line = (
        '{{"time": "2199-01-01T00:00:00.{:03d}Z", "event": "extended", "id": "{}", '
        '"process": "mq-x"}}\n'
    )
    for number, name in ((0, "aa"), (1, "ab"), (2, "ac")):
        text = "".join(line.format(n, message_id) for n in range(number, 999))
        (path.parent / f"mq-00000000000000{name}.ndjson").write_text(text)
    found = (await call(server, "GET", f"/q/messages/{message_id}/history")).json()
    assert len(found["events"]) == 1000
    assert found["left_out"] == 1 + 999 + 998 + 997 - 1000
    assert found["events"][-1]["time"] == "2199-01-01T00:00:00.998Z"


@pytest.mark.certificate
@pytest.mark.parametrize("ends", ["kill", "terminate"])
async def test_processes_and_their_mover_tell_of_it_together(
    daemons: Processes, root: Path, ends: str
) -> None:
    one, other = daemons.mq(root), daemons.mq(root)
    daemons.mover("--root", str(root))
    async with aiohttp.ClientSession() as session:

        async def ask(url: str, method: str = "GET", **more: Any) -> tuple[int, Any, str]:
            async with session.request(method, url, **more) as reply:
                text = await reply.text()
                return reply.status, reply.headers.get("X-Message-Id"), text

        await ask(f"{one.url}/q", "PUT")
        settings = json.dumps({"history": True, "visibility_s": 0.05})
        await ask(f"{one.url}/q/settings", "PATCH", data=settings, headers=JSON)
        _, message_id, _ = await ask(f"{one.url}/q/messages", "POST", data=b"hello")

        async def events() -> list[tuple[str, int, str]]:
            _, _, text = await ask(f"{other.url}/q/messages/{message_id}/history")
            return [
                (each["event"], each["receives"], each["process"].rpartition("-")[0])
                for each in json.loads(text)["events"]
            ]

        await ask(f"{one.url}/q/messages?visibility=0.05")
        begun = [("published", 0, "mq"), ("fetched", 1, "mq"), ("redelivered", 1, "mq-mover")]

        async def is_back() -> bool:
            return await events() == begun

        await comes_true(is_back, "it is redelivered")
        getattr(one, ends)()
        status, found, _ = await ask(f"{other.url}/q/messages?wait=5&visibility=60")
        assert (status, found) == (200, message_id)
        assert await events() == [*begun, ("fetched", 2, "mq")]
    assert {line["event"] for line in lines_of(root)} == {"published", "fetched", "redelivered"}
