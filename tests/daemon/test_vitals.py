"""What systemd is told of each daemon, and that it is told of life only while there is some."""

import asyncio
import contextlib
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from harness.commands import child_pid
from harness.faults import FaultyFiles
from harness.folders import make_root
from harness.manager import Manager, manager
from harness.processes import Process, Processes, eventually
from harness.server import Serve, Server
from harness.siblings import server_pids, started
from harness.waiting import comes_true

from mq.daemon.vitals import Vitals
from mq.runtime.notify import Notifier
from mq.runtime.pulse import Pulse
from mq.runtime.server_settings import ServerSettings
from mq.store.disk.files import ProgressFiles

WATCHDOG_S = 0.4
# Of one that is ended when it does not speak within it.
PATIENT_S = 4.0
# So many ticks of another are more than a watchdog's time.
LONG = 8


@pytest.fixture
def told() -> Iterator[Manager]:
    with manager() as made:
        yield made


@pytest.fixture
def clock() -> Iterator["Clock"]:
    made = Clock()
    yield made
    made.pulse.stop()


class Clock:
    """A pulse that always beats: its ticks are the time that others have."""

    def __init__(self) -> None:
        self.ticks = 0
        self.pulse = Pulse(Notifier(self._tick, WATCHDOG_S))
        self.pulse.ending()
        self.pulse.start(lambda: None)

    def passes(self) -> None:
        wanted = self.ticks + LONG
        eventually(lambda: self.ticks >= wanted, "the time of a watchdog")

    def _tick(self, message: bytes) -> None:
        self.ticks += 1


def _stop(process: Process) -> None:
    process.popen.send_signal(signal.SIGSTOP)
    status = Path(f"/proc/{process.popen.pid}/stat")
    eventually(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")


# Each daemon.


@pytest.mark.certificate
def test_mq_tells_from_when_it_serves_to_its_end(
    daemons: Processes, root: Path, told: Manager, clock: Clock
) -> None:
    flags = ("--root", str(root), "--port", "0", "--standalone", "--drain-timeout", "5")
    mq = daemons.start("mq", *flags, env=told.environment(WATCHDOG_S))
    ready = told.hears("STATUS")
    port = mq.wait_for_log(r"listening .*port=(\d+)").group(1)
    assert told.told[0] == {"READY": "1", "STATUS": f"Serving {root} on 127.0.0.1 port {port}"}
    more = told.hears("STATUS", "durability")
    assert more.startswith(f"{ready}: ")
    assert "GiB free" in more
    told.hears_ticks(4)
    for child in ("mq-mover", "mq-reaper"):
        environment = Path(f"/proc/{child_pid(mq, child)}/environ").read_bytes()
        assert b"NOTIFY_SOCKET" not in environment
        assert b"WATCHDOG" not in environment
    _stop(mq)
    ticks = told.ticks
    clock.passes()
    assert told.ticks <= ticks + 1  # What it had sent before.
    mq.popen.send_signal(signal.SIGCONT)
    told.hears_ticks(4)
    assert mq.terminate() == 0
    told.hears("STOPPING")
    assert told.values("EXTEND_TIMEOUT_USEC") == ["25000000"]
    assert told.values("READY") == ["1"]


@pytest.mark.certificate
def test_mover_and_reaper_tell_of_their_passes(daemons: Processes, root: Path) -> None:
    with manager() as of_mover, manager() as of_reaper:
        flags = ("--root", str(make_root(root)))
        mover = daemons.start("mq_mover", *flags, env=of_mover.environment(WATCHDOG_S))
        of_mover.hears("READY")
        reaper = daemons.start("mq_reaper", *flags, env=of_reaper.environment(WATCHDOG_S))
        said = f"Moving due messages in {root}: 0 redelivered, 0 from leases"
        assert said in of_mover.hears("STATUS")
        assert of_reaper.hears("STATUS") == f"Reaping {root}/remove: 0 gone"
        of_mover.hears_ticks(4)
        _stop(mover)
        ticks = of_mover.ticks
        of_reaper.hears_ticks(LONG)
        assert of_mover.ticks <= ticks + 1
        mover.popen.send_signal(signal.SIGCONT)
        of_mover.hears_ticks(2)
        assert mover.terminate() == reaper.terminate() == 0
        of_mover.hears("STOPPING")
        of_reaper.hears("STOPPING")


@pytest.mark.certificate
def test_of_several_one_that_stands_still_is_ended_and_followed(
    daemons: Processes, root: Path, told: Manager
) -> None:
    flags = ("--root", str(root), "--port", "0", "--processes", "2")
    mq = daemons.start("mq", *flags, env=told.environment(PATIENT_S))
    told.hears("READY")
    assert told.hears("STATUS") == f"Serving {root}: 2 of 2 processes are up"
    still, goes_on = server_pids(mq, 2)
    os.kill(still, signal.SIGSTOP)
    mq.wait_for_log("a daemon stopped responding; killed it daemon=mq-0")
    told.hears("STATUS", ": 1 of 2 processes are up")
    eventually(lambda: told.values("STATUS")[-1].endswith(": 2 of 2 processes are up"))
    told.hears_ticks(1)
    assert started(mq, "mq-1") == [goes_on]
    assert mq.terminate() == 0
    told.hears("STOPPING")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"NOTIFY_SOCKET": "vsock:2:1"}, "NOTIFY_SOCKET"),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "soon"}, "WATCHDOG_USEC"),
    ],
)
def test_what_no_manager_says_is_one_clear_line(
    daemons: Processes, root: Path, said: dict[str, str], why: str
) -> None:
    reaper = daemons.start("mq_reaper", "--root", str(root), env=said)
    assert reaper.popen.wait() == 1
    eventually(lambda: reaper.lines)
    assert len(reaper.lines) == 1
    assert why in reaper.lines[0]


