"""`/{queue}/shovel`: what was sidelined goes back to its queue, once, when somebody asks."""

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from harness.api import assert_problem, call, fetch, id_at, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.internals import interested
from harness.logged import event
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.model.shovel import SHOVEL_AGAIN_S, SHOVEL_BATCH_MAX, SHOVEL_RUNS_MAX
from mq.store.disk.files import Files

SIDELINE = "q_SIDELINE"


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
async def server(serve: Serve, clock: FakeClock, request: pytest.FixtureRequest) -> Server:
    """An mq with a queue, in the test's own time; what a test does happens in buckets too."""
    started = await serve(clock=clock, folder_max=request.param)
    await make_queue(started)
    return started


async def sidelined(
    server: Server, queries: list[str], queue: str = "q", fetches: int = 0
) -> list[str]:
    """Publishes one with each query, and sidelines it; their ids."""
    ids = []
    for query in queries:
        ids.append(await publish_with(server, query, queue))
        for _ in range(fetches):
            assert (await fetch(server, queue)).id == ids[-1]
            await call(server, "PATCH", f"/{queue}/messages/{ids[-1]}", json={"due_in_s": 0})
        reply = await call(server, "POST", f"/{queue}/messages/{ids[-1]}/sideline")
        assert reply.status == 200, reply.body
    return ids


async def publish_with(server: Server, query: str, queue: str = "q") -> str:
    reply = await call(server, "POST", f"/{queue}/messages{query}", data=b"x")
    assert reply.status == 201, reply.body
    return reply.id


async def shovel(server: Server, query: str = "", queue: str = "q") -> str:
    """Begins a run; its id."""
    reply = await call(server, "POST", f"/{queue}/shovel{query}")
    assert reply.status == 202, reply.body
    assert reply.headers["Location"] == f"/{queue}/shovel"
    run_id: str = reply.json()["id"]
    return run_id


async def shown(server: Server, queue: str = "q") -> dict[str, Any]:
    reply = await call(server, "GET", f"/{queue}/shovel")
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json()
    return found


async def ended(server: Server, run_id: str, queue: str = "q") -> dict[str, Any]:
    """How the run came to its end."""

    async def found() -> dict[str, Any] | None:
        now = await shown(server, queue)
        assert now["id"] == run_id
        return None if now["state"] in ("running", "waiting") else now

    return await comes_true(found, "the run's end")


async def ids_in(server: Server, queue: str) -> list[str]:
    reply = await call(server, "GET", f"/{queue}/peek?count=1000")
    return [json.loads(line)["id"] for line in reply.body.splitlines()]


@pytest.mark.certificate
async def test_what_was_sidelined_comes_back_in_its_own_place(
    server: Server, root: Path, clock: FakeClock
) -> None:
    ids = await sidelined(server, [""] * 3, fetches=2)
    later = await publish(server)
    clock.advance(3)
    done = await ended(server, run_id := await shovel(server))
    assert done == {
        "id": run_id,
        "queue": "q",
        "state": "done",
        "by": "request",
        "dry_run": False,
        "criteria": {"max_receives": 20},
        "rate": None,
        "concurrency": 4,
        "began": done["began"],
        "ended": done["ended"],
        "looked_at": 3,
        "moved": 3,
        "stayed": {},
        "failed": 0,
        "error": None,
        "interval_s": None,
        "next": None,
    }
    assert done["began"] <= done["ended"]
    assert await ids_in(server, SIDELINE) == []
    for message_id in ids:
        again = await fetch(server)
        assert (again.id, again.headers["X-Message-Receives"]) == (message_id, "3")
    assert (await fetch(server)).id == later
    assert_audits_clean(root, clock)


@pytest.mark.certificate
async def test_who_waits_hears_of_it(server: Server) -> None:
    (message_id,) = await sidelined(server, [""])
    waiting = asyncio.create_task(call(server, "GET", "/q/messages?wait=30"))
    await comes_true(lambda: interested(server, "q"), "that it waits")
    await shovel(server)
    assert (await waiting).id == message_id


