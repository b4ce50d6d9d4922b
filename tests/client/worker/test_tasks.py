"""Tasks: what a call's message says, what a worker does with it, and what becomes of its result."""

import asyncio
import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pydantic
import pytest
from harness.processes import PATIENCE_S, Processes
from harness.server import Server
from harness.working import becomes_empty, working

from mq import Worker
from mq.client.client import AsyncClient
from mq.client.errors import BadName, NotUsable
from mq.client.options import Retry
from mq.client.values import NewMessage
from mq.client.worker import BadBody, Cron, Every, TaskFailed
from mq.testing import FakeMq

TTL_S = 3600
PATIENT_S = 60.0


class Size(Enum):
    SMALL = "s"


@dataclass
class Order:
    dish: str
    table: int = 1


class Fits(pydantic.BaseModel):
    dish: str


class Knife: ...


@pytest.fixture
def client(faked: AsyncClient) -> AsyncClient:
    return faked


@pytest.fixture
def worker(client: AsyncClient) -> Worker:
    return Worker(client, "orders")


def strange(
    order: Order, /, size: Size, *more: int, at: datetime, price: Decimal = Decimal(1), **ids: UUID
) -> list[object]:
    return [order, size, more, at, price, ids]


async def test_arguments_come_as_they_were_given(worker: Worker, client: AsyncClient) -> None:
    found: list[object] = []

    @worker.task
    def takes(*args: Any, **kwargs: Any) -> None:
        found.append(strange(*args, **kwargs))

    takes_typed = worker.task(name="typed")(strange)
    assert takes_typed.__doc__ is strange.__doc__
    at, id_ = datetime(2026, 12, 24, 18, tzinfo=UTC), UUID(int=7)
    args: tuple[Any, ...] = (Order("soup", 2), Size.SMALL, 1, 2)
    body = takes_typed.form.written(args, {"at": at, "a": id_})
    assert json.loads(body) == {
        "order": {"dish": "soup", "table": 2},
        "size": "s",
        "more": [1, 2],
        "at": "2026-12-24T18:00:00Z",
        "ids": {"a": str(id_)},
    }
    bound = takes_typed.form.arguments(body)
    wanted = [args[0], Size.SMALL, (1, 2), at, Decimal(1), {"a": id_}]
    assert strange(*bound.args, **bound.kwargs) == wanted
    assert takes_typed(*args, at=at, a=id_) == wanted
    await client.queue("orders").create()
    async with working(worker):
        await takes.send_async(*args, at=at)
        await becomes_empty(client.queue("orders"))
    assert len(found) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_results_come_back_as_they_were(worker: Worker, is_async: bool) -> None:
    def plain(order: Order, fits: Fits) -> Order:
        return Order(order.dish + fits.dish, order.table + 1)

    async def coroutine(order: Order, fits: Fits) -> Order:
        await asyncio.sleep(0)
        return plain(order, fits)

    task: Any = worker.task(result_ttl_s=TTL_S)(coroutine if is_async else plain)

    @worker.task(result_ttl_s=TTL_S)
    def refuses() -> bool:
        return False

    handle = await task.send_async(Order("so"), fits=Fits(dish="up"))
    with pytest.raises(TimeoutError):
        await handle.result_async(0)
    other = await refuses.send_async()
    async with working(worker):
        assert await handle.result_async(PATIENT_S) == Order("soup", 2)
        assert await other.result_async(PATIENT_S) is False
    # It stays, for any program that knows the id.
    assert await task.handle(handle.id).result_async(0) == Order("soup", 2)


async def test_calls_are_put_off_and_scheduled_with_their_options(
    worker: Worker, fake: FakeMq, client: AsyncClient
) -> None:
    @worker.task
    def cook(dish: str) -> None: ...

    orders = client.queue("orders")
    urgent = cook.options(priority=9, key="k")
    first = await urgent.send_after_async(timedelta(hours=1), "soup")
    assert (await orders.read_key("k")).id == first.id
    await cook.send_after_async(3600, "stew")
    await cook.send_after_async(datetime(2100, 1, 1, tzinfo=UTC), "roast")
    assert len(fake.queue("orders").delayed) == 3
    made = await cook.schedule_async("nightly", Cron("30 2 * * *", "Europe/Berlin"), "bread")
    assert (made.cron, made.tz, json.loads(made.body)) == (
        *("30 2 * * *", "Europe/Berlin"),
        {"dish": "bread"},
    )
    await cook.schedule_async("often", Every(60), "tea")
    assert {each.name: each.every_s for each in await orders.schedules()} == {
        "nightly": None,
        "often": 60,
    }
    with pytest.raises(ValueError, match="no idempotency_key"):
        await cook.options(idempotency_key="once").schedule_async("never", Every(60), "tea")


