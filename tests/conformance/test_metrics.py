"""`/-/metrics`: what an mq says of itself to Prometheus, and that it is true."""

import asyncio
import errno
from pathlib import Path

import pytest
from harness.api import assert_works, call, delete, fetch, make_queue, publish
from harness.clock import FakeClock
from harness.consuming import consuming
from harness.faults import FaultyFiles
from harness.processes import Processes
from harness.scraped import OPENMETRICS, Scraped, scrape, scrape_url
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq.http.metering import PLAN
from mq.metrics.survey import OTHERS
from mq.protocol.endpoints import ENDPOINTS


def requests(found: Scraped, operation: str, outcome: str = "2xx") -> float:
    return found("mq_request_seconds_count", operation=operation, outcome=outcome)


async def test_every_operation_of_the_routes_is_one(server: Server) -> None:
    assert len(PLAN.operations) == len(set(PLAN.operations)) > len(ENDPOINTS)


async def test_requests_are_counted_by_what_they_do_and_how_they_end(server: Server) -> None:
    await make_queue(server)
    for _ in range(3):
        await publish(server)
    message = await fetch(server)
    await delete(server, message.id)
    await delete(server, message.id)
    await call(server, "GET", "/missing/messages")
    await call(server, "GET", "/q?what=1")
    await call(server, "PATCH", "/q/messages")
    await call(server, "GET", "/-/nothing")
    found = await scrape(server)
    assert requests(found, "create_queue") == 1
    assert requests(found, "publish") == 3
    assert requests(found, "fetch") == 1
    assert requests(found, "fetch", "4xx") == 1
    assert requests(found, "delete_message") == 2
    assert requests(found, "describe_queue", "4xx") == 1
    assert requests(found, "unknown", "4xx") == 2
    assert found.sum("mq_request_seconds_count") == 11


async def test_the_long_way_counts_as_the_direct_one_does(server: Server) -> None:
    await make_queue(server)
    # A header that the direct way does not know.
    more = {"headers": {"X-Attribute-Way": "long"}}
    await publish(server, **more)
    await publish(server)
    await fetch(server, **more)
    await fetch(server)
    found = await scrape(server)
    assert requests(found, "publish") == requests(found, "fetch") == 2


async def test_a_wait_is_no_slow_fetch(server: Server) -> None:
    await make_queue(server)
    for more in ({}, {"headers": {"X-Attribute-Way": "long"}}):
        await call(server, "GET", "/q/messages?wait=0.01", **more)
    found = await scrape(server)
    assert (requests(found, "fetch"), requests(found, "fetch_waiting")) == (0, 2)


