"""`python -m deploy.bench.packs`: what packs are for, in one interleaved run of some minutes.

Lines published by some clients in large requests, as single messages and in packs, fetched and
acknowledged as they came and in tens; single publishes of many tasks of one client that lingers;
what parting a pack takes beside a publish of its messages. Redis and beanstalkd get as many
messages a pipeline, RabbitMQ's quorum queue one a request, where they are installed. The files on
disk are counted against the answers.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

import click

from deploy.bench.batches import ACKS, Asked, allow_packs, batches
from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, CONNECTIONS, BenchError, compiled, load
from deploy.bench.others.queues import BEANSTALKD, REDIS
from deploy.bench.others.rabbitmq import RABBITMQ_QUORUM
from deploy.bench.others.rival import Rival
from deploy.bench.places import Place, on_place, rounds_flag, seconds_flag
from deploy.bench.servers import MESSAGES, QUEUE, make_queue
from deploy.bench.table import Figures, Measured, drawn, interleaved, percentile, spread
from mq.client.client import AsyncClient

TASKS: Final = 64
LINGER: Final = f"mq, single publishes of {TASKS} tasks, linger_ms=2"
PACK_MAX: Final = 1000
# Of what is parted, and how often.
PARTED: Final = 100
PARTINGS: Final = 50
_BODY: Final = b"x" * BODY_BYTES


@dataclass(frozen=True, slots=True)
class Bench:
    """What is asked, and what was found beside messages a second, a value a round."""

    place: Place
    asked: Asked
    others: dict[str, list[float]] = field(default_factory=dict)

    def lines(self, pack: int, acks: int, made: Path) -> Measured:
        """Lines, in packs of up to `pack`; a request acknowledges `acks` of them."""
        flushes: dict[str, float] = {}
        asked = self.asked._replace(pack=pack, acks=acks)
        measured = batches(self.place, made, asked, flushes)
        how = "in packs" if pack else "single"
        for what, a_message in flushes.items():
            self._found(
                f"flushes a message, {what}, {how}{f', {acks} each' * bool(acks)}", a_message
            )
        if acks:
            return {f"{ACKS}, {how}, {acks} each": measured[ACKS]}
        return {f"{what}, {how}": rate for what, rate in measured.items()}

    def linger(self, made: Path) -> Measured:
        """Tasks of one client."""
        with self.place.mq(made) as server:
            make_queue(server)
            allow_packs(server, PARTED)
            waits_s, took_s = asyncio.run(_linger(server.url, self.asked.seconds))
        self._found(f"{LINGER}: p50, ms", 1000 * percentile(sorted(waits_s), 0.5))
        return {LINGER: len(waits_s) / took_s}

    def parting(self, made: Path) -> Measured:
        """A deletion of one message of a pack, which is parted for it, to a publish of as many
        single messages.
        """
        body = (_BODY + b"\n") * PARTED
        with self.place.mq(made) as server, Connection(server.port) as connection:
            make_queue(server)
            allow_packs(server, PARTED)
            single = request("POST", f"{MESSAGES}?split=lines", body)
            packed = request("POST", f"{MESSAGES}?split=lines&pack=true", body)
            singly_s, apart_s = [], []
            for _ in range(PARTINGS):
                singly_s.append(_timed(connection, single, 200)[0])
                _, rows = _timed(connection, packed, 200)
                first = rows.split(b'"', 4)[3].decode("ascii")
                gone = request("DELETE", f"{MESSAGES}/{first}")
                apart_s.append(_timed(connection, gone, 202)[0])
        self._found("parting a pack, to publishing singly", median(apart_s) / median(singly_s))
        return {}

    def rival(self, rival: Rival, made: Path) -> Measured:
        """Another server."""
        made.mkdir()
        seconds = self.asked.seconds
        with rival.serve(made) as serving:
            url = serving.queue("bench")
            if rival is RABBITMQ_QUORUM:
                run = load("publish", url, connections=CONNECTIONS, seconds=seconds)
                return {f"{rival.name}, {CONNECTIONS} connections": run.rate}
            port = urlsplit(url).port
            assert port is not None
            piped = partial(_pipelines, port, rival is REDIS, self.asked.lines, seconds)
            began = time.perf_counter()
            with ThreadPoolExecutor(self.asked.clients) as pool:
                done = [pool.submit(piped) for _ in range(self.asked.clients)]
            messages = sum(each.result() for each in done)
            return {f"{rival.name}, pipelines": messages / (time.perf_counter() - began)}

    def _found(self, what: str, value: float) -> None:
        self.others.setdefault(what, []).append(value)


@click.command("python -m deploy.bench.packs", context_settings={"show_default": True})
@partial(on_place, default="loop")
@click.option("--lines", type=click.IntRange(1), default=PACK_MAX, help="Messages a request.")
@click.option("--clients", type=click.IntRange(1), default=4, help="Side by side.")
@seconds_flag(3)
@rounds_flag(3)
def main(place: Place, lines: int, clients: int, seconds: int, rounds: int) -> None:
    """Measures messages a second with packs and without, beside other servers."""
    compiled()
    click.echo(
        place.heading(f"{clients} clients of {lines} messages of {BODY_BYTES} bytes a request")
    )
    click.echo(f"median (min-max) of {rounds} interleaved rounds of {seconds} s each\n")
    bench = Bench(place, Asked(lines, clients, seconds))
    pack = min(lines, PACK_MAX)
    rivals = [each for each in (RABBITMQ_QUORUM, REDIS, BEANSTALKD) if each.is_installed()]
    steps: list[Callable[[Path], Any]] = [
        partial(bench.lines, 0, 0),
        partial(bench.lines, pack, 0),
        partial(bench.lines, pack, 10),
        bench.linger,
        bench.parting,
        *(partial(bench.rival, each) for each in rivals),
    ]
    figures, made = Figures(), place.path / "made"
    for number, step in interleaved(rounds, steps):
        measured = step(made)
        place.clear(made)
        figures.add(measured, number)
    rows = [("what", "messages/s"), *((what, figures.spread(what)) for what in figures.rounds)]
    click.echo(drawn(rows))
    more = [(what, spread(values, ",.4f")) for what, values in bench.others.items()]
    click.echo("\n" + drawn([("what", "value"), *more]))


async def _linger(url: str, seconds: float) -> tuple[list[float], float]:
    """How long each publish took, and all together."""
    waits_s: list[float] = []
    began = time.perf_counter()

    async def publish() -> None:
        while (asked := time.perf_counter()) - began < seconds:
            await queue.publish(_BODY)
            waits_s.append(time.perf_counter() - asked)

    async with AsyncClient(url, linger_ms=2) as client:
        queue = client.queue(QUEUE)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TASKS):
                tasks.create_task(publish())
    return waits_s, time.perf_counter() - began


def _timed(connection: Connection, asked: bytes, expected: int) -> tuple[float, bytes]:
    began = time.perf_counter()
    answer = connection.ask(asked, expected)
    return time.perf_counter() - began, answer.body


def _pipelines(port: int, is_redis: bool, count: int, seconds: float) -> int:
    """Adds `count` messages at a time, then reads as many answers. Returns how many."""
    if is_redis:
        words = (b"XADD", b"bench", b"*", b"b", _BODY)
        one = b"*%d\r\n" % len(words)
        one += b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        good, ends = b"$", 2  # A bulk string: its length, and the id.
    else:
        one = b"put 0 0 3600 %d\r\n%b\r\n" % (len(_BODY), _BODY)
        good, ends = b"INSERTED", 1
    messages, began = 0, time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as made:
        answers = made.makefile("rb")
        while time.perf_counter() - began < seconds:
            made.sendall(one * count)
            for _ in range(count):
                if not answers.readline().startswith(good):
                    raise BenchError("a message was not added")
                for _ in range(ends - 1):
                    answers.readline()
            messages += count
    return messages


if __name__ == "__main__":
    main()