@pytest.mark.parametrize(
    ("args", "error", "why"),
    [
        ((), TypeError, "missing a required argument: 'order'"),
        ((Order("soup"), 1, 2), TypeError, "too many"),
        (({"dish": 5},), BadBody, "order.dish: Input should be a valid string"),
        ((Order("soup"), "two"), BadBody, "times: Input should be a valid integer"),
        ((object(),), ValueError, "unknown type: .*object"),
        ((Order("soup"), float("nan")), ValueError, "not JSON compliant"),
    ],
)
async def test_a_bad_call_is_refused_before_it_is_published(
    worker: Worker, client: AsyncClient, args: tuple[Any, ...], error: type[Exception], why: str
) -> None:
    @worker.task
    def cook(order: Order, times: int = 1) -> None: ...

    task: Any = cook
    with pytest.raises(error, match=why):
        await task.send_async(*args)
    assert not [entry async for entry in client.queues()]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[1]", "Input should be an object"),
        (b"{", "arguments do not fit the task cook"),
        (b'{"order": {"dish": "soup"}, "salt": 1}', "no argument salt"),
        (b"{}", "order: Field required"),
    ],
)
async def test_a_bad_message_goes_to_the_sideline_without_a_retry(
    worker: Worker, client: AsyncClient, body: bytes, why: str
) -> None:
    @worker.task(retries=9, result_ttl_s=TTL_S)
    def cook(order: Order) -> None: ...

    await client.queue("orders").create()
    message = NewMessage(body, headers={"x-attribute-task": "cook"})
    id_ = await client.queue("orders").publish_message(message)
    async with working(worker):
        with pytest.raises(TaskFailed, match=why):
            await cook.handle(id_).result_async(PATIENT_S)
        await becomes_empty(client.queue("orders"))
    [failed] = await client.queue("orders_SIDELINE").failures(id_)
    assert why in str(failed.text)


@pytest.mark.parametrize("into", [None, "shared_SIDELINE"])
async def test_an_unknown_name_goes_to_the_sideline_where_its_caller_finds_it(
    worker: Worker, client: AsyncClient, into: str | None
) -> None:
    other = Worker(client, "orders").task(name="new", result_ttl_s=TTL_S)(Order)
    worker.task(name="old")(Order)
    await client.queue("orders").create()
    await client.queue("orders").change_settings(sideline_to=into)
    handle = await other.send_async("soup")
    async with working(worker):
        await becomes_empty(client.queue("orders"))
    with pytest.raises(TaskFailed, match="none is the task new"):
        await handle.result_async(0)


async def test_a_failure_is_retried_and_kept_once_it_is_final(
    worker: Worker, client: AsyncClient, fake: FakeMq
) -> None:
    tries: list[int] = []
    breaks = True

    @worker.task(retries=2, result_ttl_s=TTL_S, on_ignored="delete", ignore=KeyError)
    async def cook(dish: str) -> str:
        tries.append(len(tries))
        if dish == "lobster":
            raise KeyError(dish)
        if breaks:
            raise RuntimeError("the stove is cold")
        return dish

    handle = await cook.send_async("soup")
    ignored = await cook.send_async("lobster")

    async def ticks() -> None:
        while True:
            fake.clock.advance(1)
            await asyncio.sleep(0.01)

    async with working(worker):
        with pytest.raises(TaskFailed, match="KeyError"):
            await ignored.result_async(PATIENT_S)
        ticking = asyncio.create_task(ticks())
        with pytest.raises(TaskFailed, match="the stove is cold") as raised:
            await handle.result_async(PATIENT_S)
        await becomes_empty(client.queue("orders"))
        ticking.cancel()
        assert len(tries) == 1 + 3
        failure = raised.value.failure
        assert failure is not None
        assert 'raise RuntimeError("the stove' in failure.trace
        # Once it is redriven, a success replaces the failure.
        breaks = False
        await client.queue("orders").shovel(older_than_s=0)

        async def result() -> str:
            while True:
                fake.clock.advance(1)
                try:
                    return await handle.result_async(0)
                except (TaskFailed, TimeoutError):
                    await asyncio.sleep(0.01)

        assert await asyncio.wait_for(result(), PATIENT_S) == "soup"


@pytest.mark.parametrize("result", [object(), "x" * 2**20], ids=["no-json", "too-large"])
async def test_a_result_that_cannot_be_kept_is_a_failure_without_a_retry(
    worker: Worker, client: AsyncClient, result: object
) -> None:
    ran: list[object] = []

    @worker.task(retries=9, result_ttl_s=TTL_S)
    def cook() -> Any:
        ran.append(result)
        return result

    handle = await cook.send_async()
    async with working(worker):
        with pytest.raises(TaskFailed, match="result of the task cook"):
            await handle.result_async(PATIENT_S)
        await becomes_empty(client.queue("orders"))
    assert len(ran) == 1


