"""The setting `sideline_to`: a sideline that queues share, and the way back from there."""

import asyncio
import json
from typing import Any

import pytest
from harness.access import Tokens
from harness.api import Reply, assert_problem, call, delete, fetch, make_queue, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.server import Serve, Server
from harness.upkeep import expire_due, move_due
from harness.waiting import comes_true

from mq.model.limits import FORGOTTEN_AFTER_S
from mq.store.core.failures import FailureSweep
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.format.pipeline import LEDGER_KEPT_S
from mq.store.opening import open_root
from mq.store.shovel.crossing_files import sweep_crossings

SHARED = "failed_SIDELINE"


@pytest.fixture(params=[10_000, 1], ids=["flat", "in buckets"])
async def server(serve: Serve, clock: FakeClock, request: pytest.FixtureRequest) -> Server:
    """An mq with two queues that share a sideline, in the test's own time."""
    started = await serve(clock=clock, folder_max=request.param)
    for queue in ("a", "b"):
        await make_queue(started, queue)
        await configure(started, queue, sideline_to=SHARED)
    return started


async def configure(server: Server, queue: str, **settings: object) -> None:
    reply = await call(server, "PATCH", f"/{queue}/settings", json=settings)
    assert reply.status == 200, reply.body


async def sidelined(server: Server, queue: str, **more: Any) -> str:
    message_id = await publish(server, queue=queue, **more)
    reply = await sideline(server, queue, message_id)
    assert reply.json()["queue"] == SHARED
    assert reply.headers["Location"] == f"/{SHARED}/messages/{message_id}"
    return message_id


async def sideline(server: Server, queue: str, message_id: str, **more: Any) -> Reply:
    reply = await call(server, "POST", f"/{queue}/messages/{message_id}/sideline", **more)
    assert reply.status == 200, reply.body
    return reply


async def rows(server: Server, queue: str) -> dict[str, str | None]:
    """Why each message is there, by its id."""
    reply = await call(server, "GET", f"/{queue}/peek?count=1000")
    found = [json.loads(line) for line in reply.body.splitlines()]
    return {each["id"]: each.get("sidelined", {}).get("reason") for each in found}


async def shovel(server: Server, queue: str) -> dict[str, Any]:
    assert (await call(server, "POST", f"/{queue}/shovel")).status == 202

    async def over() -> dict[str, Any] | None:
        shown: dict[str, Any] = (await call(server, "GET", f"/{queue}/shovel")).json()
        return None if shown["state"] in ("running", "waiting") else shown

    return await comes_true(over, "the run's end")


@pytest.mark.certificate
async def test_each_queue_gets_its_own_back(server: Server) -> None:
    first, other = [await sidelined(server, queue) for queue in ("a", "b")]
    keyed = await sidelined(server, "a", params={"key": "k", "tag": "t"})
    itself = await publish(server, queue=SHARED)
    assert await rows(server, SHARED) == {
        first: "rejected", other: "rejected", keyed: "rejected", itself: None,
    }  # fmt: skip
    # It is asked for again, and by its tag it is found where it is.
    assert (await sideline(server, "a", first)).json()["queue"] == SHARED
    found = (await call(server, "GET", f"/{SHARED}/tags/t")).json()["messages"]
    assert [each["id"] for each in found] == [keyed]
    assert (await call(server, "GET", "/a/tags/t")).json()["messages"] == []
    run = await shovel(server, "a")
    assert (run["state"], run["moved"]) == ("done", 2)
    assert set(await rows(server, "a")) == {first, keyed}
    assert set(await rows(server, SHARED)) == {other, itself}
    found = (await call(server, "GET", "/a/tags/t")).json()["messages"]
    assert [each["id"] for each in found] == [keyed]
    assert (await call(server, "GET", "/a/keys/k")).status == 200
    assert (await shovel(server, "b"))["moved"] == 1
    assert_audits_clean(server.root)


@pytest.mark.certificate
async def test_the_queue_whose_sideline_it_is_gets_what_is_of_no_other(server: Server) -> None:
    await make_queue(server, "failed")
    own = await publish(server, queue="failed")
    await sideline(server, "failed", own)
    other = await sidelined(server, "a")
    itself = await publish(server, queue=SHARED)
    assert (await shovel(server, "failed"))["moved"] == 2
    assert set(await rows(server, "failed")) == {own, itself}
    assert set(await rows(server, SHARED)) == {other}
    assert_audits_clean(server.root)


@pytest.mark.certificate
async def test_every_way_to_a_sideline(server: Server, clock: FakeClock) -> None:
    await configure(server, "a", max_receives=1)
    tried = await publish(server, queue="a")
    assert (await fetch(server, "a")).id == tried
    clock.advance(60)
    await asyncio.to_thread(move_due, server.root, clock)
    expired = await publish(server, queue="a", params={"ttl": "5"})
    await configure(server, "a", expired_to="sideline")
    clock.advance(60)
    await asyncio.to_thread(expire_due, server.root, clock)
    old = await publish(server, queue="a")
    await configure(server, "a", messages_max=1, overflow="sideline-oldest")
    await publish(server, queue="a")
    many = await publish(server, queue="b")
    reply = await call(
        server, "POST", "/b/sidelines", json={"messages": [{"id": many, "reason": "exception"}]}
    )
    assert reply.json()["results"][0]["queue"] == SHARED
    tagged = await publish(server, queue="b", params={"tag": "t"})
    assert (await call(server, "POST", "/b/tags/t/sideline")).json()["done"] == 1
    wanted = {
        tried: "receives", expired: "expired", old: "overflow", many: "exception",
        tagged: "rejected",
    }  # fmt: skip

    async def there() -> bool:
        return await rows(server, SHARED) == wanted

    await comes_true(there, "all in the shared sideline")
    # A time to live of its own means nothing there.
    clock.advance(60)
    await asyncio.to_thread(expire_due, server.root, clock)
    assert await rows(server, SHARED) == wanted
    assert_audits_clean(server.root)


