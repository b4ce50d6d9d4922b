"""Workers as processes: signals, kills, and `mqctl worker` with several."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import PATIENCE_S, Process, Processes, eventually, processes

from mq import Client
from mq.client.sync import Queue
from mq.tools.mqctl.cli import run

APP = """
import asyncio, atexit, os, time
from dataclasses import dataclass
from pathlib import Path
from mq import Worker, WorkerMessage

here = Path(__file__).parent
worker = Worker("http://127.0.0.1:1", consumers=2, prefetch=0, visibility_s=1.5, drain_s=20)

def told(what):
    with open(here / "told", "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

def waits():
    while not (here / "go").exists():
        time.sleep(0.01)

@worker.handler("orders", type="waits")
def in_a_thread(message):
    told(message.text())
    waits()

@worker.handler("orders", type="blocks")
async def in_the_loop(message):
    told(message.text())
    waits()

@worker.handler("orders", type="dies")
def dies(message):
    message.delete()
    told(message.text())
    os.abort()

@worker.handler("orders")
def plain(message):
    told(message.text())

found = Worker("http://127.0.0.1:1", consumers=1, visibility_s=1.5, drain_s=20)

@dataclass
class Order:
    dish: str

@found.handler("orders*", max=2, wait=0.1)
def batch(orders: list[Order], messages: list[WorkerMessage]):
    told("+".join(sorted(order.dish for order in orders)))
    waits()

short = Worker("http://127.0.0.1:1", "orders", in_a_thread, visibility_s=60, drain_s=0.1)
bad = Worker("http://127.0.0.1:1")
no_worker = 5
if (here / "code").exists():
    atexit.register(lambda: os._exit(7))
"""


@pytest.fixture(scope="module")
def mq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with processes() as started:
        root = tmp_path_factory.mktemp("mq") / "root"
        mq = started.mq(root)
        started.mover("--root", str(root))
        yield mq


@pytest.fixture
def orders(mq: Process) -> Iterator[Queue]:
    with Client(mq.url) as client:
        queue = client.queue("orders")
        queue.create()
        yield queue
        queue.delete()


class App:
    """The program above, and what its handlers told."""

    def __init__(self, folder: Path, mq: Process, daemons: Processes) -> None:
        self.folder = folder
        self._mq = mq
        self._daemons = daemons
        (folder / "app.py").write_text(APP)

    def start(self, *flags: str, worker: str = "app:worker", own_group: bool = False) -> Process:
        return self._daemons.start(
            "mq.tools.mqctl", "worker", worker, "--app-dir", str(self.folder), *flags,
            env={"MQ_URL": self._mq.url}, own_group=own_group,
        )  # fmt: skip

    def told(self) -> list[tuple[str, int]]:
        path = self.folder / "told"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def tells(self, *words: str) -> list[int]:
        """Once they told these words, in any order: the processes that did."""

        def all_told() -> bool:
            return sorted(word for word, _ in self.told()) == sorted(words)

        eventually(all_told, f"{words} is told")
        return [pid for _, pid in self.told()]

    def go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def app(tmp_path: Path, mq: Process, daemons: Processes) -> App:
    return App(tmp_path, mq, daemons)


def publish(orders: Queue, body: str, type_: str = "plain") -> str:
    return orders.publish(body, headers={"ce-type": type_})


def ended(process: Process) -> int:
    return process.popen.wait(PATIENCE_S)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def states(orders: Queue) -> list[str]:
    return [each.state for each in orders.peek(states=("ready", "delayed"))]


@pytest.mark.certificate
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_has_it_drain(app: App, orders: Queue, number: signal.Signals) -> None:
    worker = app.start()
    publish(orders, "one", "waits")
    app.tells("one")
    worker.popen.send_signal(number)
    worker.wait_for_log("drains")
    assert worker.popen.poll() is None
    app.go()
    assert ended(worker) == 0
    assert states(orders) == []


@pytest.mark.certificate
@pytest.mark.parametrize(
    ("kind", "number", "code"), [("waits", signal.SIGTERM, 143), ("blocks", signal.SIGINT, 130)]
)
def test_a_second_signal_ends_it_at_once(
    app: App, orders: Queue, kind: str, number: signal.Signals, code: int
) -> None:
    """Also where a handler keeps the event loop from turning. What it had comes back when due."""
    worker = app.start()
    publish(orders, "one", kind)
    app.tells("one")
    worker.popen.send_signal(number)
    # Until it was heard a second one would be the same; a signal that is pending twice is one.
    eventually(lambda: not _is_pending(worker.popen.pid, number), "the signal is taken")
    worker.popen.send_signal(number)
    assert ended(worker) == code
    found = orders.fetch(wait_s=30)
    assert found is not None
    assert found.receives == 2


def _is_pending(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) >> (number - 1) & 1:
            return True
    return False


@pytest.mark.certificate
def test_a_thread_that_does_not_end_keeps_no_process(app: App, orders: Queue) -> None:
    worker = app.start(worker="app:short")
    publish(orders, "one")
    app.tells("one")
    assert worker.terminate() == 0
    assert states(orders) == ["ready"]


@pytest.mark.certificate
def test_what_a_killed_worker_had_comes_back_when_it_is_due(app: App, orders: Queue) -> None:
    worker = app.start()
    publish(orders, "one", "waits")
    app.tells("one")
    worker.kill()
    found = orders.fetch(wait_s=30)
    assert found is not None
    assert (found.text(), found.receives) == ("one", 2)


@pytest.mark.certificate
def test_a_batch_of_a_killed_worker_is_handled_again(app: App, orders: Queue, mq: Process) -> None:
    """Its queue was found by a pattern; a body that does not fit is in the sideline in the end."""
    for body in (b'{"dish": "bread"}', b'{"dish": "soup"}', b'{"dish": 5}'):
        orders.publish(body)
    worker = app.start(worker="app:found")
    app.tells("bread+soup")
    worker.kill()
    again = app.start(worker="app:found")
    app.tells("bread+soup", "bread+soup")
    app.go()
    eventually(lambda: states(orders) == [], "all are handled")
    assert again.terminate() == 0
    with Client(mq.url) as client:
        (left,) = client.queue("orders_SIDELINE").peek()
        assert (left.body, left.sidelined) == (b'{"dish": 5}', "exception")
        client.queue("orders_SIDELINE").delete()


# Several


@pytest.mark.certificate
def test_several_share_the_work_and_one_that_dies_is_started_again(app: App, orders: Queue) -> None:
    worker = app.start("--processes", "2")
    for body in ("a", "b", "c", "d"):
        publish(orders, body, "waits")
    first = set(app.tells("a", "b", "c", "d"))
    assert len(first) == 2
    killed = first.pop()
    os.kill(killed, signal.SIGKILL)
    worker.wait_for_log("is restarted in")
    eventually(lambda: len(app.told()) == 6, "what the killed one had is handled again")
    second = {pid for _, pid in app.told()} - {killed}
    app.go()
    eventually(lambda: states(orders) == [], "all are handled")
    assert worker.terminate() == 0
    assert not any(is_alive(pid) for pid in second)


@pytest.mark.certificate
def test_ctrl_c_of_a_terminal_has_all_of_them_drain(app: App, orders: Queue) -> None:
    worker = app.start("--processes", "2", own_group=True)
    for body in ("a", "b", "c", "d"):
        publish(orders, body, "waits")
    app.tells("a", "b", "c", "d")
    os.killpg(worker.popen.pid, signal.SIGINT)
    worker.wait_for_log("drains")
    app.go()
    assert ended(worker) == 0
    assert states(orders) == []


@pytest.mark.certificate
def test_sigterm_to_the_whole_group_has_all_of_them_drain(app: App, orders: Queue) -> None:
    """Each process gets it, and then the parent's as well."""
    worker = app.start("--processes", "2", own_group=True)
    for body in ("a", "b", "c", "d"):
        publish(orders, body, "waits")
    app.tells("a", "b", "c", "d")
    os.killpg(worker.popen.pid, signal.SIGTERM)
    for _ in range(2):
        worker.wait_for_log("drains")
    app.go()
    assert ended(worker) == 0
    assert states(orders) == []


@pytest.mark.certificate
def test_a_second_signal_kills_all_of_them(app: App, orders: Queue) -> None:
    worker = app.start("--processes", "2")
    for body in ("a", "b", "c", "d"):
        publish(orders, body, "waits")
    pids = set(app.tells("a", "b", "c", "d"))
    worker.popen.send_signal(signal.SIGTERM)
    worker.wait_for_log("drains")
    worker.popen.send_signal(signal.SIGTERM)
    assert ended(worker) == 143
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.certificate
def test_without_the_process_that_looks_after_them_they_drain(app: App, orders: Queue) -> None:
    worker = app.start("--processes", "2")
    for body in ("a", "b", "c", "d"):
        publish(orders, body, "waits")
    pids = set(app.tells("a", "b", "c", "d"))
    worker.kill()
    app.go()
    eventually(lambda: not any(is_alive(pid) for pid in pids), "the workers have ended")
    assert states(orders) == []


@pytest.mark.certificate
def test_the_worst_code_is_that_of_all(app: App, orders: Queue) -> None:
    (app.folder / "code").touch()
    worker = app.start("--processes", "2")
    publish(orders, "one")
    app.tells("one")
    for _ in range(2):
        worker.wait_for_log("works")
    assert worker.terminate() == 7


# What cannot be run


@pytest.fixture
def own_process() -> Iterator[None]:
    """What a command changes of this process is as it was before."""
    handlers, level, path = list(logging.root.handlers), logging.root.level, list(sys.path)
    yield
    logging.root.handlers[:], logging.root.level, sys.path[:] = handlers, level, path
    sys.modules.pop("app", None)


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        ("nothing:worker", "no module nothing"),
        ("app:nothing", "no Worker nothing"),
        ("app:no_worker", "no Worker no_worker"),
        ("app:bad", "has no handler"),
        ("app", "MODULE:WORKER"),
        (".app:worker", "MODULE:WORKER"),
    ],
)
@pytest.mark.usefixtures("own_process")
def test_what_is_no_worker_is_said(
    app: App, worker: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["worker", worker, "--app-dir", str(app.folder)]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.certificate
def test_what_cannot_begin_is_not_started_again(app: App) -> None:
    process = app.start("--processes", "2", worker="app:nothing")
    assert ended(process) == 2
    eventually(lambda: process.logged("no Worker nothing"), "why")
    assert not process.logged("is restarted")


@pytest.mark.certificate
@pytest.mark.parametrize("flags", [(), ("--processes", "2")])
@pytest.mark.parametrize("runs", ["worker.run()", "asyncio.run(worker.run_async())"])
def test_a_module_that_runs_its_worker_is_told_of_the_main_guard(
    app: App, runs: str, flags: tuple[str, ...]
) -> None:
    (app.folder / "unguarded.py").write_text(f"{APP}\n{runs}\n")
    process = app.start(*flags, worker="unguarded:worker")
    assert ended(process) == 2
    eventually(lambda: process.logged('if __name__ == "__main__":'), "what to do")
    assert not process.logged("Traceback")


@pytest.mark.certificate
@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("import no_such_module_anywhere", "no_such_module_anywhere"),
        ("from mq.client.errors import NotUsable; raise NotUsable('of its own')", "of its own"),
    ],
)
def test_a_module_s_own_mistake_is_shown(app: App, mistake: str, told: str) -> None:
    (app.folder / "broken.py").write_text(f"{mistake}\n")
    process = app.start(worker="broken:worker")
    assert ended(process) == 1
    eventually(lambda: process.logged(told), "the trace")
