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
from typing import Final

import click

from deploy.bench.connection import BINARY, Connection, WebSocket, request
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, compiled, load
from deploy.bench.machine import resident_mib
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.servers import MESSAGES, QUEUE
from deploy.bench.table import Figures, interleaved
from mq.protocol.consume.frames import CREDIT_MAX
from tests.harness.processes import Process

FETCH: Final = "mq, fetch"
COUNT: Final = "mq, fetch by count"
SOCKET: Final = "mq, one WebSocket"
SOCKET_ACKS: Final = "mq, one WebSocket, acks"
CLIENTS: Final = 4
LINES: Final = 100
CREDIT: Final = 1000
# After this many messages their credit is given again; where asked for they are acknowledged.
AT_A_TIME: Final = 100

_UNREAD_BODY_BYTES: Final = 64 << 10
_UNREAD_BYTES: Final = 256 << 20
_UNREAD_S: Final = 5.0


@click.command("python -m deploy.bench.consume", context_settings={"show_default": True})
@on_place
@click.option("--messages", type=click.IntRange(1), default=20_000, help="Of each way.")
@rounds_flag(3)
def main(place: Place, messages: int, rounds: int) -> None:
    """Measures messages a second, and what a client that reads nothing takes of memory."""
    compiled()
    click.echo(
        place.heading(f"{messages} messages of {BODY_BYTES} bytes each way, credit {CREDIT}")
    )
    ways: list[tuple[str, Callable[[Process], int]]] = [
        (FETCH, _plain),
        (COUNT, _counted),
        (SOCKET, partial(_socket, messages=messages, acks=False)),
        (SOCKET_ACKS, partial(_socket, messages=messages, acks=True)),
    ]
    figures = Figures()
    for number, (name, way) in interleaved(rounds, ways):
        figures.add({name: _measure(place, name, way, messages)}, number)
    before, most = _unread(place)
    click.echo(figures.compared(FETCH, "to plain fetches"))
    click.echo(
        f"\na client that reads nothing, {_UNREAD_BYTES >> 20} MiB ready in bodies of "
        f"{_UNREAD_BODY_BYTES >> 10} KiB:\nresident {before:.0f} MiB before, {most:.0f} at most"
    )


def _measure(place: Place, name: str, way: Callable[[Process], int], messages: int) -> float:
    made = place.path / "consumed"
    with place.mq(made) as server:
        _publish(server, messages, BODY_BYTES)
        began = time.perf_counter()
        fetched = way(server)
        took_s = time.perf_counter() - began
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
    got, unacked = 0, 0
    ids: list[str] = []
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


def _unread(place: Place) -> tuple[float, float]:
    """Resident memory before, and the most of it while nothing is read, in MiB."""
    made = place.path / "unread"
    with place.mq(made) as server:
        _publish(server, _UNREAD_BYTES // _UNREAD_BODY_BYTES, _UNREAD_BODY_BYTES)
        before, most = resident_mib(server.popen.pid)[0], 0.0
        with WebSocket(server.port) as client:
            client.command(subscribe=[{"queue": QUEUE, "credit": CREDIT_MAX}])
            until_s = time.monotonic() + _UNREAD_S
            while time.monotonic() < until_s:
                most = max(most, resident_mib(server.popen.pid)[0])
                time.sleep(0.05)
    place.clear(made)
    return before, most


if __name__ == "__main__":
    main()
