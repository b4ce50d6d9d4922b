"""How a worker ends, and what it does while mq is away."""

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from harness.processes import Processes
from harness.server import Server
from harness.waiting import comes_true
from harness.working import becomes_empty, is_empty, published, working

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.errors import NotUsable, Refused
from mq.client.options import Retry
from mq.client.queue import AsyncQueue
from mq.client.worker import AsyncWorkerMessage, WorkerMessage

LONG_S = 1000


async def bodies(queue: AsyncQueue, state: Any) -> list[str]:
    return [message.text() for message in await queue.peek(states=(state,))]


@pytest.mark.certificate
async def test_what_was_not_begun_is_ready_at_once_and_what_was_ends(
    server: Server, orders: AsyncQueue
) -> None:
    for body in ("one", "two", "three", "four"):
        await orders.publish(body, visibility_s=LONG_S)
    over = asyncio.Event()
    began: list[str] = []

    async def handle(message: AsyncWorkerMessage) -> None:
        began.append(message.text())
        await over.wait()

    worker = Worker(server.url, "orders", handle, consumers=1, prefetch=3)
    async with working(worker) as running:

        async def has_all() -> bool:
            return (await orders.describe()).in_flight == 4

        await comes_true(has_all)
        worker.stop()

        async def gave_back() -> bool:
            return await bodies(orders, "ready") == ["two", "three", "four"]

        await comes_true(gave_back)
        assert not running.done()
        over.set()
    assert began == ["one"]
    assert await bodies(orders, "delayed") == []
    assert await bodies(orders, "removed") == ["one"]


@pytest.mark.certificate
async def test_what_no_handler_had_counts_as_no_attempt(server: Server, orders: AsyncQueue) -> None:
    await orders.change_settings({"max_receives": 3})
    await published(orders, [str(n) for n in range(10)])
    for taken in range(4):
        over = asyncio.Event()

        async def handle(message: AsyncWorkerMessage, over: asyncio.Event = over) -> None:
            await over.wait()

        worker = Worker(server.url, "orders", handle, consumers=1, prefetch=10)
        async with working(worker):

            async def has_all(left: int = 10 - taken) -> bool:
                return (await orders.describe()).in_flight == left

            await comes_true(has_all)
            worker.stop()

            async def gave_back(left: int = 9 - taken) -> bool:
                return (await orders.describe()).ready == left

            await comes_true(gave_back)
            over.set()
    assert [each.receives for each in await orders.peek()] == [4] * 6


