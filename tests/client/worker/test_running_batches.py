"""Handlers of batches, over a fake."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from harness.waiting import comes_true
from harness.working import becomes_empty, made, published, sidelined, working

from mq import AsyncWorkerMessage, Worker, WorkerMessage
from mq.client.client import AsyncClient
from mq.client.queue import AsyncQueue

LONG_S = 1000.0


@dataclass
class Order:
    dish: str


async def released(queue: AsyncQueue) -> list[str]:
    return [each.text() for each in await queue.peek(states=("ready",))]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_full_batch_goes_at_once_and_the_rest_when_it_has_waited(
    faked: AsyncClient, is_async: bool
) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, (str(n) for n in range(25)))
    came: list[list[str]] = []
    worker = Worker(faked, "orders", consumers=1)

    def in_a_thread(messages: list[WorkerMessage]) -> None:
        came.append([each.text() for each in messages])

    async def in_the_loop(messages: list[AsyncWorkerMessage]) -> None:
        came.append([each.text() for each in messages])

    worker.handler(max=10, wait=0.05)(in_the_loop if is_async else in_a_thread)
    async with working(worker):
        await becomes_empty(orders)
    assert [len(each) for each in came] == [10, 10, 5]
    assert [text for each in came for text in each] == [str(n) for n in range(25)]


async def test_what_has_not_waited_long_enough_waits_for_others(faked: AsyncClient) -> None:
    (orders,) = await made(faked, "orders")
    came: list[int] = []
    worker = Worker(faked, "orders", prefetch=0)

    @worker.handler(max=3, wait=LONG_S)
    async def handle(messages: list[AsyncWorkerMessage]) -> None:
        came.append(len(messages))

    async with working(worker):
        for waiting in (1, 2):
            await published(orders, [str(waiting)])

            async def waits(count: int = waiting) -> bool:
                return (await orders.describe()).in_flight == count

            await comes_true(waits)
            assert came == []
        await published(orders, ["3"])
        await becomes_empty(orders)
        await published(orders, ["4"])
        await comes_true(lambda: has_in_flight(orders))
    # A batch that still waits at the end was not handled.
    assert came == [3]
    assert await released(orders) == ["4"]


async def has_in_flight(orders: AsyncQueue) -> bool:
    return bool((await orders.describe()).in_flight)


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_result_is_that_of_each_that_the_handler_did_not_settle(
    faked: AsyncClient, is_async: bool
) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, ("deleted", "released", "first", "second"))
    calls: list[list[str]] = []
    worker = Worker(faked, "orders", consumers=1)

    def fails(messages: list[WorkerMessage]) -> None:
        calls.append([each.text() for each in messages])
        if len(calls) == 1:
            messages[0].delete()
            messages[1].release(LONG_S)
            raise RuntimeError("the stove is cold")

    async def fails_in_the_loop(messages: list[AsyncWorkerMessage]) -> None:
        calls.append([each.text() for each in messages])
        if len(calls) == 1:
            await messages[0].delete()
            await messages[1].release(LONG_S)
            raise RuntimeError("the stove is cold")

    worker.handler(max=4)(fails_in_the_loop if is_async else fails)
    async with working(worker):
        found = await comes_true(lambda: two_in_the_sideline(orders, faked))
    assert sorted(each.text() for each in found) == ["first", "second"]
    assert [each.text() for each in await orders.peek(states=("delayed",))] == ["released"]
    assert calls == [["deleted", "released", "first", "second"]]


async def two_in_the_sideline(orders: AsyncQueue, client: AsyncClient) -> Any:
    found = await sidelined(orders, client)
    return found if len(found) == 2 else None


async def test_a_body_that_does_not_fit_leaves_the_others_their_batch(faked: AsyncClient) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, ('{"dish": "soup"}', "bad", '{"dish": "bread"}'))
    came: list[tuple[list[Order], list[str]]] = []
    worker = Worker(faked, "orders", retries=9)

    @worker.handler(max=3)
    def cook(orders: list[Order], messages: list[WorkerMessage]) -> None:
        came.append((orders, [each.text() for each in messages]))

    async with working(worker):
        (found,) = await sidelined(orders, faked)
        await becomes_empty(orders)
    assert found.text() == "bad"
    assert came == [([Order("soup"), Order("bread")], ['{"dish": "soup"}', '{"dish": "bread"}'])]


async def test_middleware_is_around_each_message(faked: AsyncClient) -> None:
    """One that a middleware answers itself, or fails on, is not in the batch."""
    (orders,) = await made(faked, "orders")
    await published(orders, ("a", "skipped", "b", "failed"))
    came: list[list[str]] = []
    seen: list[tuple[str, object]] = []

    async def middleware(message: AsyncWorkerMessage, call_next: Any) -> object:
        if message.text() == "skipped":
            return True
        if message.text() == "failed":
            raise RuntimeError("no")
        result = await call_next(message)
        seen.append((message.text(), result))
        return result

    worker = Worker(faked, "orders", middleware=[middleware])

    @worker.handler(max=4)
    async def handle(messages: list[AsyncWorkerMessage]) -> int:
        came.append([each.text() for each in messages])
        return 5

    async with working(worker):
        (found,) = await sidelined(orders, faked)
        await becomes_empty(orders)
    assert found.text() == "failed"
    assert came == [["a", "b"]]
    assert seen == [("a", 5), ("b", 5)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("ends", ["limit", "drain", "cancelled"])
async def test_a_batch_that_takes_too_long_is_cut_short_as_a_whole(
    faked: AsyncClient, is_async: bool, ends: str
) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, ("one", "two"))
    over = threading.Event()
    began, cancelled = [], []
    worker = Worker(faked, "orders", drain_s=0.05, visibility_s=LONG_S)

    def in_a_thread(messages: list[WorkerMessage]) -> None:
        began.append(len(messages))
        over.wait(30)

    async def in_the_loop(messages: list[AsyncWorkerMessage]) -> None:
        began.append(len(messages))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(len(messages))
            raise

    limit = {"time_limit_s": 0.05} if ends == "limit" else {}
    handle: Any = in_the_loop if is_async else in_a_thread
    worker.handler(max=2, **limit)(handle)  # type: ignore[arg-type]
    running = asyncio.create_task(worker.run_async())
    await comes_true(lambda: began)
    if ends == "limit":
        assert await comes_true(lambda: two_in_the_sideline(orders, faked))
        worker.stop()
        over.set()
        await running
    elif ends == "drain":
        worker.stop()
        await running
    else:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    over.set()
    if ends != "limit":
        assert sorted(await released(orders)) == ["one", "two"]
    assert cancelled == ([2] if is_async else [])


async def test_batches_have_places_as_calls(faked: AsyncClient) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, (str(n) for n in range(50)))
    over = asyncio.Event()
    running, most = 0, 0
    worker = Worker(faked, "orders", consumers=4, prefetch=0)

    @worker.handler(max=5, consumers=2)
    async def handle(messages: list[AsyncWorkerMessage]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await over.wait()
        running -= 1

    async with working(worker):
        await comes_true(lambda: running == 2)
        assert (await orders.describe()).in_flight == 10
        over.set()
        await becomes_empty(orders)
    assert most == 2
