"""`/-/trends`: what was recorded, for the callers who may see it."""

from typing import Any

import pytest
from harness.api import assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.server import Serve, Server

from mq.metrics.survey import Survey
from mq.metrics.trends import COUNTING_S, Recorder
from mq.model.clock import rfc3339
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.store.scan.census import Census
from mq.store.totals.ledger import Ledger
from mq.store.totals.writing import write_totals


def sample(server: Server, recorder: Recorder) -> None:
    """What a process does a minute."""
    assert server.daemon.service is not None
    write_totals(server.daemon.service.broker.root)
    while recorder.step() == 0:
        pass


async def read(server: Server, query: str = "", **more: Any) -> Any:
    reply = await call(server, "GET", f"/-/trends{query}", **more)
    assert (reply.status, reply.headers["Cache-Control"]) == (200, "no-store")
    return reply.json()


async def test_the_load_is_served_by_range_and_queue(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server, "orders")
    await make_queue(server, "other")
    nothing = {"range": "hour", "step_s": 60, "queue": None, "points": [], "last": None}
    assert await read(server) == nothing
    root = open_root(str(server.root), Files(), clock)
    # No cache: the clock is ahead of the times of folders.
    recorder = Recorder(root, Survey(Census(root, entries_max=0), Ledger(root), 99, COUNTING_S))
    clock.reach((clock.now_ms() // 900_000 + 1) * 900_000)
    began_ms = clock.now_ms()
    sample(server, recorder)
    ids = [await publish(server, queue="orders") for _ in range(3)]
    await publish(server, queue="other")
    await fetch(server, "orders")
    await delete(server, ids[1], "orders")
    await call(server, "POST", f"/orders/messages/{ids[2]}/sideline")
    for _ in range(11):
        clock.advance(5)
        recorder.step()
    clock.advance(5)
    sample(server, recorder)
    levels = {"ready": 1, "delayed": 0, "in_flight": 1, "sidelined": 1, "oldest_ready_age_s": 60}
    whole = await read(server)
    last = whole["points"][-1]
    sampled = {"time": rfc3339(began_ms + 60_000), "queues": 3, "uncounted": 0}
    assert whole["last"] == sampled | levels
    counts = {"published": 4, "fetched": 1, "deleted": 1}
    assert last == {"time": rfc3339(began_ms), "seconds": 60} | counts | levels
    for range_, step_s in (("hour", 60), ("day", 900), ("week", 3600)):
        of_queue = await read(server, f"?range={range_}&queue=orders")
        assert (of_queue["range"], of_queue["step_s"]) == (range_, step_s)
        assert of_queue["queue"] == "orders"
        assert "last" not in of_queue
        assert of_queue["points"][-1]["published"] == 3
        assert of_queue["points"][-1]["sidelined"] == 1
    assert_problem(await call(server, "GET", "/-/trends?queue=none"), 404, "queue-not-found")
    recorder.end()
    assert_audits_clean(server.root)


@pytest.mark.parametrize("name", ["everybody", "publisher", "stranger"])
async def test_a_caller_sees_the_trends_of_its_queues(serve: Serve, tokens: Any, name: str) -> None:
    server = await serve(tokens=tokens.path)
    for queue in ("orders", "payments"):
        await call(server, "PUT", f"/{queue}", headers=tokens.header("root"))
    root = open_root(str(server.root), Files(), FakeClock())
    # No cache: the clock is ahead of the times of folders.
    recorder = Recorder(root, Survey(Census(root, entries_max=0), Ledger(root), 99, COUNTING_S))
    sample(server, recorder)
    recorder.end()
    seen = await read(server, headers=tokens.header(name))
    assert (seen["last"] is not None, bool(seen["points"])) == (name == "everybody",) * 2
    for queue in ("orders", "payments"):
        reply = await call(server, "GET", f"/-/trends?queue={queue}", headers=tokens.header(name))
        may = name == "everybody" or (name, queue) == ("publisher", "orders")
        assert reply.status == (200 if may else 403), queue
