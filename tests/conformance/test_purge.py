"""DELETE of a queue's messages: what was published until then is served no more, in any state."""

import asyncio
import os
from datetime import datetime
from pathlib import Path

import pytest
from harness.api import (
    STILL_MS,
    Reply,
    StillClock,
    assert_problem,
    call,
    delete,
    fetch,
    id_at,
    make_queue,
    publish,
)
from harness.audits import assert_audits_clean
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.limits import LOOK_INTERVAL_S
from mq.store.core.facts import FACTS_SETTLE_S, SETTINGS_AGE_S
from mq.store.operations.purge import PURGED_PER_HOP_MAX


async def purge(server: Server, queue: str = "q") -> Reply:
    return await call(server, "DELETE", f"/{queue}/messages")


async def purged(server: Server, queue: str = "q") -> int:
    """Purges; up to which time, milliseconds since the epoch."""
    reply = await purge(server, queue)
    assert reply.status == 202, reply.body
    return round(datetime.fromisoformat(reply.json()["purged_before"]).timestamp() * 1000)


async def patch(server: Server, message_id: str, due_in_s: float) -> Reply:
    body = b'{"due_in_s": %g}' % due_in_s
    headers = {"Content-Type": "application/json"}
    path = f"/q/messages/{message_id}"
    return await call(server, "PATCH", path, data=body, headers=headers)


async def delayed(server: Server) -> str:
    reply = await call(server, "POST", "/q/messages?delay=60", data=b"later")
    assert reply.status == 201
    return reply.id


def is_taken_away(root: Path) -> bool:
    found = message_files(root)
    return not (found["queues"] or found["delay"])


@pytest.mark.certificate
async def test_what_was_published_is_gone_in_every_state(server: Server, root: Path) -> None:
    await make_queue(server)
    fetched = await publish(server)
    assert (await fetch(server)).id == fetched
    later, ready = await delayed(server), await publish(server)
    await purged(server)
    assert (await fetch(server)).status == 204
    for message_id in (fetched, later, ready):
        assert_problem(await delete(server, message_id), 404, "message-not-found")
        assert_problem(await patch(server, message_id, 0), 404, "message-not-found")
    counts = (await call(server, "GET", "/q")).json()
    assert [counts[name] for name in ("ready", "delayed", "in_flight", "overdue")] == [0] * 4
    await comes_true(lambda: is_taken_away(root), "all in remove/")
    for message_id in (fetched, later, ready):
        assert_problem(await delete(server, message_id), 404, "message-not-found")
    assert_audits_clean(root)


@pytest.mark.certificate
async def test_what_is_published_after_it_stays(server: Server) -> None:
    await make_queue(server)
    for _ in range(3):
        await publish(server)
        await purged(server)
        message_id = await publish(server)
        assert (await fetch(server)).id == message_id
        assert (await patch(server, message_id, 0)).status == 200
        assert (await fetch(server)).id == message_id
        assert (await delete(server, message_id)).status == 202


@pytest.mark.certificate
async def test_a_clock_that_stands_still_makes_no_message_of_both_sides(serve: Serve) -> None:
    """All ids are of one millisecond, but for those behind a purge."""
    server = await serve(clock=StillClock())
    await make_queue(server)
    for turn in range(5):
        before = [await publish(server) for _ in range(3)]
        assert await purged(server) == STILL_MS + turn
        after = [await publish(server) for _ in range(3)]
        assert [(await fetch(server)).id for _ in after] == after
        for message_id in before:
            assert (await delete(server, message_id)).status == 404
        for message_id in after:
            assert (await delete(server, message_id)).status == 202


@pytest.mark.certificate
async def test_other_queues_are_left_alone(server: Server) -> None:
    await make_queue(server)
    for name in ("other", "qq", "q_SIDELINE"):
        await make_queue(server, name)
        await publish(server, name.encode(), name)
    await purged(server)
    for name in ("other", "qq", "q_SIDELINE"):
        assert (await fetch(server, name)).body == name.encode()


@pytest.mark.certificate
async def test_no_queue_is_404_and_an_empty_one_is_purged(server: Server, root: Path) -> None:
    assert_problem(await purge(server), 404, "queue-not-found")
    assert not any((root / "purged").iterdir())
    await make_queue(server)
    first = await purged(server)
    assert await purged(server) >= first


async def test_a_query_or_a_bad_name_is_400(server: Server) -> None:
    await make_queue(server)
    reply = await call(server, "DELETE", "/q/messages?before=now")
    assert assert_problem(reply, 400, "unknown-parameter")["parameter"] == "before"
    assert_problem(await call(server, "DELETE", "/-q/messages"), 400, "bad-name")
    assert (await call(server, "OPTIONS", "/q/messages")).headers["Allow"].startswith("DELETE")