@pytest.mark.certificate
async def test_what_lies_elsewhere_comes_back_too(server: Server) -> None:
    before = await sidelined(server, "a")
    await configure(server, "a", sideline_to=None)
    own = await publish(server, queue="a")
    assert (await sideline(server, "a", own)).json()["queue"] == "a_SIDELINE"
    await configure(server, "a", sideline_to="other_SIDELINE")
    after = await publish(server, queue="a")
    await sideline(server, "a", after)
    assert (await shovel(server, "a"))["moved"] == 3
    assert set(await rows(server, "a")) == {before, own, after}
    assert_audits_clean(server.root)


@pytest.mark.certificate
async def test_a_shared_sideline_that_is_deleted_is_made_again(server: Server) -> None:
    await sidelined(server, "a")
    assert (await call(server, "DELETE", f"/{SHARED}")).status == 200
    again = await sidelined(server, "a")
    assert set(await rows(server, SHARED)) == {again}


@pytest.mark.certificate
async def test_where_it_came_from_outlives_its_failures_there(
    server: Server, clock: FakeClock
) -> None:
    message_id = await sidelined(server, "a")
    for number in range(6):
        assert (await fetch(server, SHARED)).id == message_id
        said = {"due_in_s": 0, "release": True, "reason": str(number)}
        assert (
            await call(server, "PATCH", f"/{SHARED}/messages/{message_id}", json=said)
        ).status == 200
    reply = await call(server, "GET", f"/{SHARED}/messages/{message_id}/failures")
    said = [(each["event"], each["queue"]) for each in reply.json()["failures"]]
    assert said == [("sidelined", "a"), *[("released", SHARED)] * 4]
    # The sweep knows where it may be.
    clock.advance(FORGOTTEN_AFTER_S + 3600)
    root = open_root(str(server.root), Files(), clock)
    sweep = FailureSweep(root)
    assert sum(sweep.sweep() for _ in range(256)) == 0
    assert (await shovel(server, "a"))["moved"] == 1
    assert sum(sweep.sweep() for _ in range(256)) == 0


@pytest.mark.certificate
async def test_a_reason_is_shown_where_there_is_one(server: Server) -> None:
    message_id = await publish(server, queue="a")
    await fetch(server, "a")
    said = {"due_in_s": 0, "release": True, "reason": "the printer is off"}
    await call(server, "PATCH", f"/a/messages/{message_id}", json=said)
    await sideline(server, "a", message_id)
    reply = await fetch(server, SHARED)
    assert reply.headers["X-Message-Reason"] == "the printer is off"
    other = await publish(server, queue="b")
    await sideline(server, "b", other, json={"reason": "no such customer"})
    assert (await fetch(server, SHARED)).headers["X-Message-Reason"] == "no such customer"


@pytest.mark.certificate
async def test_what_joins_a_deleted_queue_goes(server: Server, clock: FakeClock) -> None:
    message_id = await sidelined(server, "a")
    joint = server.root / "crossings" / f"a:{SHARED}"
    assert joint.read_bytes() == b""
    clock.advance(LEDGER_KEPT_S + 3600)
    root = open_root(str(server.root), Files(), clock)
    assert sweep_crossings(root, NoFlusher()) == 0
    await call(server, "DELETE", "/a")
    (server.root / "deleted" / "a").unlink()

    async def swept() -> bool:
        return await asyncio.to_thread(sweep_crossings, root, NoFlusher()) == 1

    await comes_true(swept, "a sweep that is alone with the queues")
    assert not joint.exists()
    await make_queue(server, "a")
    await configure(server, "a", sideline_to=SHARED)
    assert (await shovel(server, "a"))["moved"] == 0
    await sidelined(server, "a")
    assert joint.exists()
    assert (await shovel(server, "a"))["moved"] == 2
    assert message_id in await rows(server, "a")


async def test_a_queue_that_names_its_own_sideline(server: Server) -> None:
    await configure(server, "a", sideline_to="a_SIDELINE")
    message_id = await publish(server, queue="a")
    assert (await sideline(server, "a", message_id)).json()["queue"] == "a_SIDELINE"
    assert not (server.root / "crossings").exists()
    # In a sideline it means nothing: it has none of its own, and no message goes in circles.
    await configure(server, "a_SIDELINE", sideline_to=SHARED)
    reply = await call(server, "POST", f"/a_SIDELINE/messages/{message_id}/sideline")
    assert_problem(reply, 409, "already-sideline")
    assert await delete(server, message_id, "a_SIDELINE")


async def test_who_shares_a_sideline_may_publish_there(serve: Serve, tokens: Tokens) -> None:
    guarded = await serve(tokens=tokens.path)
    await call(guarded, "PUT", "/orders", headers=tokens.header("root"))
    for sideline_to, status in (("events_SIDELINE", 403), ("orders-2_SIDELINE", 200)):
        reply = await call(
            guarded,
            "PATCH",
            "/orders/settings",
            json={"sideline_to": sideline_to},
            headers=tokens.header("keeper"),
        )
        assert reply.status == status, reply.body