@pytest.mark.certificate
async def test_a_result_waits_for_mq_and_is_not_forced_on_it(
    client: AsyncClient, fake: FakeMq
) -> None:
    async with AsyncClient(transport=fake.transport(), retry=Retry(attempts=1)) as hasty:
        worker = Worker(hasty, "orders")

        @worker.task(result_ttl_s=TTL_S)
        async def cook() -> int:
            fake.fail(1, method="POST")
            return 7

        handle = await cook.send_async()
        async with working(worker):
            assert await handle.result_async(PATIENT_S) == 7

    @Worker(client, "orders").task
    def keeps_none() -> None: ...

    with pytest.raises(NotUsable, match="result_ttl_s"):
        await (await keeps_none.send_async()).result_async(0)
    with pytest.raises(NotUsable, match="_async"):
        keeps_none.send()


async def test_bad_declarations_are_refused(client: AsyncClient) -> None:
    worker: Any = Worker(client)
    with pytest.raises(ValueError, match="which queue"):
        worker.task(strange)
    of_orders: Any = Worker(client, "orders")
    of_orders.task(strange)
    for options, function, error, why in (
        ({}, strange, ValueError, "task's name"),
        ({}, lambda: None, ValueError, "task's name must be"),
        ({"queue": "a*"}, strange, BadName, "queue name"),
        ({"queue": "a" * 55, "result_ttl_s": 1}, Order, BadName, "queue name"),
        ({"result_ttl_s": 0}, Order, ValueError, "result_ttl_s"),
        ({"retry": 1}, Order, TypeError, "a task has no option retry"),
        ({"max": 5}, Order, TypeError, "a task has no option max"),
        ({"name": "knife"}, takes_a_knife, TypeError, "arguments of knife.*Knife"),
        ({"name": "knife", "result_ttl_s": 1}, gives_a_knife, TypeError, "cannot give Knife"),
        ({"name": "later"}, takes_unknown, TypeError, "cannot be read"),
    ):
        with pytest.raises(error, match=why):
            of_orders.task(**options)(function)
    with pytest.raises(TypeError, match="no option prio"):
        of_orders.task(name="ok")(Order).options(prio=1)


def takes_a_knife(knife: Knife) -> None: ...


def gives_a_knife() -> Knife:
    return Knife()


def takes_unknown(it: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def test_threads_and_other_loops_send_too(server: Server) -> None:
    worker = Worker(server.url, "orders")

    @worker.task(result_ttl_s=TTL_S)
    def adds(one: int, two: int) -> int:
        # A task may send, in its thread.
        if one == 0:
            return adds.send(1, two).result(PATIENT_S)
        return one + two

    def in_a_thread() -> None:
        found.append(adds.send(0, 2).result(PATIENT_S))
        found.append(adds.send_after(0, 2, 3).result(PATIENT_S))
        found.append(adds.schedule("often", Every(3600), 4, 5).name)

    def in_a_loop() -> None:
        async def asks() -> int:
            return await (await adds.send_async(3, 4)).result_async(PATIENT_S)

        found.append(asyncio.run(asks()))

    found: list[object] = []
    async with working(worker):
        for ask in (in_a_thread, in_a_loop):
            await asyncio.to_thread(ask)
        assert await (await adds.send_async(4, 5)).result_async(PATIENT_S) == 9
    assert found == [3, 5, "often", 7]
    assert threading.current_thread() is threading.main_thread()


APP = """
import os, signal
from pathlib import Path
from mq import Worker

here = Path(__file__).parent

async def dies(message, call_next):
    result = await call_next(message)
    if not (here / "died").exists():
        (here / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return result

worker = Worker("URL", "orders", middleware=[dies])

@worker.task(result_ttl_s=3600)
def cook(dish: str) -> str:
    with open(here / "cooked", "a") as file:
        file.write(dish)
    return dish
"""


@pytest.mark.certificate
async def test_a_worker_killed_between_result_and_delete_runs_nothing_again(
    daemons: Processes, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP.replace("URL", server.url))
    ask = "import app; print(app.cook.send('soup').id)"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", ask],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    words = ("mq.tools.mqctl", "worker", "app:worker", "--app-dir", str(tmp_path))
    process = await asyncio.to_thread(daemons.start, *words)
    assert await asyncio.to_thread(process.popen.wait, PATIENCE_S) == -9
    process = await asyncio.to_thread(daemons.start, *words)
    async with AsyncClient(server.url) as client:
        await client.queue("orders").release(done.stdout.strip())  # As its visibility's end does.
        await becomes_empty(client.queue("orders"))
        assert (tmp_path / "cooked").read_text() == "soup"
        task = Worker(client, "orders").task(name="cook", result_ttl_s=TTL_S)(Order)
        with pytest.raises(BadBody, match="result does not fit"):
            await task.handle(done.stdout.strip()).result_async(0)
        kept = await client.queue("orders-results").read_key(done.stdout.strip()[:36])
        assert kept.json() == {"result": "soup"}
    assert await asyncio.to_thread(process.terminate) == 0
