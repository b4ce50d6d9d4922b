"""Queues by pattern, found as they appear, over a fake."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from harness.waiting import comes_true
from harness.working import becomes_empty, made, published, working

from mq import AsyncWorkerMessage, Worker
from mq.client.client import AsyncClient
from mq.client.errors import BadName
from mq.client.options import Seams
from mq.client.worker.dispatching import WORKER_QUEUES_MAX, fits, is_pattern
from mq.client.worker.polling import FIND_EVERY_S, FOLLOW_EVERY_S


class Looks:
    """The seam that waits between looks at mq's queues: until the test says so."""

    def __init__(self, of_s: float = FIND_EVERY_S) -> None:
        self.count = 0
        self._of_s = of_s
        self._again = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds != self._of_s:
            await asyncio.sleep(min(seconds, 0.05))
            return
        self.count += 1
        await self._again.wait()
        self._again.clear()

    async def again(self) -> None:
        """Another look, to its end."""
        await comes_true(lambda: self.count)
        before = self.count
        self._again.set()
        await comes_true(lambda: self.count > before)


class Came:
    """A handler, and the messages that came to it."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def __call__(self, message: AsyncWorkerMessage) -> None:
        self.texts.append(f"{message.queue} {message.text()}")

    async def has(self, *texts: str) -> None:
        await comes_true(lambda: sorted(self.texts) == sorted(texts), f"{texts} came")


@asynccontextmanager
async def looking(worker: Worker, looks: Looks) -> AsyncIterator[None]:
    async with working(worker):
        await comes_true(lambda: looks.count)
        yield


async def test_queues_are_found_as_they_appear_and_dropped_as_they_go(faked: AsyncClient) -> None:
    looks, came = Looks(), Came()
    worker = Worker(faked, seams=Seams(sleep=looks.sleep))
    worker.handler("orders.*")(came)
    eu, other = await made(faked, "orders.eu", "others")
    await published(eu, ["1"])
    await published(other, ["no"])
    async with looking(worker, looks):
        await came.has("orders.eu 1")
        (us,) = await made(faked, "orders.us")
        await published(us, ["2"])
        await looks.again()
        await came.has("orders.eu 1", "orders.us 2")
        await becomes_empty(us)
        await eu.delete()
        await looks.again()
        await published(us, ["3"])
        await came.has("orders.eu 1", "orders.us 2", "orders.us 3")
        await made(faked, "orders.eu")
        await published(eu, ["4"])
        await looks.again()
        await came.has("orders.eu 1", "orders.us 2", "orders.us 3", "orders.eu 4")
        await becomes_empty(eu)
        await becomes_empty(us)
    assert (await other.describe()).ready == 1


async def test_a_queue_s_own_handler_comes_first_then_the_longest_pattern(
    faked: AsyncClient,
) -> None:
    looks = Looks()
    own, typed, long, short = Came(), Came(), Came(), Came()
    worker = Worker(faked, seams=Seams(sleep=looks.sleep))
    worker.handler("orders.eu", type="own")(own)
    worker.handler("orders.*", type="typed")(typed)
    worker.handler("orders.*")(long)
    worker.handler("*")(short)
    (eu, us, other) = await made(faked, "orders.eu", "orders.us", "others")
    for queue in (eu, us, other):
        for kind in ("own", "typed", "x"):
            await queue.publish(kind, headers={"ce-type": kind})
    async with looking(worker, looks):
        for queue in (eu, us, other):
            await becomes_empty(queue)
    assert own.texts == ["orders.eu own"]
    assert sorted(typed.texts) == ["orders.eu typed", "orders.us typed"]
    assert sorted(long.texts) == ["orders.eu x", "orders.us own", "orders.us x"]
    assert sorted(short.texts) == ["others own", "others typed", "others x"]


@pytest.mark.certificate
async def test_more_queues_than_a_worker_may_have_are_left_and_named(
    faked: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    looks, came = Looks(), Came()
    names = [f"orders.{number:03}" for number in range(WORKER_QUEUES_MAX + 3)]
    queues = await made(faked, *names)
    worker = Worker(faked, seams=Seams(sleep=looks.sleep))
    worker.handler("orders.*")(came)
    for queue in (queues[0], queues[-1]):
        await published(queue, ["x"])
    async with looking(worker, looks):
        await came.has("orders.000 x")
        assert "it leaves 3 others that fit, such as orders.100" in caplog.text
        for queue in queues[:3]:
            await queue.delete()
        await looks.again()
        await came.has("orders.000 x", f"{names[-1]} x")
        await becomes_empty(queues[-1])


async def test_the_settings_of_queues_that_were_found_are_followed(faked: AsyncClient) -> None:
    looks = Looks(FOLLOW_EVERY_S)
    worker = Worker(faked, consumers=4, follow_setting=True, seams=Seams(sleep=looks.sleep))
    worker.handler("orders.*")(Came())
    (eu,) = await made(faked, "orders.eu")
    await eu.change_settings(consumers=9)
    async with working(worker):

        async def follows() -> bool:
            await looks.again()
            return worker.consumers == 9

        await comes_true(follows)


async def test_a_queue_that_goes_with_messages_in_the_worker_ends_nothing(
    faked: AsyncClient,
) -> None:
    looks = Looks()
    over, began = asyncio.Event(), asyncio.Event()
    worker = Worker(faked, consumers=1, prefetch=5, seams=Seams(sleep=looks.sleep))

    @worker.handler("orders.*")
    async def waits(message: AsyncWorkerMessage) -> None:
        began.set()
        await over.wait()

    eu, us = await made(faked, "orders.eu", "orders.us")
    await published(eu, ["1", "2", "3"])
    async with looking(worker, looks):
        await began.wait()
        await eu.delete()
        await looks.again()
        over.set()
        await published(us, ["4"])
        await becomes_empty(us)


@pytest.mark.parametrize(
    ("pattern", "queue", "whether"),
    [
        ("orders.*", "orders.eu", True), ("orders.*", "orders", False), ("*", "orders", True),
        ("orders?", "orders1", True), ("[a-c]*", "beer", True), ("[!a-c]*", "beer", False),
        ("ORDERS.*", "orders.eu", False), ("*", "orders_SIDELINE", False),
        ("*_SIDELINE", "orders_SIDELINE", True), ("*_SIDELINE", "orders", False),
    ],
)  # fmt: skip
def test_names_that_fit(pattern: str, queue: str, whether: bool) -> None:
    assert is_pattern(pattern)
    assert fits(queue, pattern) is whether


def test_a_name_is_no_pattern_and_nonsense_is_neither() -> None:
    assert not is_pattern("orders.eu")
    for nonsense in ("orders *", "a/*", ""):
        with pytest.raises(BadName):
            Worker("http://127.0.0.1:1").handler(nonsense)
