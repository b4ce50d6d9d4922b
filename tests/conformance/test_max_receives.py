"""`max_receives`: what was received as often as its queue allows goes to the sideline, whichever
way it would have come back.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from harness.api import assert_problem, call, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.folders import mtime_ns
from harness.server import Serve, Server
from harness.upkeep import move_due
from harness.waiting import comes_true

from mq.model.message import Stamp
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.full_passes import FIRST_SIGHT_S
from mq_mover.mover import Mover

SIDELINE = "q_SIDELINE"


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
async def server(serve: Serve, clock: FakeClock, request: pytest.FixtureRequest) -> Server:
    """An mq with a queue whose messages are delivered twice at most, in the test's own time."""
    started = await serve(clock=clock, folder_max=request.param)
    await make_queue(started)
    await limit(started, 2)
    return started


async def limit(server: Server, max_receives: int, queue: str = "q") -> None:
    reply = await call(server, "PATCH", f"/{queue}/settings", json={"max_receives": max_receives})
    assert reply.status == 200, reply.body


async def deliver(server: Server, root: Path, clock: FakeClock, times: int) -> str:
    """A message that was delivered so often, and is its last fetcher's."""
    message_id = await publish(server)
    for n in range(times):
        if n:
            clock.advance(31)
            move_due(root, clock)
        assert (await fetch(server)).id == message_id
    return message_id


async def release(server: Server, message_id: str, due_in_s: float = 0) -> None:
    path = f"/q/messages/{message_id}"
    assert (await call(server, "PATCH", path, json={"due_in_s": due_in_s})).status == 200


def move_released(root: Path, clock: FakeClock) -> int:
    """What was due when it last changed a mover leaves alone at first sight, for a second."""
    mover = Mover(open_root(str(root), Files(), clock), NoFlusher(), Timer())
    moved = mover.run_once()
    clock.advance(FIRST_SIGHT_S)
    return moved + mover.run_once()


async def test_it_is_delivered_so_often_and_no_more(
    server: Server, root: Path, clock: FakeClock
) -> None:
    message_id = await deliver(server, root, clock, 2)
    clock.advance(31)
    assert move_due(root, clock) == 1
    assert (await fetch(server)).status == 204
    peeked = (await call(server, "GET", f"/{SIDELINE}/peek")).json()
    assert (peeked["id"], peeked["receives"]) == (message_id, 2)
    assert peeked["sidelined"]["reason"] == "receives"
    counts = (await call(server, "GET", "/q")).json()
    assert (counts["ready"], counts["in_flight"], counts["sidelined"]) == (0, 0, 1)
    assert (await fetch(server, SIDELINE)).headers["X-Message-Sidelined"] == "receives"
    assert_audits_clean(root, clock)


async def test_a_back_off_after_the_last_attempt_is_not_waited_for(
    server: Server, root: Path, clock: FakeClock
) -> None:
    history = {"history": True}
    assert (await call(server, "PATCH", "/q/settings", json=history)).status == 200
    message_id = await publish(server)
    path = f"/q/messages/{message_id}"
    for due_in_s in (10, 1000):
        assert (await fetch(server)).id == message_id
        back = {"due_in_s": due_in_s, "release": True}
        assert (await call(server, "PATCH", path, json=back)).status == 200
        if due_in_s == 10:
            clock.advance(9)
            assert move_due(root, clock) == 0
            clock.advance(2)
            assert move_due(root, clock) == 1
    assert move_released(root, clock) == 1
    counts = (await call(server, "GET", "/q")).json()
    assert (counts["in_flight"], counts["delayed"], counts["sidelined"]) == (0, 0, 1)
    assert (counts["totals"]["extended"], counts["totals"]["released"]) == (0, 2)

    async def events() -> list[str]:
        lines = (await call(server, "GET", f"{path}/history")).json()["events"]
        return [each["event"] for each in lines]

    await comes_true(lambda: _is_there(events))
    assert "extended" not in await events()
    assert_audits_clean(root, clock)


