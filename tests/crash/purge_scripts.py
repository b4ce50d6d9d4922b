"""Purges and changes of settings, each in a script like those of `scripts.py`."""

import asyncio
import os

import pytest
from crash.load import Refused
from crash.registry import BUCKETS, FLAT, script
from crash.stage import HOURS_S, LATER_S, ORDERS, Stage

from mq.model.errors import MessageNotFound
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.operations.fetch import fetch
from mq.store.operations.purge import purge as mark
from mq.store.operations.purge import take_purged, take_purged_buckets
from mq.store.operations.remove import remove


async def _publish(on: Stage, count: int) -> list[str]:
    """Messages, the first of them fetched."""
    await on.start()
    await on.clients.make(ORDERS)
    ids = [await on.clients.publish(300) for _ in range(count)]
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch() == ids[0]
    return ids


async def _published(on: Stage) -> list[str]:
    """As in `purge`, which is cut there too."""
    ids = await _publish(on, 4)
    on.known()
    return ids


async def _publish_after(on: Stage) -> str:
    """Behind a mark of a process whose clock is ahead."""
    try:
        return await on.clients.publish(300)
    except Refused:
        return await on.clients.publish(300)


async def _marked_by_another(on: Stage, takes: bool = False) -> None:
    """Which died then, or when it had taken some away."""
    on.disk.mark("purge_asked", queue=ORDERS)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        queue = QueueName(ORDERS)
        run_alone(mark(root, queue, root.now_ms()), flusher)
        if takes:
            take_purged_buckets(root, queue)
            take_purged(root, queue, 2)

    await on.other(work)
    on.settle()
    on.disk.mark("purged", queue=ORDERS)


@script(FLAT, BUCKETS)
async def purge(on: Stage) -> None:
    await _publish(on, 4)
    await on.clients.purge()
    message_id = await on.clients.publish(300)
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch() == message_id
    await on.stop()


@script(FLAT, BUCKETS)
async def purge_again(on: Stage) -> None:
    for _ in range(2):
        await _publish(on, 2)
        await on.clients.purge()
        await on.stop()
    await on.start()
    await on.clients.publish(16)


@script(FLAT, BUCKETS)
async def delete_purged(on: Stage) -> None:
    """By an mq that died before it flushed its mark: not found is an answer that a client takes for
    a delete that was done before.
    """
    ids = await _published(on)
    path = on.root / "purged" / ORDERS
    on.disk.mark("purge_asked", queue=ORDERS)
    written = path.with_name(".written")
    descriptor = os.open(written, os.O_CREAT | os.O_WRONLY, 0o600)
    os.utime(descriptor, ns=(Stamp(_now_ms(on)).mtime_ns(),) * 2)
    os.fsync(descriptor)
    os.close(descriptor)
    written.rename(path)
    on.settle()
    for message_id in ids[:2]:
        await on.clients.delete(message_id)


def _now_ms(on: Stage) -> int:
    return max(path.stat().st_mtime_ns for path in (on.root / "queues" / ORDERS).iterdir()) // 10**6


@script(FLAT, BUCKETS)
async def take_away_what_another_purged(on: Stage) -> None:
    await _published(on)
    on.disk.pass_time(LATER_S)
    await _marked_by_another(on, takes=True)
    await on.sweep()
    await _publish_after(on)


@script(FLAT, BUCKETS)
async def forget_a_purge(on: Stage) -> None:
    """What is moved is flushed before the mark goes."""
    await _published(on)
    await _marked_by_another(on)
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    await on.sweep()
    assert not (on.root / "purged" / ORDERS).exists()
    await on.clients.publish(300)


