"""`mq --processes`: several on one port, what keeps them alive, and how all of them end."""

import asyncio
import json
import os
import resource
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.commands import child_pid, is_running, run_command
from harness.folders import make_root
from harness.messages import put_entry
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.raw import RawConnection, raw_head, raw_request
from harness.siblings import are_gone, connection_to_each, served, server_pids, started
from harness.waiting import comes_true

from mq.runtime.cores import processes_auto

TWO = ("--processes", "2")
CHILDREN = ("mq-0", "mq-1", "mq-mover", "mq-reaper")
BODY = b"first half, second half"


def _is_refused(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def _put_queue(mq: Process) -> None:
    request = urllib.request.Request(f"{mq.url}/orders", method="PUT")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        assert response.status in (200, 201)


def _all_pids(mq: Process) -> list[int]:
    return [child_pid(mq, daemon) for daemon in CHILDREN]


@asynccontextmanager
async def _publishes_in_hand(mq: Process) -> AsyncIterator[list[RawConnection]]:
    """At each process a publish that has been asked for its body and sent half of it."""
    await asyncio.to_thread(_put_queue, mq)
    async with connection_to_each(mq.port, 2) as connections:
        head = raw_head(
            "POST", "/orders/messages", f"Content-Length: {len(BODY)}", "Expect: 100-continue"
        )
        for connection in connections:
            await connection.send(head)
            assert (await connection.response()).status == 100
            await connection.send(BODY[: len(BODY) // 2])
        yield connections


async def _end_well(connections: list[RawConnection], root: Path) -> None:
    """Sends the other halves: each is answered, and stored."""
    for connection in connections:
        await connection.send(BODY[len(BODY) // 2 :])
        published = await connection.response()
        assert published.status == 201
        ready = root / "queues" / "orders" / published.headers["x-message-id"]
        assert ready.read_bytes() == BODY


def _wait(mq: Process) -> int:
    code = mq.popen.wait(PATIENCE_S)
    assert not mq.logged("Traceback"), mq.lines
    return code


# One port.


async def test_all_listen_on_the_one_port_before_it_is_said(daemons: Processes, root: Path) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, "--processes", "3")
    assert [served(mq, index) for index in range(3)] == [1, 1, 1]
    said = [line for line in mq.lines if "listening" in line]
    assert len(said) == 1
    assert said[0].endswith(f" processes=3 page=http://localhost:{mq.port}/-/")
    await asyncio.to_thread(_put_queue, mq)
    async with connection_to_each(mq.port, 3) as connections:
        for connection in connections:
            for path in ("/-/livez", "/-/readyz"):
                await connection.send(raw_head("GET", path))
                assert (await connection.response()).status == 200


@pytest.mark.certificate
async def test_totals_are_those_of_the_process_that_is_named(
    daemons: Processes, root: Path
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, *TWO)
    await asyncio.to_thread(_put_queue, mq)
    async with connection_to_each(mq.port, 2) as connections:
        for index, connection in enumerate(connections):
            for _ in range(index + 1):
                await connection.send(raw_head("POST", "/orders/messages", "Content-Length: 0"))
                assert (await connection.response()).status == 201
        for index, connection in enumerate(connections):
            await connection.send(raw_head("GET", "/orders"))
            description = (await connection.response()).json()
            assert description["process"] == {"index": index, "of": 2}
            assert description["totals"]["published"] == index + 1


async def test_one_alone_has_no_supervisor(daemons: Processes, root: Path) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, "--processes", "1")
    assert not mq.logged("started daemon")
    await asyncio.to_thread(_put_queue, mq)
    answer = await raw_request(mq.port, raw_head("GET", "/orders"))
    assert answer.json()["process"] == {"index": 0, "of": 1}


@pytest.mark.certificate
def test_auto_is_a_process_for_each_core(daemons: Processes, root: Path) -> None:
    flags = ("--root", str(root), "--port", "0", "--processes", "auto")
    mq = daemons.start("mq", *flags)
    said = mq.wait_for_log("listening .*").group()
    assert f"processes={processes_auto()}" in said or processes_auto() == 1


@pytest.mark.certificate
def test_auto_on_one_core_is_one_process_alone(daemons: Processes, root: Path) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        flags = ("--root", str(root), "--port", "0")
        mq = daemons.start("mq", *flags, env={"MQ_PROCESSES": "auto"})
        mq.wait_for_log("listening")
    finally:
        os.sched_setaffinity(0, cores)
    assert not mq.logged("processes=")


@pytest.mark.certificate
def test_the_number_comes_from_the_environment_too(daemons: Processes, root: Path) -> None:
    flags = ("--root", str(root), "--port", "0", "--log-format", "json")
    mq = daemons.start("mq", *flags, env={"MQ_PROCESSES": "2", "MQ_STANDALONE": "1"})
    said = json.loads(mq.wait_for_log('"listening"').string)
    assert said["processes"] == 2
    assert said["page"] == f"http://localhost:{said['port']}/-/"
    mq.wait_for_log("mq-reaper.*reaping")
    assert mq.terminate() == 0
    eventually(lambda: mq.logged("all drained"))
    events = [json.loads(line) for line in mq.lines]
    begun = [event["daemon"] for event in events if event["event"] == "started"]
    assert sorted(begun) == sorted(CHILDREN)
    assert {event["process"] for event in events if event["event"] == "serving"} == {0, 1}


@pytest.mark.certificate
@pytest.mark.parametrize(
    ("holder", "comer"),
    [("one", "several"), ("one-of-peers", "several"), ("several", "several"), ("several", "one")],
)
def test_the_port_of_another_mq_is_one_clear_line(
    daemons: Processes, tmp_path: Path, holder: str, comer: str
) -> None:
    flags = {"one": (), "one-of-peers": ("--peers", "1"), "several": TWO}
    first = daemons.mq(tmp_path / "first", *flags[holder])
    second = make_root(tmp_path / "second")
    ended = run_command("mq", "--root", str(second), "--port", str(first.port), *flags[comer])
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1 port {first.port}" in ended.stderr
    assert "in use" in ended.stderr


@pytest.mark.certificate
def test_the_port_stays_taken_while_nobody_listens(daemons: Processes, tmp_path: Path) -> None:
    mq = daemons.mq(tmp_path / "first", *TWO)
    pids = server_pids(mq, 2)
    mq.popen.send_signal(signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: _is_refused(mq.port))
    ended = run_command("mq", "--root", str(tmp_path / "second"), "--port", str(mq.port))
    assert ended.returncode == 1
    assert "in use" in ended.stderr
    mq.popen.send_signal(signal.SIGCONT)
    eventually(lambda: [served(mq, 0), served(mq, 1)] == [2, 2], "both again")
    _put_queue(mq)


@pytest.mark.certificate
async def test_it_starts_again_on_its_port_at_once(daemons: Processes, root: Path) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, *TWO)
    await asyncio.to_thread(_put_queue, mq)
    async with connection_to_each(mq.port, 2) as connections:
        assert await asyncio.to_thread(mq.terminate) == 0
        for connection in connections:
            assert await connection.ended() == b""
        again = await asyncio.to_thread(daemons.mq, root, *TWO, port=mq.port)
        assert again.port == mq.port
        await asyncio.to_thread(_put_queue, again)


# What dies is started again.


async def test_one_that_dies_is_started_again_while_the_other_serves(
    daemons: Processes, root: Path
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, *TWO)
    await asyncio.to_thread(_put_queue, mq)
    first, second = server_pids(mq, 2)
    async with connection_to_each(mq.port, 2) as (lost, kept):
        os.kill(first, signal.SIGKILL)
        assert await lost.ended() == b""

        async def serves_meanwhile() -> bool:
            again = served(mq, 0) == 2
            assert (await _livez(kept)).status == 200
            try:
                assert (await raw_request(mq.port, raw_head("GET", "/-/livez"))).status == 200
            except ConnectionResetError:
                return False  # It came to the one that died before its socket was gone.
            return again

        await comes_true(serves_meanwhile, "the second start")
    assert mq.wait_for_log("starts again daemon=mq-0").string.endswith('why="exit -9" in_s=0.0')
    assert server_pids(mq, 2) == [started(mq, "mq-0")[1], second]
    async with connection_to_each(mq.port, 2):
        pass


async def _livez(connection: RawConnection) -> Any:
    await connection.send(raw_head("GET", "/-/livez"))
    return await connection.response()


@pytest.mark.certificate
def test_one_that_dies_again_and_again_waits_longer_and_longer(
    daemons: Processes, root: Path
) -> None:
    mq = daemons.mq(root, *TWO)
    for times in range(1, 4):
        os.kill(started(mq, "mq-1")[-1], signal.SIGKILL)
        eventually(lambda times=times: len(started(mq, "mq-1")) == times + 1)
    waits = [line.rpartition("in_s=")[2] for line in mq.lines if "starts again" in line]
    assert waits == ["0.0", "0.5", "1.0"]


@pytest.mark.certificate
def test_one_that_is_asked_to_end_drains_and_another_takes_its_place(
    daemons: Processes, root: Path
) -> None:
    mq = daemons.mq(root, *TWO)
    os.kill(server_pids(mq, 2)[0], signal.SIGTERM)
    eventually(lambda: served(mq, 0) == 2)
    assert mq.logged("drained process=0")
    assert mq.terminate() == 0


@pytest.mark.certificate
def test_one_that_cannot_be_started_is_tried_again(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, *TWO)
    limits = resource.prlimit(mq.popen.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(mq.popen.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    os.kill(server_pids(mq, 2)[0], signal.SIGKILL)
    mq.wait_for_log("starts again daemon=mq-0 .*Too many open files.*in_s=0.5")
    _put_queue(mq)
    resource.prlimit(mq.popen.pid, resource.RLIMIT_NOFILE, limits)
    eventually(lambda: served(mq, 0) == 2)
    assert mq.terminate() == 0


@pytest.mark.certificate
def test_a_start_that_fails_later_is_tried_again(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, *TWO)
    form = (root / "format").read_text()
    (root / "format").write_text("mq 9\n")
    os.kill(server_pids(mq, 2)[0], signal.SIGKILL)
    mq.wait_for_log('starts again daemon=mq-0 why="exit 1"')
    assert mq.logged("ERROR .*mq 9.* process=0")
    (root / "format").write_text(form)
    eventually(lambda: served(mq, 0) == 2)


@pytest.mark.certificate
@pytest.mark.parametrize("also", [(), ("--standalone",)], ids=["alone", "standalone"])
def test_what_keeps_all_from_starting_is_said_once(root: Path, also: tuple[str, ...]) -> None:
    root.mkdir()
    (root / "format").write_text("mq 9\n")
    flags = ("--root", str(root), "--port", "0", *also)
    ended = run_command("mq", *flags, "--processes", "3")
    alone = run_command("mq", *flags)
    assert ended.returncode == alone.returncode == 1
    errors = [line for line in ended.stderr.splitlines() if " ERROR " in line]
    assert len(errors) == 1
    said = alone.stderr.strip().partition(" ERROR ")[2]
    assert said
    assert errors[0].endswith(said)
    assert "Traceback" not in ended.stderr
    assert "starts again" not in ended.stderr
    assert "listening" not in ended.stderr
    assert "mq-reaper" not in ended.stderr


@pytest.mark.certificate
def test_one_that_is_killed_before_it_listens_is_started_again(
    daemons: Processes, root: Path
) -> None:
    mq = daemons.start("mq", "--root", str(root), "--port", "0", *TWO)
    os.kill(child_pid(mq, "mq-0"), signal.SIGKILL)
    mq.wait_for_log("listening .*processes=2")
    assert len(started(mq, "mq-0")) == 2


# What runs beside them.


@pytest.mark.certificate
def test_mover_and_reaper_run_once_beside_all(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, *TWO, "--standalone")
    eventually(lambda: mq.logged("mq-mover: moving") and mq.logged("mq-reaper: reaping"))
    assert [len(started(mq, daemon)) for daemon in CHILDREN] == [1, 1, 1, 1]
    removed = put_entry(root / "remove")
    eventually(lambda: not removed.exists())
    os.kill(child_pid(mq, "mq-reaper"), signal.SIGKILL)
    eventually(lambda: len(started(mq, "mq-reaper")) == 2)
    removed = put_entry(root / "remove")
    eventually(lambda: not removed.exists())
    assert mq.terminate() == 0


@pytest.mark.certificate
def test_the_installed_mq_runs_wherever_it_is_started(
    daemons: Processes, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("mq_mover", "mq_reaper", "mq", "click"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    flags = ("--root", root.name, "--port", "0", "--standalone", *TWO)
    mq = daemons.start("mq", *flags, python=("-P",))
    mq.wait_for_log("listening .*processes=2")
    mq.wait_for_log("mq-mover: moving")
    mq.wait_for_log("mq-reaper: reaping")
    assert not mq.logged("starts again")
    assert (root / "queues").is_dir()


# The end.


@pytest.mark.certificate
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("to", ["supervisor", "all"])
async def test_a_signal_lets_requests_in_hand_end_well(
    daemons: Processes, root: Path, number: signal.Signals, to: str
) -> None:
    # To all: Ctrl-C in a terminal, and systemd with KillMode=control-group.
    flags = ("--root", str(root), "--port", "0", "--drain-timeout", "20", "--standalone", *TWO)
    mq = daemons.start("mq", *flags, own_group=True)
    said = await asyncio.to_thread(mq.wait_for_log, r"listening .*port=(\d+)")
    mq.port = int(said.group(1))
    pids = await asyncio.to_thread(_all_pids, mq)
    async with _publishes_in_hand(mq) as connections:
        (os.kill if to == "supervisor" else os.killpg)(mq.popen.pid, number)
        await comes_true(lambda: _is_refused(mq.port), "refusing new connections")
        await _end_well(connections, root)
    assert await asyncio.to_thread(_wait, mq) == 0
    assert not any(map(is_running, pids))
    assert mq.logged("all drained")
    assert not mq.logged("starts again")
    assert sum("drained process=" in line for line in mq.lines) == 2


@pytest.mark.certificate
@pytest.mark.parametrize("moment", ["mq-0", "mq-1", "mq-mover"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_while_some_just_start_ends_all(
    daemons: Processes, root: Path, number: signal.Signals, moment: str
) -> None:
    flags = ("--root", str(root), "--port", "0", "--standalone", *TWO)
    mq = daemons.start("mq", *flags, own_group=True)
    mq.wait_for_log(f"started daemon={moment}")
    os.killpg(mq.popen.pid, number)
    assert _wait(mq) == 0
    assert not mq.logged("KeyboardInterrupt")
    are_gone([pid for daemon in CHILDREN for pid in started(mq, daemon)])


@pytest.mark.certificate
async def test_a_second_signal_kills_what_still_drains(daemons: Processes, root: Path) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, *TWO, "--standalone", "--drain-timeout", "600")
    pids = await asyncio.to_thread(_all_pids, mq)
    async with _publishes_in_hand(mq) as connections:
        mq.popen.send_signal(signal.SIGTERM)
        await comes_true(lambda: _is_refused(mq.port), "refusing new connections")
        mq.popen.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(_wait, mq) == 0
        for connection in connections:
            assert await connection.ended() == b""
    assert not any(map(is_running, pids))
    assert mq.logged("second signal to end")


@pytest.mark.certificate
def test_one_that_does_not_end_in_time_is_killed(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, *TWO, "--drain-timeout", "0")
    pids = server_pids(mq, 2)
    os.kill(pids[1], signal.SIGSTOP)
    assert mq.terminate() == 0
    assert mq.logged("a daemon did not end in time; killed it daemon=mq-1")
    assert not mq.logged("killed daemon=mq-0")
    assert not any(map(is_running, pids))


@pytest.mark.certificate
async def test_without_its_supervisor_all_drain_and_the_port_is_free(
    daemons: Processes, root: Path
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, *TWO, "--standalone")
    pids = await asyncio.to_thread(_all_pids, mq)
    async with _publishes_in_hand(mq) as connections:
        await asyncio.to_thread(mq.kill)
        await comes_true(lambda: _is_refused(mq.port), "refusing new connections")
        await _end_well(connections, root)
    await asyncio.to_thread(are_gone, pids)
    assert not mq.logged("Traceback")
    again = await asyncio.to_thread(daemons.mq, root, port=mq.port)
    await asyncio.to_thread(_put_queue, again)


@pytest.mark.certificate
@pytest.mark.parametrize("moment", ["started daemon=mq-0", "serving .*process=0", "daemon=mq-1"])
def test_a_supervisor_killed_at_the_start_leaves_nobody(
    daemons: Processes, root: Path, moment: str
) -> None:
    mq = daemons.start("mq", "--root", str(root), "--port", "0", *TWO)
    mq.wait_for_log(moment)
    mq.kill()
    are_gone([pid for daemon in CHILDREN for pid in started(mq, daemon)])
    assert not mq.logged("Traceback")
