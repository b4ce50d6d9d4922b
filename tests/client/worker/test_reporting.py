"""A worker that is killed, or whose mq is, costs what no handler saw no attempt."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes import Process, Processes, eventually

from mq import Client
from mq.client.sync import Queue

MESSAGES = 6
MAX_RECEIVES = 2
# A message in flight comes back when it is due: before the handler of the next worker gets it, the
# test has deleted it.
VISIBILITY_S = 60

APP = """
import asyncio
from pathlib import Path
from mq import Worker

here = Path(__file__).parent
worker = Worker("http://127.0.0.1:1", consumers=1, prefetch=10)

@worker.handler("orders")
async def handle(message):
    with open(here / "told", "a") as file:
        file.write(f"{message.id}\\n")
    await asyncio.sleep(3600)
"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def started(daemons: Processes, root: Path, port: int) -> Process:
    return daemons.mq(root, "--visibility", str(VISIBILITY_S), port=port)


def filled(client: Client) -> Queue:
    queue = client.queue("orders")
    queue.create()
    queue.change_settings({"max_receives": MAX_RECEIVES})
    for number in range(MESSAGES):
        queue.publish(str(number))
    return queue


def counts(queue: Queue, *wanted: int) -> Callable[[], bool]:
    """Whether these numbers are ready and in flight, and none was sidelined."""

    def are() -> bool:
        found = queue.describe()
        assert found.sidelined == 0
        return (found.ready, found.in_flight) == wanted

    return are


def test_what_no_handler_saw_is_never_sidelined(
    root: Path, daemons: Processes, tmp_path: Path, port: int
) -> None:
    (tmp_path / "app.py").write_text(APP)
    told = tmp_path / "told"
    daemons.mover("--root", str(root))
    mq = started(daemons, root, port)
    with Client(mq.url) as client:
        queue = filled(client)
        for kill in range(3):
            flags = ("worker", "app:worker", "--app-dir", str(tmp_path))
            worker = daemons.start("mq.tools.mqctl", *flags, env={"MQ_URL": mq.url})
            left = MESSAGES - kill
            eventually(lambda left=left: counts(queue, 0, left)(), "all are in flight")
            eventually(lambda n=kill: told.exists() and told.read_text().count("\n") > n, "began")
            handled = told.read_text().split()[-1]
            worker.kill()
            # The one in the handler counts, and is the dead worker's until it is due.
            eventually(lambda left=left: counts(queue, left - 1, 1)(), "the others are back")
            client.queue("orders").delete_message(handled)
        # A poll of a killed worker may have got one more, which mq returned as well.
        assert all(each.receives >= 3 for each in queue.peek())
        assert queue.describe().ready == MESSAGES - 3
        assert queue.describe().sidelined == 0


def test_a_worker_goes_on_after_kills_of_mq(
    root: Path, daemons: Processes, tmp_path: Path, port: int
) -> None:
    (tmp_path / "app.py").write_text(APP)
    daemons.mover("--root", str(root))
    mq = started(daemons, root, port)
    with Client(mq.url) as client:
        queue = filled(client)
        flags = ("worker", "app:worker", "--app-dir", str(tmp_path))
        daemons.start("mq.tools.mqctl", *flags, env={"MQ_URL": mq.url})
        for _ in range(3):
            eventually(counts(queue, 0, MESSAGES), "the worker has all")
            mq.kill()
            mq = started(daemons, root, port)
        eventually(counts(queue, 0, MESSAGES), "the worker has all again")
