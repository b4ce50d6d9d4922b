"""The server's times: rounded, and of a clock that is not this machine's."""

import http.client
import threading
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest
from harness.api import fetch, make_queue, publish
from harness.clock import FakeClock
from harness.commands import run_command
from harness.messages import ctime_ms, new_id, put_file
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.server import Serve
from harness.waiting import comes_true
from nfs.mounts import nfs_mount
from nfs.pairs import fetched

from mq.model.clock import SystemClock
from mq.model.errors import StartupError
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.files import Files
from mq.store.format.layout import Layout
from mq.store.opening import open_root

HOUR_MS = 3_600_000
VISIBILITY_S = 2
# Each daemon's measurement is off by half a round trip at most, on a machine that is busy.
MEASURED_WITHIN_MS = 500


@pytest.mark.parametrize("step_ns", [100, 1000])
async def test_mtimes_of_whole_microseconds_keep_the_receives(
    tmp_path: Path, serve: Serve, daemons: Processes, step_ns: int
) -> None:
    with nfs_mount(tmp_path, "one", mtime_step_ns=step_ns) as mount:
        server = await serve(root=mount.where / "root", queue=QueueSettings(visibility_s=1))
        await make_queue(server)
        await publish(server)
        daemons.mover("--root", str(server.root))
        for receives in ("1", "2"):
            reply = await comes_true(lambda: fetched(server))
            assert reply.headers["X-Message-Receives"] == receives
        await server.session.close()
        await server.daemon.drain()
        daemons.end_all()


@pytest.mark.parametrize("step_ns", [10_000, 1_000_000, 1_000_000_000, 2_000_000_000])
def test_coarser_mtimes_are_refused(tmp_path: Path, step_ns: int) -> None:
    with nfs_mount(tmp_path, "one", mtime_step_ns=step_ns) as mount:
        with pytest.raises(StartupError, match="microseconds"):
            open_root(str(mount.where / "root"), Files(), FakeClock())
        for module in ("mq", "mq_mover"):
            ended = run_command(module, "--root", str(mount.where / "root"))
            assert ended.returncode != 0
            assert "microseconds" in ended.stderr
        assert not list((mount.where / "root").rglob(".probe*"))


both_ways = pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])


@both_ways
def test_a_visibility_is_over_by_the_server_s_clock(
    tmp_path: Path, daemons: Processes, ahead_ms: int
) -> None:
    with nfs_mount(tmp_path, "one", clock_offset_ms=ahead_ms) as mount:
        root = mount.where / "root"
        one, other = [daemons.mq(root, "--visibility", str(VISIBILITY_S)) for _ in range(2)]
        daemons.mover("--root", str(root))
        assert requests("PUT", f"{one.url}/q").status == 201
        assert requests("POST", f"{one.url}/q/messages", b"body").status == 201
        first = eventually(lambda: delivered(one))
        second = eventually(lambda: delivered(other))
        claimed_ms = due_ms(second) - VISIBILITY_S * 1000
        assert due_ms(first) - MEASURED_WITHIN_MS < claimed_ms
        assert claimed_ms < due_ms(first) + HOUR_MS / 2
        daemons.end_all()


def requests(method: str, url: str, body: bytes | None = None) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, body, method=method)
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=PATIENCE_S)
    with response:
        return response


def delivered(process: Process) -> Mapping[str, str] | None:
    response = requests("GET", f"{process.url}/q/messages")
    return response.headers if response.status == 200 else None


def due_ms(headers: Mapping[str, str]) -> float:
    return datetime.fromisoformat(headers["X-Message-Due"]).timestamp() * 1000


@both_ways
async def test_a_daemon_knows_the_server_s_clock_before_it_serves(
    tmp_path: Path, serve: Serve, ahead_ms: int
) -> None:
    class SlowToMeasure(Files):
        """Its clock is measured as soon as something was fetched, or after a second."""

        fetched = threading.Event()

        def write(self, descriptor: int, data: bytes | bytearray | memoryview) -> None:
            if data == b"clock":
                self.fetched.wait(1)
            super().write(descriptor, data)

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            if "/delay/q:" in target:
                self.fetched.set()

    with nfs_mount(tmp_path, "one", clock_offset_ms=ahead_ms) as mount:
        root = mount.where / "root"
        queue = Path(Layout.of(root).queue(QueueName.parse("q")))
        open_root(str(root), Files(), SystemClock())
        queue.mkdir(mode=0o700)
        written = put_file(queue / new_id().text, b"body")
        server = await serve(files=SlowToMeasure(), root=root)
        reply = await fetch(server)
        assert reply.id == written.name
        fetched_ms = due_ms(reply.headers)
        assert abs(fetched_ms - ctime_ms(root / "delay" / f"q:{reply.id}")) < HOUR_MS / 2
        await server.session.close()
        await server.daemon.drain()
