"""Messages that a worker has in hand do not come back, and those that it lost are not its own."""

import asyncio
import threading
from typing import Any

import pytest
from harness.server import Server
from harness.waiting import comes_true
from harness.working import becomes_empty, published, sidelined, working

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.errors import DeliveredAgain
from mq.client.queue import AsyncQueue
from mq.client.worker import AsyncWorkerMessage, TimeLimitReached, WorkerMessage

SHORT_S = 0.6


async def extensions(queue: AsyncQueue) -> int:
    return (await queue.describe()).totals["extended"]


async def is_extended(queue: AsyncQueue, times: int) -> None:
    async def often_enough() -> bool:
        return await extensions(queue) >= times

    await comes_true(often_enough, f"{times} extensions")


@pytest.mark.certificate
@pytest.mark.parametrize("whose", ["worker", "queue", "message"])
async def test_what_is_handled_and_what_waits_is_extended(
    server: Server, orders: AsyncQueue, whose: str
) -> None:
    """Whoever said how long the visibility is."""
    if whose == "queue":
        await orders.change_settings({"visibility_s": 1})
    own_s = 1 if whose == "message" else None
    for body in ("one", "two", "three"):
        await orders.publish(body, visibility_s=own_s)
    over = asyncio.Event()
    came: list[tuple[bytes, int]] = []

    async def handle(message: AsyncWorkerMessage) -> None:
        await over.wait()
        came.append((message.body, message.receives))

    worker = Worker(
        server.url,
        "orders",
        handle,
        consumers=1,
        prefetch=2,
        visibility_s=1 if whose == "worker" else None,
    )
    async with working(worker):
        await is_extended(orders, 6)
        over.set()
        await becomes_empty(orders)
    assert came == [(b"one", 1), (b"two", 1), (b"three", 1)]
    assert (await orders.describe()).totals["redelivered"] == 0


@pytest.mark.certificate
async def test_a_thread_s_message_is_extended(server: Server, orders: AsyncQueue) -> None:
    await published(orders, ["one"])
    over = threading.Event()
    receives = []

    def handle(message: WorkerMessage) -> None:
        over.wait(30)
        receives.append(message.receives)

    async with working(Worker(server.url, "orders", handle, visibility_s=SHORT_S)):
        await is_extended(orders, 3)
        over.set()
        await becomes_empty(orders)
    assert receives == [1]


async def stolen(orders: AsyncQueue, message_id: str) -> None:
    """Somebody brings the message back, and fetches it."""
    await orders.release(message_id)
    found = await orders.fetch(wait_s=30, visibility_s=1000)
    assert found is not None
    assert found.receives == 2


@pytest.mark.parametrize("end", [True, False, KeyError("x")])
async def test_of_a_lost_message_nothing_is_done(
    server: Server, client: AsyncClient, orders: AsyncQueue, end: Any
) -> None:
    (message_id,) = await published(orders, ["one"])
    held: list[AsyncWorkerMessage] = []
    over = asyncio.Event()

    async def handle(message: AsyncWorkerMessage) -> object:
        held.append(message)
        await over.wait()
        if isinstance(end, Exception):
            raise end
        return end

    # The one place is taken: it is not the worker that fetches the message again.
    worker = Worker(server.url, "orders", handle, consumers=1, prefetch=0, visibility_s=SHORT_S)
    async with working(worker):
        await comes_true(lambda: held)
        await stolen(orders, message_id)
        await comes_true(lambda: held[0].is_lost)
        over.set()
    (found,) = await orders.peek(states=("delayed",))
    assert found.receives == 2
    assert [entry.name async for entry in client.queues()] == ["orders"]


async def test_a_handler_s_own_words_find_out_too(server: Server, orders: AsyncQueue) -> None:
    (message_id,) = await published(orders, ["one"])
    held: list[WorkerMessage] = []
    stolen_from = threading.Event()
    errors: list[BaseException] = []

    def handle(message: WorkerMessage) -> None:
        held.append(message)
        stolen_from.wait(30)
        try:
            message.delete()
        except DeliveredAgain as error:
            errors.append(error)
            raise

    worker = Worker(server.url, "orders", handle, consumers=1, prefetch=0, visibility_s=1000)
    async with working(worker):
        await comes_true(lambda: held)
        assert not held[0].is_lost
        await stolen(orders, message_id)
        stolen_from.set()
        await comes_true(lambda: errors)
    assert held[0].is_lost
    assert (await orders.peek(states=("delayed",)))[0].receives == 2


