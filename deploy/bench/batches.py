"""`python -m deploy.bench.batches`: many messages in one request, beside one at a time.

Publishes lines of the same size as a lone publish's body (`split=lines`), fetches them with
`count=N` and deletes them by `acks`, on a root of its own each round, beside single publishes by
the load tool, and the bare loops of `ceiling`, whose groups are as large as the batches. The
clients are threads of the bench, each with one connection and one request at a time: a request of
a hundred lines costs them little a message. The files on disk are counted against the answers.
"""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click

from deploy.bench.ceiling import BareLoop, bare_loops
from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, compiled, load
from deploy.bench.places import Place, on_place, rounds_flag, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE
from deploy.bench.table import Figures, Measured, drawn, interleaved
from mq.model.names import items_of
from tests.harness.processes import Process

PUBLISH: Final = "mq, publish"
LINES: Final = 100
CLIENTS: Final = 4
SPLIT: Final = "mq, publish by split=lines"
COUNT: Final = "mq, fetch by count"
ACKS: Final = "mq, delete by acks"

Turn = Callable[[Connection], int]
"""Asks once; how many messages that was, 0 when there are no more."""


class Asked(NamedTuple):
    """The load: `clients` send `lines` messages a request for `seconds`; in packs of up to `pack`
    (0: in none), of which a request acknowledges `acks` messages (0: `lines`).
    """

    lines: int
    clients: int
    seconds: float
    pack: int = 0
    acks: int = 0


@click.command("python -m deploy.bench.batches", context_settings={"show_default": True})
@on_place
@click.option("--lines", type=click.IntRange(1), default=LINES, help="Messages a request.")
@click.option("--clients", type=click.IntRange(1), default=CLIENTS, help="Side by side.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Of the single.")
@click.option("--bare", default="", help="Only bare loops with this in their names.")
@seconds_flag(3)
@rounds_flag(3)
def main(
    place: Place, lines: int, clients: int, connections: int, bare: str, seconds: int, rounds: int
) -> None:
    """Measures messages a second: bare loops, single publishes, and batches."""
    compiled()
    said = f"{clients} clients of {lines} messages a request; {connections} connections"
    click.echo(place.heading(f"{said} of single publishes"))
    click.echo(f"bodies of {BODY_BYTES} bytes; median (min-max) of {rounds} interleaved")
    click.echo(f"rounds of {seconds} s each\n")
    loops = [loop for loop in bare_loops(place.commit, lines) if bare in loop.name]
    if not loops:
        raise BenchError(f"no bare loop has {bare!r} in its name")
    figures, made = Figures(), place.path / "made"
    steps: list[Callable[[], Measured]] = [
        *(partial(_bare, loop, seconds, made) for loop in loops),
        lambda: _single(place, made, connections, seconds),
        lambda: batches(place, made, Asked(lines, clients, seconds)),
    ]
    for number, step in interleaved(rounds, steps):
        measured = step()
        place.clear(made)
        figures.add(measured, number)
    click.echo(_table(figures, [loop.name for loop in loops]))


def _bare(loop: BareLoop, seconds: float, made: Path) -> Measured:
    return {loop.name: loop.measure(made, seconds)}


def _single(place: Place, made: Path, connections: int, seconds: float) -> Measured:
    with place.mq(made) as server:
        run = load("publish", f"{server.url}{MESSAGES}", connections=connections, seconds=seconds)
    return {PUBLISH: run.rate}


def batches(
    place: Place, made: Path, asked: Asked, flushes: dict[str, float] | None = None
) -> Measured:
    """Messages a second of each step, on a root of its own. `flushes` gets how often the device was
    flushed for each message, where the place counts that.
    """
    lines, acks = asked.lines, asked.acks or asked.lines
    body = (b"x" * BODY_BYTES + b"\n") * lines
    packed = "&pack=true" if asked.pack else ""
    split = request("POST", f"{MESSAGES}?split=lines{packed}", body)
    fetched_as = f"{MESSAGES}?count={lines}&visibility=3600{'&packs=true' if asked.pack else ''}"
    ids: list[str] = []

    def publish(connection: Connection) -> int:
        if connection.ask(split, 200).body.count(b'{"id": "') != lines:
            raise BenchError("a line was not published")
        return lines

    def fetch(connection: Connection) -> int:
        rows = _rows(connection, fetched_as)
        with taking:
            ids.extend(rows)
        return len(rows)

    def delete(connection: Connection) -> int:
        with taking:
            taken, ids[:acks] = ids[:acks], []
        if taken:
            told = connection.ask(_json_request(f"/{QUEUE}/acks", {"ids": taken}), 200).body
            if told.count(b'"status": 202') != len(taken):
                raise BenchError("a message was not deleted")
        return len(taken)

    taking, measured = threading.Lock(), {}
    steps = ((SPLIT, publish, made / "queues" / QUEUE), (COUNT, fetch, made / "delay"))
    with place.mq(made) as server:
        if asked.pack:
            allow_packs(server, asked.pack)
        for what, turn, there in (*steps, (ACKS, delete, made / "remove")):
            before = place.flushes() if place.flushes is not None else 0
            messages, measured[what] = _run(server, asked, turn)
            _check(messages, there, what)
            if flushes is not None and place.flushes is not None:
                flushes[what] = (place.flushes() - before) / messages
    return measured


def allow_packs(server: Process, most: int) -> None:
    """Has the queue of the bench take packs of up to `most` messages."""
    with Connection(server.port) as connection:
        told = {"pack_messages_max": most}
        connection.ask(_json_request(f"/{QUEUE}/settings", told, "PATCH"), 200)


def _run(server: Process, asked: Asked, turn: Turn) -> tuple[int, float]:
    """Has each client take its turns until the time is over or there are no more; how many
    messages that were, and how many a second.
    """
    began = time.perf_counter()

    def work(_: int) -> int:
        messages = 0
        with Connection(server.port) as connection:
            while time.perf_counter() - began < asked.seconds and (more := turn(connection)):
                messages += more
        return messages

    with ThreadPoolExecutor(asked.clients) as pool:
        messages = sum(pool.map(work, range(asked.clients)))
    return messages, messages / (time.perf_counter() - began)


def _rows(connection: Connection, path: str) -> list[str]:
    """The ids of a fetch's rows; none when there was nothing."""
    answer = connection.ask_any(request("GET", path))
    if answer.status == 204:
        return []
    if answer.status != 200:
        raise BenchError(f"{path} was answered {answer.status}: {answer.body[:200]!r}")
    return [json.loads(row)["id"] for row in answer.body.splitlines()]


def _json_request(path: str, said: object, method: str = "POST") -> bytes:
    body = json.dumps(said).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


def _check(answered: int, top: Path, what: str) -> None:
    names = (path.name.rpartition(":")[2] for path in top.rglob("*-*-*") if path.is_file())
    there = sum(map(items_of, names))
    if there != answered:
        raise BenchError(f"{what}: {answered} by the answers, {there} by the files")


def _table(figures: Figures, loops: list[str]) -> str:
    best = figures.best(loops)
    rows = [("what", "messages/s", "to the best bare loop", "to single publishes")]
    for what in figures.rounds:
        middle = figures.median(what)
        name = f"{what} (best)" if what == best else what
        rows.append(
            (
                name,
                figures.spread(what),
                f"{middle / figures.median(best):.2f}",
                f"{middle / figures.median(PUBLISH):.2f}",
            )
        )
    return drawn(rows)


if __name__ == "__main__":
    main()
