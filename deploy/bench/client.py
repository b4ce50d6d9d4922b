"""`python -m deploy.bench.client`: the clients, beside bare loops over aiohttp and http.client.

Each way publishes so many messages to a queue of its own, on a server of its own, or takes and
deletes so many that are there. A bare loop sends the same requests and looks at the status alone:
once without an idempotency key, which the clients always send, and once with. What was done is
counted against the files.
"""

import asyncio
import http.client
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import click

from deploy.bench.ceiling import Commit
from deploy.bench.connection import Connection, request
from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.machine import heading
from deploy.bench.places import Place, chosen, place_flags
from deploy.bench.running import commit_flag, rounds_flag, running
from deploy.bench.servers import MESSAGES, QUEUE, commit_flags, make_queue
from deploy.bench.table import Figures, drawn
from mq import AsyncClient, Client
from tests.harness.processes import Process, processes

TASKS: Final = 32
THREADS: Final = 8
BODY: Final = b"x" * BODY_BYTES
_LINES: Final = 1000


@dataclass(frozen=True)
class Way:
    """What is measured: how many messages it takes through is told to it."""

    name: str
    run: Callable[[Process, int], None]
    beside: str
    """The bare loop that it is compared with."""
    publishes: bool


@click.command("python -m deploy.bench.client", context_settings={"show_default": True})
@place_flags
@click.option("--messages", type=click.IntRange(1), default=4000, help="Of each way.")
@rounds_flag(3)
@commit_flag
def main(
    root: Path | None, where: str | None, messages: int, rounds: int, commit: Commit | None
) -> None:
    """Measures messages a second of the clients, and of bare loops."""
    figures = Figures()
    with running(), chosen(root, where) as place:
        mode = place.commit(commit)
        said = f"{messages} messages of {BODY_BYTES} bytes each way, {TASKS} tasks or "
        click.echo(heading(place.path, mode, place.about, f"{said}{THREADS} threads"))
        for number in range(1, rounds + 1):
            for turn, way in enumerate(WAYS if number % 2 else WAYS[::-1]):
                made = place.path / f"{number}-{turn}"
                figures.add({way.name: _measure(made, place, mode, way, messages)})
                rate = figures.last_rate(way.name)
                click.echo(f"round {number}: {way.name}: {rate:,.0f}/s", err=True)
    rows = [("what", "messages/s", "to the bare loop")]
    for way in WAYS:
        ratio = figures.median(way.name) / figures.median(way.beside)
        rows.append((way.name, figures.spread(way.name), f"{ratio:.2f}"))
    click.echo(drawn(rows))


def _measure(made: Path, place: Place, mode: Commit, way: Way, messages: int) -> float:
    with processes() as started:
        server = started.mq(made, *commit_flags(mode, place.in_memory))
        make_queue(server)
        if not way.publishes:
            _publish(server, messages)
        began = time.perf_counter()
        way.run(server, messages)
        took_s = time.perf_counter() - began
        server.terminate()
    folder = "queues" if way.publishes else "remove"
    there = sum(1 for path in (made / folder).rglob("*-*-*") if path.is_file())
    if there != messages:
        raise BenchError(f"{way.name}: {messages} were to be in {folder}, there are {there}")
    place.clear(made)
    return messages / took_s


def _publish(server: Process, messages: int) -> None:
    with Connection(server.port) as connection:
        for first in range(0, messages, _LINES):
            count = min(_LINES, messages - first)
            connection.ask(request("POST", f"{MESSAGES}?split=lines", (BODY + b"\n") * count), 200)


def _in_tasks(messages: int, one: Callable[[], Awaitable[object]]) -> Awaitable[object]:
    """Does it so often, in so many tasks."""
    left = iter(range(messages))

    async def some() -> None:
        for _ in left:
            await one()

    return asyncio.gather(*(some() for _ in range(TASKS)))


def _in_threads(messages: int, threads: int, work: Callable[[Iterator[int]], None]) -> None:
    """Each of so many threads does its work for each number that it gets."""
    left = iter(range(messages))
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, left) for _ in range(threads)]:
            done.result()


# Bare loops


def _bare_publish(with_key: bool) -> Callable[[Process, int], None]:
    async def run(server: Process, messages: int) -> None:
        async with aiohttp.ClientSession() as session:

            async def one() -> None:
                headers = {"Idempotency-Key": str(uuid.uuid4())} if with_key else {}
                url = server.url + MESSAGES
                async with session.post(url, data=BODY, headers=headers) as answer:
                    await answer.read()
                    _check(answer.status, 201)

            await _in_tasks(messages, one)

    return lambda server, messages: asyncio.run(run(server, messages))


def _bare_cycle(server: Process, messages: int) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:

            async def one() -> None:
                async with session.get(server.url + MESSAGES) as answer:
                    await answer.read()
                    _check(answer.status, 200)
                    path = f"{MESSAGES}/{answer.headers['X-Message-Id']}"
                    headers = {"If-Match": answer.headers["ETag"]}
                async with session.delete(server.url + path, headers=headers) as answer:
                    await answer.read()
                    _check(answer.status, 202)

            await _in_tasks(messages, one)

    asyncio.run(run())


