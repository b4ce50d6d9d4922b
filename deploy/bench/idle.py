"""`python -m deploy.bench.idle`: what it costs that many wait for messages that do not come.

Ten thousand connections, each with a long poll that waits for a minute, on one queue and on many:
mq's resident memory and CPU while nothing happens; and how soon one of them has a message that is
published then, by this process and by another one of the same root.
"""

import contextlib
import resource
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import click

from deploy.bench.ceiling import BODY, Commit
from deploy.bench.connection import Connection, request
from deploy.bench.load import BenchError
from deploy.bench.machine import cpu_s, resident_mib
from deploy.bench.places import PLACES, Place, commit_flag, running, seconds_flag
from deploy.bench.table import drawn
from tests.harness.processes import Process, processes

_WAIT_S: Final = 60
_SETTLE_S: Final = 3.0
_PARKED_AT_ONCE: Final = 100
_PUBLISHES: Final = 20
# So that all wait again when the next is published.
_PAUSE_S: Final = 0.05
# Descriptors that the bench and mq need beside the connections.
_SPARE_DESCRIPTORS: Final = 200


@dataclass(frozen=True, slots=True)
class Cost:
    """What was measured: MiB before anybody waited and while all do, the share of a core that was
    used while nothing happened, and milliseconds from publishes to deliveries.
    """

    before_mib: float
    waiting_mib: float
    cpu_share: float
    own_ms: Sequence[float]
    others_ms: Sequence[float]


@click.command("python -m deploy.bench.idle", context_settings={"show_default": True})
@click.option("--polls", type=click.IntRange(1), default=10_000, help="Connections that wait.")
@click.option(
    "--queues", "counts", type=click.IntRange(1), multiple=True, default=(1, 1000), help="Repeat."
)
@click.option("--place", "where", type=click.Choice(tuple(PLACES)), default="loop")
@seconds_flag(30)
@click.option("--mq-flag", "flags", multiple=True, help="For mq, beside its own; repeatable.")
@commit_flag
def main(
    polls: int,
    counts: tuple[int, ...],
    where: str,
    seconds: int,
    flags: tuple[str, ...],
    commit: Commit | None,
) -> None:
    """Measures what idle long polls cost."""
    with running(), PLACES[where]() as made:
        place = made.committing(commit)
        _allow_connections(polls)
        click.echo(place.heading(f"{polls:,} idle long polls", *flags))
        click.echo(f"CPU over {seconds} s in which nothing happens\n")
        rows = [("queues", "MiB before", "MiB", "KiB a poll", "CPU, % of a core",
                 "delivery ms: p50 (worst)", "by another process")]  # fmt: skip
        for count in counts:
            cost = _measure(place, (*place.flags, *flags), polls, count, seconds)
            each_kib = 1024 * (cost.waiting_mib - cost.before_mib) / polls
            row = (
                f"{count:,}",
                f"{cost.before_mib:.0f}",
                f"{cost.waiting_mib:.0f}",
                f"{each_kib:.1f}",
                f"{100 * cost.cpu_share:.2f}",
                _ms(cost.own_ms),
                _ms(cost.others_ms),
            )
            click.echo(f"queues, MiB before, MiB, KiB, CPU %, ms, ms: {'  '.join(row)}", err=True)
            rows.append(row)
        click.echo(drawn(rows))


def _ms(found: Sequence[float]) -> str:
    return f"{median(found):.1f} ({max(found):.1f})"


def _allow_connections(polls: int) -> None:
    """Raises BenchError where this many cannot be open at once."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < polls + _SPARE_DESCRIPTORS:
        raise BenchError(f"{polls} connections need ulimit -n {polls + _SPARE_DESCRIPTORS}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _measure(place: Place, flags: Sequence[str], polls: int, count: int, seconds: float) -> Cost:
    root, names = place.path / f"{count}", [f"q{number}" for number in range(count)]
    with processes() as started, contextlib.ExitStack() as cleanup:
        server, other = (started.mq(root, *flags) for _ in range(2))
        with Connection(server.port) as connection:
            for name in names:
                connection.ask(request("PUT", f"/{name}"), 201)
        before_mib = resident_mib(server.popen.pid)[0]
        waiting = cleanup.enter_context(_waiting(server, names, polls))
        time.sleep(_SETTLE_S)
        cpu_before, began = cpu_s(server.popen.pid), time.perf_counter()
        time.sleep(seconds)
        used = (cpu_s(server.popen.pid) - cpu_before) / (time.perf_counter() - began)
        waiting_mib = resident_mib(server.popen.pid)[0]
        own_ms, others_ms = (_delivered(each.port, waiting, names[-1]) for each in (server, other))
    place.clear(root)
    return Cost(before_mib, waiting_mib, used, own_ms, others_ms)


@contextlib.contextmanager
def _waiting(server: Process, names: Sequence[str], polls: int) -> "Iterator[_Waiting]":
    """This many waiting connections, spread over the queues."""
    waiting = _Waiting(server.port)
    try:
        for number in range(polls):
            waiting.add(names[number % len(names)])
            if number % _PARKED_AT_ONCE == 0:
                time.sleep(0.01)  # Or the kernel's line of new connections runs over.
        yield waiting
    finally:
        waiting.close()


class _Waiting:
    """Connections that wait; who got a message asks for the next."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []

    def add(self, name: str) -> None:
        """One more waits at a queue."""
        made = socket.create_connection(("127.0.0.1", self._port))
        self._sockets.append(made)
        self._selector.register(made, selectors.EVENT_READ, name)
        self._ask(made, name)

    def message(self) -> None:
        """Waits until one of them has all of a message, and asks for the next."""
        while True:
            for key, _ in self._selector.select():
                made = key.fileobj
                assert isinstance(made, socket.socket)
                held = made.recv(1 << 16)
                while held and b"\r\n\r\n" not in held:
                    held += made.recv(1 << 16)
                if held[9:12] not in (b"200", b"204"):
                    raise BenchError(f"a poll was answered {held[:100]!r}")
                if is_message := held[9:12] == b"200":
                    while not held.endswith(BODY):
                        held += made.recv(1 << 16)
                self._ask(made, key.data)
                if is_message:
                    return

    def close(self) -> None:
        """Closes all."""
        self._selector.close()
        for made in self._sockets:
            made.close()

    def _ask(self, made: socket.socket, name: str) -> None:
        made.sendall(request("GET", f"/{name}/messages?wait={_WAIT_S}"))


def _delivered(port: int, waiting: _Waiting, name: str) -> list[float]:
    """Milliseconds from publishes to their deliveries."""
    with Connection(port) as connection:
        return [_deliver(connection, waiting, name) for _ in range(_PUBLISHES)]


def _deliver(connection: Connection, waiting: _Waiting, name: str) -> float:
    time.sleep(_PAUSE_S)
    began = time.perf_counter()
    connection.send(request("POST", f"/{name}/messages", BODY))
    waiting.message()
    took_ms = 1000 * (time.perf_counter() - began)
    connection.receive(201)
    return took_ms


if __name__ == "__main__":
    main()
