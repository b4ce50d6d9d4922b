"""`python -m deploy.bench.spark_publish`: a data frame published through the sink, beside a plain
Python loop that makes each message durable by itself, and the sink's own steps without Spark.

Messages of 300 bytes, to one queue of a root that is made for each turn. The sink's rows are from
`save()` to its return: written, durable, committed and at their places. The plain loop writes,
fsyncs and renames each file, its folder never: the least that anybody does.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click
from pyspark.sql import SparkSession

from deploy.bench.load import BODY_BYTES, BenchError
from deploy.bench.places import Place, on_place, rounds_flag
from deploy.bench.spark_read import quiet_session
from deploy.bench.table import Figures
from mq.model.clock import SystemClock
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.bulk.journal import commit
from mq.store.bulk.roll_forward import roll_forward
from mq.store.bulk.staging import StagingWriter
from mq.store.bulk.windows import WindowIds
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import choose_flusher
from mq.store.format.pipeline import Attempt
from mq.store.opening import open_root

QUEUE: Final = QueueName("bench")
PLAIN: Final = "plain Python loop, fsync a message"
PLAIN_SHARE: Final = 20
"""By how many times fewer it publishes: its rate does not depend on that."""
STEPS: Final = "the store's steps, one thread, no Spark"
WARMING: Final = 200
ARROW_ROWS: Final = 10_000
"""What Spark gives a writer at a time."""


@click.command("python -m deploy.bench.spark_publish", context_settings={"show_default": True})
@on_place
@click.option("--messages", type=click.IntRange(100), default=100_000, help="A publish.")
@rounds_flag(3)
def main(place: Place, messages: int, rounds: int) -> None:
    """Measures messages a second of bulk publishes."""
    click.echo(place.heading(f"bodies of {BODY_BYTES} bytes\n"))
    figures = Figures()
    for number in range(1, rounds + 1):
        click.echo(f"round {number}", err=True)
        for what, rate in _round(place, messages):
            figures.add({what: rate})
            click.echo(f"  {what}: {rate:,.0f}", err=True)
    click.echo(f"{messages:,} messages; median (min-max) of {rounds} interleaved rounds\n")
    click.echo(figures.compared(PLAIN, "to the plain loop"))


def _round(place: Place, messages: int) -> Iterator[tuple[str, float]]:
    count = max(100, messages // PLAIN_SHARE)
    yield PLAIN, _rate(place, count, lambda root: publish_plainly(root, count))
    yield STEPS, _rate(place, messages, lambda root: _steps(root, messages))
    for cores in (2, 1):
        with _session(cores) as session:
            with _made(place) as warmed:
                save_frame(session, warmed, WARMING, cores, "syncfs")
            for sync in ("syncfs", "fsync") if cores == 2 else ("syncfs",):

                def save(
                    root: Root,
                    session: SparkSession = session,
                    cores: int = cores,
                    sync: str = sync,
                ) -> None:
                    save_frame(session, root, messages, cores, sync)

                yield f"sink, local[{cores}], sync={sync}", _rate(place, messages, save)


def _rate(place: Place, messages: int, publish: Callable[[Root], None]) -> float:
    with _made(place) as root:
        begun = time.perf_counter()
        publish(root)
        took_s = time.perf_counter() - begun
        found = sum(
            len(names) for _, _, names in os.walk(root.layout.queue(QUEUE), followlinks=False)
        )
        if found != messages:
            raise BenchError(f"{found} of {messages} messages are there")
    return messages / took_s


@contextmanager
def _made(place: Place) -> Iterator[Root]:
    """A root with the queue, then gone, and what was written of it flushed."""
    top = place.path / uuid.uuid4().hex
    root = open_root(str(top), Files(), SystemClock())
    os.mkdir(root.layout.queue(QUEUE), 0o700)
    os.sync()
    try:
        yield root
    finally:
        place.clear(top)


@contextmanager
def _session(cores: int) -> Iterator[SparkSession]:
    made = quiet_session(cores)
    try:
        yield made
    finally:
        made.stop()


def save_frame(session: SparkSession, root: Root, messages: int, cores: int, sync: str) -> None:
    """One partition a core."""
    frame = session.range(0, messages, 1, cores)
    frame = frame.selectExpr(f"rpad(cast(id as string), {BODY_BYTES}, 'x') as value")
    writing = frame.write.format("mq").mode("append").option("path", root.layout.root)
    writing.option("queue", QUEUE.text).option("sync", sync).save()


def publish_plainly(root: Root, messages: int) -> None:
    body, uuids = b"x" * BODY_BYTES, UuidSource(root.clock)
    for _ in range(messages):
        name = uuids.next()
        staged = f"{root.layout.new}/{QUEUE.text}:{name}"
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, body)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(staged, f"{root.layout.queue(QUEUE)}/{name}")


def _steps(root: Root, messages: int) -> None:
    body, job = b"x" * BODY_BYTES, uuid.uuid4().hex
    flusher = choose_flusher(root.layout.root, root.files, 8)
    with StagingWriter(root, job, Attempt(0, 0)) as writer:
        ids = WindowIds(root, job)
        for first in range(0, messages, ARROW_ROWS):
            count = min(ARROW_ROWS, messages - first)
            uuids, are_apart = ids.many(count)
            writer.put_alike(QUEUE, MessageId(uuids[0]), uuids, [body] * count, are_apart)
        staged = writer.finish()
    committed = run_alone(commit(root, job, (staged,)), flusher)
    roll_forward(root, committed.name)
    flusher.close()


if __name__ == "__main__":
    main()
