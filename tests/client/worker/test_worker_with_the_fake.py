"""A worker over the fake: what goes wrong on the way, and when, as no network does it on demand."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from harness.waiting import comes_true
from harness.working import working

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.errors import ConnectionLost
from mq.client.options import Retry, Timeouts
from mq.client.queue import AsyncQueue
from mq.client.transport import Answer, Limits, Request, Socket, Transport
from mq.client.worker import AsyncWorkerMessage
from mq.testing import FakeMq


def is_extension(request: Request) -> bool:
    return (
        request.method == "PATCH"
        and isinstance(request.body, bytes)
        and json.loads(request.body).get("due_in_s", 0) > 0
    )


class Slow:
    """A transport on which requests wait that somebody chose, and which tells of all that came."""

    def __init__(self, inner: Transport, waits: Callable[[Request], bool]) -> None:
        self._inner = inner
        self._waits = waits
        self.came: list[Request] = []
        self.done: list[Request] = []
        self.go = asyncio.Event()
        self.loses: Callable[[Request], bool] = lambda _: False
        self.holds: Callable[[Request], bool] = lambda _: False

    async def request(self, request: Request, limits: Limits) -> Answer:
        self.came.append(request)
        if self._waits(request):
            await self.go.wait()
        answer = await self._inner.request(request, limits)
        self.done.append(request)
        if self.holds(request):
            await asyncio.sleep(0.05)
        if self.loses(request):
            raise ConnectionLost("on the way back")
        return answer

    async def connect(self, request: Request, limits: Limits) -> Socket:
        return await self._inner.connect(request, limits)

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture
async def orders(faked: AsyncClient) -> AsyncQueue:
    queue = faked.queue("orders")
    await queue.create()
    return queue


class Older(Slow):
    """The transport to an mq that knows no packs."""

    async def request(self, request: Request, limits: Limits) -> Answer:
        answer = await super().request(request, limits)
        if b"pack_messages_max" not in answer.body:
            return answer
        found = json.loads(answer.body)
        del found["settings"]["pack_messages_max"]
        return replace(answer, body=json.dumps(found).encode())


@pytest.mark.parametrize("is_older", [False, True])
async def test_a_worker_takes_packs_where_mq_has_them(
    fake: FakeMq, orders: AsyncQueue, is_older: bool
) -> None:
    await orders.publish(b"one")
    transport = (Older if is_older else Slow)(fake.transport(), lambda _: False)
    handled = asyncio.Event()

    async def handle(message: AsyncWorkerMessage) -> None:
        handled.set()
        worker.stop()

    async with AsyncClient(transport=transport) as client:
        worker = Worker(client, "orders", handle)
        async with working(worker):
            await handled.wait()
    polls = [each.target for each in transport.came if "count=" in each.target]
    assert polls
    assert {"packs=true" in each for each in polls} == {not is_older}


@pytest.mark.certificate
async def test_a_release_waits_for_an_extension_on_its_way(
    fake: FakeMq, orders: AsyncQueue
) -> None:
    """Else the extension would take the message back from whoever could have it."""
    await orders.publish(b"one")
    slow = Slow(fake.transport(), is_extension)
    handled = asyncio.Event()

    async def handle(message: AsyncWorkerMessage) -> None:
        await comes_true(lambda: any(map(is_extension, slow.came)))
        asyncio.get_running_loop().call_later(0.05, slow.go.set)
        await message.release()
        handled.set()
        worker.stop()

    async with AsyncClient(transport=slow) as client:
        worker = Worker(client, "orders", handle, consumers=1, prefetch=0, visibility_s=1)
        async with working(worker):
            await handled.wait()
    patches = [is_extension(each) for each in slow.done if each.method == "PATCH"]
    assert patches[:2] == [True, False]
    assert fake.queue("orders").ready == [b"one"]


@pytest.mark.certificate
async def test_an_extension_that_hangs_is_given_up_in_time_for_another(
    fake: FakeMq, orders: AsyncQueue
) -> None:
    await orders.publish(b"one")
    slow = Slow(fake.transport(), lambda request: is_extension(request) and len(extensions()) == 1)

    def extensions() -> list[Request]:
        return [each for each in slow.came if is_extension(each)]

    receives: list[int] = []

    async def handle(message: AsyncWorkerMessage) -> None:
        receives.append(message.receives)
        await comes_true(lambda: any(map(is_extension, slow.done)))

    async with (
        # It is the worker that loses patience, not the client.
        AsyncClient(transport=slow, timeouts=Timeouts(answer_s=1000)) as client,
        working(Worker(client, "orders", handle, visibility_s=4)),
    ):
        await comes_true(lambda: fake.queue("orders").removed)
    assert len(extensions()) == 2
    assert receives == [1]


def is_poll(request: Request) -> bool:
    return request.method == "GET" and request.path.endswith("/messages")


async def test_a_poll_whose_answer_is_lost_loses_no_message(
    fake: FakeMq, orders: AsyncQueue
) -> None:
    """It was fetched, and nobody heard: it comes back when it is due."""
    await orders.publish(b"one")
    slow = Slow(fake.transport(), lambda _: False)
    slow.loses = lambda request: is_poll(request) and len(slow.done) <= 2
    handled: list[int] = []
    async with AsyncClient(transport=slow) as client:
        worker = Worker(client, "orders", lambda message: handled.append(message.receives))
        async with working(worker):
            await comes_true(lambda: fake.queue("orders").in_flight)
            await comes_true(lambda: [each for each in slow.came if is_poll(each)][1:])
            fake.clock.advance(31)
            await comes_true(lambda: fake.queue("orders").removed)
    assert handled == [2]


async def test_what_is_on_its_way_to_a_worker_that_is_stopped_is_ready_at_once(
    fake: FakeMq, orders: AsyncQueue
) -> None:
    """mq has answered the poll; the worker has not heard it yet."""
    await orders.publish(b"one")
    slow = Slow(fake.transport(), lambda _: False)
    slow.holds = is_poll
    async with AsyncClient(transport=slow) as client:
        worker = Worker(client, "orders", lambda _: None)
        async with working(worker):
            await comes_true(lambda: any(map(is_poll, slow.done)))
            assert fake.queue("orders").in_flight == [b"one"]
    assert fake.queue("orders").ready == [b"one"]


async def test_a_delete_whose_answer_is_lost_is_said_again(
    fake: FakeMq, orders: AsyncQueue
) -> None:
    await orders.publish(b"one")
    fake.lose_answer(method="DELETE")
    handled: list[int] = []
    async with AsyncClient(transport=fake.transport()) as client:
        worker = Worker(client, "orders", lambda message: handled.append(message.receives))
        async with working(worker):
            await comes_true(lambda: fake.queue("orders").removed)
    assert handled == [1]


@pytest.mark.certificate
async def test_what_cannot_be_settled_for_a_while_is_settled_then(
    fake: FakeMq, orders: AsyncQueue
) -> None:
    """Its handler is not called again."""
    await orders.publish(b"one")
    handled: list[int] = []
    retry = Retry(attempts=1)
    async with AsyncClient(transport=fake.transport(), retry=retry) as client:
        fake.fail(2, method="DELETE")
        worker = Worker(client, "orders", lambda message: handled.append(message.receives))
        async with working(worker):
            await comes_true(lambda: fake.queue("orders").removed)
    assert handled == [1]


@pytest.mark.certificate
async def test_time_is_mq_s_own(fake: FakeMq, orders: AsyncQueue) -> None:
    """A clock that is an hour ahead, or behind, changes nothing: nothing is extended too soon."""
    fake.clock.advance(3600)
    await orders.publish(b"one")
    slow = Slow(fake.transport(), lambda _: False)
    over = asyncio.Event()

    async def handle(_: AsyncWorkerMessage) -> None:
        await over.wait()

    async with AsyncClient(transport=slow) as client:
        await client.queue("orders").change_settings({"visibility_s": 1})
        async with working(Worker(client, "orders", handle)):
            await comes_true(lambda: any(map(is_extension, slow.done)))
            over.set()
            await comes_true(lambda: fake.queue("orders").removed)
