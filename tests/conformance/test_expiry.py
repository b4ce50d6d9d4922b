"""`message_ttl_s`, `expires_at`, `expiry_grace_s`: what has lived long enough is not given out."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from harness.api import (
    Reply,
    assert_problem,
    call,
    delete,
    fetch,
    make_queue,
    post,
    publish,
    publish_lines,
    totals,
)
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.internals import interested
from harness.server import Serve, Server
from harness.upkeep import expire_due, move_due
from harness.waiting import comes_true

from mq.broker.ready import BACKLOG_IDS_MAX
from mq.model.clock import SystemClock, rfc3339
from mq.store.core.facts import SETTINGS_AGE_S

MERGE_PATCH = "application/merge-patch+json"
TTL_S = 60


async def configure(server: Server, queue: str = "q", **fields: Any) -> Reply:
    reply = await call(
        server,
        "PATCH",
        f"/{queue}/settings",
        data=json.dumps(fields).encode(),
        headers={"Content-Type": MERGE_PATCH},
    )
    assert reply.status == 200, reply.body
    return reply


async def patch(server: Server, message_id: str, due_in_s: float) -> Reply:
    body = json.dumps({"due_in_s": due_in_s}).encode()
    headers = {"Content-Type": "application/json"}
    return await call(server, "PATCH", f"/q/messages/{message_id}", data=body, headers=headers)


@pytest.fixture
async def aged(serve: Serve, clock: FakeClock) -> Server:
    """An mq whose clock the test moves, with a queue whose messages live for a minute."""
    server = await serve(clock=clock, inotify=False)
    await make_queue(server)
    await configure(server, message_ttl_s=TTL_S)
    return server


# Messages


async def test_what_has_expired_is_not_given_out(aged: Server, clock: FakeClock) -> None:
    await publish(aged)
    clock.advance(TTL_S - 1)
    young = await publish(aged)
    clock.advance(1)
    assert (await fetch(aged)).id == young
    assert (await fetch(aged)).status == 204


async def test_until_then_it_is(aged: Server, clock: FakeClock) -> None:
    message_id = await publish(aged)
    clock.advance(TTL_S - 0.001)
    assert (await fetch(aged)).id == message_id


async def test_what_expires_between_a_look_and_its_fetch_is_not_given_out(
    aged: Server, clock: FakeClock
) -> None:
    old = [await publish(aged) for _ in range(3)]
    assert (await fetch(aged)).id == old[0]  # The others are known from here on.
    clock.advance(TTL_S)
    assert (await fetch(aged)).status == 204
    assert (await totals(aged))["expired"] == 2
    young = await publish(aged)
    assert (await fetch(aged)).id == young


@pytest.mark.certificate
async def test_however_many_have_expired_what_is_behind_them_is_the_next(
    aged: Server, clock: FakeClock
) -> None:
    for _ in range(2):
        await publish_lines(aged, [b"old"] * (BACKLOG_IDS_MAX // 2 + 500))
    first = await fetch(aged)
    assert first.body == b"old"
    clock.advance(TTL_S + 1)  # So many ids of one moment are ahead of the clock.
    young = await publish(aged)
    assert (await fetch(aged)).id == young
    assert (await totals(aged))["lost_races"] == 0
    assert (await fetch(aged)).status == 204


OWN_S = 20
WAYS: dict[str, Callable[[Server, str], Awaitable[Reply]]] = {
    "held": lambda server, query: call(server, "POST", f"/q/messages?{query}", data=b"x"),
    "streamed": lambda server, query: call(
        server, "POST", f"/q/messages?{query}", data=b"x" * (2 << 20)
    ),
    "keyed": lambda server, query: call(server, "POST", f"/q/messages?{query}&key=k", data=b"x"),
    "lines": lambda server, query: call(
        server, "POST", f"/q/messages?{query}&split=lines", data=b"x\ny"
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("queue_s", "own_s", "ends_s"), [(0, OWN_S, OWN_S), (60, OWN_S, OWN_S), (60, 600, 60)]
)
async def test_the_sooner_end_of_the_queue_s_and_its_own_counts(
    aged: Server, clock: FakeClock, way: str, queue_s: int, own_s: int, ends_s: int
) -> None:
    await configure(aged, message_ttl_s=queue_s)
    for _ in range(2):
        assert (await WAYS[way](aged, f"ttl={own_s}")).status in (200, 201)
        if way == "keyed":
            break
    clock.advance(ends_s - 0.5)
    lives = await fetch(aged)
    assert f",e={own_s}" in lives.id
    assert (await patch(aged, lives.id, 0)).status == 200
    clock.advance(0.6)
    assert (await fetch(aged)).status == 204
    for _ in range(3):
        expire_due(aged.root, clock)
    assert (await call(aged, "GET", f"/q/messages/{lives.id}")).status in (200, 404)
    assert (await call(aged, "GET", "/q")).json()["ready"] == 0
    if own_s == ends_s:
        assert not [*(aged.root / "expiring" / "q").rglob("*,e=*")]
    assert_audits_clean(aged.root, clock)


@pytest.mark.certificate
@pytest.mark.parametrize("select", ["", "&select=priority:3.."])
async def test_living_messages_do_not_wait_behind_those_that_have_outlived_their_own(
    aged: Server, clock: FakeClock, select: str
) -> None:
    await configure(aged, message_ttl_s=0)
    for _ in range(2):
        body = b"old\n" * (BACKLOG_IDS_MAX // 2 + 500)
        path = f"/q/messages?split=lines&ttl={OWN_S}&priority=3"
        assert (await call(aged, "POST", path, data=body)).status == 200
    assert (await fetch(aged)).body == b"old"
    clock.advance(OWN_S + 2)
    young = (await call(aged, "POST", "/q/messages?ttl=60&priority=3", data=b"young")).id
    assert (await call(aged, "GET", f"/q/messages?wait=0{select}")).id == young
    assert (await fetch(aged)).status == 204
    assert (await totals(aged))["lost_races"] == 0


async def test_a_message_that_was_fetched_does_not_come_back_past_its_own_end(
    aged: Server, clock: FakeClock
) -> None:
    await configure(aged, message_ttl_s=0, visibility_s=30, expired_to="sideline")
    message_id = (await call(aged, "POST", f"/q/messages?ttl={OWN_S}", data=b"x")).id
    assert (await fetch(aged)).id == message_id
    clock.advance(31)
    await call(aged, "PUT", "/q_SIDELINE")
    move_due(aged.root, clock)
    reply = await fetch(aged, "q_SIDELINE")  # There its own end does not count.
    assert (reply.id, reply.headers["X-Message-Sidelined"]) == (message_id, "expired")
    assert_audits_clean(aged.root, clock)


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "x", "", str(366 * 24 * 3600 + 1)])
async def test_a_ttl_that_is_none(aged: Server, wrong: str) -> None:
    reply = await call(aged, "POST", f"/q/messages?ttl={wrong}", data=b"x")
    assert_problem(reply, 400, "bad-ttl")


@pytest.mark.parametrize("urgent", ["old", "young"])
async def test_of_each_priority_the_old_ones_are_left_out(
    aged: Server, clock: FakeClock, urgent: str
) -> None:
    for age in ("old", "young"):
        query = "?priority=5" if age == urgent else ""
        reply = await call(aged, "POST", f"/q/messages{query}", data=age.encode())
        assert reply.status == 201
        clock.advance(TTL_S / 2)
    assert (await fetch(aged)).body == b"young"
    assert (await fetch(aged)).status == 204


async def test_a_batch_leaves_them_out(aged: Server, clock: FakeClock) -> None:
    await publish_lines(aged, [b"old"] * 10)
    clock.advance(TTL_S)
    await publish_lines(aged, [b"young"] * 3)
    reply = await call(aged, "GET", "/q/messages?count=20")
    assert [json.loads(line)["body"] for line in reply.body.splitlines()] == ["young"] * 3


async def test_a_selection_leaves_them_out(aged: Server, clock: FakeClock) -> None:
    await call(aged, "POST", "/q/messages?key=a", data=b"old")
    clock.advance(TTL_S)
    await call(aged, "POST", "/q/messages?key=b", data=b"young")
    select = "/q/messages?select=priority:0"
    assert (await call(aged, "GET", select)).body == b"young"
    assert (await call(aged, "GET", select)).status == 204


async def test_settings_that_have_messages_live_longer_bring_them_back(
    aged: Server, clock: FakeClock
) -> None:
    message_id = await publish(aged)
    clock.advance(TTL_S)
    assert (await fetch(aged)).status == 204
    clock.advance(10)  # The folder's mtime is believed by now.
    assert (await fetch(aged)).status == 204
    await configure(aged, message_ttl_s=None)
    assert (await fetch(aged)).id == message_id


async def test_what_was_received_is_its_consumer_s_and_a_release_does_not_serve_it_again(
    aged: Server, clock: FakeClock
) -> None:
    kept, released = [await publish(aged) for _ in range(2)]
    assert [(await fetch(aged)).id for _ in range(2)] == [kept, released]
    clock.advance(TTL_S)
    assert (await patch(aged, kept, 60)).status == 200
    assert (await patch(aged, released, 0)).status == 200
    assert (await fetch(aged)).status == 204
    assert (await delete(aged, kept)).status == 202


async def test_until_it_is_taken_away_it_is_read_and_deleted(
    aged: Server, clock: FakeClock, root: Path
) -> None:
    message_id = await publish(aged)
    clock.advance(TTL_S)
    reply = await call(aged, "GET", f"/q/messages/{message_id}")
    assert (reply.status, reply.headers["X-Message-State"]) == (200, "ready")
    assert len((await call(aged, "GET", "/q/peek")).body.splitlines()) == 1
    assert (await call(aged, "GET", "/q")).json()["ready"] == 1
    assert (await delete(aged, message_id)).status == 202
    assert_audits_clean(root, clock)


async def test_a_poll_that_waits_is_not_given_what_has_expired(
    aged: Server, clock: FakeClock
) -> None:
    message_id = await publish(aged)
    assert (await fetch(aged)).id == message_id
    clock.advance(TTL_S)
    waiting = asyncio.create_task(call(aged, "GET", "/q/messages?wait=60"))
    await comes_true(lambda: interested(aged, "q") > 0, "waits")
    assert (await patch(aged, message_id, 0)).status == 200
    young = await publish(aged)
    assert (await waiting).id == young


# Queues


async def expire(server: Server, at_ms: int | None = None) -> str:
    """Has the queue's time be over; since when."""
    at = rfc3339(SystemClock().now_ms() if at_ms is None else at_ms)
    await configure(server, expires_at=at)
    return at


