"""`PATCH /{queue}/messages/{id}`: another due time, wherever the message is; at once with 0."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from harness.api import UNKNOWN_ID, Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles, UntilTheYear2106
from harness.folders import message_files, mtime_ns
from harness.raw import raw_head, raw_request
from harness.server import Serve, Server
from harness.upkeep import move_due
from harness.waiting import comes_true

from mq.http.bodies import JSON_BYTES_MAX
from mq.model.message import Stamp
from mq.protocol.envelopes import DUE_IN_S_MAX
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.mover import Mover


async def patch(
    server: Server, message_id: str, due_in_s: Any = 60, queue: str = "q", **headers: str
) -> Reply:
    """PATCH, with headers such as `If_Match`."""
    body = due_in_s if isinstance(due_in_s, bytes) else json.dumps({"due_in_s": due_in_s}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call(
        server,
        "PATCH",
        f"/{queue}/messages/{message_id}",
        data=body,
        headers={"Content-Type": "application/json", **named},
    )


def stamp_of(root: Path, state: str, message_id: str) -> Stamp:
    name = message_id if state == "queues" else f"q:{message_id}"
    folder = root / "queues" / "q" if state == "queues" else root / state
    [path] = folder.rglob(name)
    return Stamp.from_mtime_ns(mtime_ns(path))


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
async def server(serve: Serve, clock: FakeClock, request: pytest.FixtureRequest) -> Server:
    """An mq with a queue, in the test's own time; what a test does happens in buckets too."""
    started = await serve(clock=clock, folder_max=request.param)
    await make_queue(started)
    for _ in range(3 if request.param == 1 else 0):
        assert (await patch(started, await publish(started, b"in the way"), 10**7)).status == 200
    return started


# Extend


@pytest.mark.parametrize("due_in_s", [600, 600.5, 10**9])
async def test_a_fetched_message_is_extended(
    server: Server, root: Path, clock: FakeClock, due_in_s: float
) -> None:
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id
    clock.advance(29)
    reply = await patch(server, message_id, due_in_s)
    assert reply.status == 200
    expected = Stamp(clock.now_ms() + round(due_in_s * 1000), receives=1)
    assert stamp_of(root, "delay", message_id) == expected
    said = reply.json()
    assert said["id"] == message_id
    assert said["receives"] == 1
    assert reply.headers["ETag"] == '"1"'
    clock.advance(30)
    move_due(root, clock)
    assert (await fetch(server)).status == 204
    clock.set_ms(expected.due_ms)
    move_due(root, clock)
    assert f"q:{message_id}" in message_files(root)["queues"]


async def test_the_answer_says_when_it_is_due(server: Server, root: Path, clock: FakeClock) -> None:
    message_id = await publish(server)
    await fetch(server)
    reply = await patch(server, message_id, 10)
    clock.advance(10)
    move_due(root, clock)
    again = await fetch(server)
    assert again.id == message_id
    assert reply.json()["due"][:23] < again.headers["X-Message-Due"][:23]
    assert again.headers["X-Message-Receives"] == "2"


async def test_a_mover_that_runs_hears_of_a_time_brought_forward(
    serve: Serve, root: Path, clock: FakeClock
) -> None:
    server = await serve(clock=clock)
    await make_queue(server)
    reply = await call(server, "POST", "/q/messages?delay=3600", data=b"x")
    mover = Mover(open_root(str(root), Files(), clock), NoFlusher(), Timer())
    mover.run_once()
    assert mover.next_due_s() == 3600
    assert (await patch(server, reply.id, 30)).status == 200
    clock.advance(1)
    mover.run_once()
    assert mover.next_due_s() == 29
    clock.advance(29)
    assert mover.run_once() == 1


async def test_one_that_was_brought_forward_past_a_look_is_moved_at_the_next(
    serve: Serve, root: Path, clock: FakeClock
) -> None:
    server = await serve(clock=clock)
    await make_queue(server)
    reply = await call(server, "POST", "/q/messages?delay=3600", data=b"x")
    mover = Mover(open_root(str(root), Files(), clock), NoFlusher(), Timer())
    mover.run_once()
    assert (await patch(server, reply.id, 30)).status == 200
    clock.advance(31)
    assert mover.run_once() == 1, "what was stamped after its rename is not left alone"


async def test_a_delayed_message_is_delayed_anew(
    server: Server, root: Path, clock: FakeClock
) -> None:
    reply = await call(server, "POST", "/q/messages?delay=10", data=b"x")
    assert (await patch(server, reply.id, 500)).json()["receives"] == 0
    assert stamp_of(root, "delay", reply.id) == Stamp(clock.now_ms() + 500_000)


# Release