@pytest.mark.certificate
async def test_the_mark_outlives_the_daemon(serve: Serve) -> None:
    server = await serve()
    await make_queue(server)
    message_id = await publish(server)
    files = FaultyFiles()
    other = await serve(files=files)
    gate = files.hold("rename", "/remove/")  # Nothing is taken away.
    marked_ms = await purged(other)
    third = await serve()
    assert (await fetch(third)).status == 204
    assert_problem(await delete(third, message_id), 404, "message-not-found")
    mark = third.root / "purged" / "q"
    assert mark.stat().st_mtime_ns == marked_ms * 1_000_000
    assert mark.read_bytes() == b""
    gate.open()


@pytest.mark.certificate
async def test_a_queue_made_anew_inherits_no_purge(serve: Serve) -> None:
    clock = StillClock()
    server = await serve(clock=clock)
    await make_queue(server)
    await purged(server)
    assert (await call(server, "DELETE", "/q")).status == 200
    assert not any((server.root / "purged").iterdir())
    mark = server.root / "purged" / "q"  # As a crash leaves it.
    mark.touch()
    os.utime(mark, ns=((STILL_MS + 10_000) * 10**6,) * 2)
    await make_queue(server)
    assert not mark.exists()
    message_id = await publish(server)
    assert (await fetch(server)).id == message_id


# Across processes


@pytest.mark.certificate
async def test_another_process_serves_nothing_of_it_either(serve: Serve) -> None:
    """Also of what it had listed before, at once."""
    server, other = await serve(), await serve(clock=StillClock())  # The other never looks again.
    await make_queue(server)
    for _ in range(5):
        await publish(server)
    assert (await fetch(other)).status == 200
    await purged(server)
    assert (await fetch(other)).status == 204


async def test_another_process_publishes_behind_it(serve: Serve) -> None:
    """Though its clock is behind: what it would publish before the mark is refused once."""
    clock = StillClock()
    server, other = await serve(), await serve(clock=clock)
    await make_queue(server)
    await publish(other)
    mark = server.root / "purged" / "q"
    mark.touch()  # By one whose clock is half an hour ahead.
    os.utime(mark, ns=((STILL_MS + 1_800_000) * 10**6,) * 2)
    clock.steady += FACTS_SETTLE_S
    assert_problem(await call(other, "POST", "/q/messages", data=b"x"), 503, "publish-purged")
    assert message_files(server.root)["new"] == []
    message_id = await publish(other)
    assert (await fetch(other)).id == message_id


@pytest.mark.certificate
async def test_a_clock_that_is_behind_the_mark_purges_what_came_since(serve: Serve) -> None:
    server, other = await serve(clock=StillClock()), await serve(clock=StillClock())
    await make_queue(server)
    mark = server.root / "purged" / "q"
    mark.touch()  # By one whose clock is half an hour ahead.
    os.utime(mark, ns=((STILL_MS + 1_800_000) * 10**6,) * 2)
    await call(server, "POST", "/q/messages", data=b"x")
    await publish(server)
    assert await purged(other) > STILL_MS + 1_800_000
    assert (await fetch(other)).status == 204


async def test_a_streamed_publish_is_refused_before_its_body(serve: Serve) -> None:
    server = await serve(clock=StillClock())
    await make_queue(server)
    mark = server.root / "purged" / "q"
    mark.touch()
    os.utime(mark, ns=(STILL_MS * 10**6,) * 2)
    large = b"x" * 2_000_000
    reply = await call(server, "POST", "/q/messages", data=large)
    assert_problem(reply, 503, "publish-purged")
    assert (await call(server, "POST", "/q/messages", data=large)).status == 201
    assert (await fetch(server)).body == large


async def test_a_mark_far_ahead_moves_no_id_there(serve: Serve) -> None:
    """Somebody's clock is wrong by days: the queue waits, and others go on as before."""
    clock = StillClock()
    server = await serve(clock=clock)
    for name in ("q", "other"):
        await make_queue(server, name)
    mark = server.root / "purged" / "q"
    mark.touch()
    os.utime(mark, ns=((STILL_MS + 100 * 3_600_000) * 10**6,) * 2)
    for _ in range(2):
        assert_problem(await call(server, "POST", "/q/messages", data=b"x"), 503, "publish-purged")
    assert (await publish(server, queue="other")).startswith(f"{STILL_MS >> 16:08x}")
    clock.now += 101 * 3_600_000
    assert (await fetch(server)).status == 204
    message_id = await publish(server)
    clock.steady += LOOK_INTERVAL_S + SETTINGS_AGE_S
    assert (await fetch(server)).id == message_id