Asks = Callable[[Server], Awaitable[Reply]]
REFUSED: dict[str, Asks] = {
    "publish": post,
    "publish-plain-form": lambda server: call(
        server, "POST", "/q/messages", data=b"x", headers={"X-Other": "1"}
    ),
    "publish-later": lambda server: call(server, "POST", "/q/messages?delay=5", data=b"x"),
    "publish-keyed": lambda server: call(server, "POST", "/q/messages?key=k", data=b"x"),
    "publish-lines": lambda server: call(server, "POST", "/q/messages?split=lines", data=b"x\ny\n"),
    "publish-large": lambda server: call(server, "POST", "/q/messages", data=b"x" * (2 << 20)),
    "fetch": fetch,
    "fetch-batch": lambda server: call(server, "GET", "/q/messages?count=3"),
    "fetch-waiting": lambda server: call(server, "GET", "/q/messages?wait=20"),
    "fetch-batch-waiting": lambda server: call(server, "GET", "/q/messages?wait=20&count=2"),
    "make": lambda server: call(server, "PUT", "/q"),
}


@pytest.mark.parametrize("ask", REFUSED.values(), ids=REFUSED.keys())
async def test_an_expired_queue_takes_and_gives_nothing(server: Server, ask: Asks) -> None:
    await make_queue(server)
    await publish(server)
    at = await expire(server)
    problem = assert_problem(await ask(server), 410, "queue-expired")
    assert (problem["queue"], problem["expired_at"], problem["retryable"]) == ("q", at, False)
    await configure(server, expires_at=None)
    assert (await ask(server)).status in (200, 201)