@script(FLAT, BUCKETS)
async def purge_beside_one_that_does_not_know(on: Stage) -> None:
    """It serves what it finds until the purge is answered, and nothing of it from then on."""
    ids = await _published(on)
    bystander = await on.bystander(ORDERS)
    queue, root = QueueName(ORDERS), bystander.root

    def fetched(message_id: str) -> bool:
        taken = run_alone(fetch(root, queue, MessageId.parse(message_id), 600), bystander.flusher)
        if taken is not None and taken.descriptor is not None:
            root.files.close(taken.descriptor)
        return taken is not None

    def removed(message_id: str) -> None:
        with pytest.raises(MessageNotFound):
            run_alone(remove(root, queue, MessageId.parse(message_id)), bystander.flusher)

    on.disk.mark("purge_asked", queue=ORDERS)
    await on.other(lambda at, flusher: run_alone(mark(at, queue, at.now_ms()), flusher))
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await asyncio.to_thread(fetched, ids[1])
    on.settle()
    on.disk.mark("purged", queue=ORDERS)
    assert not await asyncio.to_thread(fetched, ids[2])
    await asyncio.to_thread(removed, ids[3])


@script(FLAT, BUCKETS)
async def redeliver_purged(on: Stage) -> None:
    """A mover comes before a sweeper."""
    await _published(on)
    await _marked_by_another(on)
    on.disk.pass_time(LATER_S)
    await on.move_due()


@script(FLAT, BUCKETS)
async def make_anew_after_a_purge(on: Stage) -> None:
    await _published(on)
    await on.clients.purge()
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS)
    await on.clients.publish(300)
    await on.stop()


@script()
async def make_anew_where_a_mark_was_left(on: Stage) -> None:
    """By another, which died before it had deleted the queue."""
    await on.begin()
    path = on.root / "purged" / ORDERS
    path.touch()
    descriptor = os.open(path, os.O_RDWR)
    os.utime(descriptor, ns=(4_000_000_000 * 10**9,) * 2)
    os.fsync(descriptor)
    os.close(descriptor)
    descriptor = os.open(path.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    await on.clients.make(ORDERS)
    await on.clients.publish(300)


@script()
async def configure(on: Stage) -> None:
    await on.begin()
    await on.clients.make(ORDERS, "?shards=2")
    for visibility_s in (700.0, 800.0, None):
        await on.clients.configure(visibility_s)
    await on.clients.publish(300)


@script(BUCKETS)
async def make_in_another_shape_beside_one_that_does_not_know(on: Stage) -> None:
    """What came to a bucket of the new shape does not come back there once it is deleted."""
    await on.begin(ORDERS)
    bystander = await on.bystander(ORDERS)
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS, "?shards=2")
    ids = [await on.clients.publish(300) for _ in range(4)]
    for message_id in ids[2:]:
        on.disk.mark("fetch_asked", queue=ORDERS)
        os.rename(on.ready(message_id), on.root / "delay" / f"{ORDERS}:{message_id}")
        on.disk.mark("delete_asked", queue=ORDERS, id=message_id)

    def work() -> None:
        for message_id in map(MessageId.parse, ids[2:]):
            operation = remove(bystander.root, QueueName(ORDERS), message_id)
            assert run_alone(operation, bystander.flusher)

    await asyncio.to_thread(work)
    for message_id in ids[2:]:
        on.disk.mark("deleted", queue=ORDERS, id=message_id)


@script()
async def configure_by_default(on: Stage) -> None:
    """A file that comes and goes."""
    await on.begin()
    await on.clients.make(ORDERS)
    await on.clients.configure(700.0)
    await on.clients.configure(None)
    await on.clients.configure(800.0)
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS)


@script()
async def configure_what_another_has(on: Stage) -> None:
    """Which died before it flushed that: the same again is answered once it is."""
    await on.begin()
    await on.clients.make(ORDERS)
    on.disk.mark("configure_asked", queue=ORDERS, visibility_s=700.0)
    written = on.root / "settings" / ".written"
    descriptor = os.open(written, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, b'{"visibility_s": 700.0}')
    os.fsync(descriptor)
    os.close(descriptor)
    written.rename(written.with_name(f"{ORDERS}.json"))
    await on.clients.configure(700.0)