@pytest.mark.certificate
async def test_who_waits_at_another_process_hears_of_it(serve: Serve) -> None:
    server, other = await serve(), await serve()
    await make_queue(server)
    (message_id,) = await sidelined(server, [""])
    waiting = asyncio.create_task(call(other, "GET", "/q/messages?wait=30"))
    await comes_true(lambda: interested(other, "q"), "that it waits")
    await shovel(server)
    assert (await waiting).id == message_id


@pytest.mark.certificate
async def test_filters(server: Server, clock: FakeClock) -> None:
    queries = ["?key=eu-1", "?key=eu-2&priority=7", "?key=us-1&priority=7", "?priority=3", ""]
    eu_1, eu_2, us_1, three, plain = await sidelined(server, queries)
    clock.advance(60)
    (young,) = await sidelined(server, ["?priority=9"])
    for query, moved, stayed in (
        ("?key=eu-*&priority=5..", [eu_2], {"not-selected": 5}),
        ("?priority=9&older_than=30", [young], {"not-selected": 4, "too-young": 1}),
        ("?priority=3&older_than=30", [three], {"not-selected": 4}),
        ("?key=eu-1", [eu_1], {"not-selected": 3}),
        (f"?id={us_1}&id={young}&priority=..7", [us_1], {"not-selected": 2}),
        ("?older_than=60", [plain], {"too-young": 1}),
    ):
        is_there = "too-young" not in stayed or young not in moved
        done = await ended(server, await shovel(server, query))
        assert done["stayed"] == stayed, query
        expected = moved if is_there else []
        assert done["moved"] == len(expected), query
        found = await ids_in(server, "q")
        assert set(expected) <= set(found), query
    assert await ids_in(server, SIDELINE) == [young]
    criteria = (await shown(server))["criteria"]
    assert criteria == {"older_than_s": 60.0, "max_receives": 20}


@pytest.mark.certificate
async def test_what_was_received_too_often_stays(server: Server) -> None:
    (twice,) = await sidelined(server, [""], fetches=2)
    (once,) = await sidelined(server, [""], fetches=1)
    await call(server, "PATCH", "/q/settings", json={"shovel_max_receives": 2})
    done = await ended(server, await shovel(server))
    assert (done["moved"], done["stayed"]) == (1, {"receives": 1})
    assert await ids_in(server, SIDELINE) == [twice]
    done = await ended(server, await shovel(server, "?max_receives=0"))
    assert (done["moved"], done["criteria"]) == (1, {"max_receives": 0})
    assert set(await ids_in(server, "q")) == {once, twice}


@pytest.mark.certificate
async def test_poison_ends(server: Server) -> None:
    """What always fails goes round until it has been received so often, and then stays."""
    await call(server, "PATCH", "/q/settings", json={"shovel_max_receives": 3})
    poison, rounds = await publish(server), 0
    while (reply := await fetch(server)).status == 200:
        assert reply.id == poison
        await call(server, "POST", f"/q/messages/{poison}/sideline?reason=exception")
        await ended(server, await shovel(server))
        rounds += 1
    assert rounds == 3
    assert await ids_in(server, SIDELINE) == [poison]


@pytest.mark.certificate
async def test_a_key_that_is_taken_keeps_a_message(server: Server) -> None:
    (first,) = await sidelined(server, ["?key=k"])
    second = await publish_with(server, "?key=k")
    done = await ended(server, await shovel(server))
    assert (done["moved"], done["stayed"]) == (0, {"key-taken": 1})
    await call(server, "DELETE", f"/q/messages/{second}")
    assert (await ended(server, await shovel(server)))["moved"] == 1
    assert (await call(server, "GET", "/q/keys/k")).id == first


