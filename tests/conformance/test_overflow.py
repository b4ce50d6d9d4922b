"""The settings `messages_max`, `bytes_max` and `overflow`: what counts, what is refused, and what
goes to make room.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish, totals
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.server import STREAMED_BYTES, Serve, Server
from harness.upkeep import fire_due, work_of
from harness.waiting import comes_true

from mq.store.core.locks import queues_locked
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root
from mq_mover.policies.overflow import Overflow

DROPPING = ("drop-oldest", "sideline-oldest")


async def limit(server: Server, queue: str = "q", **settings: object) -> None:
    reply = await call(server, "PATCH", f"/{queue}/settings", json=settings)
    assert reply.status == 200, reply.body


async def post(server: Server, query: str = "", body: bytes = b"hello") -> Reply:
    return await call(server, "POST", f"/q/messages{query}", data=body)


async def ready(server: Server, queue: str = "q") -> list[str]:
    """The ids of what is ready, in the order of delivery."""
    reply = await call(server, "GET", f"/{queue}/peek?count=1000")
    return [json.loads(line)["id"] for line in reply.body.splitlines()]


async def are_ready(server: Server, ids: Sequence[str], queue: str = "q") -> None:
    async def so() -> bool:
        return sorted(await ready(server, queue)) == sorted(ids)

    await comes_true(so, f"{len(ids)} messages in {queue}")


def make_room(server: Server) -> int:
    """One pass of mq-mover's policy; how many went."""
    root = open_root(str(server.root), Files(), FakeClock())
    policy, gone = Overflow(work_of(root, NoFlusher())), 0
    while (turn := policy.act()).acted:
        gone += turn.acted
    return gone


@pytest.fixture
async def server(serve: Serve) -> Server:
    started = await serve()
    await make_queue(started)
    return started


async def test_a_full_queue_refuses_whichever_way_a_message_comes(server: Server) -> None:
    await limit(server, messages_max=2)
    ids = [await publish(server) for _ in range(2)]
    for query, body in (
        ("", b"hello"), ("", b"x" * STREAMED_BYTES), ("?key=k", b"a"), ("?delay=60", b"later"),
    ):  # fmt: skip
        reply = await post(server, query, body)
        problem = assert_problem(reply, 503, "queue-full")
        assert problem["retryable"] is True
        assert (problem["queue"], problem["messages_max"], problem["bytes_max"]) == ("q", 2, 0)
        assert "Retry-After" in reply.headers
    rows = b'{"body": "a"}\n{"body": "b", "delay_s": 60}\n{"body": "c", "key": "k"}'
    assert_problem(await post(server, "?split=lines", b"a\nb"), 503, "queue-full")
    assert_problem(await post(server, "?split=rows", rows), 503, "queue-full")
    assert (await delete(server, ids[0])).status == 202
    # Room counts at once; of a batch as much is published as has room.
    lines = (await post(server, "?split=lines", b"a\nb\nc")).body.splitlines()
    assert ["id" in json.loads(line) for line in lines] == [True, False, False]
    assert json.loads(lines[1])["problem"]["type"].endswith("queue-full")
    await limit(server, messages_max=None)
    assert (await post(server, "?key=k")).status == 201
    assert_audits_clean(server.root)