async def test_what_is_deleted_by_another_is_lost(server: Server, orders: AsyncQueue) -> None:
    (message_id,) = await published(orders, ["one"])
    held: list[AsyncWorkerMessage] = []

    async def handle(message: AsyncWorkerMessage) -> None:
        held.append(message)
        await comes_true(lambda: message.is_lost)

    worker = Worker(server.url, "orders", handle, visibility_s=SHORT_S)
    async with working(worker):
        await comes_true(lambda: held)
        await orders.delete_message(message_id)
        await comes_true(lambda: held[0].is_lost)


async def test_a_handler_may_extend_by_more(server: Server, orders: AsyncQueue) -> None:
    await published(orders, ["one"])
    over = asyncio.Event()
    held: list[AsyncWorkerMessage] = []

    async def handle(message: AsyncWorkerMessage) -> None:
        await message.extend(5000)
        held.append(message)
        await over.wait()

    worker = Worker(server.url, "orders", handle, visibility_s=SHORT_S)
    async with working(worker):
        await comes_true(lambda: held)
        (found,) = await orders.peek(states=("delayed",))
        assert (found.due - found.published).total_seconds() > 4000
        over.set()
        await becomes_empty(orders)


async def test_no_extension_comes_behind_a_handler_s_own_release(
    server: Server, orders: AsyncQueue
) -> None:
    """Its lease is extended all the time; a message that is released stays ready at once."""
    await published(orders, ["one"])
    times = 20
    seen: list[int] = []

    async def handle(message: AsyncWorkerMessage) -> None:
        seen.append(message.receives)
        if message.receives < times:
            await message.release()

    async with working(Worker(server.url, "orders", handle, visibility_s=0.05)):
        await comes_true(lambda: seen and seen[-1] >= times, "it came back as often as released")
        await becomes_empty(orders)


# Time limits


async def test_a_coroutine_s_time_is_over(
    server: Server, client: AsyncClient, orders: AsyncQueue
) -> None:
    await published(orders, ["one"])
    cleaned_up: list[bool] = []
    seen: list[BaseException] = []

    async def handle(_: AsyncWorkerMessage) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(True)

    async def watch(message: AsyncWorkerMessage, call_next: Any) -> object:
        try:
            return await call_next(message)
        except TimeLimitReached as error:
            seen.append(error)
            raise

    worker = Worker(server.url, "orders", handle, time_limit_s=0.05, middleware=[watch])
    async with working(worker):
        (found,) = await sidelined(orders, client)
    assert (found.sidelined, cleaned_up) == ("exception", [True])
    assert "0.05 s" in str(seen[0])


@pytest.mark.certificate
async def test_a_thread_s_time_is_over_and_its_place_is_taken_until_it_ends(
    server: Server, client: AsyncClient, orders: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    await published(orders, ["one"])
    over = threading.Event()
    began: list[bytes] = []

    def handle(message: WorkerMessage) -> None:
        began.append(message.body)
        over.wait(30)

    worker = Worker(server.url, "orders", handle, consumers=1, time_limit_s=0.05)
    async with working(worker):
        await sidelined(orders, client)
        await comes_true(lambda: "goes on beyond its time" in caplog.text)
        await published(orders, ["two"])

        async def waits() -> bool:
            return (await orders.describe()).in_flight == 1

        await comes_true(waits)
        assert began == [b"one"]
        over.set()
        await comes_true(lambda: began == [b"one", b"two"])
        await becomes_empty(orders)


@pytest.mark.certificate
async def test_one_that_does_not_heed_its_end_has_its_place_too(
    server: Server, client: AsyncClient, orders: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    await published(orders, ["one"])
    over = asyncio.Event()

    async def handle(_: AsyncWorkerMessage) -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    worker = Worker(server.url, "orders", handle, time_limit_s=0.05)
    async with working(worker):
        await sidelined(orders, client)
        await comes_true(lambda: "goes on beyond its time" in caplog.text)
        over.set()