async def _is_there(events: Callable[[], Awaitable[list[str]]]) -> bool:
    return (await events()).count("released") == 2


async def test_one_less_is_not_enough(server: Server, root: Path, clock: FakeClock) -> None:
    message_id = await deliver(server, root, clock, 1)
    clock.advance(31)
    move_due(root, clock)
    assert (await fetch(server)).id == message_id
    assert not (root / "queues" / SIDELINE).exists()


@pytest.mark.parametrize("due_in_s", [0, 5])
async def test_who_gives_it_back_sends_it_there(
    server: Server, root: Path, clock: FakeClock, due_in_s: float
) -> None:
    message_id = await deliver(server, root, clock, 2)
    await release(server, message_id, due_in_s)
    assert (await fetch(server)).status == 204, "it does not come back meanwhile"
    clock.advance(due_in_s)
    assert move_released(root, clock) == 1
    assert (await fetch(server, SIDELINE)).id == message_id


async def test_who_has_had_less_is_released_as_ever(
    server: Server, root: Path, clock: FakeClock
) -> None:
    message_id = await deliver(server, root, clock, 1)
    await release(server, message_id)
    assert (await fetch(server)).id == message_id


@pytest.mark.parametrize("how", ["released", "the connection ends"])
async def test_a_websocket_s_release_sends_it_there(
    server: Server, root: Path, clock: FakeClock, how: str
) -> None:
    await limit(server, 1)
    message_id = await publish(server)
    async with consuming(server, "q") as consumer:
        assert (await consumer.message()).id == message_id
        if how == "released":
            assert await consumer.statuses(release=[message_id]) == [200]
    await comes_true(lambda: is_due(root, clock), "it is due now")
    assert move_released(root, clock) == 1
    peeked = (await call(server, "GET", f"/{SIDELINE}/peek")).json()
    assert (peeked["id"], peeked["sidelined"]["reason"]) == (message_id, "receives")


def is_due(root: Path, clock: FakeClock) -> bool:
    (path,) = (path for path in (root / "delay").rglob("q:*"))
    return Stamp.from_mtime_ns(mtime_ns(path)).due_ms <= clock.now_ms()


async def test_a_limit_that_is_made_lower_counts_when_a_message_comes_back(
    server: Server, root: Path, clock: FakeClock
) -> None:
    await limit(server, 0)
    message_id = await deliver(server, root, clock, 2)
    await release(server, message_id)
    await limit(server, 1)
    assert (await fetch(server)).id == message_id, "what is ready is not looked at"
    clock.advance(31)
    move_due(root, clock)
    assert (await fetch(server, SIDELINE)).id == message_id


async def test_in_a_sideline_there_is_no_limit(
    server: Server, root: Path, clock: FakeClock
) -> None:
    message_id = await deliver(server, root, clock, 2)
    clock.advance(31)
    move_due(root, clock)
    await limit(server, 1, SIDELINE)
    for receives in (3, 4):
        reply = await fetch(server, SIDELINE)
        assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, str(receives))
        clock.advance(31)
        move_due(root, clock)
    assert_problem(await call(server, "GET", f"/{SIDELINE}_SIDELINE"), 404, "queue-not-found")


async def test_its_key_is_free_and_its_history_says_why(
    server: Server, root: Path, clock: FakeClock
) -> None:
    await limit(server, 1)
    await call(server, "PATCH", "/q/settings", json={"history": True})
    message_id = (await call(server, "POST", "/q/messages?key=k", data=b"x")).id
    await fetch(server)
    clock.advance(31)
    move_due(root, clock)
    assert (await call(server, "POST", "/q/messages?key=k", data=b"x")).status == 201

    async def told() -> bool:
        reply = await call(server, "GET", f"/q/messages/{message_id}/history")
        events = reply.json().get("events", [])
        return [(each["event"], each.get("reason")) for each in events] == [
            ("published", None), ("fetched", None), ("sidelined", "receives"),
        ]  # fmt: skip

    await comes_true(told, "its history")
