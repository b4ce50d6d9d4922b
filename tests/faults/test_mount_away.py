"""A mount goes away while daemons run and comes back: what was answered is there, and nothing is
stored in the folder below the mount point.
"""

import asyncio
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from harness.commands import child_pid, run_command
from harness.mounts import run_tool
from harness.processes import PATIENCE_S, Process, Processes, eventually

from mq import Client
from mq.client.errors import Unavailable

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.usefixtures("needs_root"),
    pytest.mark.timeout(180),
]


class Mount:
    """An ext4 in an image, whose mount comes and goes."""

    def __init__(self, top: Path) -> None:
        self.point = top / "mounted"
        self.point.mkdir()
        self._image = top / "image"
        run_tool("truncate", "--size", "64M", str(self._image))
        run_tool("mkfs.ext4", "-q", str(self._image))
        self.come()

    def come(self) -> None:
        run_tool("mount", "-o", "loop", str(self._image), str(self.point))

    def go(self) -> None:
        run_tool("umount", "--lazy", str(self.point))

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.point)], capture_output=True)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    made = Mount(tmp_path)
    yield made
    made.end()


def ask(mq: Process, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(f"{mq.url}{path}", method=method, data=body)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def problem(answer: tuple[int, bytes]) -> str:
    return str(json.loads(answer[1])["type"].removeprefix("urn:mq:problem:"))


def stopped_by_kill(mq: Process, daemon: str) -> None:
    """The child is killed, and has been started again or tried."""
    pid = child_pid(mq, daemon)
    os.kill(pid, signal.SIGKILL)
    mq.wait_for_log(rf"a daemon ended and starts again daemon={daemon}")


@pytest.mark.parametrize("flags", [(), ("--processes", "2")], ids=["one", "two"])
def test_what_was_answered_is_there_when_the_mount_is_back(
    daemons: Processes, mount: Mount, flags: tuple[str, ...]
) -> None:
    mq = daemons.mq(mount.point / "root", "--standalone", *flags)
    assert ask(mq, "PUT", "/orders")[0] == 201
    assert ask(mq, "POST", "/orders/messages", b"kept")[0] == 201
    mount.go()
    # What a child that starts now would make.
    killed = ["mq-mover", "mq-reaper", *(["mq-0"] if flags else [])]
    for daemon in killed:
        stopped_by_kill(mq, daemon)
        mq.wait_for_log("there is no root at")
    for method, path in (
        ("PUT", "/hidden"),
        ("POST", "/orders/messages"),
        ("GET", "/orders/messages"),
        ("GET", "/orders"),
        ("GET", "/-/readyz"),
    ):
        assert problem(ask(mq, method, path, b"" if method == "POST" else None)) == "root-away"
    assert ask(mq, "GET", "/-/livez")[0] == 200
    assert list(mount.point.iterdir()) == []
    mount.come()
    eventually(lambda: ask(mq, "GET", "/-/readyz")[0] == 200, "it is ready")
    status, body = ask(mq, "GET", "/orders/messages?visibility=0.1")
    assert (status, body) == (200, b"kept")
    # mq-mover is back, too, and mq hears of what it does.
    eventually(lambda: ask(mq, "GET", "/orders/messages") == (200, b"kept"), "it is redelivered")


def test_another_root_in_its_place_gets_nothing(daemons: Processes, mount: Mount) -> None:
    """One that lay below the mount point."""
    mount.go()
    below = mount.point / "root"
    other = daemons.mq(below)
    assert ask(other, "PUT", "/orders")[0] == 201
    other.kill()
    mount.come()
    mq = daemons.mq(below, "--standalone")
    assert ask(mq, "PUT", "/orders")[0] == 201
    mount.go()
    assert problem(ask(mq, "POST", "/orders/messages", b"hidden")) == "root-away"
    assert list((below / "queues" / "orders").iterdir()) == []
    stopped_by_kill(mq, "mq-mover")
    mq.wait_for_log("another root is at")
    mount.come()
    eventually(lambda: ask(mq, "POST", "/orders/messages", b"x")[0] == 201, "it goes on")


async def test_a_consumer_that_waits_gets_what_comes_afterwards(
    daemons: Processes, mount: Mount
) -> None:
    root = mount.point / "root"
    mq, peer = daemons.mq(root), daemons.mq(root)
    assert ask(mq, "PUT", "/orders")[0] == 201
    waiting = asyncio.create_task(asyncio.to_thread(ask, mq, "GET", "/orders/messages?wait=60"))
    mount.go()
    assert problem(await asyncio.to_thread(ask, peer, "GET", "/orders")) == "root-away"
    mount.come()
    await asyncio.to_thread(
        eventually,
        lambda: ask(peer, "POST", "/orders/messages", b"afterwards")[0] == 201,
        "the peer goes on",
    )
    status, body = await waiting
    if status == 503:  # It may have looked while the root was away, and says so.
        assert problem((status, body)) == "root-away"
        status, body = await asyncio.to_thread(ask, mq, "GET", "/orders/messages?wait=60")
    assert (status, body) == (200, b"afterwards")


@pytest.mark.parametrize("via", ["websocket", "poll"])
def test_a_consumer_of_the_client_goes_on(
    daemons: Processes, mount: Mount, via: Literal["websocket", "poll"]
) -> None:
    mq = daemons.mq(mount.point / "root", "--standalone")
    with Client(mq.url) as client:
        orders = client.queue("orders")
        orders.create()
        orders.publish("before")
        with orders.consume(via=via) as consumer:
            message = consumer.next(PATIENCE_S)
            assert message is not None
            mount.go()
            with pytest.raises(Unavailable):
                client.queue("others").create()
            mount.come()
            eventually(lambda: ask(mq, "GET", "/-/readyz")[0] == 200, "it is ready")
            message.delete()
            orders.publish("afterwards")
            found = consumer.next(PATIENCE_S)
            assert found is not None
            assert found.text() == "afterwards"
            found.delete()


@pytest.mark.parametrize("module", ["mq_mover", "mq_reaper"])
def test_mover_and_reaper_make_no_root(mount: Mount, module: str) -> None:
    ended = run_command(module, "--root", str(mount.point / "root"))
    assert ended.returncode == 1
    assert "there is no root at" in ended.stderr
    assert not (mount.point / "root").exists()


@pytest.mark.parametrize("flags", [(), ("--processes", "2"), ("--standalone",)])
def test_a_root_that_is_required_is_not_made(mount: Mount, flags: tuple[str, ...]) -> None:
    root = mount.point / "root"
    ended = run_command("mq", "--root", str(root), "--port", "0", "--require-root", *flags)
    assert ended.returncode == 1
    assert "there is no root at" in ended.stderr
    assert not root.exists()


def test_mover_logs_a_root_that_is_away_once(daemons: Processes, mount: Mount) -> None:
    root = mount.point / "root"
    mq = daemons.mq(root)
    assert ask(mq, "PUT", "/orders")[0] == 201
    assert ask(mq, "POST", "/orders/messages?delay=0.5", b"due")[0] == 201
    mover = daemons.mover("--root", str(root))
    mount.go()
    mover.wait_for_log("a pass failed")
    # Until passes have failed more than once.
    before = _voluntary_switches(mover.popen.pid)
    eventually(lambda: _voluntary_switches(mover.popen.pid) > before + 3, "more passes")
    said = [line.partition(" ")[2] for line in mover.lines if "a pass failed" in line]
    assert len(said) == len(set(said))
    mount.come()
    eventually(lambda: ask(mq, "GET", "/orders/messages") == (200, b"due"), "it is redelivered")


def _voluntary_switches(pid: int) -> int:
    """How often the process has waited."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    raise AssertionError("no such line")