async def test_a_fetched_message_is_released_at_its_own_place(
    serve: Serve, root: Path, clock: FakeClock
) -> None:
    server = await serve(clock=clock)
    await make_queue(server)
    ids = [await publish(server) for _ in range(3)]
    for _ in ids[:2]:
        await fetch(server)
    clock.advance(1)
    for _ in range(2):
        reply = await patch(server, ids[0], 0)
        assert (reply.status, reply.json()["receives"]) == (200, 1)
        assert stamp_of(root, "queues", ids[0]) == Stamp(clock.now_ms(), receives=1)
    replies = [await fetch(server) for _ in range(2)]
    assert [reply.id for reply in replies] == [ids[0], ids[2]]
    assert [reply.headers["X-Message-Receives"] for reply in replies] == ["2", "1"]


async def test_less_than_half_a_millisecond_is_now(server: Server, root: Path) -> None:
    message_id = await publish(server)
    await fetch(server)
    assert (await patch(server, message_id, 0.0004)).status == 200
    assert (await fetch(server)).id == message_id


async def test_a_delayed_message_is_ready_at_once(server: Server) -> None:
    message_id = (await call(server, "POST", "/q/messages?delay=600", data=b"x")).id
    assert (await patch(server, message_id, 0)).json()["receives"] == 0
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "1")


async def test_a_release_by_another_process_is_found(serve: Serve, server: Server) -> None:
    message_id = await publish(server)
    await fetch(server)
    assert (await fetch(server)).status == 204
    assert (await patch(await serve(), message_id, 0)).status == 200
    assert (await fetch(server)).id == message_id


# Ready


async def test_a_ready_message_is_postponed(server: Server, root: Path, clock: FakeClock) -> None:
    first, second = [await publish(server) for _ in range(2)]
    assert (await patch(server, first, 60)).json()["receives"] == 0
    assert stamp_of(root, "delay", first) == Stamp(clock.now_ms() + 60_000)
    assert (await fetch(server)).id == second
    assert (await delete(server, second)).status == 202
    assert (await fetch(server)).status == 204
    clock.advance(59)
    move_due(root, clock)
    assert (await fetch(server)).status == 204
    clock.advance(1)
    move_due(root, clock)
    assert f"q:{first}" in message_files(root)["queues"]


async def test_a_ready_message_stays_ready_at_0(server: Server, root: Path) -> None:
    message_id = await publish(server)
    before = stamp_of(root, "queues", message_id)
    assert (await patch(server, message_id, 0)).status == 200
    assert stamp_of(root, "queues", message_id) == before
    assert (await fetch(server)).headers["X-Message-Receives"] == "1"


# Not there, and not so


async def test_what_was_removed_or_never_was_is_404(server: Server, root: Path) -> None:
    message_id = await publish(server)
    await delete(server, message_id)
    for unknown in (message_id, UNKNOWN_ID):
        for due_in_s in (0, 60):
            reply = await patch(server, unknown, due_in_s)
            assert assert_problem(reply, 404, "message-not-found")["id"] == unknown
    reply = await patch(server, message_id, queue="none")
    assert_problem(reply, 404, "queue-not-found")
    assert message_files(root)["remove"] == [f"q:{message_id}"]
    assert_problem(await patch(server, "x"), 400, "bad-name")


@pytest.mark.parametrize("due_in_s", [0, 60])
async def test_whoever_was_too_slow_hears_so(
    server: Server, root: Path, clock: FakeClock, due_in_s: float
) -> None:
    message_id = await publish(server)
    slow = (await fetch(server)).headers["ETag"]
    clock.advance(31)
    move_due(root, clock)
    again = await fetch(server)
    before = stamp_of(root, "delay", message_id)
    reply = await patch(server, message_id, due_in_s, If_Match=slow)
    assert assert_problem(reply, 412, "delivered-again")["receives"] == 2
    assert stamp_of(root, "delay", message_id) == before
    for tag in ('"7", "2"', "*", again.headers["ETag"]):
        assert (await patch(server, message_id, 60, If_Match=tag)).status == 200
    assert_problem(await patch(server, message_id, If_Match="2"), 400, "bad-if-match")
    assert (await patch(server, message_id, due_in_s, If_Match='"2"')).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"7",
        b"null",
        b"{",
        b'{"due_in_s": 1} x',
        b'{"due_in_s": "1"}',
        b'{"due_in_s": null}',
        b'{"due_in_s": true}',
        b'{"due_in_s": [1]}',
        b'{"due_in_s": -1}',
        b'{"due_in_s": -0.001}',
        b'{"due_in_s": NaN}',
        b'{"due_in_s": Infinity}',
        b'{"due_in_s": -Infinity}',
        b'{"due_in_s": 1e999}',
        b'{"due_in_s": %d}' % (DUE_IN_S_MAX + 1),
        b'{"due_in_s": 1%s}' % (b"0" * 400),
        b'{"due_in_s": 1%s}' % (b"0" * 5000),
        b'{"due_in_s": 1, "colour": "red"}',
        b'{"colour": "red"}',
        b'{"due_in_s": 1, "due_in_s": ',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_what_is_not_asked_for_is_a_bad_body(serve: Serve, root: Path, body: bytes) -> None:
    server = await serve()
    await make_queue(server)
    message_id = await publish(server)
    await fetch(server)
    before = stamp_of(root, "delay", message_id)
    assert_problem(await patch(server, message_id, body), 400, "bad-body")
    assert stamp_of(root, "delay", message_id) == before