@pytest.mark.certificate
async def test_the_rest_works_on_an_expired_queue(server: Server) -> None:
    await make_queue(server)
    fetched, ready, other = [await publish(server) for _ in range(3)]
    assert (await fetch(server)).id == fetched
    await expire(server)
    assert (await call(server, "GET", f"/q/messages/{ready}")).status == 200
    assert (await call(server, "GET", "/q/peek")).status == 200
    described = (await call(server, "GET", "/q")).json()
    assert (described["expired"], described["ready"]) == (True, 2)
    assert (await patch(server, fetched, 60)).status == 200
    assert (await delete(server, fetched)).status == 202
    assert (await call(server, "POST", f"/q/messages/{other}/sideline")).status == 200
    acks = json.dumps({"ids": [ready]}).encode()
    headers = {"Content-Type": "application/json"}
    assert (await call(server, "POST", "/q/acks", data=acks, headers=headers)).status == 200
    assert (await call(server, "DELETE", "/q/messages")).status == 202
    assert (await call(server, "GET", "/q/settings")).status == 200
    assert (await call(server, "DELETE", "/q")).status == 200


async def test_a_later_time_brings_it_back(serve: Serve, clock: FakeClock) -> None:
    server = await serve(clock=clock)
    await make_queue(server)
    message_id = await publish(server)
    await configure(server, expires_at=rfc3339(clock.now_ms() + 1000))
    assert not (await call(server, "GET", "/q")).json()["expired"]
    assert (await fetch(server)).id == message_id
    clock.advance(1)
    assert_problem(await post(server), 410, "queue-expired")
    await configure(server, expires_at=rfc3339(clock.now_ms() + 1000))
    await publish(server)
    clock.advance(1)
    assert_problem(await post(server), 410, "queue-expired")