@pytest.mark.certificate
async def test_purges_and_publishes_side_by_side(serve: Serve) -> None:
    """Whatever was answered before a purge was asked for is gone, and all behind the last stays."""
    servers = [await serve(), await serve()]
    await make_queue(servers[0])
    gone: set[str] = set()
    for turn in range(4):
        server, other = servers[turn % 2], servers[1 - turn % 2]
        gone |= set(await asyncio.gather(*(publish(each) for each in servers * 10)))
        await asyncio.gather(purged(server), fetch(other), fetch(server), purged(other))
    kept = set(await asyncio.gather(*(publish(each) for each in servers * 5)))
    found = set()
    for server in servers * 5:
        found.add((await fetch(server)).id)
    assert found == kept
    assert not gone & kept
    assert [(await fetch(server)).status for server in servers] == [204, 204]
    await comes_true(lambda: not message_files(servers[0].root)["queues"], "all taken away")


# A claim in hand


@pytest.mark.certificate
async def test_a_message_that_is_held_by_a_fetch_is_not_found_afterwards(serve: Serve) -> None:
    """Its fetch was asked for before; the purge comes while it is flushed."""
    files = FaultyFiles()
    server, other = await serve(files=files, commit="fsync"), await serve()
    await make_queue(server)
    message_id = await publish(server)
    gate = files.hold("sync", f"/queues/q/{message_id}")
    asking = asyncio.create_task(fetch(server))
    await comes_true(gate.reached.is_set, "a claim")
    await purged(other)
    gate.open()
    assert (await asking).status in (200, 204)
    assert_problem(await delete(server, message_id), 404, "message-not-found")
    assert_problem(await patch(server, message_id, 60), 404, "message-not-found")
    assert (await fetch(server)).status == 204


# Buckets


@pytest.mark.certificate
@pytest.mark.parametrize("shape", ["", "?shards=3", "?bucket=9"])
async def test_what_lies_in_buckets_is_purged_too(serve: Serve, shape: str) -> None:
    clock = StillClock()
    server = await serve(folder_max=1, clock=clock)
    await call(server, "PUT", f"/q{shape}")
    ids = []
    for _ in range(4):
        clock.now += 70_000
        ids += [await publish(server) for _ in range(2)]
        ids.append((await call(server, "POST", "/q/messages?priority=5", data=b"x")).id)
    assert (await fetch(server)).id in ids
    await purged(server)
    kept = {await publish(server) for _ in range(6)}
    assert {(await fetch(server)).id for _ in kept} == kept
    assert (await fetch(server)).status == 204
    for message_id in ids:
        assert (await delete(server, message_id)).status == 404

    def is_left() -> bool:
        found = message_files(server.root)
        return not found["queues"] and len(found["delay"]) == len(kept)

    await comes_true(is_left, "what was purged is in remove/")
    assert (await call(server, "GET", "/q")).json()["in_flight"] == len(kept)
    assert_audits_clean(server.root, clock)


@pytest.mark.certificate
async def test_a_queue_with_damaged_settings_is_purged(server: Server) -> None:
    await make_queue(server)
    message_id = await publish(server)
    (server.root / "settings" / "q.json").write_bytes(b"{")
    await purged(server)
    assert (await fetch(server)).status == 204
    assert_problem(await delete(server, message_id), 404, "message-not-found")
    await comes_true(lambda: is_taken_away(server.root), "all in remove/")


@pytest.mark.certificate
async def test_a_daemon_that_ends_leaves_the_rest_to_the_mover(serve: Serve) -> None:
    """A drain waits for no purge's end."""
    server = await serve(clock=StillClock())
    await make_queue(server)
    for n in range(PURGED_PER_HOP_MAX + 100):
        (server.root / "queues" / "q" / id_at(STILL_MS - 1, n)).touch(mode=0o600)
    await purged(server)
    await server.daemon.drain()
    left = message_files(server.root)["queues"]
    assert len(left) in (0, 100, PURGED_PER_HOP_MAX + 100)
    again = await serve()
    assert (await fetch(again)).status == 204


@pytest.mark.certificate
async def test_a_purge_during_the_last_look_of_another_is_taken_away_too(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    gate = files.hold("entries", "/delay")
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    await comes_true(gate.reached.is_set)
    await publish(server)
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    gate.open()
    await comes_true(lambda: len(message_files(server.root)["remove"]) == 1)


@pytest.mark.certificate
async def test_it_is_answered_once_every_process_knows_it(serve: Serve) -> None:
    """Another process may know for half a second that the queue was not purged."""
    server = await serve()
    await make_queue(server)
    now_s = asyncio.get_running_loop().time
    for _ in range(2):
        await publish(server)
        began_s = now_s()
        await purged(server)
        assert now_s() - began_s >= FACTS_SETTLE_S
