"""What a handler takes, and its own options, over a fake."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from harness.waiting import comes_true
from harness.working import becomes_empty, made, published, sidelined, working

from mq import AsyncWorkerMessage, Worker, WorkerMessage
from mq.client.client import AsyncClient
from mq.client.worker import Backoff, BadBody
from mq.client.worker.handlers import is_body

if TYPE_CHECKING:
    from mq.client.worker.choices import Choices


@dataclass
class Order:
    dish: str
    table: int = 0


class Paid(pydantic.BaseModel):
    dish: str


class Size(Enum):
    SMALL = "small"


# What it takes


async def test_a_handler_needs_no_parentheses(faked: AsyncClient) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, ["one"])
    worker = Worker(faked, "orders")
    came: list[str] = []

    @worker.handler
    async def cook(message: AsyncWorkerMessage) -> None:
        came.append(message.text())

    assert cook.__name__ == "cook"
    async with working(worker):
        await becomes_empty(orders)
    assert came == ["one"]


@pytest.mark.parametrize("kind", [Order, Paid])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("with_message", [None, "before", "after"])
async def test_the_body_comes_as_its_type(
    faked: AsyncClient, kind: type, is_async: bool, with_message: str | None
) -> None:
    (orders,) = await made(faked, "orders")
    message_id = await orders.publish(json={"dish": "soup"})
    came: list[object] = []
    flavour = AsyncWorkerMessage if is_async else WorkerMessage

    def alone(order: Any) -> None:
        came.extend((order, None))

    def before(message: Any, order: Any) -> None:
        came.extend((order, message.id))

    def after(order: Any, message: Any) -> None:
        came.extend((order, message.id))

    handle: Any = {None: alone, "before": before, "after": after}[with_message]
    handle.__annotations__ |= {"order": kind, "message": flavour}
    if is_async:
        inner = handle

        async def in_the_loop(*given: Any) -> None:
            inner(*given)

        handle = in_the_loop
        handle.__wrapped__ = inner
    async with working(Worker(faked, "orders", handle)):
        await becomes_empty(orders)
    assert came == [kind(dish="soup"), message_id if with_message else None]


@pytest.mark.parametrize(
    "options", [{"on_error": "release"}, {"retries": 5}, {"ignore": ValueError}]
)
async def test_a_body_that_does_not_fit_goes_to_the_sideline_at_once(
    faked: AsyncClient, options: "Choices", caplog: pytest.LogCaptureFixture
) -> None:
    (orders,) = await made(faked, "orders")
    await orders.publish(json={"dish": 5})
    worker = Worker(faked, "orders")
    raised: list[BaseException] = []

    @worker.handler(**options)
    def cook(order: Order) -> None:
        raise AssertionError(order)

    async with working(worker):
        (found,) = await sidelined(orders, faked)
    assert (found.sidelined, found.receives) == ("exception", 1)
    assert "does not fit Order: dish: Input should be a valid string" in caplog.text
    assert raised == []


@pytest.mark.parametrize("kind", [int, str, dict[str, int], list[Order], Any, None, Size])
def test_other_types_are_no_bodies(kind: Any) -> None:
    assert not is_body(kind)


async def test_middleware_sees_that_a_body_does_not_fit(faked: AsyncClient) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, ["no json"])
    seen: list[BaseException] = []

    async def forgives(message: AsyncWorkerMessage, call_next: Any) -> object:
        try:
            return await call_next(message)
        except BadBody as error:
            seen.append(error)
            return True

    worker = Worker(faked, "orders", middleware=[forgives])

    @worker.handler
    def cook(order: Order) -> None:
        raise AssertionError(order)

    async with working(worker):
        await becomes_empty(orders)
    assert len(seen) == 1


def none() -> None: ...
def three(a: Any, b: Any, c: Any) -> None: ...
def two_messages(a: WorkerMessage, b: WorkerMessage) -> None: ...
def two_bodies(a: Order, b: Paid) -> None: ...
def a_dict(body: dict[str, int]) -> None: ...
def a_text(body: str) -> None: ...
def a_list(orders: list[Order]) -> None: ...
def unseen(order: "Unseen") -> None: ...  # type: ignore[name-defined] # noqa: F821
def in_a_thread(message: AsyncWorkerMessage) -> None: ...
async def in_the_loop(message: WorkerMessage) -> None: ...
def named(*, message: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (none, "takes nothing"),
        (three, "takes more"),
        (named, "takes nothing"),
        (two_messages, "two of a kind"),
        (two_bodies, "two of a kind"),
        (a_dict, "not a dict"),
        (a_text, "not a str"),
        (a_list, "needs max"),
        (unseen, "Unseen .* cannot be read"),
        (in_a_thread, " as WorkerMessage"),
        (in_the_loop, " as AsyncWorkerMessage"),
    ],
)
def test_a_handler_that_no_call_fits_is_refused(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Worker("http://127.0.0.1:1", "orders", function)


def test_annotations_that_say_nothing_are_of_messages() -> None:
    def later(message: "WorkerMessage | Unseen") -> None: ...  # type: ignore[name-defined] # noqa: F821
    def anything(message: object, *, more: int = 5) -> None: ...
    def optional(message: Any = None) -> None: ...

    for number, each in enumerate((print, [].append, anything, optional, lambda *_: None)):
        Worker("http://127.0.0.1:1", f"orders{number}", each)
    with pytest.raises(TypeError, match="cannot be read"):
        Worker("http://127.0.0.1:1", "orders", later)


# Its options


async def test_each_handler_has_its_own_policy(faked: AsyncClient) -> None:
    """The worker's are the others'."""
    queues = await made(faked, *"abcdef")
    soon = Backoff(0, 0)
    worker = Worker(faked, retries=1, backoff=soon, ignore=KeyError)
    calls: dict[str, int] = dict.fromkeys("abcdef", 0)

    def failing(error: type[Exception] | None) -> Callable[[WorkerMessage], object]:
        def handle(message: WorkerMessage) -> object:
            calls[message.queue] += 1
            if error is not None:
                raise error
            return False

        return handle

    worker.handler("a")(failing(ValueError))
    worker.handler("b", retries=3)(failing(ValueError))
    worker.handler("c")(failing(KeyError))
    worker.handler("d", ignore=ValueError, on_ignored="sideline")(failing(ValueError))
    worker.handler("e", ignore=(), retries=0)(failing(KeyError))
    worker.handler("f", on_false="sideline")(failing(None))
    for queue in queues:
        await published(queue, ["one"])
    async with working(worker):
        for queue in queues:
            await becomes_empty(queue)
    assert calls == {"a": 2, "b": 4, "c": 1, "d": 1, "e": 1, "f": 1}
    names = [entry.name async for entry in faked.queues() if entry.sideline]
    assert names == [f"{name}_SIDELINE" for name in "abdef"]


@pytest.mark.parametrize("single", [False, True])
async def test_deliveries_that_no_handler_saw_are_no_retries(
    faked: AsyncClient, single: bool
) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, ["one"])
    for returned in range(3):
        (found,) = [await orders.fetch()] if single else await orders.fetch_many(1)
        assert found is not None
        assert (found.receives, found.attempts) == (returned + 1, 1)
        await found.release(unhandled=True)
    seen: list[tuple[int, int]] = []
    worker = Worker(faked, "orders", retries=1, backoff=Backoff(0, 0))

    @worker.handler
    def fails(message: WorkerMessage) -> None:
        seen.append((message.receives, message.attempts))
        raise RuntimeError("no")

    async with working(worker):
        await sidelined(orders, faked)
    assert seen == [(4, 1), (5, 2)]


async def test_each_handler_has_its_time_limit(faked: AsyncClient) -> None:
    (orders,) = await made(faked, "orders")
    worker = Worker(faked, "orders", time_limit_s=1000)

    @worker.handler(time_limit_s=0.01)
    async def hangs(message: AsyncWorkerMessage) -> None:
        await asyncio.Event().wait()

    await published(orders, ["one"])
    async with working(worker):
        (found,) = await sidelined(orders, faked)
    assert found.sidelined == "exception"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_has_its_own_number_of_places(faked: AsyncClient, is_async: bool) -> None:
    """Its messages that wait let those that came later pass, of the same queue and of others."""
    orders, others = await made(faked, "orders", "others")
    over = threading.Event()
    began: list[str] = []
    worker = Worker(faked, "orders", consumers=3, prefetch=10)

    def in_a_thread(message: WorkerMessage) -> None:
        began.append(message.text())
        over.wait(30)

    async def in_the_loop(message: AsyncWorkerMessage) -> None:
        began.append(message.text())
        await comes_true(over.is_set)

    worker.handler(type="slow", consumers=2)(in_the_loop if is_async else in_a_thread)

    @worker.handler
    async def quick(message: AsyncWorkerMessage) -> None:
        began.append(message.text())

    worker.handler("others")(quick)
    for number in range(5):
        await orders.publish(f"slow {number}", headers={"ce-type": "slow"})
    await orders.publish("quick")
    await others.publish("other")
    async with working(worker):
        await comes_true(lambda: {"quick", "other"} <= set(began))
        assert [each for each in began if each.startswith("slow")] == ["slow 0", "slow 1"]
        over.set()
        await becomes_empty(orders)
    assert len(began) == 7


async def test_a_queue_whose_handlers_are_few_leaves_messages_to_other_workers(
    faked: AsyncClient,
) -> None:
    (orders,) = await made(faked, "orders")
    await published(orders, (str(n) for n in range(10)))
    over = asyncio.Event()
    began: list[str] = []
    worker = Worker(faked, "orders", consumers=8, prefetch=0)

    @worker.handler(consumers=2)
    async def handle(message: AsyncWorkerMessage) -> None:
        began.append(message.text())
        await over.wait()

    async with working(worker):
        await comes_true(lambda: len(began) == 2)
        assert (await orders.describe()).in_flight == 2
        over.set()
        await becomes_empty(orders)


@pytest.mark.parametrize(
    "wrong",
    [
        {"retries": -1}, {"consumers": 0}, {"consumers": 101}, {"time_limit_s": 0}, {"max": 0},
        {"max": 1001}, {"max": True}, {"wait": -1, "max": 5}, {"wait": 1}, {"on_ignored": "drop"},
        {"on_error": "lapse"},
    ],
)  # fmt: skip
def test_no_such_options(wrong: dict[str, Any]) -> None:
    worker = Worker("http://127.0.0.1:1", "orders")
    with pytest.raises(ValueError, match=next(iter(wrong))):
        worker.handler(**wrong)


def test_an_unknown_option_names_the_nearest() -> None:
    worker = Worker("http://127.0.0.1:1", "orders")
    with pytest.raises(TypeError, match=r"no option retry \(did you mean retries\?\)"):
        worker.handler(retry=3)  # type: ignore[call-arg]
