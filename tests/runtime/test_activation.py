"""Sockets that are held by somebody else: what mq takes, and that a restart loses nobody."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.manager import handing_on
from harness.needs import program
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.raw import raw_connection, raw_head
from harness.siblings import server_pids
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import StartupError
from mq.runtime.activation import check_listening, take_descriptors

OWN = 4711
CLIENTS = 4
ACTIVATE = "systemd-socket-activate"


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as made:
        yield made


def _start(
    daemons: Processes, root: Path, sockets: list[socket.socket], *flags: str
) -> tuple[Process, str]:
    """An mq with these sockets, and where it says that it listens."""
    mq = daemons.start(
        "mq", "--root", str(root), *flags, python=handing_on(sockets),
        descriptors=[each.fileno() for each in sockets],
    )  # fmt: skip
    said = mq.wait_for_log(r'listening .*port=(\d+).* sockets=("[^"]*"|\S+)')
    mq.port = int(said.group(1))
    return mq, said.group(2)


def _answer(place: socket.socket, path: str = "/-/livez") -> bytes:
    with socket.socket(place.family) as client:
        client.settimeout(PATIENCE_S)
        client.connect(place.getsockname())
        client.sendall(raw_head("GET", path, "Connection: close"))
        return b"".join(iter(lambda: client.recv(65536), b""))


# What is taken.


@pytest.mark.parametrize(("whose", "count"), [("1", "1"), ("", "1"), ("4711", "")])
def test_what_is_another_process_is_not_taken(whose: str, count: str) -> None:
    said = {"LISTEN_PID": whose, "LISTEN_FDS": count, "LISTEN_FDNAMES": "mq", "HOME": "/"}
    assert take_descriptors(said, OWN) == ()
    assert said == {"HOME": "/"}


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1))
def test_a_count_that_is_none_is_refused(count: str) -> None:
    if count.isascii() and count.isdigit() and 0 < int(count) <= 64:
        return
    with pytest.raises(StartupError, match="LISTEN_FDS"):
        take_descriptors({"LISTEN_PID": str(OWN), "LISTEN_FDS": count}, OWN)


def test_what_nobody_can_connect_to_is_refused(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        silent = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        file = stack.enter_context((tmp_path / "file").open("w"))
        refused = {
            datagrams.fileno(): "not a stream socket; use ListenStream=",
            silent.fileno(): "does not listen; use Accept=no",
            file.fileno(): "is not a listening socket",
            9999: "is not a listening socket",
        }
        for descriptor, why in refused.items():
            with pytest.raises(StartupError, match=why):
                check_listening(descriptor)
        assert silent.fileno() >= 0
        assert os.fstat(silent.fileno())


@pytest.mark.certificate
def test_a_socket_that_mq_cannot_use_is_one_clear_line(daemons: Processes, root: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        mq = daemons.start(
            "mq", "--root", str(root), "--processes", "2",
            python=handing_on([datagrams]), descriptors=[datagrams.fileno()],
        )  # fmt: skip
        assert mq.popen.wait(PATIENCE_S) == 1
    eventually(lambda: mq.lines)
    assert len(mq.lines) == 1
    assert "socket 3 is not a stream" in mq.lines[0]


# Where it serves.


@pytest.mark.certificate
@pytest.mark.parametrize("flags", [(), ("--processes", "2")], ids=["one", "several"])
def test_it_serves_on_all_that_it_is_given_and_leaves_them_there(
    daemons: Processes, root: Path, listening: socket.socket, flags: tuple[str, ...]
) -> None:
    path = f"/tmp/mq-{os.getpid()}.sock"
    with (
        socket.create_server(path, family=socket.AF_UNIX) as at_path,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as sixth,
    ):
        try:
            sockets = [listening, at_path, sixth]
            # Beside them, what says where it would listen by itself counts for nothing.
            mq, places = _start(daemons, root, sockets, "--port", "1", "--standalone", *flags)
            first, third = listening.getsockname()[1], sixth.getsockname()[1]
            assert places == f'"127.0.0.1 port {first}, {path}, ::1 port {third}"'
            for each in sockets:
                assert _answer(each).startswith(b"HTTP/1.1 200")
            children = [int(word.split("=")[1]) for line in mq.lines
                        for word in line.split() if word.startswith("pid=")]  # fmt: skip
            for child in children:
                environment = Path(f"/proc/{child}/environ").read_bytes()
                assert b"LISTEN_" not in environment
            for pid in server_pids(mq, 2) if flags else ():
                os.kill(pid, signal.SIGKILL)
            # Nobody accepts for a while, and nobody is refused.
            assert _answer(listening).startswith(b"HTTP/1.1 200")
            assert mq.terminate() == 0
            assert os.path.exists(path)
        finally:
            os.unlink(path)


@pytest.mark.certificate
def test_systemd_itself_hands_it_over(root: Path) -> None:
    program(ACTIVATE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    mq = shutil.which("mq") or "mq"
    command = [ACTIVATE, "-l", f"127.0.0.1:{port}", "-E", "PYTHONPATH", mq, "--root", str(root)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as activated:
        try:
            assert activated.stderr is not None
            assert "Listening on" in activated.stderr.readline()
            request = urllib.request.Request(f"http://127.0.0.1:{port}/orders", method="PUT")
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                assert response.status == 201
        finally:
            activated.terminate()
        said = activated.stderr.read()
    assert activated.returncode == 0
    assert f'sockets="127.0.0.1 port {port}"' in said
    assert "drained" in said


# A restart.


class Publishers:
    """Each publishes message after message, every one over a connection of its own."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/orders"
        self._ended = threading.Event()
        self.published: list[str] = []
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._publish) for _ in range(CLIENTS)]

    def begin(self) -> None:
        request = urllib.request.Request(self._url, method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _publish(self) -> None:
        request = urllib.request.Request(f"{self._url}/messages", data=b"pizza", method="POST")
        while not self._ended.is_set():
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                    self.published.append(response.headers["X-Message-Id"])
            except OSError as error:
                self.errors.append(error)
                return


@pytest.mark.certificate
def test_no_connection_is_lost_over_restarts(
    daemons: Processes, root: Path, listening: socket.socket
) -> None:
    mq, _ = _start(daemons, root, [listening])
    publishers = Publishers(listening.getsockname()[1])
    publishers.begin()
    try:
        for _ in range(2):
            wanted = len(publishers.published) + 20
            eventually(lambda wanted=wanted: len(publishers.published) >= wanted, "publishes")
            assert mq.terminate() == 0
            mq, _ = _start(daemons, root, [listening])
    finally:
        publishers.end()
    assert publishers.errors == []
    stored = {path.name for path in (root / "queues" / "orders").iterdir()}
    assert stored == set(publishers.published)


@pytest.mark.certificate
async def test_a_request_is_heard_of_one_who_had_just_connected(
    daemons: Processes, root: Path, listening: socket.socket
) -> None:
    mq, _ = await asyncio.to_thread(_start, daemons, root, [listening])
    async with raw_connection(mq.port) as connection:
        await asyncio.to_thread(_answer, listening)  # By then it has accepted the other one too.
        mq.popen.send_signal(signal.SIGTERM)
        await asyncio.to_thread(_stops_accepting, mq)
        await connection.send(raw_head("GET", "/-/livez"))
        assert (await connection.response()).status == 200
    assert await asyncio.to_thread(mq.popen.wait, PATIENCE_S) == 0


def _stops_accepting(mq: Process) -> None:
    """Waits until the process holds its copy of the socket no more, but the one it was given."""

    def sockets() -> list[str]:
        found = []
        for each in Path(f"/proc/{mq.popen.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(each))
        return found

    given = os.readlink(f"/proc/{mq.popen.pid}/fd/3")
    eventually(lambda: sockets().count(given) == 1, "the end of listening")
