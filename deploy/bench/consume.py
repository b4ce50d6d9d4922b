"""`python -m deploy.bench.consume`: one WebSocket of `/-/consume`, beside other ways to fetch.

Each way fetches a backlog from a queue of its own: plain GETs by the load tool, GETs with a count
by threads of the bench, and one WebSocket whose client gives credit for what has come; and the same
with each message acknowledged. What was fetched is counted against the files. Then a WebSocket
whose client reads nothing, however much it asked for: what of the server's memory that takes.
"""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import click

from deploy.bench.ceiling import Commit
from deploy.bench.connection import Connection, request
from deploy.bench.http import FETCH
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, compiled, load
from deploy.bench.machine import heading
from deploy.bench.places import Place, chosen, place_flags
from deploy.bench.running import commit_flag, rounds_flag, running
from deploy.bench.servers import MESSAGES, QUEUE, commit_flags, make_queue
from deploy.bench.table import Figures, drawn
from deploy.bench.watching import resident_mib
from deploy.bench.websocket import BINARY, WebSocket
from mq.protocol.consume.limits import CREDIT_MAX
from tests.harness.processes import Process, processes

COUNT: Final = "mq, fetch by count"
SOCKET: Final = "mq, one WebSocket"
SOCKET_ACKS: Final = "mq, one WebSocket, acks"
CLIENTS: Final = 4
LINES: Final = 100
CREDIT: Final = 1000
# After so many messages their credit is given again, and where asked for they are acknowledged.
AT_A_TIME: Final = 100

_UNREAD_BODY_BYTES: Final = 64 << 10
_UNREAD_BYTES: Final = 256 << 20
_UNREAD_S: Final = 5.0


@click.command("python -m deploy.bench.consume", context_settings={"show_default": True})
@place_flags
@click.option("--messages", type=click.IntRange(1), default=20_000, help="Of each way.")
@rounds_flag(3)
@commit_flag
def main(
    root: Path | None,
    where: str | None,
    messages: int,
    rounds: int,
    commit: Commit | None,
) -> None:
    """Measures messages a second, and what a client that reads nothing takes of memory."""
    figures = Figures()
    with running():
        compiled()
        with chosen(root, where) as place:
            mode = place.commit(commit)
            said = f"{messages} messages of {BODY_BYTES} bytes each way, credit {CREDIT}"
            click.echo(heading(place.path, mode, place.about, said))
            ways: list[tuple[str, Callable[[Process], int]]] = [
                (FETCH, _plain),
                (COUNT, _counted),
                (SOCKET, partial(_socket, messages=messages, acks=False)),
                (SOCKET_ACKS, partial(_socket, messages=messages, acks=True)),
            ]
            for number in range(1, rounds + 1):
                for name, way in ways if number % 2 else ways[::-1]:
                    figures.add({name: _measure(place, mode, name, way, messages)})
                    click.echo(
                        f"round {number}: {name}: {figures.last_rate(name):,.0f}/s", err=True
                    )
            before, most = _unread(place, mode)
    rows = [("what", "messages/s", "to plain fetches")]
    for what in figures.rounds:
        ratio = figures.median(what) / figures.median(FETCH)
        rows.append((what, figures.spread(what), f"{ratio:.2f}"))
    click.echo(drawn(rows))
    click.echo(
        f"\na client that reads nothing, {_UNREAD_BYTES >> 20} MiB ready in bodies of "
        f"{_UNREAD_BODY_BYTES >> 10} KiB:\nresident {before:.0f} MiB before, {most:.0f} at most"
    )


def _measure(
    place: Place, mode: Commit, name: str, way: Callable[[Process], int], messages: int
) -> float:
    made = place.path / "consumed"
    with processes() as started:
        server = started.mq(made, *commit_flags(mode, place.in_memory))
        make_queue(server)
        _publish(server, messages, BODY_BYTES)
        began = time.perf_counter()
        fetched = way(server)
        took_s = time.perf_counter() - began
        server.terminate()
    # What a WebSocket's client held is released when it goes.
    folder = {FETCH: "delay", COUNT: "delay", SOCKET: "queues", SOCKET_ACKS: "remove"}[name]
    there = sum(1 for path in (made / folder).rglob("*-*-*") if path.is_file())
    if not messages == fetched == there:
        raise BenchError(f"{messages} were published, {fetched} fetched, {there} by the files")
    place.clear(made)
    return fetched / took_s


def _publish(server: Process, messages: int, body_bytes: int) -> None:
    at_a_time = min(1000, (4 << 20) // body_bytes)
    with Connection(server.port) as connection:
        for first in range(0, messages, at_a_time):
            count = min(at_a_time, messages - first)
            body = (b"x" * body_bytes + b"\n") * count
            connection.ask(request("POST", f"{MESSAGES}?split=lines", body), 200)


def _plain(server: Process) -> int:
    run = load("fetch", f"{server.url}{MESSAGES}", connections=CONNECTIONS)
    return run.messages


def _counted(server: Process) -> int:
    asked = request("GET", f"{MESSAGES}?count={LINES}&visibility=3600")

    def work(_: int) -> int:
        messages = 0
        with Connection(server.port) as connection:
            while (answer := connection.ask_any(asked)).status == 200:
                messages += answer.body.count(b"\n")
        return messages

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(work, range(CLIENTS)))


def _socket(server: Process, messages: int, acks: bool) -> int:
    got, unacked, ids = 0, 0, []
    with WebSocket(server.port) as client:
        wanted = {"queue": QUEUE, "credit": CREDIT, "visibility_s": 3600}
        client.command(subscribe=[wanted])
        while got < messages or unacked:
            opcode, payload = client.frame()
            if opcode == BINARY:
                got += 1
                if got % AT_A_TIME == 0 or got == messages:
                    client.command(credit={QUEUE: AT_A_TIME})
                    if acks:
                        client.command(ack=ids)
                        unacked += 1
                        ids = []
            elif payload.startswith(b'{"queue"'):
                if acks:
                    ids.append(json.loads(payload)["id"])
            elif b'"id"' in payload:
                if payload.count(b'"status": 202') != payload.count(b'"id"'):
                    raise BenchError(f"an ack failed: {payload[:200]!r}")
                unacked -= 1
    return got


def _unread(place: Place, mode: Commit) -> tuple[float, float]:
    """Resident memory before, and the most of it while nothing is read, in MiB."""
    made = place.path / "unread"
    with processes() as started:
        server = started.mq(made, *commit_flags(mode, place.in_memory))
        make_queue(server)
        _publish(server, _UNREAD_BYTES // _UNREAD_BODY_BYTES, _UNREAD_BODY_BYTES)
        before, most = resident_mib(server.popen.pid)[0], 0.0
        with WebSocket(server.port) as client:
            client.command(subscribe=[{"queue": QUEUE, "credit": CREDIT_MAX}])
            until_s = time.monotonic() + _UNREAD_S
            while time.monotonic() < until_s:
                most = max(most, resident_mib(server.popen.pid)[0])
                time.sleep(0.05)
        server.terminate()
    place.clear(made)
    return before, most


if __name__ == "__main__":
    main()
