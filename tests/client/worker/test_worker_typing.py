"""What a type checker says about handlers: lines with `# no` are refused, and no others."""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PROGRAM = """
from dataclasses import dataclass

from mq import AsyncWorkerMessage, Worker, WorkerMessage
from mq.client.worker import Backoff, Every

worker = Worker("http://localhost:8080", "orders", retries=3, on_ignored="sideline")


@dataclass
class Order:
    dish: str


@worker.handler
def cook(message: WorkerMessage) -> bool:
    message.extend(5.0).isoformat()
    return message.is_lost


@worker.handler("a")
async def coroutine(message: AsyncWorkerMessage) -> None:
    (await message.extend(5.0)).isoformat()


@worker.handler("b", retries=3, backoff=Backoff(1, 5), consumers=2, time_limit_s=5, ignore=KeyError)
def typed(order: Order) -> str:
    return order.dish.upper()


@worker.handler("c")
def both(order: Order, message: WorkerMessage) -> None:
    print(order.dish, message.schedule and message.schedule.due.isoformat())


@worker.handler("d", max=10, wait=0.5)
def batch(orders: list[Order], messages: list[WorkerMessage]) -> None:
    print(orders[0].dish, messages[0].id)


worker.handler("e")(lambda message: print(message))
reveal = typed(Order("soup")).upper()


@worker.handler("f")  # no
def a_number(message: int) -> None: ...


@worker.handler  # no
def a_text(message: str) -> None: ...


@worker.handler("g", max=10)  # no
def numbers(messages: list[int]) -> None: ...




@worker.task(retries=5, backoff=Backoff(1, 5), result_ttl_s=60)
def task(order: Order, times: int = 1) -> str:
    return order.dish * times


@worker.task
async def quick(number: int) -> list[int]:
    return [number]


async def in_a_loop() -> None:
    (await (await quick.send_async(1)).result_async(5)).append(2)
    (await quick(1)).append(2)
    (await quick.send_after_async(5, 1)).id.upper()


task.send(Order("soup"), times=2).result(5).upper()
task.options(priority=9).send_after(5, Order("soup")).result(5).upper()
task.schedule("daily", Every(60), Order("soup")).name.upper()
task(Order("soup")).upper()
task.send("soup")  # no
task.send(Order("soup"), time=2)  # no
task.send_after(5)  # no
task.send_after("soon", Order("soup"))  # no
task.schedule("daily", 60, Order("soup"))  # no
task.send(Order("soup")).result(5).append(1)  # no
task.options(prio=9)  # no
worker.task(max=5)  # no
worker.handler("h", retry=3)  # no
worker.handler("h", on_error="drop")  # no
worker.handler("h", retries="3")  # no
Worker(retries="3")  # no


@worker.handler("i")
def unknown(message: WorkerMessage) -> None:
    message.acknowledge()  # no
"""


def test_handlers_are_checked(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", ""),
            *("--cache-dir", str(REPOSITORY / ".mypy_cache" / "handlers"), "app.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    refused = {
        int(each) for each in re.findall(r"^app\.py:(\d+): error", done.stdout, re.MULTILINE)
    }
    lines = enumerate(PROGRAM.splitlines(), 1)
    assert refused == {at for at, line in lines if line.endswith("# no")}, done.stdout + done.stderr
