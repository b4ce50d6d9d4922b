"""`python -m deploy.bench.sqs`: SQS's protocol beside mq's own endpoints, and moto's server.

The clients are threads of the bench, each with one connection and one request at a time, the same
ones for all servers; they write requests without an SDK. Each round starts a server, sends
messages for a while, sends more in batches, then receives and deletes one at a time. `cost`
compares with mq's own endpoints; the processor's time is the server's alone, so that it says more
than the rates, which have the clients' work in them.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import click

from deploy.bench.connection import Answer, Connection, request
from deploy.bench.load import BODY_BYTES
from deploy.bench.places import Place, on_place, rounds_flag, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE
from deploy.bench.table import Comparison, interleaved
from tests.harness.processes import Process, processes

OWN: Final = "mq, HTTP"
SQS: Final = "mq, SQS"
MOTO: Final = "moto, SQS"
CLIENTS: Final = 8
BATCH: Final = 10
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_URL: Final = f"http://localhost/000000000000/{QUEUE}"
_HANDLE: Final = re.compile(rb'"ReceiptHandle": *"([^"]+)"')
_BODY: Final = "x" * BODY_BYTES

Turn = Callable[[Connection], int]
"""Asks once; how many messages that was, 0 when there are no more."""
Works = tuple[tuple[str, Turn], ...]
"""What is measured of a server, in order."""


class Reopened(Connection):
    """A connection to a server that closes it behind each answer."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._port = port

    def ask_any(self, asked: bytes) -> Answer:
        with Connection(self._port) as once:
            return once.ask_any(asked)


@click.command("python -m deploy.bench.sqs", context_settings={"show_default": True})
@on_place
@click.option("--clients", type=click.IntRange(1), default=CLIENTS, help="Side by side.")
@seconds_flag(3)
@rounds_flag(5)
def main(place: Place, clients: int, seconds: int, rounds: int) -> None:
    """Measures messages a second, and the server's time for each, by way of asking."""
    click.echo(place.heading(f"{clients} clients, bodies of {BODY_BYTES} bytes"))
    click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each\n")
    figures = Comparison("what")
    steps: list[Callable[[], Any]] = [partial(_own, place), partial(_sqs, place)]
    if find_spec("moto") is not None:
        steps.append(_moto)
    for _, start in interleaved(rounds, steps):
        with start() as (name, server, works):
            for what, turn in works:
                rate, cpu_us = _run(server, clients, turn, seconds)
                figures.add(f"{what}: messages/s", name, rate, rate=True)
                figures.add(f"{what}: processor µs a message", name, cpu_us)
    click.echo(figures.table())


def _run(server: Process, clients: int, turn: Turn, seconds: float) -> tuple[float, float]:
    """Messages a second, and the server's processor time of each in microseconds."""
    args = server.popen.args
    is_moto = isinstance(args, list) and "moto.server" in args
    connect = Reopened if is_moto else Connection
    began, before_s = time.perf_counter(), _cpu_s(server)

    def work(_: int) -> int:
        messages = 0
        with connect(server.port) as connection:
            while time.perf_counter() - began < seconds and (more := turn(connection)):
                messages += more
        return messages

    with ThreadPoolExecutor(clients) as pool:
        messages = sum(pool.map(work, range(clients)))
    took_s = time.perf_counter() - began
    return messages / took_s, (_cpu_s(server) - before_s) * 1e6 / messages


def _cpu_s(server: Process) -> float:
    with open(f"/proc/{server.popen.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


@contextmanager
def _own(place: Place) -> Iterator[tuple[str, Process, Works]]:
    made = place.path / "own"
    send = request("POST", MESSAGES, _BODY.encode())
    lines = request("POST", f"{MESSAGES}?split=lines", f"{_BODY}\n".encode() * BATCH)
    fetch = request("GET", MESSAGES)

    def send_one(connection: Connection) -> int:
        connection.ask(send, 201)
        return 1

    def send_batch(connection: Connection) -> int:
        return connection.ask(lines, 200).body.count(b'"id"')

    def take(connection: Connection) -> int:
        answer = connection.ask_any(fetch)
        if answer.status != 200:
            return 0
        connection.ask(request("DELETE", f"{MESSAGES}/{answer.id}"), 202)
        return 1

    with place.mq(made) as server:
        yield OWN, server, _works(send_one, send_batch, take)
    place.clear(made)


@contextmanager
def _sqs(place: Place) -> Iterator[tuple[str, Process, Works]]:
    made = place.path / "sqs"
    with place.mq(made) as server:
        yield SQS, server, _works(*_turns())
    place.clear(made)


@contextmanager
def _moto() -> Iterator[tuple[str, Process, Works]]:
    with processes() as started:
        server = started.start("moto.server", "-p", "0")
        server.port = int(server.wait_for_log(r"http://127\.0\.0\.1:(\d+)").group(1))
        with Connection(server.port) as connection:
            connection.ask(_asked("CreateQueue", QueueName=QUEUE), 200)
        yield MOTO, server, _works(*_turns())


def _works(send_one: Turn, send_batch: Turn, take: Turn) -> Works:
    return (
        ("send", send_one),
        (f"send in batches of {BATCH}", send_batch),
        ("receive and delete", take),
    )


def _turns() -> tuple[Turn, Turn, Turn]:
    """As clients of SQS ask."""
    send = _asked("SendMessage", QueueUrl=_URL, MessageBody=_BODY)
    rows = [{"Id": str(number), "MessageBody": _BODY} for number in range(BATCH)]
    batch = _asked("SendMessageBatch", QueueUrl=_URL, Entries=rows)
    receive = _asked("ReceiveMessage", QueueUrl=_URL)

    def send_one(connection: Connection) -> int:
        connection.ask(send, 200)
        return 1

    def send_batch(connection: Connection) -> int:
        return connection.ask(batch, 200).body.count(b'"MessageId"')

    def take(connection: Connection) -> int:
        found = _HANDLE.search(connection.ask(receive, 200).body)
        if found is None:
            return 0
        handle = found[1].decode()
        connection.ask(_asked("DeleteMessage", QueueUrl=_URL, ReceiptHandle=handle), 200)
        return 1

    return send_one, send_batch, take


def _asked(operation: str, **said: object) -> bytes:
    body = json.dumps(said).encode()
    return (
        f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{operation}\r\n"
        "Content-Type: application/x-amz-json-1.0\r\nx-amzn-query-mode: true\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/sqs/aws4_request, x\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


if __name__ == "__main__":
    main()
