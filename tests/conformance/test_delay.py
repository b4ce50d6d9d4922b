"""What a publish says of its message: when it is ready, before which others, whose how long."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.faults import FaultyFiles, UntilTheYear2106
from harness.folders import message_files, mtime_ns, nothing_anywhere
from harness.server import Serve, Server, body_sizes
from harness.upkeep import move_due
from harness.waiting import comes_true

from mq.model.message import Stamp
from mq.protocol.envelopes import DUE_IN_S_MAX

DAY_S = 24 * 3600


async def post(server: Server, query: str, body: bytes = b"hello", queue: str = "q") -> str:
    """Publishes; the id."""
    reply = await call(server, "POST", f"/{queue}/messages?{query}", data=body)
    assert reply.status == 201, reply.body
    return reply.id


def at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


@pytest.fixture
def server(timed: Server) -> Server:
    return timed


# Delay


@body_sizes
@pytest.mark.parametrize("delay_s", [60, 9.125, 400 * DAY_S])
async def test_a_delayed_message_is_ready_when_it_is_due_and_not_before(
    server: Server, root: Path, clock: FakeClock, delay_s: float, size: int
) -> None:
    due_ms = clock.now_ms() + round(delay_s * 1000)
    message_id = await post(server, f"delay={delay_s}", b"x" * size)
    assert message_files(root) == {**nothing_anywhere(), "delay": [f"q:{message_id}"]}
    assert Stamp.from_mtime_ns(mtime_ns(root / "delay" / f"q:{message_id}")) == Stamp(due_ms)
    counts = (await call(server, "GET", "/q")).json()
    assert (counts["delayed"], counts["in_flight"], counts["ready"]) == (1, 0, 0)
    clock.set_ms(due_ms - 1)
    assert move_due(root, clock) == 0
    assert (await fetch(server)).status == 204
    clock.set_ms(due_ms)
    assert move_due(root, clock) == 1
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "1")
    assert reply.body == b"x" * size


@pytest.mark.parametrize("form", ["UTC", "offset"])
async def test_at_says_the_time_itself(
    server: Server, root: Path, clock: FakeClock, form: str
) -> None:
    due_ms = clock.now_ms() + 90_061
    text = at(due_ms)
    if form == "offset":  # With a plus that nobody escaped.
        east = datetime.fromisoformat(at(due_ms + 7_200_000)).isoformat(timespec="milliseconds")
        text = east[:-6] + "+02:00"
    message_id = await post(server, f"at={text}")
    assert Stamp.from_mtime_ns(mtime_ns(root / "delay" / f"q:{message_id}")) == Stamp(due_ms)


async def test_no_delay_is_no_delay(server: Server) -> None:
    ids = [await post(server, "delay=0"), await post(server, "delay=0.000")]
    assert [(await fetch(server)).id for _ in ids] == ids


@body_sizes
@pytest.mark.parametrize("default_s", [60, 10.25])
async def test_a_queue_says_how_long_a_publish_waits_that_says_no_time(
    server: Server, root: Path, clock: FakeClock, default_s: float, size: int
) -> None:
    reply = await call(server, "PATCH", "/q/settings", json={"delay_default_s": default_s})
    assert reply.status == 200, reply.body
    said_ms = clock.now_ms() + 5_000
    ids = [
        await post(server, "", b"x" * size),
        await post(server, "priority=3&key=k", b"x" * size),
        (await call(server, "POST", "/q/messages?split=lines", data=b"x")).json()["id"],
    ]
    said = [await post(server, "delay=5"), await post(server, f"at={at(said_ms)}")]
    at_once = await post(server, "delay=0", b"x" * size)
    due_ms = {name: clock.now_ms() + round(default_s * 1000) for name in ids}
    due_ms |= dict.fromkeys(said, said_ms)
    for name, wanted in due_ms.items():
        assert Stamp.from_mtime_ns(mtime_ns(root / "delay" / f"q:{name}")) == Stamp(wanted)
    assert (await fetch(server)).id == at_once
    assert (await fetch(server)).status == 204
    clock.advance(60)
    assert move_due(root, clock) == len(due_ms) + 1  # The one that was fetched comes back.


async def test_a_scheduled_message_outlives_a_restart(
    serve: Serve, server: Server, root: Path, clock: FakeClock
) -> None:
    message_id = await post(server, "delay=3600&priority=4")
    await server.daemon.drain()
    clock.advance(3600)
    assert move_due(root, clock) == 1
    assert (await fetch(await serve(clock=clock))).id == message_id


async def test_a_scheduled_message_is_deleted_by_its_id(server: Server, root: Path) -> None:
    message_id = await post(server, "delay=60")
    assert (await delete(server, message_id, headers={"If-Match": '"0"'})).status == 202
    assert message_files(root)["remove"] == [f"q:{message_id}"]


async def test_a_scheduled_message_goes_with_its_queue(
    server: Server, root: Path, clock: FakeClock
) -> None:
    await post(server, "delay=60")
    assert (await call(server, "DELETE", "/q")).status == 200
    await make_queue(server)
    assert message_files(root)["delay"] == []
    clock.advance(120)
    assert move_due(root, clock) == 0
    assert (await fetch(server)).status == 204


async def test_a_queue_that_is_deleted_meanwhile_takes_no_scheduled_message(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    gate = files.hold("rename", "/delay/q:")
    posting = asyncio.create_task(
        call(server, "POST", "/q/messages?delay=60", data=b"in the middle")
    )
    await comes_true(gate.reached.is_set)
    other = await serve()
    assert (await call(other, "DELETE", "/q")).status == 200
    gate.open()
    assert_problem(await posting, 404, "queue-not-found")
    await make_queue(other)
    await comes_true(lambda: not message_files(server.root)["delay"], "it goes with its queue")


async def test_without_a_queue_nothing_is_scheduled(server: Server, root: Path) -> None:
    (root / "queues" / "q").rmdir()  # By another process: this one knows it still.
    reply = await call(server, "POST", "/q/messages?delay=60", data=b"x")
    assert_problem(reply, 404, "queue-not-found")
    assert message_files(root) == nothing_anywhere()


@body_sizes
async def test_a_time_that_the_file_system_cannot_keep_leaves_nothing_behind(
    serve: Serve, root: Path, size: int
) -> None:
    server = await serve(files=UntilTheYear2106())
    await make_queue(server)
    for query in ("at=2107-01-01T00:00:00Z", f"delay={100 * 365 * DAY_S}"):
        reply = await call(server, "POST", f"/q/messages?{query}", data=b"x" * size)
        assert_problem(reply, 400, "due-too-far")
    assert message_files(root) == nothing_anywhere()
    message_id = await post(server, "at=2105-01-01T00:00:00Z", b"x" * size)
    assert message_files(root)["delay"] == [f"q:{message_id}"]


# Priority


async def test_priorities_come_before_time_9_first(server: Server) -> None:
    ids = {
        priority: [await post(server, f"priority={priority}") for _ in range(2)]
        for priority in (0, 5, 9, 1)
    }
    assert [",p=" in message_id for message_id in ids[0]] == [False, False]
    assert all(message_id.endswith(",p=9") for message_id in ids[9])
    expected = [each for priority in (9, 5, 1, 0) for each in ids[priority]]
    assert [(await fetch(server)).id for _ in expected] == expected


async def test_a_priority_is_kept_through_delay_redelivery_and_restart(
    serve: Serve, server: Server, root: Path, clock: FakeClock
) -> None:
    plain = await publish(server)
    urgent = await post(server, "priority=7&delay=10")
    assert (await fetch(server)).id == plain
    clock.advance(40)
    assert move_due(root, clock) == 2
    assert (await fetch(server)).id == urgent
    clock.advance(40)
    assert move_due(root, clock) == 1
    again = await serve(clock=clock)
    assert [(await fetch(again)).id for _ in range(2)] == [urgent, plain]


async def test_priorities_have_buckets_of_their_own(serve: Serve, root: Path) -> None:
    server = await serve(folder_max=1)
    await make_queue(server)
    await publish(server)
    late = [await publish(server) for _ in range(2)]
    urgent = await post(server, "priority=3")
    assert [path.parent.name[:3] for path in (root / "queues" / "q").glob(f"*/{urgent}")] == ["p3-"]
    assert (await fetch(server)).id == urgent
    assert (await delete(server, urgent)).status == 202
    assert {(await fetch(server)).id for _ in range(3)} > set(late)


# Visibility


async def test_whose_a_message_is_how_long_is_said_by_its_fetch_its_publish_or_its_queue(
    server: Server, clock: FakeClock
) -> None:
    def due(seconds: float) -> str:
        return at(clock.now_ms() + round(seconds * 1000))

    for published, fetched, expected_s in (
        ("", "", 30),
        ("?visibility=120", "", 120),
        ("", "?visibility=0.5", 0.5),
        ("?visibility=120", "?visibility=604800", 604_800),
        ("?visibility=604800&priority=2", "", 604_800),
    ):
        await call(server, "POST", f"/q/messages{published}", data=b"x")
        reply = await call(server, "GET", f"/q/messages{fetched}")
        assert reply.headers["X-Message-Due"] == due(expected_s), (published, fetched)


async def test_a_message_s_own_visibility_is_in_its_name(server: Server, root: Path) -> None:
    message_id = await post(server, "visibility=90&priority=2")
    assert message_id.endswith(",p=2,v=90")
    assert message_files(root)["queues"] == [f"q:{message_id}"]


async def test_a_message_comes_back_after_this_fetch_s_visibility(
    server: Server, root: Path, clock: FakeClock
) -> None:
    message_id = await publish(server)
    assert (await call(server, "GET", "/q/messages?visibility=5")).id == message_id
    clock.advance(4.999)
    assert move_due(root, clock) == 0
    clock.advance(0.001)
    assert move_due(root, clock) == 1
    assert (await fetch(server)).headers["X-Message-Receives"] == "2"


# What is malformed

BAD = {
    "delay": ["-1", "1e3", "1.2345", "inf", "nan", "", "+1", "1,5", "9" * 13, "999999999999", "1 "],
    "at": [
        "2020-01-01T00:00:00Z",
        "tomorrow",
        "",
        "2999-02-30T00:00:00Z",
        "2999-01-01",
        "2999-01-01T00:00:00",
        "10000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "2999-01-01T25:00:00Z",
        "4102444800",
    ],
    "priority": ["10", "-1", "1.0", "01", "", "high", "9" * 30],
    "visibility": ["0", "-1", "604801", "1.5", "", "x"],
}


@pytest.mark.parametrize(
    ("parameter", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
async def test_a_malformed_value_names_its_parameter(
    server: Server, root: Path, parameter: str, value: str
) -> None:
    reply = await call(server, "POST", "/q/messages", params={parameter: value}, data=b"x")
    assert assert_problem(reply, 400, f"bad-{parameter}")["parameter"] == parameter
    assert message_files(root) == nothing_anywhere()


@pytest.mark.parametrize("digits", [12, 13, 30, 300])
async def test_a_delay_that_never_ends_is_told_its_bound(server: Server, digits: int) -> None:
    reply = await call(server, "POST", f"/q/messages?delay={'9' * digits}", data=b"x")
    problem = assert_problem(reply, 400, "bad-delay")
    assert f"seconds from 0 to {DUE_IN_S_MAX}," in problem["detail"]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("delay=1&at=2999-01-01T00:00:00Z", "delay"),
        ("delay=1&delay=1", "delay"),
        ("priority=1&priority=2", "priority"),
    ],
)
async def test_what_is_said_twice_is_malformed(
    server: Server, root: Path, query: str, parameter: str
) -> None:
    reply = await call(server, "POST", f"/q/messages?{query}", data=b"x")
    assert_problem(reply, 400, f"bad-{parameter}")
    assert message_files(root) == nothing_anywhere()


@pytest.mark.parametrize("value", ["0", "0.0001", "-1", "604800.001", "604801", "", "nan", "1s"])
async def test_a_malformed_visibility_fetches_nothing(server: Server, value: str) -> None:
    message_id = await publish(server)
    reply = await call(server, "GET", "/q/messages", params={"visibility": value})
    assert_problem(reply, 400, "bad-visibility")
    reply = await fetch(server)
    assert (reply.id, reply.headers["X-Message-Receives"]) == (message_id, "1")