@pytest.mark.certificate
async def test_a_dry_run_counts_and_changes_nothing(server: Server, root: Path) -> None:
    ids = await sidelined(server, [""] * 3 + ["?priority=1"])
    folder = root / "queues" / SIDELINE

    def state() -> list[tuple[str, int]]:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return sorted((str(path), path.stat().st_mtime_ns) for path in paths)

    before = state()
    done = await ended(server, await shovel(server, "?dry_run=true&priority=0"))
    assert (done["dry_run"], done["moved"], done["stayed"]) == (True, 3, {"not-selected": 1})
    assert done["state"] == "done"
    assert state() == before
    assert (await fetch(server)).status == 204
    done = await ended(server, await shovel(server, "?dry_run=true&limit=2"))
    assert done["moved"] == 2
    assert (await ended(server, await shovel(server, "?dry_run=false")))["moved"] == len(ids)


@pytest.mark.certificate
@pytest.mark.parametrize("limit", [1, 5, SHOVEL_BATCH_MAX + 1])
async def test_a_limit_is_of_what_is_moved(server: Server, limit: int) -> None:
    many = await sidelined(server, ["?priority=5"] * 2 + [""] * (limit + 3))
    done = await ended(server, await shovel(server, f"?limit={limit}&priority=0"))
    assert done["moved"] == limit
    assert len(await ids_in(server, "q")) == limit
    assert len(await ids_in(server, SIDELINE)) == len(many) - limit


@pytest.mark.certificate
async def test_a_rate_is_kept(server: Server, clock: FakeClock) -> None:
    await sidelined(server, [""] * 6)
    run_id = await shovel(server, "?rate=2")

    async def moved(count: int) -> bool:
        return bool((await shown(server))["moved"] == count)

    # One at a time, each half a second after the last one, by the test's clock.
    for count in range(1, 6):
        await comes_true(lambda count=count: moved(count), f"{count} of them")  # type: ignore[misc]
        for _ in range(3):
            now = await shown(server)
            assert (now["state"], now["moved"], now["rate"]) == ("running", count, 2)
        clock.advance(0.5)
    assert (await ended(server, run_id))["moved"] == 6


@pytest.mark.certificate
async def test_its_progress_is_seen_and_it_is_stopped(
    serve: Serve, server: Server, clock: FakeClock
) -> None:
    ids = await sidelined(server, [""] * 4)
    other = await serve()
    run_id = await shovel(server, "?rate=1")

    async def both_know() -> bool:
        return all([(await shown(each))["id"] == run_id for each in (server, other)])

    await comes_true(both_know, "that both know of it")
    reply = await call(other, "POST", "/q/shovel")
    assert assert_problem(reply, 409, "shovel-running")["id"] == run_id
    reply = await call(other, "DELETE", "/q/shovel")
    assert reply.status in (200, 202)

    async def is_stopped() -> bool:
        return bool((await shown(other))["state"] == "stopped")

    await comes_true(is_stopped, "that it is stopped")
    now = await shown(server)
    assert (now["state"], now["id"]) == ("stopped", run_id)
    assert now["moved"] == len(await ids_in(server, "q")) < len(ids)
    # Once it is over, to stop it changes nothing.
    reply = await call(server, "DELETE", "/q/shovel")
    assert (reply.status, reply.json()) == (200, now)
    assert (await ended(other, await shovel(other), "q"))["moved"] == len(ids) - now["moved"]


async def test_the_process_asked_stops_its_own_at_once(server: Server) -> None:
    await sidelined(server, [""] * 4)
    run_id = await shovel(server, "?rate=1")
    reply = await call(server, "DELETE", "/q/shovel")
    assert (reply.status, reply.json()["state"], reply.json()["id"]) == (200, "stopped", run_id)


async def test_a_daemon_that_drains_stops_its_runs(serve: Serve, server: Server) -> None:
    await sidelined(server, [""] * 4)
    leaving, stays = await serve(), await serve()
    run_id = await shovel(leaving, "?rate=1")
    await leaving.daemon.drain()
    now = await shown(stays)
    assert (now["id"], now["state"]) == (run_id, "stopped")


