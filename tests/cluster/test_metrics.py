"""`mq --processes`: one scrape says what all did, whichever answers and however one ended."""

import asyncio
import os
import signal
import urllib.request
from pathlib import Path

from harness.processes import PATIENCE_S, Process, Processes
from harness.raw import RawConnection, raw_head
from harness.scraped import Scraped
from harness.siblings import connection_to_each, served, server_pids
from harness.waiting import comes_true

TWO = ("--processes", "2")
PUBLISHED = {"operation": "publish", "outcome": "2xx"}


async def _scrape(connection: RawConnection) -> Scraped:
    await connection.send(raw_head("GET", "/-/metrics"))
    answer = await connection.response()
    assert answer.status == 200
    return Scraped.of(answer.body.decode())


async def _publish(connection: RawConnection, times: int) -> None:
    for _ in range(times):
        await connection.send(raw_head("POST", "/orders/messages", "Content-Length: 0"))
        assert (await connection.response()).status == 201


def _put_queue(mq: Process) -> None:
    request = urllib.request.Request(f"{mq.url}/orders", method="PUT")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        assert response.status in (200, 201)


async def test_each_says_the_sum_and_no_counter_goes_down_when_one_is_killed(
    daemons: Processes, root: Path
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, *TWO)
    await asyncio.to_thread(_put_queue, mq)
    async with connection_to_each(mq.port, 2) as (lost, kept):
        await _publish(lost, 3)
        await _publish(kept, 2)
        for each in (lost, kept):

            async def is_told(connection: RawConnection = each) -> bool:
                # What a process counts elsewhere is written down once a second.
                found = await _scrape(connection)
                return found("mq_messages_total", event="published") == 5

            await comes_true(is_told)
            found = await _scrape(each)
            assert found("mq_request_seconds_count", **PUBLISHED) == 5
            assert found("mq_processes") == 2
            assert found("mq_memory_budget_bytes") == 64 << 20
            assert found.labels("process_open_fds", "process") == {"0", "1"}
            assert found("mq_queue_ready", queue="orders") == 5
        before = await _scrape(kept)

        os.kill(server_pids(mq, 2)[0], signal.SIGKILL)
        assert await lost.ended() == b""
        counts = _counters(before)
        while served(mq, 0) < 2:
            now = _counters(await _scrape(kept))
            assert all(now[each] >= count for each, count in counts.items())
            counts = now
        assert counts["mq_request_seconds_count", frozenset(PUBLISHED.items())] == 5

    async with connection_to_each(mq.port, 2) as connections:
        await _publish(connections[0], 1)
        for each in connections:

            async def counts_on(connection: RawConnection = each) -> bool:
                found = await _scrape(connection)
                assert found("mq_request_seconds_count", **PUBLISHED) == 6
                assert found("mq_messages_total", event="published") >= 5
                return found("mq_messages_total", event="published") == 6

            await comes_true(counts_on)


def _counters(found: Scraped) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    ends = ("_total", "_count", "_sum", "_bucket")
    return {
        key: value
        for key, value in found.samples.items()
        if key[0].endswith(ends) and key[0].startswith("mq_")
    }
