"""What becomes of a message by how its handler ended: on a real mq, in the loop and in threads."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from harness.server import Server
from harness.waiting import comes_true
from harness.working import becomes_empty, published, sidelined, working

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.queue import AsyncQueue
from mq.client.worker import AsyncWorkerMessage, Backoff, NoHandler, WorkerMessage

Handler = Callable[[Any], object]


def doing(what: Callable[[Any], object]) -> list[Any]:
    """The same as a function for a thread, and as a coroutine function."""

    def in_a_thread(message: WorkerMessage) -> object:
        return what(message)

    async def in_the_loop(message: AsyncWorkerMessage) -> object:
        return what(message)

    return [pytest.param(in_a_thread, id="thread"), pytest.param(in_the_loop, id="loop")]


def raising(error: BaseException) -> Callable[[Any], object]:
    def raises(_: Any) -> object:
        raise error

    return raises


async def removed(queue: AsyncQueue) -> list[bytes]:
    return [message.body for message in await queue.peek(states=("removed",))]


@pytest.mark.parametrize("handler", doing(lambda _: True) + doing(lambda _: None))
async def test_true_and_none_delete(server: Server, orders: AsyncQueue, handler: Handler) -> None:
    await published(orders, ["one", "two"])
    async with working(Worker(server.url, "orders", handler)):
        await becomes_empty(orders)
    assert sorted(await removed(orders)) == [b"one", b"two"]


@pytest.mark.parametrize("handler", doing(lambda _: False))
async def test_false_sidelines(
    server: Server, client: AsyncClient, orders: AsyncQueue, handler: Handler
) -> None:
    await published(orders, ["one"])
    async with working(Worker(server.url, "orders", handler)):
        (found,) = await sidelined(orders, client)
    assert (found.body, found.sidelined) == (b"one", "rejected")


def fails(message: Any) -> None:
    raise ValueError(f"no\nsuch customer {'x' * 9000}")


@pytest.mark.parametrize("handler", doing(fails))
async def test_what_it_raised_is_kept_at_each_attempt(
    server: Server, client: AsyncClient, orders: AsyncQueue, handler: Handler
) -> None:
    await published(orders, ["one"])
    backoff = Backoff(0, 0)
    worker = Worker(server.url, "orders", handler, retries=1, backoff=backoff)
    async with working(worker):
        (found,) = await sidelined(orders, client)
    into = client.queue("orders_SIDELINE")
    failures = await into.failures(found.id)
    assert [(each.event, each.receives) for each in failures] == [("released", 1), ("sidelined", 2)]
    for each in failures:
        assert (each.type, (each.text or "")[:16]) == ("ValueError", "no\nsuch customer")
        assert (each.trace or "").startswith("Traceback")
        assert "/mq/client/" not in (each.trace or "")
        assert (each.trace or "").rstrip().endswith("x")
        assert handler.__qualname__ in (each.handler or "")
    message = await into.fetch()
    assert message is not None
    assert (message.reason or "").startswith("ValueError: no such customer")
    assert await message.failures() == failures
    await message.release(reason="not now")
    assert (await into.failures(found.id))[-1].text == "not now"
    again = await into.fetch()
    assert again is not None
    assert again.reason == "not now"
    with pytest.raises(ValueError, match="failure"):
        await again.release(reason="x" * 9000)


_refused: set[str] = set()


def refuse(message: Any) -> bool:
    _refused.add(message.id)
    return False


@pytest.mark.parametrize("handler", doing(refuse))
async def test_or_has_it_lapse(server: Server, orders: AsyncQueue, handler: Handler) -> None:
    await published(orders, ["one"])
    worker = Worker(server.url, "orders", handler, on_false="lapse")
    async with working(worker):
        (found,) = await comes_true(lambda: orders.peek(states=("delayed",)))
        # A worker that is told to end before gives it back.
        await comes_true(lambda: found.id in _refused)
    (found,) = await orders.peek(states=("delayed",))
    assert found.receives == 1
    assert not (await orders.describe()).totals["extended"]


@pytest.mark.parametrize("handler", doing(raising(ValueError("no order"))))
@pytest.mark.parametrize("ignore", [ValueError, (KeyError, ValueError)])
async def test_what_is_ignored_deletes(
    server: Server, orders: AsyncQueue, handler: Handler, ignore: Any
) -> None:
    await published(orders, ["one"])
    async with working(Worker(server.url, "orders", handler, ignore=ignore)):
        await becomes_empty(orders)
    assert await removed(orders) == [b"one"]


@pytest.mark.parametrize(
    "handler",
    [
        handler
        for error in (
            KeyError("x"),
            SystemExit(3),
            StopIteration(),
            asyncio.CancelledError(),
            GeneratorExit(),
        )
        for handler in doing(raising(error))
    ]
    + doing(raising(KeyboardInterrupt()))[:1],
)
async def test_any_other_exception_sidelines_and_the_worker_goes_on(
    server: Server,
    client: AsyncClient,
    orders: AsyncQueue,
    handler: Handler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (first,) = await published(orders, ["one"])
    async with working(Worker(server.url, "orders", handler)) as running:
        await sidelined(orders, client)
        await published(orders, ["two"])
        await becomes_empty(orders)
        assert not running.done()
    found = await sidelined(orders, client)
    assert [(each.body, each.sidelined) for each in found] == [
        (b"one", "exception"),
        (b"two", "exception"),
    ]
    (line, _) = [each for each in caplog.records if "handler failed" in each.getMessage()]
    assert line.levelno == logging.WARNING
    assert line.exc_info
    said = line.getMessage()
    assert said.startswith(f"the handler failed on message {first} of orders at {server.url}: ")
    assert type(line.exc_info[1]).__name__ in said
    assert said.endswith("; it goes to the sideline")
    assert len(said) < 500
    assert "\n" not in said


@pytest.mark.parametrize("handler", doing(raising(KeyError("x"))))
async def test_or_releases_with_a_wait_that_grows(
    server: Server, orders: AsyncQueue, handler: Handler
) -> None:
    await published(orders, ["one"])
    worker = Worker(server.url, "orders", handler, on_error="release", backoff=Backoff(100, 10_000))
    async with working(worker):

        async def released_once() -> bool:
            return (await orders.describe()).totals["released"] == 1

        await comes_true(released_once)
        (found,) = await orders.peek(states=("delayed",))
        waits_s = (found.due - found.published).total_seconds()
        assert found.receives == 1
        assert 50 <= waits_s < 200
        # Brought back by hand: its second wait is about twice as long.
        await orders.release(found.id)

        async def released_twice() -> bool:
            return (await orders.describe()).totals["released"] == 3

        await comes_true(released_twice)
        (again,) = await orders.peek(states=("delayed",))
    assert again.receives == 2
    assert 100 <= (again.due - again.published).total_seconds() < 400


async def test_the_sideline_s_own_messages_are_released(
    server: Server, client: AsyncClient, orders: AsyncQueue
) -> None:
    (message_id,) = await published(orders, ["one"])
    await orders.sideline(message_id)
    sideline = client.queue("orders_SIDELINE")

    def handler(_: WorkerMessage) -> bool:
        return False

    worker = Worker(server.url, "orders_SIDELINE", handler, backoff=Backoff(100, 100))
    async with working(worker):

        async def is_released() -> bool:
            return (await sideline.describe()).totals["released"] == 1

        await comes_true(is_released)
    (found,) = await sideline.peek(states=("delayed",))
    assert found.receives == 1


# What a handler settles by itself


@pytest.mark.certificate
@pytest.mark.parametrize("how", ["delete", "release", "sideline"])
@pytest.mark.parametrize("end", [None, False, KeyError("x")])
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_handler_settles_stays_so(
    server: Server, client: AsyncClient, orders: AsyncQueue, how: str, end: Any, is_async: bool
) -> None:
    await published(orders, ["one"])
    words: dict[str, Any] = {"delete": (), "release": (1000,), "sideline": ("exception",)}

    def ended() -> object:
        if isinstance(end, Exception):
            raise end
        return end

    def in_a_thread(message: WorkerMessage) -> object:
        getattr(message, how)(*words[how])
        return ended()

    async def in_the_loop(message: AsyncWorkerMessage) -> object:
        await getattr(message, how)(*words[how])
        return ended()

    handler: Handler = in_the_loop if is_async else in_a_thread
    async with working(Worker(server.url, "orders", handler)):
        if how == "release":

            async def is_released() -> bool:
                return (await orders.describe()).totals["released"] == 1

            await comes_true(is_released)
        else:
            await becomes_empty(orders)
    if how == "delete":
        assert await removed(orders) == [b"one"]
    elif how == "sideline":
        (found,) = await sidelined(orders, client)
        assert found.sidelined == "exception"
    else:
        (delayed,) = await orders.peek(states=("delayed",))
        assert (delayed.due - delayed.published).total_seconds() > 900


# What is no handler


async def test_an_awaitable_of_a_thread_is_a_mistake_of_the_handler_s(
    server: Server, client: AsyncClient, orders: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    async def real(_: WorkerMessage) -> bool:
        return True

    await published(orders, ["one"])

    def forgetful(message: WorkerMessage) -> object:
        return real(message)

    async with working(Worker(server.url, "orders", forgetful)):
        (found,) = await sidelined(orders, client)
    assert found.sidelined == "exception"
    assert "awaitable" in caplog.text


def generator(_: Any) -> Any:
    yield True


async def async_generator(_: Any) -> Any:
    yield True


@pytest.mark.parametrize("nothing", [generator, async_generator, 5, "handler"])
def test_what_would_handle_nothing_is_refused(nothing: Any) -> None:
    with pytest.raises(TypeError, match="handler"):
        Worker("http://127.0.0.1:1", "orders", nothing)


class Called:
    """An object that is called, in the loop."""

    def __init__(self) -> None:
        self.loop: object = None

    async def __call__(self, message: AsyncWorkerMessage) -> None:
        self.loop = asyncio.get_running_loop()


async def test_an_object_with_an_async_call_is_called_in_the_loop(
    server: Server, orders: AsyncQueue
) -> None:
    await published(orders, ["one"])
    handler = Called()
    async with working(Worker(server.url, "orders", handler)):
        await becomes_empty(orders)
    assert handler.loop is asyncio.get_running_loop()


async def test_a_message_that_no_handler_takes_is_a_failure(
    server: Server, client: AsyncClient, orders: AsyncQueue
) -> None:
    await orders.publish("one", headers={"ce-type": "order.paid"})
    worker = Worker(server.url)
    seen: list[BaseException] = []

    @worker.handler("orders", type="order.made")
    def made(_: WorkerMessage) -> None:
        raise AssertionError

    async def watch(message: AsyncWorkerMessage, call_next: Any) -> object:
        try:
            return await call_next(message)
        except NoHandler as error:
            seen.append(error)
            raise

    worker = Worker(server.url, middleware=[watch])
    worker.handler("orders", type="order.made")(made)
    async with working(worker):
        (found,) = await sidelined(orders, client)
    assert found.sidelined == "exception"
    assert len(seen) == 1