def _http_client(threads: int, cycle: bool) -> Callable[[Process, int], None]:
    def run(server: Process, messages: int) -> None:
        def work(left: Iterator[int]) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            for _ in left:
                if cycle:
                    found = _asked(connection, "GET", MESSAGES, 200)
                    path = f"{MESSAGES}/{found['X-Message-Id']}"
                    _asked(connection, "DELETE", path, 202, {"If-Match": found["ETag"]})
                else:
                    key = {"Idempotency-Key": str(uuid.uuid4())}
                    _asked(connection, "POST", MESSAGES, 201, key, BODY)
            connection.close()

        _in_threads(messages, threads, work)

    return run


def _asked(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    expected: int,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> dict[str, str]:
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    answer.read()
    _check(answer.status, expected)
    return dict(answer.getheaders())


def _check(status: int, expected: int) -> None:
    if status != expected:
        raise BenchError(f"{status} where {expected} was to be")


# The clients


def _publish_many(server: Process, messages: int) -> None:
    async def run() -> None:
        async with AsyncClient(server.url) as client:
            bodies = itertools.repeat(BODY, messages)
            found = await client.queue(QUEUE).publish_many(bodies, concurrency=TASKS)
            _check(sum(each.id is not None for each in found), messages)

    asyncio.run(run())


def _async_publish(server: Process, messages: int) -> None:
    async def run() -> None:
        async with AsyncClient(server.url) as client:
            queue = client.queue(QUEUE)
            await _in_tasks(messages, lambda: queue.publish(BODY))

    asyncio.run(run())


def _async_cycle(server: Process, messages: int) -> None:
    async def run() -> None:
        async with AsyncClient(server.url) as client:
            queue = client.queue(QUEUE)

            async def one() -> None:
                message = await queue.fetch()
                if message is None:
                    raise BenchError("nothing is left")
                await message.delete()

            await _in_tasks(messages, one)

    asyncio.run(run())


def _async_consume(server: Process, messages: int) -> None:
    async def run() -> None:
        async with (
            AsyncClient(server.url) as client,
            client.queue(QUEUE).consume(prefetch=100, via="websocket") as consumer,
        ):

            async def one() -> None:
                message = await consumer.next()
                if message is None:
                    raise BenchError("nothing is left")
                await message.delete()

            await _in_tasks(messages, one)

    asyncio.run(run())


def _sync(threads: int, what: str) -> Callable[[Process, int], None]:
    def run(server: Process, messages: int) -> None:
        with Client(server.url) as client:
            queue = client.queue(QUEUE)
            consumer = queue.consume(prefetch=100, via="websocket")

            def work(left: Iterator[int]) -> None:
                for _ in left:
                    if what == "publish":
                        queue.publish(BODY)
                        continue
                    message = consumer.next() if what == "consume" else queue.fetch()
                    if message is None:
                        raise BenchError("nothing is left")
                    message.delete()

            _in_threads(messages, threads, work)

    return run


_P, _T = "publish", "fetch and delete"
_AIOHTTP_P, _AIOHTTP_T = f"{_P}: aiohttp, with a key", f"{_T}: aiohttp"
_ONE_P, _ONE_T = f"{_P}: http.client, one thread", f"{_T}: http.client, one thread"
_SOME_P, _SOME_T = f"{_P}: http.client, {THREADS} threads", f"{_T}: http.client, {THREADS} threads"

WAYS: Final = [
    Way(f"{_P}: aiohttp, without a key", _bare_publish(with_key=False), _AIOHTTP_P, True),
    Way(_AIOHTTP_P, _bare_publish(with_key=True), _AIOHTTP_P, True),
    Way(f"{_P}: AsyncClient", _async_publish, _AIOHTTP_P, True),
    Way(f"{_P}: AsyncClient, publish_many", _publish_many, _AIOHTTP_P, True),
    Way(_ONE_P, _http_client(1, cycle=False), _ONE_P, True),
    Way(f"{_P}: Client, one thread", _sync(1, "publish"), _ONE_P, True),
    Way(_SOME_P, _http_client(THREADS, cycle=False), _SOME_P, True),
    Way(f"{_P}: Client, {THREADS} threads", _sync(THREADS, "publish"), _SOME_P, True),
    Way(_AIOHTTP_T, _bare_cycle, _AIOHTTP_T, False),
    Way(f"{_T}: AsyncClient", _async_cycle, _AIOHTTP_T, False),
    Way(f"{_T}: AsyncClient, consume", _async_consume, _AIOHTTP_T, False),
    Way(_ONE_T, _http_client(1, cycle=True), _ONE_T, False),
    Way(f"{_T}: Client, one thread", _sync(1, "fetch"), _ONE_T, False),
    Way(f"{_T}: Client, consume, one thread", _sync(1, "consume"), _ONE_T, False),
    Way(_SOME_T, _http_client(THREADS, cycle=True), _SOME_T, False),
    Way(f"{_T}: Client, {THREADS} threads", _sync(THREADS, "fetch"), _SOME_T, False),
    Way(f"{_T}: Client, consume, {THREADS} threads", _sync(THREADS, "consume"), _SOME_T, False),
]


if __name__ == "__main__":
    main()