async def test_the_oldest_go_aside_once_another_process_lets_a_sideline_be_made(
    serve: Serve,
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    await limit(server, messages_max=30, overflow="sideline-oldest")
    ids = [await publish(server) for _ in range(30)]
    root = open_root(str(server.root), Files(), FakeClock())
    tried = ("open_kept", root.layout.queues_lock)
    files.calls.clear()
    with queues_locked(root):
        coming = asyncio.gather(*(publish(server) for _ in range(12)))
        await comes_true(lambda: tried in files.calls, "a sideline that cannot be made yet")
    ids += await coming
    await are_ready(server, ids[12:])
    assert await ready(server, "q_SIDELINE") == ids[:12]


@pytest.mark.certificate
async def test_delayed_and_fetched_messages_count(server: Server) -> None:
    await limit(server, messages_max=3)
    assert (await post(server, "?delay=60")).status == 201
    await publish(server)
    held = await fetch(server)
    await publish(server)
    assert_problem(await post(server), 503, "queue-full")
    assert (await delete(server, held.id)).status == 202
    await publish(server)
    assert_problem(await post(server), 503, "queue-full")
    # What was removed, purged or sidelined does not count.
    [last, *_] = await ready(server)
    assert (await call(server, "POST", f"/q/messages/{last}/sideline")).status == 200
    await publish(server)
    assert_problem(await post(server), 503, "queue-full")
    assert (await call(server, "DELETE", "/q/messages")).status < 300
    assert (await post(server)).status == 201


@pytest.mark.parametrize("overflow", ["refuse", *DROPPING])
async def test_bytes_are_those_of_files(server: Server, overflow: str) -> None:
    await limit(server, bytes_max=1000, overflow=overflow)
    assert_problem(await post(server, "", b"x" * 1001), 503, "queue-full")
    assert_problem(await post(server, "", b"x" * STREAMED_BYTES), 503, "queue-full")
    headers = {"ce-thing": "y" * 400}
    first = await publish(server, b"x" * 500, headers=headers)
    second = await post(server, "", b"x" * 200)
    if overflow == "refuse":
        assert_problem(second, 503, "queue-full")
        assert (await post(server, "", b"x" * 60)).status == 201
    else:
        await are_ready(server, [second.id])
        assert first != second.id
    lines = [b"x" * 300, b"x" * 2000, b"x" * 300]
    ends = (await post(server, "?split=lines", b"\n".join(lines))).body.splitlines()
    said = ["id" in json.loads(line) for line in ends]
    assert said == ([False] * len(ends) if overflow == "refuse" else [True, False, True])
    assert_audits_clean(server.root)


@pytest.mark.parametrize("overflow", DROPPING)
async def test_the_oldest_go(server: Server, overflow: str) -> None:
    await limit(server, messages_max=3, overflow=overflow)
    ids = [await publish(server, b"%d" % n, params={"priority": n % 3}) for n in range(7)]
    await are_ready(server, ids[-3:])
    gone = ids[:-3]
    assert (await totals(server))["dropped"] == len(gone)
    if overflow == "drop-oldest":
        names = [path.name for path in (server.root / "remove").iterdir()]
        assert sorted(name.removeprefix("q:") for name in names) == gone
    else:
        rows = (await call(server, "GET", "/q_SIDELINE/peek?count=10")).body.splitlines()
        aside = [json.loads(row) for row in rows]
        assert sorted(row["id"] for row in aside) == gone
        assert {row["sidelined"]["reason"] for row in aside} == {"overflow"}
    assert_audits_clean(server.root)


@pytest.mark.parametrize("overflow", DROPPING)
async def test_what_a_consumer_has_stays(server: Server, overflow: str) -> None:
    await limit(server, messages_max=2, overflow=overflow)
    first = await publish(server)
    held = await fetch(server)
    later = await publish(server)
    last = await publish(server)
    await are_ready(server, [last])
    assert (held.id, later) != (last, last)
    assert (await call(server, "GET", f"/q/messages/{first}")).status == 200
    assert (await fetch(server)).id == last

    # All that it holds is with consumers: nothing can go, which a look says a moment later.
    published: list[str] = []

    async def is_full() -> bool:
        reply = await post(server)
        published.extend([reply.id] if reply.status == 201 else [])
        return reply.status == 503

    await comes_true(is_full, "a queue that is full of what consumers have")
    assert len(published) <= 2
    assert (await ready(server))[-1:] == published[-1:]
    for message_id in (first, last, *published):
        assert (await call(server, "GET", f"/q/messages/{message_id}")).status == 200
    assert_audits_clean(server.root)


async def test_a_schedule_stays_due_while_there_is_no_room(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    await limit(server, messages_max=1)
    message_id = await publish(server)
    assert (await call(server, "PUT", "/q/schedules/s?every=60", data=b"x")).status < 300
    clock.advance(61)
    assert fire_due(server.root, clock) == 0
    assert (await delete(server, message_id)).status == 202
    clock.advance(61)
    assert fire_due(server.root, clock) == 1
    assert len(await ready(server)) == 1


@pytest.mark.certificate
async def test_a_shovel_leaves_what_has_no_room(server: Server) -> None:
    ids = [await publish(server) for _ in range(3)]
    for message_id in ids:
        assert (await call(server, "POST", f"/q/messages/{message_id}/sideline")).status == 200
    await limit(server, messages_max=2)
    await publish(server)
    run_id = (await call(server, "POST", "/q/shovel")).json()["id"]
    said: dict[str, Any] = {}

    async def is_over() -> bool:
        said.update((await call(server, "GET", "/q/shovel")).json())
        return bool(said["id"] == run_id and said["state"] == "done")

    await comes_true(is_over, "the end of the shovel's run")
    assert (said["moved"], said["stayed"]) == (1, {"queue-full": 2})
    assert len(await ready(server, "q_SIDELINE")) == 2


@pytest.mark.certificate
async def test_two_processes_keep_one_limit(serve: Serve) -> None:
    """Neither exceeds it by what it publishes itself; both together by what the other published a
    moment ago. Once they know that, both refuse.
    """
    servers = [await serve(), await serve()]
    await make_queue(servers[0])
    await limit(servers[0], messages_max=50)

    async def fill(server: Server) -> int:
        ends = [await post(server) for _ in range(60)]
        assert {end.status for end in ends} <= {201, 503}
        return sum(end.status == 201 for end in ends)

    published = await asyncio.gather(*(fill(server) for server in servers for _ in range(4)))
    assert 50 <= sum(published) <= 100
    assert len(await ready(servers[0])) == sum(published)
    for server in servers:
        assert_problem(await post(server), 503, "queue-full")
    assert_audits_clean(servers[0].root)


@pytest.mark.parametrize("overflow", DROPPING)
async def test_two_processes_let_no_more_go_than_they_must(serve: Serve, overflow: str) -> None:
    servers = [await serve(), await serve()]
    await make_queue(servers[0])
    await limit(servers[0], messages_max=20, overflow=overflow)

    async def fill(server: Server) -> list[str]:
        return [await publish(server) for _ in range(30)]

    ids = sorted(itertools.chain(*await asyncio.gather(*map(fill, servers))))
    # The last to publish may not know what the other has published; mq-mover makes the rest.
    make_room(servers[0])
    kept = await ready(servers[0])
    assert len(kept) == 20
    assert set(kept) <= set(ids)
    assert max(ids) in kept
    assert make_room(servers[0]) == 0
    assert_audits_clean(servers[0].root)


async def test_mover_makes_room_in_what_was_filled_before(server: Server) -> None:
    ids = [await publish(server) for _ in range(10)]
    for message_id in ids[:5]:
        assert (await call(server, "POST", f"/q/messages/{message_id}/sideline")).status == 200
    await limit(server, messages_max=2, overflow="sideline-oldest")
    await limit(server, "q_SIDELINE", messages_max=3, overflow="sideline-oldest")
    assert make_room(server) == 3 + 5
    await are_ready(server, ids[-2:])
    # A sideline has none: its own are removed.
    assert len(await ready(server, "q_SIDELINE")) == 3
    assert make_room(server) == 0
    assert_audits_clean(server.root)


async def test_a_rival_without_a_limit_pays_nothing(serve: Serve) -> None:
    class Counting(Files):
        listed = 0

        def entries(self, path: str) -> Any:
            type(self).listed += 1
            return super().entries(path)

    files = Counting()
    server = await serve(files=files)
    await make_queue(server)
    await publish(server)
    before = files.listed
    for _ in range(20):
        await publish(server)
    assert files.listed == before
    await limit(server, messages_max=100)
    await publish(server)
    assert files.listed > before


Publish = Callable[[Server, int], Awaitable[int]]


async def one(server: Server, number: int) -> int:
    query = ("", "?priority=7", "?delay=3600", f"?key=k{number}")[number % 4]
    return int((await post(server, query, b"x" * (number % 50))).status == 201)


async def lines(server: Server, number: int) -> int:
    reply = await post(server, f"?split=lines&priority={number % 10}", b"x\n" * (1 + number % 7))
    return sum("id" in json.loads(line) for line in reply.body.splitlines() if b'"id"' in line)


async def rows(server: Server, number: int) -> int:
    said = [{"body": "x", "delay_s": 60}, {"body": "x", "key": f"r{number}"}, {"body": "xx"}]
    body = "\n".join(map(json.dumps, said)).encode()
    reply = await post(server, "?split=rows", body)
    return sum("id" in json.loads(line) for line in reply.body.splitlines() if b'"id"' in line)


async def consume(server: Server, number: int) -> int:
    reply = await fetch(server)
    if reply.status == 200 and number % 2:
        assert (await delete(server, reply.id)).status == 202
    return 0


@pytest.mark.certificate
@pytest.mark.parametrize("overflow", ["refuse", *DROPPING])
@pytest.mark.parametrize("limits", [{"messages_max": 12}, {"bytes_max": 300},
                                    {"messages_max": 8, "bytes_max": 400}])  # fmt: skip
@pytest.mark.parametrize("processes", [1, 2])
async def test_whatever_comes_the_queue_keeps_its_limit(
    serve: Serve, overflow: str, limits: dict[str, int], processes: int
) -> None:
    """Nothing that was published is lost but by `overflow`; and in the end the limit holds."""
    clock = FakeClock()
    settings = {"folder_max": 3, "durability": "none", "force": True}
    servers = [await serve(clock=clock, **settings) for _ in range(processes)]
    await make_queue(servers[0])
    await limit(servers[0], overflow=overflow, **limits)
    published = 0
    for turn in range(12):
        acts = [
            act(server, turn * 3 + at)
            for at, act in enumerate((one, lines, rows, consume, one))
            for server in servers
        ]
        published += sum(await asyncio.gather(*acts))
        for server in servers:
            while background := server.daemon.service.broker.background:
                await asyncio.wait(background)
        clock.advance(1)
    make_room(servers[0])
    said = (await call(servers[0], "GET", "/q")).json()
    held = said["ready"] + said["delayed"] + said["in_flight"]
    if processes == 1 or overflow != "refuse":
        # What was fetched while the queue was counted is left out of that.
        assert held <= limits.get("messages_max", held) + 1 or said["ready"] <= 1
    root = servers[0].root
    top = root / "remove"
    removed = [path for path in top.rglob("*-*-*-*-*") if path.is_file()]
    aside = [path for path in (root / "queues").glob("q_SIDELINE/**/*-*-*-*-*") if path.is_file()]
    assert held + len(removed) + len(aside) == published
    if overflow == "refuse":
        assert not aside
    assert_audits_clean(root, clock)
