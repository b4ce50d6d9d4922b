"""`python -m deploy.bench.memory`: what mq's memory is bounded by, and what it buys.

Resident memory: bodies of some sizes, published and fetched with most clients slow (they ask and
do not read) and a few fast; a backlog; many queues. Each beside the budget, after an idle mq of the
same kind: what is over both is the constant. Then fetches a second, CPU and system calls a fetch,
with no budget and with one, on the place and on a file system where each call takes longer.
"""

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from deploy.bench.load import BenchError, compiled, load
from deploy.bench.machine import cpu_s, resident_mib
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.servers import MESSAGES, commit_flags, make_queue
from deploy.bench.table import Comparison
from tests.harness.processes import Process, processes

_KIB, _MIB = 1 << 10, 1 << 20
SIZES: Final = (_KIB, 64 * _KIB, _MIB)
BUDGETS: Final = ("0", "64MiB")
# What a slow client asks for, without reading: more than sockets take by themselves. And what is
# fetched meanwhile.
_ASKED: Final = 8
_FAST: Final = 160
_SLOW_CALL_S: Final = 0.001
_PATIENCE_S: Final = 30.0
_READS: Final = ("pread64", "read", "openat")


@click.command("python -m deploy.bench.memory", context_settings={"show_default": True})
@on_place
@click.option("--slow-clients", type=click.IntRange(0), default=64, help="That do not read.")
@click.option("--backlog", type=click.IntRange(0), default=100_000, help="Messages of 1 KiB.")
@click.option("--queues", type=click.IntRange(0), default=1000, help="With a message each.")
@click.option("--messages", type=click.IntRange(10), default=2000, help="Of each rate.")
@rounds_flag(3)
def main(
    place: Place, slow_clients: int, backlog: int, queues: int, messages: int, rounds: int
) -> None:
    """Measures resident memory beside the budget, and what a budget buys."""
    held, bought = Comparison("most resident, MiB"), Comparison("fetching")
    compiled()
    click.echo(place.heading(f"{slow_clients} slow clients, {rounds} interleaved rounds"))
    for number in range(1, rounds + 1):
        for budget in BUDGETS:
            made = place.path / f"{number}-{budget}"
            flags = (*place.flags, "--memory", budget)
            _resident(made, flags, (slow_clients, backlog, queues), held, f"--memory={budget}")
            _rates(made, flags, messages, bought, budget)
            place.clear(made)
            click.echo(f"round {number}: {budget} done", err=True)
    with _slow_calls() as slow:
        for number in range(1, rounds + 1):
            for budget in BUDGETS:
                flags = (*commit_flags("none", in_memory=False), "--memory", budget)
                column = f"{budget}, {1000 * _SLOW_CALL_S:g} ms a call"
                _rates(slow / f"{number}-{budget}", flags, messages // 10, bought, column)
    click.echo(held.table() + "\n")
    click.echo(bought.table())


def _resident(
    made: Path, flags: tuple[str, ...], counts: tuple[int, int, int], held: Comparison, column: str
) -> None:
    """`counts`: of slow clients, of ready messages, and of queues."""
    slow_clients, backlog, queues = counts

    def add(what: str, server: Process) -> None:
        held.add(what, column, resident_mib(server.popen.pid)[1], ",.1f")

    made.mkdir()
    with processes() as started:
        server = started.mq(made / "idle", *flags)
        make_queue(server)
        add("idle", server)
        server.terminate()
        for size in SIZES:
            server = started.mq(made / f"{size}", *flags)
            make_queue(server)
            url = f"{server.url}{MESSAGES}"
            count = slow_clients * _ASKED + _FAST
            load("publish", url, connections=16, messages=count, body_bytes=size)
            with _slow(server, slow_clients):
                load("fetch", url, connections=16, messages=_FAST, body_bytes=size)
                load("publish", url, connections=16, messages=_FAST, body_bytes=size)
            add(f"bodies of {size // _KIB} KiB", server)
            server.terminate()
        if backlog:
            server = started.mq(made / "backlog", *flags)
            make_queue(server)
            load("publish", f"{server.url}{MESSAGES}", messages=backlog, body_bytes=_KIB)
            load("fetch", f"{server.url}{MESSAGES}", messages=1000, body_bytes=_KIB)
            add(f"{backlog:,} ready", server)
            server.terminate()
        if queues:
            server = started.mq(made / "queues", *flags)
            for number in range(queues):
                make_queue(server, f"q{number}")
                url = f"{server.url}/q{number}/messages"
                for body in (64 * _KIB, _KIB):
                    _ask("POST", url, b"x" * body)
                _ask("GET", url)
            add(f"{queues:,} queues", server)
            server.terminate()


@contextlib.contextmanager
def _slow(server: Process, number: int) -> Iterator[None]:
    """This many clients that ask for a message and do not read it."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            for _ in range(_ASKED):
                client.sendall(f"GET {MESSAGES} HTTP/1.1\r\nHost: mq\r\n\r\n".encode())
        yield


def _rates(
    made: Path, flags: tuple[str, ...], messages: int, bought: Comparison, column: str
) -> None:
    made.mkdir(exist_ok=True)
    with processes() as started:
        server = started.mq(made / "rates", *flags)
        make_queue(server)
        _ask("GET", f"{server.url}{MESSAGES}")  # From here on it knows what is ready.
        url, pid = f"{server.url}{MESSAGES}", server.popen.pid
        for what in ("publish", "fetch", "cycle"):
            began_s = cpu_s(pid)
            run = load(what, url, messages=messages, body_bytes=16 * _KIB)
            bought.add(f"{what}, a second", column, run.rate, rate=True)
            bought.add(f"{what}, us of CPU", column, (cpu_s(pid) - began_s) / messages * 1e6)
        facts = _memory(server)
        bought.add("hits, %", column, 100 * facts["hits"] / (facts["hits"] + facts["misses"]))
        load("publish", url, messages=messages, body_bytes=16 * _KIB)
        for call, count in _calls(pid, url, messages).items():
            bought.add(f"{call}, a fetch", column, count / messages, ",.2f")
        server.terminate()


def _calls(pid: int, url: str, messages: int) -> dict[str, int]:
    """How often the process called, while this many messages were fetched."""
    with tempfile.NamedTemporaryFile() as out:
        command = ["strace", "-f", "-c", "-o", out.name, "-p", str(pid)]
        try:
            strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError as error:
            raise BenchError("strace is missing: apt-get install strace") from error
        assert strace.stderr is not None
        strace.stderr.readline()  # It is attached.
        load("fetch", url, messages=messages, body_bytes=16 * _KIB)
        strace.terminate()
        strace.communicate(timeout=_PATIENCE_S)
        told = Path(out.name).read_text()
    found = dict.fromkeys(_READS, 0)
    for line in told.splitlines():
        match = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
        if match is not None and match[2] in found:
            found[match[2]] = int(match[1])
    return found


def _memory(server: Process) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}/-/memory") as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def _ask(method: str, url: str, body: bytes | None = None) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, body, method=method)) as answer:
        answer.read()


@contextlib.contextmanager
def _slow_calls() -> Iterator[Path]:
    """A folder on tmpfs, through FUSE."""
    with (
        tempfile.TemporaryDirectory(prefix="mq-bench-", dir="/dev/shm") as source,
        tempfile.TemporaryDirectory(prefix="mq-bench-") as where,
    ):
        arguments = ("-m", "deploy.bench.slow_server", where, source, str(_SLOW_CALL_S))
        server = subprocess.Popen([sys.executable, *arguments], stderr=subprocess.DEVNULL)
        try:
            deadline_s = time.monotonic() + _PATIENCE_S
            while not Path(where).is_mount():
                if server.poll() is not None or time.monotonic() > deadline_s:
                    raise BenchError("the slow file system needs FUSE and mfusepy")
                time.sleep(0.01)
            yield Path(where)
        finally:
            subprocess.run(["umount", "--lazy", where], capture_output=True)
            server.wait(_PATIENCE_S)


if __name__ == "__main__":
    main()