# Life.


class Heard:
    """All that an mq in this loop tells."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def hear(self, message: bytes) -> None:
        self.messages.append(message.decode())

    @property
    def ticks(self) -> int:
        return self.messages.count("WATCHDOG=1")

    def says(self, part: str) -> bool:
        return any(part in message for message in self.messages)


@contextlib.asynccontextmanager
async def _watched(server: Server) -> AsyncIterator[Heard]:
    heard = Heard()
    settings = ServerSettings(root=server.root)
    vitals = Vitals(server.daemon, Notifier(heard.hear, WATCHDOG_S), settings)
    vitals.begin()
    try:
        yield heard
    finally:
        vitals.ending()
        vitals.end()


@pytest.mark.certificate
async def test_a_loop_that_does_not_turn_is_no_life(server: Server, clock: Clock) -> None:
    async with _watched(server) as heard:
        await comes_true(lambda: heard.ticks >= 4, "ticks")
        clock.passes()
        ticks = heard.ticks
        clock.passes()
        assert heard.ticks <= ticks + 1  # One may have been on its way, on a busy machine.
        await comes_true(lambda: heard.ticks >= ticks + 4, "ticks")


@pytest.mark.certificate
async def test_commits_that_get_on_no_more_are_no_life_though_the_loop_turns(
    serve: Serve, clock: Clock
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    await server.request("PUT", "/orders")
    async with _watched(server) as heard:
        await comes_true(lambda: heard.ticks >= 4, "ticks")
        gate = files.hold("sync", "orders:")
        task = asyncio.ensure_future(server.request("POST", "/orders/messages", data=b"x"))
        await comes_true(gate.reached.is_set, "the flush")
        await asyncio.to_thread(clock.passes)
        ticks = heard.ticks
        await asyncio.to_thread(clock.passes)
        assert heard.ticks == ticks
        gate.open()
        assert (await task).status == 201
        await comes_true(lambda: heard.ticks >= ticks + 4, "ticks")


@pytest.mark.certificate
async def test_a_root_that_answers_nobody_is_told_of_and_no_death(
    serve: Serve, clock: Clock
) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    gate = files.hold("sync")
    await server.request("PUT", "/orders")
    task = asyncio.ensure_future(server.request("POST", "/orders/messages", data=b"x"))
    await comes_true(gate.reached.is_set, "the flush")
    async with _watched(server) as heard:
        await asyncio.to_thread(clock.passes)
        ticks = heard.ticks
        await comes_true(lambda: heard.ticks >= ticks + 4, "ticks")
        assert heard.says("the root does not answer")
        gate.open()
        assert (await task).status == 201


@pytest.mark.certificate
async def test_a_root_that_cannot_store_is_told_of_and_no_death(serve: Serve) -> None:
    files = FaultyFiles()
    server = await serve(files=files)
    files.fail("sync", errno.EIO)
    async with _watched(server) as heard:
        await comes_true(lambda: heard.says("nothing can be stored"), "the status")
        await comes_true(lambda: heard.ticks >= LONG, "ticks")


def test_long_listings_are_progress_of_the_thread_that_lists(tmp_path: Path) -> None:
    for number in range(1_200):
        (tmp_path / str(number)).touch()
    beats: list[int] = []
    files = ProgressFiles(lambda: beats.append(1))
    assert len(list(files.entries(str(tmp_path)))) == 1_200
    assert len(beats) == 2
    files.unlink(str(tmp_path / "0"))
    assert len(beats) == 3
    other = threading.Thread(target=files.unlink, args=(str(tmp_path / "1"),))
    other.start()
    other.join()
    assert len(beats) == 3