@pytest.mark.certificate
async def test_what_it_is_not(server: Server, root: Path) -> None:
    for method in ("GET", "POST", "DELETE"):
        reply = await call(server, method, "/none/shovel")
        assert_problem(reply, 404, "queue-not-found")
    assert_problem(await call(server, "GET", "/q/shovel"), 404, "shovel-not-found")
    assert_problem(await call(server, "DELETE", "/q/shovel"), 404, "shovel-not-found")
    done = await ended(server, await shovel(server))
    assert (done["state"], done["looked_at"]) == ("done", 0)
    assert not (root / "queues" / SIDELINE).exists(), "it is made for a message alone"
    await sidelined(server, [""])
    reply = await call(server, "POST", f"/{SIDELINE}/shovel")
    assert_problem(reply, 409, "already-sideline")
    assert_problem(await call(server, "GET", f"/{SIDELINE}/shovel"), 404, "shovel-not-found")
    assert (await call(server, "PATCH", "/q/shovel")).status == 405


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        ("limit=0", "bad-limit"),
        ("rate=0", "bad-rate"),
        ("rate=many", "bad-rate"),
        ("older_than=-1", "bad-older-than"),
        ("key=", "bad-key"),
        ("key=a*b", "bad-key"),
        ("priority=high", "bad-priority"),
        ("priority=7..3", "bad-priority"),
        ("max_receives=1000", "bad-max-receives"),
        ("dry_run=maybe", "bad-dry-run"),
        ("id=nothing", "bad-id"),
        ("&".join(f"id={id_at(n=number)}" for number in range(101)), "bad-id"),
        ("reason=rejected", "unknown-parameter"),
    ],
)
async def test_malformed_values(server: Server, query: str, slug: str) -> None:
    reply = await call(server, "POST", f"/q/shovel?{query}")
    members = assert_problem(reply, 400, slug)
    assert members["parameter"] == query.partition("=")[0]
    assert_problem(await call(server, "GET", "/q/shovel"), 404, "shovel-not-found")


@pytest.mark.certificate
async def test_its_schedule_is_shown(server: Server, clock: FakeClock) -> None:
    await call(server, "PATCH", "/q/settings", json={"shovel_interval_s": 600})
    now = await shown(server)
    assert (now["queue"], now["state"], now["interval_s"]) == ("q", "scheduled", 600.0)
    assert now["next"]
    assert_problem(await call(server, "DELETE", "/q/shovel"), 404, "shovel-not-found")
    await ended(server, await shovel(server))
    now = await shown(server)
    assert (now["state"], now["interval_s"]) == ("done", 600.0)


@pytest.mark.certificate
async def test_so_many_at_a_time(server: Server) -> None:
    for index in range(SHOVEL_RUNS_MAX + 1):
        await make_queue(server, f"q{index}")
        await sidelined(server, [""] * 2, f"q{index}")
    for index in range(SHOVEL_RUNS_MAX):
        await shovel(server, "?rate=1", f"q{index}")
    reply = await call(server, "POST", f"/q{SHOVEL_RUNS_MAX}/shovel")
    assert assert_problem(reply, 503, "too-many-shovels")["shovels_max"] == SHOVEL_RUNS_MAX
    assert (await call(server, "DELETE", "/q0/shovel")).status == 200
    await ended(server, await shovel(server, "", f"q{SHOVEL_RUNS_MAX}"), f"q{SHOVEL_RUNS_MAX}")


async def test_many_at_once_begin_one(serve: Serve, server: Server) -> None:
    await sidelined(server, [""] * 2)
    other = await serve()
    replies = await asyncio.gather(
        *(call(each, "POST", "/q/shovel?rate=1") for each in (server, other) * 4)
    )
    assert sorted(reply.status for reply in replies) == [202] + [409] * 7