async def test_how_long_a_request_took_is_what_the_clock_says(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    waiting = asyncio.create_task(call(server, "GET", "/q/messages?wait=20"))

    async def waits() -> bool:
        return (await scrape(server))("mq_consumers") == 1

    await comes_true(waits)
    clock.advance(7)
    await publish(server)
    assert (await waiting).status == 200
    found = await scrape(server)
    labels = {"operation": "fetch_waiting", "outcome": "2xx"}
    assert found("mq_request_seconds_sum", **labels) == pytest.approx(7)
    assert found("mq_request_seconds_bucket", **labels, le="5.0") == 0
    assert found("mq_request_seconds_bucket", **labels, le="10.0") == 1


async def test_who_hangs_up_is_counted_as_gone(server: Server) -> None:
    await make_queue(server)
    for more in ({}, {"headers": {"X-Attribute-Way": "long"}}):
        waiting = asyncio.create_task(call(server, "GET", "/q/messages?wait=20", **more))
        await comes_true(lambda: _consumers(server, 1))
        waiting.cancel()
        await comes_true(lambda: _consumers(server, 0))
    await comes_true(lambda: _gone(server, 2))


async def _consumers(server: Server, count: int) -> bool:
    return (await scrape(server))("mq_consumers") == count


async def _gone(server: Server, count: int) -> bool:
    return requests(await scrape(server), "fetch_waiting", "gone") == count


async def test_a_websocket_counts_what_it_delivers_and_settles(server: Server) -> None:
    await make_queue(server)
    for _ in range(2):
        await publish(server)
    async with consuming(server) as consumer:
        await consumer.subscribe("q", credit=2)
        first, second = [(await consumer.message()).id for _ in range(2)]
        assert (await scrape(server))("mq_websockets") == 1
        assert await consumer.statuses(ack=[first]) == [202]
        assert await consumer.statuses(release=[second, "nothing"]) == [200, 404]
    found = await scrape(server)
    assert requests(found, "consume_deliver") == 2
    assert requests(found, "consume_ack") == requests(found, "consume_release") == 1
    assert requests(found, "consume_release", "4xx") == 1
    await comes_true(lambda: _has_left(server))


async def _has_left(server: Server) -> bool:
    found = await scrape(server)
    return found("mq_websockets") == 0 and requests(found, "consume", "1xx") == 1


async def test_messages_are_counted_also_those_of_queues_that_are_gone(server: Server) -> None:
    for name in ("q", "r"):
        await make_queue(server, name)
        await assert_works(server, name)
    await call(server, "DELETE", "/q")
    found = await scrape(server)
    for event in ("published", "fetched", "deleted"):
        assert found("mq_messages_total", event=event) == 2
    assert found("mq_messages_total", event="redelivered") == 0
    assert found("mq_lost_races_total") == 0


async def test_a_fetch_again_is_a_redelivery(server: Server) -> None:
    await make_queue(server)
    await publish(server)
    message = await fetch(server)
    await call(server, "PATCH", f"/q/messages/{message.id}", json={"due_in_s": 0})
    await fetch(server)
    found = await scrape(server)
    assert found("mq_messages_total", event="fetched") == 2
    assert found("mq_messages_total", event="redelivered") == 1
    assert found("mq_messages_total", event="released") == 1


async def test_flushes_and_groups_are_measured(server: Server) -> None:
    await make_queue(server)
    before = await scrape(server)
    await asyncio.gather(*(publish(server) for _ in range(8)))
    after = await scrape(server)
    groups = after("mq_commit_operations_count") - before("mq_commit_operations_count")
    assert 1 <= groups <= 16
    assert after("mq_commit_operations_sum") > before("mq_commit_operations_sum")
    assert after("mq_commit_seconds_count") == after("mq_commit_operations_count")
    assert after.sum("mq_flush_seconds_count") > before.sum("mq_flush_seconds_count")
    assert {"file", "folder"} <= after.labels("mq_flush_seconds_count", "kind")
    # Also of what never was, so that the first failure is one more.
    assert before.labels("mq_flush_seconds_count", "result") == {"ok", "failed"}


async def test_without_timings_what_is_known_anyway_is_shown(serve: Serve) -> None:
    server = await serve(timings=False)
    await make_queue(server)
    await assert_works(server)
    found = await scrape(server)
    assert found.sum("mq_request_seconds_count") == 0
    assert found.sum("mq_flush_seconds_count") == 0
    assert found("mq_commit_seconds_count") == 0
    assert found("mq_messages_total", event="published") == 1
    assert found("mq_queue_ready", queue="q") == 0
    assert found("mq_queue_removed", queue="q") == 1


async def test_queues_are_counted(serve: Serve) -> None:
    clock = FakeClock()
    server = await serve(clock=clock)
    await make_queue(server)
    for _ in range(3):
        await publish(server)
    await fetch(server)
    await publish(server, headers={}, queue="q")
    await call(server, "POST", "/q/messages?delay=600", data=b"later")
    taken = await fetch(server)
    await call(server, "POST", f"/q/messages/{taken.id}/sideline")
    clock.advance(10)
    found = await scrape(server)
    counts = {
        figure: found(f"mq_queue_{figure}", queue="q")
        for figure in ("ready", "delayed", "in_flight", "sidelined", "removed", "overdue")
    }
    assert counts == {
        "ready": 2, "delayed": 1, "in_flight": 1, "sidelined": 1, "removed": 0, "overdue": 0,
    }  # fmt: skip
    assert found("mq_queue_oldest_ready_seconds", queue="q") == pytest.approx(10, abs=2)
    assert found("mq_queues") == 2
    assert found.labels("mq_queue_ready", "queue") == {"q", "q_SIDELINE"}


# In one folder, and each in one of its own.
@pytest.mark.parametrize("folder_max", [10_000, 1])
async def test_what_no_mover_brings_back_shows_for_how_long(serve: Serve, folder_max: int) -> None:
    clock = FakeClock()
    server = await serve(clock=clock, folder_max=folder_max)
    await make_queue(server)
    for visibility_s in (15, 5, 25):
        await publish(server)
        await call(server, "GET", f"/q/messages?visibility={visibility_s}")
    clock.advance(65)
    found = await scrape(server)
    assert found("mq_queue_overdue", queue="q") == 3
    assert found("mq_queue_oldest_overdue_seconds", queue="q") == pytest.approx(60, abs=2)
    assert found("mq_movers") == 0


@pytest.mark.parametrize("named", [0, 2, 4])
async def test_of_many_queues_the_first_have_samples_of_their_own_and_none_is_missing(
    serve: Serve, named: int
) -> None:
    server = await serve(metrics_queues=named)
    names = ["a", "b", "c", "d"]
    for number, name in enumerate(names, 1):
        await make_queue(server, name)
        for _ in range(number):
            await publish(server, queue=name)
    found = await scrape(server)
    others = {OTHERS} if named < len(names) else set()
    assert found.labels("mq_queue_ready", "queue") == {*names[:named], *others}
    assert found.sum("mq_queue_ready") == 1 + 2 + 3 + 4
    assert found("mq_queues") == 4
    assert found("mq_queues_uncounted") == 0


async def test_what_is_free_and_what_is_promised_is_told(server: Server) -> None:
    ready = (await call(server, "GET", "/-/readyz")).json()
    found = await scrape(server)
    assert found("mq_ready") == found("mq_disk_answers") == 1
    assert 0 < found("mq_file_system_free_bytes") < found("mq_file_system_bytes")
    assert found("mq_reserve_bytes") > 0
    assert found("mq_below_reserve") == ready["below_reserve"]
    assert found.labels("mq_info", "durability") == {ready["durability"]}
    assert found.labels("mq_info", "commit") == {ready["commit"]}


async def test_a_disk_that_fails_is_not_ready_and_the_rest_is_told(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    files.fail("sync", errno.EIO)
    found = await scrape(server)
    assert found("mq_ready") == 0
    assert found.labels("mq_queue_ready", "queue") == {"q"}
    assert requests(found, "create_queue") == 1


@pytest.mark.certificate
async def test_a_disk_that_hangs_keeps_no_scrape_waiting_for_long(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    gate = files.hold("sync_folder")
    found = await scrape(server)
    assert gate.reached.is_set()
    assert found("mq_disk_answers") == found("mq_ready") == 0
    assert not found.labels("mq_info", "commit")
    assert requests(found, "create_queue") == 1
    gate.open()
    await comes_true(lambda: _answers(server))


async def _answers(server: Server) -> bool:
    found = await scrape(server)
    return found("mq_disk_answers") == found("mq_ready") == 1


async def test_many_scrapes_at_once_say_the_same(server: Server) -> None:
    await make_queue(server)
    await publish(server)
    for found in await asyncio.gather(*(scrape(server) for _ in range(8))):
        assert found("mq_ready") == 1
        assert found("mq_queue_ready", queue="q") == 1
    assert (await scrape(server)).sum("mq_request_seconds_count") == 10


async def test_memory_is_shown_by_holder(server: Server) -> None:
    await make_queue(server)
    await fetch(server)
    await publish(server, b"x" * 1000)
    found = await scrape(server)
    memory = (await call(server, "GET", "/-/memory")).json()
    assert found("mq_memory_budget_bytes") == memory["budget_bytes"]
    for holder, figures in memory["holders"].items():
        assert found("mq_memory_held_bytes", holder=holder) == figures["bytes"]
    assert found.sum("mq_memory_held_bytes") >= 1000
    assert found("mq_memory_ids") == 1
    assert found("mq_connections") == 1


async def test_history_lines_that_were_dropped_are_counted(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await make_queue(server)
    await call(server, "PATCH", "/q/settings", json={"history": True})
    files.fail("open_append", errno.EIO)
    await publish(server)
    await comes_true(lambda: _has_dropped(server))


async def _has_dropped(server: Server) -> bool:
    return (await scrape(server))("mq_history_lines_dropped_total") == 1


async def test_the_form_is_the_one_that_was_asked_for(server: Server) -> None:
    plain = await call(server, "GET", "/-/metrics", headers={"Accept": "*/*"})
    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert plain.headers["Cache-Control"] == "no-store"
    other = await call(server, "GET", "/-/metrics", headers={"Accept": OPENMETRICS})
    assert other.headers["Content-Type"].startswith("application/openmetrics-text")
    assert other.body.endswith(b"# EOF\n")
    said, also = Scraped.of(plain.body.decode()), Scraped.of(other.body.decode(), True)
    assert {name for name in said.names() if name.startswith("mq_queue")} <= also.names()
    head = await call(server, "HEAD", "/-/metrics")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) > 1000


def test_what_the_system_says_of_the_process_is_there(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root)
    found = scrape_url(f"{mq.url}/-/metrics")
    assert found("process_resident_memory_bytes", process="0") > 1e6
    assert found("process_open_fds", process="0") > 3
    assert found("mq_processes") == 1