@pytest.mark.certificate
@pytest.mark.parametrize("wait", ["?wait=60", "?wait=60&count=2"])
async def test_who_waits_hears_when_the_time_comes(
    serve: Serve, clock: FakeClock, wait: str
) -> None:
    server = await serve(clock=clock)
    await make_queue(server)
    await configure(server, expires_at=rfc3339(clock.now_ms() + 10_000))
    waiting = asyncio.create_task(call(server, "GET", f"/q/messages{wait}"))
    await comes_true(lambda: interested(server, "q") > 0, "waits")
    clock.advance(10)
    assert_problem(await waiting, 410, "queue-expired")


@pytest.mark.certificate
async def test_a_subscription_ends_when_the_time_comes(serve: Serve, clock: FakeClock) -> None:
    server = await serve(clock=clock)
    await make_queue(server)
    message_id = await publish(server)
    await configure(server, expires_at=rfc3339(clock.now_ms() + 10_000))
    async with consuming(server, "q") as consumer:
        assert (await consumer.message()).id == message_id
        clock.advance(10)
        event = await consumer.event()
        assert (event["event"], event["queue"]) == ("unsubscribed", "q")
        assert event["problem"]["type"] == "urn:mq:problem:queue-expired"
        assert await consumer.statuses(ack=[message_id]) == [202]
        answer = await consumer.results(subscribe=[{"queue": "q", "credit": 1}])
        assert answer[0]["status"] == 410


@pytest.mark.certificate
async def test_who_waits_hears_of_what_another_process_has_set(serve: Serve) -> None:
    waited, other = await serve(), await serve()
    await make_queue(waited)
    waiting = asyncio.create_task(call(waited, "GET", "/q/messages?wait=60"))
    await comes_true(lambda: interested(waited, "q") > 0, "waits")
    await expire(other)
    assert_problem(await waiting, 410, "queue-expired")
    assert_problem(await post(waited), 410, "queue-expired")


async def test_another_process_follows_within_the_settings_age(
    serve: Serve, clock: FakeClock
) -> None:
    one, two = await serve(clock=clock), await serve(clock=clock)
    await make_queue(one)
    await publish(two)
    await expire(one, clock.now_ms())
    clock.advance(SETTINGS_AGE_S)
    assert_problem(await post(two), 410, "queue-expired")


async def test_each_line_of_a_batch_has_one_answer_for_all(server: Server) -> None:
    """Not two hundred with a problem a line, which nobody reads."""
    await make_queue(server)
    await expire(server)
    reply = await call(server, "POST", "/q/messages?split=lines", data=b"1\n2\n3\n")
    assert_problem(reply, 410, "queue-expired")


# A clock that was set


async def test_a_clock_that_is_set_ahead_keeps_nothing_back(aged: Server, clock: FakeClock) -> None:
    """The time to live counts time that has passed."""
    first, second = [await publish(aged) for _ in range(2)]
    clock.set_ms(clock.now_ms() + 3_600_000)
    assert (await fetch(aged)).id == first
    clock.advance(TTL_S - 1)
    assert (await fetch(aged)).id == second
    third = await publish(aged)
    clock.advance(1)
    assert (await fetch(aged)).id == third
    assert (await call(aged, "GET", "/-/readyz")).json()["clock_set_s"] == 3600


@pytest.mark.certificate
async def test_a_clock_that_is_set_is_told_of(
    aged: Server, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.set_ms(clock.now_ms() - 60_000)
    await comes_true(lambda: "the clock was set" in caplog.text)
    assert (await call(aged, "GET", "/-/readyz")).json()["clock_set_s"] == -60
    metrics = (await call(aged, "GET", "/-/metrics")).body.decode()
    assert "\nmq_clock_steps_total 1" in metrics
