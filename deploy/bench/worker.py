"""`python -m deploy.bench.worker`: how fast a worker is, and when a killed one's messages return.

A worker handles a backlog with a handler that does nothing, with 1, 10 and 100 consumers, as
coroutines and in threads, beside plain fetches and deletes of one connection. What was handled is
counted against the files. Then workers hold messages, whose leases they extend, and are killed with
kill -9: of each message it is told how long after its due time it is fetched by another.
"""

import asyncio
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click

from deploy.bench.ceiling import Commit
from deploy.bench.held import HELD_BY_EACH
from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.machine import heading
from deploy.bench.places import Place, chosen, place_flags
from deploy.bench.running import commit_flag, rounds_flag, running
from deploy.bench.servers import QUEUE, commit_flags, make_queue
from deploy.bench.table import Figures, drawn
from mq.client.client import AsyncClient
from mq.client.worker import AsyncWorkerMessage, Worker, WorkerMessage
from tests.harness.processes import Process, eventually, processes

ONE_BY_ONE: Final = "fetch, delete, one by one"
CONSUMERS: Final = (1, 10, 100)
LINES: Final = 1000
WORKERS: Final = 4
VISIBILITY_S: Final = 3


@click.command("python -m deploy.bench.worker", context_settings={"show_default": True})
@place_flags
@click.option("--messages", type=click.IntRange(100), default=5_000, help="Of each way.")
@rounds_flag(3)
@commit_flag
def main(
    root: Path | None,
    where: str | None,
    messages: int,
    rounds: int,
    commit: Commit | None,
) -> None:
    """Measures messages a second, and how late what a killed worker had is fetched again."""
    figures = Figures()
    ways = [ONE_BY_ONE] + [
        f"{consumers} consumers, {kind}" for kind in ("async", "sync") for consumers in CONSUMERS
    ]
    with running(), chosen(root, where) as place:
        mode = place.commit(commit)
        said = f"{messages} messages of {BODY_BYTES} bytes each way"
        click.echo(heading(place.path, mode, place.about, said))
        for number in range(1, rounds + 1):
            for way in ways if number % 2 else ways[::-1]:
                # Not all places are cleared between two measurements.
                made = place.path / f"{number}-{ways.index(way)}"
                figures.add({way: _measure(place, made, mode, way, messages)})
                click.echo(f"round {number}: {way}: {figures.last_rate(way):,.0f}/s", err=True)
        returned = _killed(place, mode)
    rows = [("what", "messages/s", "to one by one")]
    for way in ways:
        ratio = figures.median(way) / figures.median(ONE_BY_ONE)
        rows.append((way, figures.spread(way), f"{ratio:.2f}"))
    click.echo(drawn(rows))
    click.echo(f"\n{returned}")


def _measure(place: Place, made: Path, mode: Commit, way: str, messages: int) -> float:
    with processes() as started:
        server = started.mq(made, *commit_flags(mode, place.in_memory))
        make_queue(server)
        took_s = asyncio.run(_work(server, way, messages))
        server.terminate()
    there = sum(1 for path in (made / "remove").rglob("*-*-*") if path.is_file())
    if there != messages:
        raise BenchError(f"{messages} were published, {there} are removed")
    place.clear(made)
    return messages / took_s


async def _work(server: Process, way: str, messages: int) -> float:
    async with AsyncClient(server.url, connections_max=256) as client:
        await _publish(client, messages)
        began_s = time.perf_counter()
        if way == ONE_BY_ONE:
            queue = client.queue(QUEUE)
            while (message := await queue.fetch()) is not None:
                await message.delete()
        else:
            consumers, kind = way.split(" consumers, ")
            await _handle(client, int(consumers), kind == "async", messages)
        return time.perf_counter() - began_s


async def _publish(client: AsyncClient, messages: int, visibility_s: int | None = None) -> None:
    queue = client.queue(QUEUE)
    for first in range(0, messages, LINES):
        count = min(LINES, messages - first)
        body = (b"x" * BODY_BYTES + b"\n") * count
        await queue.publish_lines(body, visibility_s=visibility_s)


async def _handle(client: AsyncClient, consumers: int, is_async: bool, messages: int) -> None:
    left = messages

    async def count_down(_: AsyncWorkerMessage) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            worker.stop()

    def count_down_in_a_thread(_: WorkerMessage) -> None:
        nonlocal left
        left -= 1  # Whole under the interpreter's lock: no other thread writes between.
        if left == 0:
            worker.stop()

    handler = count_down if is_async else count_down_in_a_thread
    worker = Worker(client, QUEUE, handler, consumers=consumers)
    await worker.run_async()


@dataclass(frozen=True, slots=True)
class Returned:
    """How long after it was due each message of killed workers was fetched, and after the kill."""

    late_s: tuple[float, ...]
    after_kill_s: tuple[float, ...]

    def __str__(self) -> str:
        late_ms = [1000 * each for each in self.late_s]
        return (
            f"{len(late_ms)} messages of {WORKERS} killed workers, visibility {VISIBILITY_S} s: "
            f"fetched again {median(late_ms):,.0f} ms (p50) and {max(late_ms):,.0f} ms (max) after "
            f"they were due,\n{median(self.after_kill_s):.2f} s (p50) and "
            f"{max(self.after_kill_s):.2f} s (max) after the kill"
        )


def _killed(place: Place, mode: Commit) -> Returned:
    made = place.path / "killed"
    with processes() as started:
        server = started.mq(made, *commit_flags(mode, place.in_memory))
        make_queue(server)
        started.mover("--root", str(made))
        workers = [
            started.start(
                "mq.tools.mqctl", "worker", "deploy.bench.held:worker", "--url", server.url
            )
            for _ in range(WORKERS)
        ]
        returned = asyncio.run(_return(server, workers))
        server.terminate()
    place.clear(made)
    return returned


async def _return(server: Process, workers: list[Process]) -> Returned:
    messages = WORKERS * HELD_BY_EACH
    async with AsyncClient(server.url) as client:
        queue = client.queue(QUEUE)
        await _publish(client, messages, VISIBILITY_S)
        await _until_held(client, messages)
        for each in workers:
            each.popen.send_signal(signal.SIGKILL)
        killed_s = time.time()
        for each in workers:
            await asyncio.to_thread(eventually, each.popen.poll, "the worker is dead")
        due = {
            each.id: each.due.timestamp()
            for each in await queue.peek(states=("delayed",), count=1000)
        }
        late_s, after_kill_s = [], []
        while len(late_s) < messages:
            for message in await queue.fetch_many(1000, wait_s=30, visibility_s=3600):
                now_s = time.time()
                late_s.append(now_s - due[message.id])
                after_kill_s.append(now_s - killed_s)
    return Returned(tuple(late_s), tuple(after_kill_s))


async def _until_held(client: AsyncClient, messages: int) -> None:
    """All are held, and each has been extended about once."""
    queue = client.queue(QUEUE)
    while True:
        found = await queue.describe()
        if found.in_flight == messages and found.totals["extended"] >= messages:
            return
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    main()