@pytest.mark.parametrize("media_type", ["text/plain", "application/octet-stream", "json", ""])
async def test_another_media_type_is_415(serve: Serve, media_type: str) -> None:
    server = await serve()
    await make_queue(server)
    message_id = await publish(server)
    body = b'{"due_in_s": 60}'
    headers = [f"Content-Length: {len(body)}"]
    if media_type:
        headers.append(f"Content-Type: {media_type}")
    head = raw_head("PATCH", f"/q/messages/{message_id}", *headers)
    assert_problem(await raw_request(server.port, head + body), 415, "media-type-unknown")
    assert (await fetch(server)).id == message_id


@pytest.mark.parametrize(
    "media_type", ["application/merge-patch+json", "Application/JSON; charset=utf-8"]
)
async def test_json_may_be_said_in_other_ways(serve: Serve, media_type: str) -> None:
    server = await serve()
    await make_queue(server)
    reply = await patch(server, await publish(server), 60, Content_Type=media_type)
    assert reply.status == 200


async def test_a_body_that_is_too_large_is_413(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    reply = await patch(server, await publish(server), b" " * (JSON_BYTES_MAX + 1))
    assert_problem(reply, 413, "body-too-large")


async def test_only_fetch_and_publish_have_parameters(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    reply = await call(server, "PATCH", f"/q/messages/{UNKNOWN_ID}?delay=1")
    assert_problem(reply, 400, "unknown-parameter")


@pytest.mark.parametrize("state", ["queues", "delay"])
async def test_a_time_that_cannot_be_kept_leaves_the_message_as_it_is(
    serve: Serve, root: Path, state: str
) -> None:
    server = await serve(files=UntilTheYear2106())
    await make_queue(server)
    message_id = await publish(server)
    if state == "delay":
        await fetch(server)
    before = stamp_of(root, state, message_id)
    assert_problem(await patch(server, message_id, 100 * 365 * 86400), 400, "due-too-far")
    assert stamp_of(root, state, message_id) == before
    assert (await patch(server, message_id, 70 * 365 * 86400)).status == 200


# Races


@pytest.mark.parametrize("due_in_s", [0, 60])
async def test_a_queue_that_is_deleted_meanwhile_is_404(serve: Serve, due_in_s: float) -> None:
    files = FaultyFiles()
    server, other = await serve(files=files, commit="fsync"), await serve()
    await make_queue(server)
    message_id = await publish(server)
    await fetch(server)
    gate = files.hold("stamp", message_id)
    patching = asyncio.create_task(patch(server, message_id, due_in_s))
    await comes_true(gate.reached.is_set)
    assert (await call(other, "DELETE", "/q")).status == 200
    gate.open()
    reply = await patching
    # An extension may have been done before: who deletes takes what is in delay/ afterwards.
    if reply.status != 200:
        assert_problem(reply, 404, "queue-not-found")
    assert (await fetch(server)).status == 404


async def test_of_a_release_and_a_fetch_at_once_one_has_the_message(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    message_id = await publish(server)
    for _ in range(20):
        reply, fetched = await asyncio.gather(patch(server, message_id, 60), fetch(server))
        assert reply.status in (200, 503)
        if reply.status == 503:
            assert_problem(reply, 503, "message-busy")
            assert fetched.status == 200
        await comes_true(lambda: is_released(server, message_id))


async def is_released(server: Server, message_id: str) -> bool:
    return (await patch(server, message_id, 0)).status == 200


async def test_of_two_names_a_patch_leaves_one(serve: Serve, root: Path) -> None:
    """A crash has left both, as on btrfs: what is extended must not be served."""
    server = await serve()
    await make_queue(server)
    ids = [await publish(server) for _ in range(3)]
    for message_id in ids:
        (root / "delay" / f"q:{message_id}").hardlink_to(root / "queues" / "q" / message_id)
    assert (await patch(server, ids[0], 60)).status == 200
    assert (await patch(server, ids[1], 0)).status == 200
    (root / "delay" / f"q:{ids[2]}").unlink()
    assert message_files(root)["delay"] == [f"q:{ids[0]}"]
    assert message_files(root)["queues"] == [f"q:{message_id}" for message_id in ids[1:]]


async def test_a_lost_answer_is_no_lost_message(serve: Serve, root: Path) -> None:
    """NFS did it, and said ENOENT."""
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    message_id = await publish(server)
    for due_in_s, state in ((60, "delay"), (0, "queues"), (60, "delay"), (0, "queues")):
        fault = files.fail("rename", 2, "/delay/q:", times=1, performed=True)
        assert (await patch(server, message_id, due_in_s)).status == 200
        assert fault.hits == 1
        assert message_files(root)[state] == [f"q:{message_id}"]
    assert (await fetch(server)).id == message_id
