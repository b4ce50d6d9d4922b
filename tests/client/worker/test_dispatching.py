"""Several queues and types in one worker, their turns, and how many messages are in hand."""

import asyncio
import threading
from collections import Counter

import pytest
from harness.server import Server
from harness.waiting import comes_true
from harness.working import becomes_empty, made, published, working

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.errors import BadName, NotUsable
from mq.client.options import Seams
from mq.client.queue import AsyncQueue
from mq.client.worker import AsyncWorkerMessage, WorkerMessage
from mq.client.worker.polling import FOLLOW_EVERY_S
from mq.model.limits import CONSUMERS_MAX


class Gate:
    """Holds handlers, and counts those that are held."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self.most = 0
        self.handled: list[str] = []
        self._open = asyncio.Event()

    async def __call__(self, message: AsyncWorkerMessage) -> None:
        self.held[message.queue] += 1
        self.most = max(self.most, self.held.total())
        await self._open.wait()
        self.held[message.queue] -= 1
        self.handled.append(message.text())

    def open(self) -> None:
        self._open.set()

    async def holds(self, count: int) -> None:
        await comes_true(lambda: self.held.total() == count, f"{count} handlers are held")


async def test_each_queue_and_type_has_its_handler(server: Server, client: AsyncClient) -> None:
    orders, events = await made(client, "orders", "events")
    came: list[tuple[str, str]] = []
    worker = Worker(server.url)

    @worker.handler("orders")
    def order(message: WorkerMessage) -> None:
        came.append(("order", message.text()))

    @worker.handler("events")
    async def event(message: AsyncWorkerMessage) -> None:
        came.append(("event", message.text()))

    @worker.handler("events", type="order.*")
    async def order_event(message: AsyncWorkerMessage) -> None:
        came.append(("order event", message.text()))

    @worker.handler("events", type="paid", type_header="x-attribute-type")
    async def paid(message: AsyncWorkerMessage) -> None:
        came.append(("paid", message.text()))

    @worker.handler("events", key_prefix="eu-")
    async def european(message: AsyncWorkerMessage) -> None:
        came.append(("european", message.text()))

    await orders.publish("1")
    await events.publish("2")
    await events.publish("3", headers={"ce-type": "order.made"})
    await events.publish("4", headers={"X-Attribute-Type": "paid"})
    await events.publish("5", key="eu-5")
    async with working(worker):
        await becomes_empty(orders)
        await becomes_empty(events)
    assert sorted(came) == [
        ("european", "5"),
        ("event", "2"),
        ("order", "1"),
        ("order event", "3"),
        ("paid", "4"),
    ]


@pytest.mark.certificate
async def test_a_full_queue_leaves_the_other_its_turn(server: Server, client: AsyncClient) -> None:
    full, quiet = await made(client, "full", "quiet")
    await published(full, (f"f{n}" for n in range(40)))
    turns: list[str] = []
    gate = asyncio.Event()
    worker = Worker(server.url, consumers=1, prefetch=20)

    @worker.handler("full")
    @worker.handler("quiet")
    async def handle(message: AsyncWorkerMessage) -> None:
        turns.append(message.queue)
        await gate.wait()

    async with working(worker):
        await comes_true(lambda: turns)
        await published(quiet, (f"q{n}" for n in range(5)))

        async def all_wait() -> bool:
            return (await quiet.describe()).in_flight == 5

        await comes_true(all_wait)
        gate.set()
        await becomes_empty(quiet)
        await becomes_empty(full)
    last = max(at for at, queue in enumerate(turns) if queue == "quiet")
    assert last <= 12, turns


# How many


@pytest.mark.certificate
async def test_no_more_are_handled_than_are_to_be(server: Server, orders: AsyncQueue) -> None:
    await published(orders, (str(n) for n in range(30)))
    gate = Gate()
    async with working(Worker(server.url, "orders", gate, consumers=7, prefetch=5)):
        await gate.holds(7)

        async def has_enough() -> bool:
            return (await orders.describe()).in_flight == 12

        await comes_true(has_enough, "12 messages are in hand")
        gate.open()
        await becomes_empty(orders)
    assert gate.most == 7
    assert len(gate.handled) == 30


async def test_without_prefetch_nothing_waits(server: Server, orders: AsyncQueue) -> None:
    await published(orders, (str(n) for n in range(10)))
    gate = Gate()
    async with working(Worker(server.url, "orders", gate, consumers=3, prefetch=0)):
        await gate.holds(3)
        assert (await orders.describe()).totals["fetched"] == 3
        gate.open()
        await becomes_empty(orders)


async def test_threads_are_as_many_as_messages(server: Server, orders: AsyncQueue) -> None:
    await published(orders, (str(n) for n in range(20)))
    together = threading.Barrier(5)
    names = set()

    def handle(_: WorkerMessage) -> None:
        together.wait(30)
        names.add(threading.current_thread().name)

    async with working(Worker(server.url, "orders", handle, consumers=5)):
        await becomes_empty(orders)
    assert len(names) == 5


async def test_it_is_scaled_while_it_runs_from_any_thread(
    server: Server, orders: AsyncQueue
) -> None:
    await published(orders, (str(n) for n in range(50)))
    gate = Gate()
    worker = Worker(server.url, "orders", gate, consumers=2, prefetch=2)
    async with working(worker):
        await gate.holds(2)
        assert await asyncio.to_thread(worker.scale, 5) == 7
        await gate.holds(7)
        assert worker.scale(-6) == worker.consumers == 1
        gate.open()
        await becomes_empty(orders)
    assert gate.most == 7


async def test_scaled_down_it_goes_on_with_fewer(server: Server, orders: AsyncQueue) -> None:
    await published(orders, (str(n) for n in range(8)))
    gates = [Gate(), Gate()]
    current = 0

    async def handle(message: AsyncWorkerMessage) -> None:
        await gates[current](message)

    worker = Worker(server.url, "orders", handle, consumers=6, prefetch=0)
    async with working(worker):
        await gates[0].holds(6)
        worker.scale(-5)
        current = 1
        gates[0].open()
        await gates[1].holds(1)
        gates[1].open()
        await becomes_empty(orders)
    assert (gates[0].most, gates[1].most) == (6, 1)


class Pause:
    """The seam that waits between looks at settings: until the test says so."""

    def __init__(self) -> None:
        self.waits = 0
        self._over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds != FOLLOW_EVERY_S:
            await asyncio.sleep(seconds)
            return
        self.waits += 1
        await self._over.wait()
        self._over.clear()

    def over(self) -> None:
        self._over.set()


async def test_the_setting_is_followed(server: Server, client: AsyncClient) -> None:
    orders, events = await made(client, "orders", "events")
    pause = Pause()
    worker = Worker(
        server.url, consumers=4, follow_setting=True, seams=Seams(sleep=pause.sleep)
    )  # fmt: skip
    gate = Gate()
    worker.handler("orders")(gate)
    worker.handler("orders", type="x")(gate)
    worker.handler("events")(gate)

    async def looked(times: int) -> int:
        await comes_true(lambda: pause.waits == times)
        return worker.consumers

    async with working(worker):
        assert await looked(1) == 4
        await orders.change_settings({"consumers": 10})
        pause.over()
        assert await looked(2) == 10
        assert worker.scale(3) == 13
        await events.change_settings({"consumers": 5})
        pause.over()
        assert await looked(3) == 18
        pause.over()
        assert await looked(4) == 18
        await published(orders, (str(n) for n in range(20)))
        await gate.holds(18)
        gate.open()
        await becomes_empty(orders)
        await orders.change_settings({"consumers": None})
        await events.delete()
        pause.over()
        assert await looked(5) == 8  # What cannot be read is as it was.


async def test_the_setting_is_not_followed_unasked(server: Server, orders: AsyncQueue) -> None:
    await orders.change_settings({"consumers": 50})
    await published(orders, ["one"])
    worker = Worker(server.url, "orders", lambda _: None, consumers=2)
    async with working(worker):
        await becomes_empty(orders)
        assert worker.consumers == 2


# What a worker may be told


@pytest.mark.parametrize(
    "wrong",
    [
        {"consumers": 0}, {"consumers": CONSUMERS_MAX + 1}, {"prefetch": -1}, {"prefetch": 10_000},
        {"time_limit_s": 0}, {"visibility_s": 0}, {"visibility_s": 1e9}, {"drain_s": -1},
        {"on_false": "delete"}, {"on_error": "lapse"},
    ],
)  # fmt: skip
def test_no_such_worker(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Worker("http://127.0.0.1:1", "orders", lambda _: None, **wrong)  # type: ignore[arg-type]


def test_no_such_handler() -> None:
    worker = Worker("http://127.0.0.1:1", "orders", lambda _: None)
    with pytest.raises(ValueError, match="already"):
        worker.handler("orders")(lambda _: None)
    with pytest.raises(BadName):
        worker.handler("no queue")
    with pytest.raises(ValueError, match="which"):
        Worker().handler()


async def test_a_worker_runs_once(server: Server, orders: AsyncQueue) -> None:
    worker = Worker(server.url, "orders", lambda _: None)
    async with working(worker):
        await published(orders, ["one"])
        await becomes_empty(orders)
        with pytest.raises(NotUsable, match="runs"):
            worker.handler("events")(lambda _: None)
    with pytest.raises(NotUsable, match="once"):
        await worker.run_async()
    with pytest.raises(ValueError, match="no handler"):
        await Worker(server.url).run_async()


async def test_another_mq_is_used(server: Server, orders: AsyncQueue, client: AsyncClient) -> None:
    worker = Worker("http://127.0.0.1:1", "orders", lambda _: None)
    worker.use(server.url)
    await published(orders, ["one"])
    async with working(worker):
        await becomes_empty(orders)
    with pytest.raises(NotUsable):
        worker.use(server.url)
    with pytest.raises(NotUsable):
        Worker(client, "orders", lambda _: None).use(server.url)


async def test_a_client_that_is_given_stays_open(
    server: Server, orders: AsyncQueue, client: AsyncClient
) -> None:
    await published(orders, ["one"])
    async with working(Worker(client, "orders", lambda _: None)):
        await becomes_empty(orders)
    assert await client.is_alive()