@pytest.mark.certificate
async def test_a_queue_that_is_deleted_ends_its_run(server: Server) -> None:
    """Also where one of its name is made at once: that has none of the old one's messages."""
    await sidelined(server, [""] * 4)
    await shovel(server, "?rate=1")
    assert (await call(server, "DELETE", "/q")).status == 200
    await make_queue(server)

    async def is_over() -> bool:
        return bool((await call(server, "GET", "/q/shovel")).json()["state"] == "failed")

    await comes_true(is_over, "its end")
    found = (await call(server, "GET", "/q/shovel")).json()
    assert (found["error"], found["moved"] <= 1) == ("queue-not-found", True)
    assert (await call(server, "GET", "/q/messages")).status == 204


class SlowFiles(Files):
    """A look that has found a run's turn taken waits, once, when it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.has_read, self.goes_on = threading.Event(), threading.Event()

    def lock(self, descriptor: int) -> bool:
        is_free = super().lock(descriptor)
        if self.is_armed and not is_free:
            self.is_armed = False
            self.has_read.set()
            assert self.goes_on.wait(30)
        return is_free


@pytest.mark.certificate
async def test_a_run_that_ends_during_a_look_is_shown_as_it_ended(
    serve: Serve, clock: FakeClock
) -> None:
    files = SlowFiles()
    server = await serve(files=files, clock=clock)
    await make_queue(server)
    await sidelined(server, [""] * 2)
    run_id = await shovel(server, "?rate=1")
    files.is_armed = True
    look = asyncio.create_task(shown(server))
    await asyncio.to_thread(files.has_read.wait, 30)

    async def is_over() -> bool:
        clock.advance(1)
        return bool((await shown(server))["state"] == "done")

    await comes_true(is_over, "its end")
    service = server.daemon.service
    assert service is not None
    await comes_true(lambda: not service.shovels.running, "it is gone")
    files.goes_on.set()
    found = await look
    assert (found["id"], found["state"], found["moved"]) == (run_id, "done", 2)


class FailingFiles(Files):
    """Renames out of a sideline fail, where they are told to."""

    error: OSError | None = None

    def rename(self, source: str, target: str) -> None:
        if f"{SIDELINE}/" in source and self.error is not None:
            raise self.error
        super().rename(source, target)


@pytest.mark.certificate
async def test_after_an_error_it_waits_and_goes_on(
    serve: Serve, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    files = FailingFiles()
    server = await serve(files=files, clock=clock)
    await make_queue(server)
    ids = await sidelined(server, [""] * 3)
    files.error = OSError(5, os.strerror(5))
    run_id = await shovel(server)

    async def waits() -> bool:
        return bool((await shown(server))["state"] == "waiting")

    await comes_true(waits, "that it waits")
    assert (await shown(server))["error"] == "storage-failed"
    [told] = [vars(each)["fields"] for each in caplog.records if event(each) == "a shovel waits"]
    assert (told["state"], told["dry_run"]) == ("waiting", False)
    assert os.strerror(5) in told["cause"]
    files.error = None
    clock.advance(SHOVEL_AGAIN_S)
    done = await ended(server, run_id)
    assert (done["state"], done["moved"], done["failed"]) == ("done", 3, 3)
    assert await ids_in(server, "q") == ids
    files.error = OSError(28, os.strerror(28))
    (message_id,) = await sidelined_in_spite_of(files, server)
    run_id = await shovel(server)
    await comes_true(waits, "that it waits")
    clock.advance(SHOVEL_AGAIN_S)
    failed = await ended(server, run_id)
    assert (failed["state"], failed["error"], failed["moved"]) == ("failed", "no-space", 0)
    assert await ids_in(server, SIDELINE) == [message_id]


async def sidelined_in_spite_of(files: FailingFiles, server: Server) -> list[str]:
    error, files.error = files.error, None
    ids = await sidelined(server, [""])
    files.error = error
    return ids
