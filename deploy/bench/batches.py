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
from typing import Final

import click

from deploy.bench.ceiling import BareLoop, Commit, bare_loops
from deploy.bench.connection import Connection, request
from deploy.bench.http import PUBLISH
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, compiled, load
from deploy.bench.machine import heading
from deploy.bench.places import Place, chosen, place_flags
from deploy.bench.running import commit_flag, rounds_flag, running, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE, commit_flags, make_queue
from deploy.bench.table import Figures, drawn
from tests.harness.processes import Process, processes

LINES: Final = 100
CLIENTS: Final = 4
SPLIT: Final = "mq, publish by split=lines"
COUNT: Final = "mq, fetch by count"
ACKS: Final = "mq, delete by acks"

Turn = Callable[[Connection], int]
"""Asks once; how many messages that was, 0 when there are no more."""


@click.command("python -m deploy.bench.batches", context_settings={"show_default": True})
@place_flags
@click.option("--lines", type=click.IntRange(1), default=LINES, help="Messages a request.")
@click.option("--clients", type=click.IntRange(1), default=CLIENTS, help="Side by side.")
@click.option("--connections", type=click.IntRange(1), default=CONNECTIONS, help="Of the single.")
@click.option("--bare", default="", help="Only bare loops with this in their names.")
@seconds_flag(3)
@rounds_flag(3)
@commit_flag
def main(
    root: Path | None,
    where: str | None,
    lines: int,
    clients: int,
    connections: int,
    bare: str,
    seconds: int,
    rounds: int,
    commit: Commit | None,
) -> None:
    """Measures messages a second: bare loops, single publishes, and batches."""
    figures = Figures()
    with running():
        compiled()
        with chosen(root, where) as place:
            mode = place.commit(commit)
            said = f"{clients} clients of {lines} messages a request; {connections} connections"
            click.echo(heading(place.path, mode, place.about, f"{said} of single publishes"))
            click.echo(f"bodies of {BODY_BYTES} bytes; median (min-max) of {rounds} interleaved")
            click.echo(f"rounds of {seconds} s each\n")
            loops = [loop for loop in bare_loops(mode, lines) if bare in loop.name]
            if not loops:
                raise BenchError(f"no bare loop has {bare!r} in its name")
            for number in range(1, rounds + 1):
                _round(place, mode, number, figures, loops, lines, clients, connections, seconds)
    click.echo(_table(figures, [loop.name for loop in loops]))


def _round(
    place: Place,
    mode: Commit,
    number: int,
    figures: Figures,
    loops: list[BareLoop],
    lines: int,
    clients: int,
    connections: int,
    seconds: float,
) -> None:
    steps: list[Callable[[Path], dict[str, float]]] = [
        *(partial(_bare, loop, seconds) for loop in loops),
        lambda made: _single(place, mode, made, connections, seconds),
        lambda made: _batches(place, mode, made, lines, clients, seconds),
    ]
    # To and fro, so that none is always the last.
    for step in steps if number % 2 else steps[::-1]:
        made = place.path / f"{number}"
        measured = step(made)
        place.clear(made)
        figures.add(measured)
        for what in measured:
            click.echo(f"round {number}: {what}: {figures.last_rate(what):,.0f}/s", err=True)


def _bare(loop: BareLoop, seconds: float, made: Path) -> dict[str, float]:
    return {loop.name: loop.measure(made, seconds)}


def _single(
    place: Place, mode: Commit, made: Path, connections: int, seconds: float
) -> dict[str, float]:
    with processes() as started:
        server = started.mq(made, *commit_flags(mode, place.in_memory))
        make_queue(server)
        run = load("publish", f"{server.url}{MESSAGES}", connections=connections, seconds=seconds)
        server.terminate()
    return {PUBLISH: run.rate}


def _batches(
    place: Place, mode: Commit, made: Path, lines: int, clients: int, seconds: float
) -> dict[str, float]:
    body = (b"x" * BODY_BYTES + b"\n") * lines
    split = request("POST", f"{MESSAGES}?split=lines", body)
    ids: list[str] = []

    def publish(connection: Connection) -> int:
        if connection.ask(split, 200).body.count(b'{"id": "') != lines:
            raise BenchError("a line was not published")
        return lines

    def fetch(connection: Connection) -> int:
        rows = _rows(connection, f"{MESSAGES}?count={lines}&visibility=3600")
        ids.extend(rows)
        return len(rows)

    def delete(connection: Connection) -> int:
        with taking:
            taken, ids[:lines] = ids[:lines], []
        if taken:
            asked = json.dumps({"ids": taken}).encode()
            told = connection.ask(_json_request(f"/{QUEUE}/acks", asked), 200).body
            if told.count(b'"status": 202') != len(taken):
                raise BenchError("a message was not deleted")
        return len(taken)

    taking = threading.Lock()
    with processes() as started:
        server = started.mq(made, *commit_flags(mode, place.in_memory))
        make_queue(server)
        published, publish_rate = _run(server, clients, publish, seconds)
        _check(published, made / "queues" / QUEUE, "published")
        fetched, fetch_rate = _run(server, clients, fetch, seconds)
        _check(fetched, made / "delay", "fetched")
        deleted, delete_rate = _run(server, clients, delete, seconds)
        _check(deleted, made / "remove", "deleted")
        server.terminate()
    return {SPLIT: publish_rate, COUNT: fetch_rate, ACKS: delete_rate}


def _run(server: Process, clients: int, turn: Turn, seconds: float) -> tuple[int, float]:
    """Has each client take its turns until the time is over or there are no more; how many
    messages that were, and how many a second.
    """
    began = time.perf_counter()

    def work(_: int) -> int:
        messages = 0
        with Connection(server.port) as connection:
            while time.perf_counter() - began < seconds and (more := turn(connection)):
                messages += more
        return messages

    with ThreadPoolExecutor(clients) as pool:
        messages = sum(pool.map(work, range(clients)))
    return messages, messages / (time.perf_counter() - began)


def _rows(connection: Connection, path: str) -> list[str]:
    """The ids of a fetch's rows; none when there was nothing."""
    answer = connection.ask_any(request("GET", path))
    if answer.status == 204:
        return []
    if answer.status != 200:
        raise BenchError(f"{path} was answered {answer.status}: {answer.body[:200]!r}")
    return [json.loads(row)["id"] for row in answer.body.splitlines()]


def _json_request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


def _check(answered: int, top: Path, what: str) -> None:
    there = sum(1 for path in top.rglob("*-*-*") if path.is_file())
    if there != answered:
        raise BenchError(f"{answered} were {what} by the answers, {there} by the files")


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