@pytest.mark.parametrize("is_async", [False, True])
async def test_after_the_deadline_the_rest_is_cut_short_and_released(
    server: Server, orders: AsyncQueue, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await orders.publish("one", visibility_s=LONG_S)
    over, began = threading.Event(), threading.Event()
    cancelled: list[bool] = []

    def in_a_thread(message: WorkerMessage) -> None:
        began.set()
        over.wait(30)
        with pytest.raises(Exception, match="released"):
            message.delete()
        cancelled.append(True)

    async def in_the_loop(_: AsyncWorkerMessage) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    handle: Any = in_the_loop if is_async else in_a_thread
    async with working(Worker(server.url, "orders", handle, drain_s=0.05)):
        await comes_true(began.is_set)
    assert await bodies(orders, "ready") == ["one"]
    assert "cut short" in caplog.text
    over.set()
    await comes_true(lambda: cancelled == [True])  # Before the thread's loop is closed.


async def test_a_middleware_is_cut_short_too(server: Server, orders: AsyncQueue) -> None:
    await orders.publish("one", visibility_s=LONG_S)
    began = asyncio.Event()

    async def hangs(message: AsyncWorkerMessage, call_next: Any) -> object:
        await call_next(message)
        began.set()
        return await asyncio.Event().wait()

    worker = Worker(server.url, "orders", lambda _: None, drain_s=0, middleware=[hangs])
    async with working(worker):
        await began.wait()
    assert await bodies(orders, "ready") == ["one"]


async def test_cancelled_it_gives_back_what_it_has_at_once(
    server: Server, orders: AsyncQueue
) -> None:
    for body in ("one", "two"):
        await orders.publish(body, visibility_s=LONG_S)
    began = asyncio.Event()

    async def handle(_: AsyncWorkerMessage) -> None:
        began.set()
        await asyncio.Event().wait()

    worker = Worker(server.url, "orders", handle, consumers=1, drain_s=LONG_S)
    running = asyncio.create_task(worker.run_async())
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await bodies(orders, "ready") == ["one", "two"]


@pytest.mark.certificate
async def test_a_drain_under_load_leaves_nothing_to_lapse(
    server: Server, orders: AsyncQueue
) -> None:
    """Polls come and go, of which one is on its way when the worker is stopped."""
    for _ in range(5):
        await published(orders, (str(n) for n in range(60)))
        handled: list[str] = []

        async def handle(message: AsyncWorkerMessage, handled: list[str] = handled) -> None:
            handled.append(message.text())

        worker = Worker(server.url, "orders", handle, consumers=3, visibility_s=LONG_S)
        async with working(worker):
            await comes_true(lambda handled=handled: len(handled) > 10)  # type: ignore[misc]
        # What mq claimed for a poll that was given up is released by it.
        await comes_true(lambda: bodies_gone(orders))
    assert not await bodies(orders, "delayed")


async def bodies_gone(orders: AsyncQueue) -> bool:
    return not await bodies(orders, "delayed")


async def test_stopped_before_it_runs_it_ends_at_once(server: Server, orders: AsyncQueue) -> None:
    await published(orders, ["one"])
    worker = Worker(server.url, "orders", lambda _: None)
    worker.stop()
    await worker.run_async()
    assert not await is_empty(orders)


async def test_run_blocks_a_thread_until_another_says_stop(
    server: Server, orders: AsyncQueue
) -> None:
    worker = Worker(server.url, "orders", lambda _: None)
    running = asyncio.create_task(asyncio.to_thread(worker.run))
    await published(orders, ["one"])
    await becomes_empty(orders)
    assert not running.done()
    worker.stop()
    await running


# mq that is away


PLAIN = """
import sys
{configured}
from mq import Worker
Worker(sys.argv[1], "orders", print).run()
"""


@pytest.mark.certificate
@pytest.mark.parametrize("configured", ["", "import logging; logging.basicConfig()"])
async def test_a_plain_script_says_what_it_cannot_reach(configured: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # It does not listen.
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-c", PLAIN.format(configured=configured), url],
            stderr=subprocess.PIPE,
            text=True,
        ) as script:
            assert script.stderr is not None
            line = await asyncio.to_thread(script.stderr.readline)
            script.kill()
    assert f"cannot fetch from orders at {url}: " in line
    assert "; retries in " in line


@pytest.mark.certificate
async def test_a_worker_waits_for_mq_and_for_its_queue(
    daemons: Processes, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root)
    handled: list[str] = []
    worker = Worker(mq.url, "orders", lambda message: handled.append(message.text()))
    async with working(worker) as running, AsyncClient(mq.url) as client:
        orders = client.queue("orders")
        await comes_true(lambda: "cannot fetch" in caplog.text)
        (line, *_) = (each for each in caplog.messages if "cannot fetch" in each)
        assert f"cannot fetch from orders at {mq.url}: " in line
        assert "; retries in " in line
        await orders.create()
        await orders.publish("one")
        await comes_true(lambda: handled == ["one"])
        await becomes_empty(orders)
        mq.kill()
        again = await asyncio.to_thread(daemons.mq, root, port=mq.port)
        assert not running.done()
        await orders.publish("two")
        await comes_true(lambda: handled == ["one", "two"])
        await becomes_empty(orders)
        assert again.port == mq.port


@pytest.mark.certificate
async def test_what_is_done_while_mq_is_away_is_settled_when_it_is_back(
    daemons: Processes, root: Path
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root)
    over = asyncio.Event()
    handled: list[int] = []

    async def handle(message: AsyncWorkerMessage) -> None:
        handled.append(message.receives)
        await over.wait()

    # As impatient as can be: what goes on is the worker's own doing.
    async with (
        AsyncClient(mq.url, retry=Retry(attempts=1)) as client,
        AsyncClient(mq.url) as patient,
    ):
        await client.queue("orders").create()
        await client.queue("orders").publish("one", visibility_s=LONG_S)
        async with working(Worker(client, "orders", handle)):
            await comes_true(lambda: handled)
            mq.kill()
            over.set()
            await asyncio.to_thread(daemons.mq, root, port=mq.port)
            await becomes_empty(patient.queue("orders"))
    assert handled == [1]


async def test_what_another_try_would_not_mend_ends_the_worker(
    server: Server, orders: AsyncQueue, client: AsyncClient
) -> None:
    worker = Worker(client, "orders", lambda _: None)
    running = asyncio.create_task(worker.run_async())
    await published(orders, ["one"])
    await becomes_empty(orders)
    await client.close()
    with pytest.raises(NotUsable):
        await running


async def test_a_refused_poll_ends_the_worker(server: Server, orders: AsyncQueue) -> None:
    worker = Worker(f"{server.url}/-", "orders", lambda _: None)
    with pytest.raises(Refused):
        await worker.run_async()
