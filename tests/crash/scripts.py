"""Every operation and its variants, each in a script that clients and daemons play on a disk.

What another process does here and does not flush is what a kill -9 leaves: a rename, a folder, a
file that nobody has flushed yet, met by the operation that the script is about.
"""

import asyncio
import errno
import os
import time

from crash.load import LARGE
from crash.registry import BUCKETS, FLAT, script
from crash.stage import HOURS_S, LATER_S, ORDERS, SOON_S, Stage
from harness.faults import FaultyFiles
from harness.internals import connections, fetches_waiting
from harness.messages import make_body, new_id
from harness.raw import raw_connection, raw_head
from harness.waiting import comes_true

from mq.model.lifecycle import State
from mq.model.names import QueueName
from mq.store.disk.group import run_alone
from mq.store.operations.queues import delete_queue


@script()
async def first_start(on: Stage) -> None:
    await on.start()
    await on.clients.make(ORDERS)
    await on.clients.publish(300)


@script()
async def root_made_by_another(on: Stage) -> None:
    """Which died before it flushed any folder, or by a mkdir -p that flushes none."""
    on.root.mkdir(mode=0o700, parents=True)
    for name in ("new", "queues", "delay", "remove", "deleted"):
        (on.root / name).mkdir(mode=0o700)
    await first_start(on)


@script()
async def restart(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish(300)
    await on.fetched()
    await on.stop()
    await on.start()
    await on.clients.delete(await on.clients.publish(16))


@script()
async def start_after_another(on: Stage) -> None:
    """Which died before it flushed what it moved and made: start-up flushes the root's folders."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    await on.fetched()
    await on.stop()
    on.disk.mark("delete_asked", queue=ORDERS, id=message_id)
    os.rename(on.delayed(message_id), on.removed(message_id))
    on.disk.mark("make_asked", queue="others")
    (on.root / "queues" / "others").mkdir(mode=0o700)
    await on.start()
    on.moved(message_id, State.REMOVED)
    on.disk.mark("made", queue="others")


@script()
async def make_again(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.make(ORDERS)
    await on.clients.make("others")


@script()
async def make_what_another_made(on: Stage) -> None:
    """The other died before it flushed it."""
    await on.begin()
    (on.root / "queues" / ORDERS).mkdir(mode=0o700)
    await on.clients.make(ORDERS)


@script()
async def publish_to_what_another_made(on: Stage) -> None:
    await on.begin()
    (on.root / "queues" / ORDERS).mkdir(mode=0o700)
    await on.clients.publish(300)
    await on.clients.publish(16)


@script(FLAT, BUCKETS)
async def publish(on: Stage) -> None:
    await on.begin(ORDERS)
    for size in (16, 300, 5000):
        await on.clients.publish(size)


@script()
async def publish_streamed(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish(LARGE)


@script(FLAT, BUCKETS)
async def fetch(on: Stage) -> None:
    await on.begin(ORDERS)
    for size in (300, 16):
        await on.clients.publish(size)
    for _ in range(2):
        await on.fetched()


@script()
async def fetch_large(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish(LARGE)
    await on.clients.delete(await on.fetched())


@script()
async def publish_with_headers(on: Stage) -> None:
    """Held and streamed; then fetched, and one of them deleted."""
    await on.begin(ORDERS)
    for size in (300, LARGE):
        await on.clients.publish(size, with_headers=True)
    for _ in range(2):
        message_id = await on.fetched()
    await on.clients.delete(message_id)


@script()
async def release(on: Stage) -> None:
    """The client is gone before its claim is flushed."""
    files = FaultyFiles()
    server = await on.start(files)
    await on.clients.make(ORDERS)
    message_id = await on.clients.publish(300)
    claim = files.hold("rename", f"/delay/{ORDERS}:")
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", f"/{ORDERS}/messages"))
        await comes_true(claim.reached.is_set, "a claim")
    await comes_true(lambda: connections(server) <= 1, "the connection is gone")
    claim.open()
    await on.stop()
    assert on.ready(message_id).stat().st_mtime_ns % 10**6, "a release counts the receive"
    on.moved(message_id, State.READY, is_timeless=True)


@script()
async def inherit(on: Stage) -> None:
    """A claim that was begun for one who went: its message is released for one who waits."""
    files = FaultyFiles()
    server = await on.start(files)
    await on.clients.make(ORDERS)
    message_id = await on.clients.publish(300)
    look, claim = files.hold("entries", f"/queues/{ORDERS}"), files.hold("lock", f"/{message_id}")
    on.disk.mark("fetch_asked", queue=ORDERS)
    async with raw_connection(server.port) as connection:
        await connection.send(raw_head("GET", f"/{ORDERS}/messages?visibility=9"))
        await comes_true(look.reached.is_set, "a look")
        heir = asyncio.create_task(on.clients.fetch(ORDERS, wait_s=60))
        await comes_true(lambda: fetches_waiting(server, ORDERS) == 2, "another who waits")
        look.open()
        await comes_true(claim.reached.is_set, "a claim")
    await comes_true(lambda: fetches_waiting(server, ORDERS) == 1, "the first one is gone")
    claim.open()
    assert await heir == message_id


@script(FLAT, BUCKETS)
async def delete_ready(on: Stage) -> None:
    await on.begin(ORDERS)
    for size in (300, 16):
        await on.clients.delete(await on.clients.publish(size))


@script()
async def delete_delayed(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish(300)
    await on.clients.delete(await on.fetched())


@script(FLAT, BUCKETS)
async def delete_removed(on: Stage) -> None:
    """By another process, which died before it flushed that."""
    await on.begin(ORDERS)
    ready, delayed = [await on.clients.publish(size) for size in (300, 16)]
    assert await on.fetched() == ready
    ready, delayed = delayed, ready
    on.disk.mark("delete_asked", queue=ORDERS, id=ready)
    os.rename(on.ready(ready), on.removed(ready))
    await on.clients.delete(ready)
    on.disk.mark("delete_asked", queue=ORDERS, id=delayed)
    os.rename(on.delayed(delayed), on.removed(delayed))
    await on.clients.delete(delayed)


@script(FLAT, BUCKETS)
async def delete_reaped(on: Stage) -> None:
    """Deleted by another process, which died before it flushed that, and reaped: not found is an
    answer that a client takes for a delete that was done before.
    """
    await on.begin(ORDERS)
    ready, delayed = [await on.clients.publish(size) for size in (300, 16)]
    assert await on.fetched() == ready
    for message_id, path in ((ready, on.delayed(ready)), (delayed, on.ready(delayed))):
        on.disk.mark("delete_asked", queue=ORDERS, id=message_id)
        os.rename(path, on.removed(message_id))
        os.unlink(on.removed(message_id))
        await on.clients.delete(message_id)


@script()
async def drop_again(on: Stage) -> None:
    """Deleted by another process, which died before it flushed that."""
    await on.begin(ORDERS)
    await on.clients.publish(300)
    on.disk.mark("drop_asked", queue=ORDERS)
    os.rename(on.root / "queues" / ORDERS, on.root / "remove" / f"{ORDERS}:{new_id().uuid}.d")
    async with on.session.delete(f"http://127.0.0.1:{on.ports[0]}/{ORDERS}") as response:
        assert response.status == 404
    on.disk.mark("dropped", queue=ORDERS)


@script()
async def delete_redelivered(on: Stage) -> None:
    """By a mover that died before it flushed that."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    await on.fetched()
    on.disk.pass_time(LATER_S)
    os.rename(on.delayed(message_id), on.ready(message_id))
    await on.clients.delete(message_id)


@script()
async def fetch_redelivered(on: Stage) -> None:
    """By a mover that died before it flushed that."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    await on.fetched()
    on.disk.pass_time(LATER_S)
    os.rename(on.delayed(message_id), on.ready(message_id))
    await on.clients.delete(await on.fetched())


@script()
async def delete_claimed(on: Stage) -> None:
    """By an mq that died before it flushed its claim."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    os.rename(on.ready(message_id), on.delayed(message_id))
    await on.clients.delete(message_id)


@script()
async def redeliver(on: Stage) -> None:
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    await on.fetched()
    on.disk.pass_time(LATER_S)
    await on.move_due()
    on.moved(message_id, State.READY)
    await on.clients.delete(await on.fetched())


@script()
async def schedule(on: Stage) -> None:
    await on.begin(ORDERS)
    for size in (16, 5000):
        await on.clients.publish(size, due_in_s=SOON_S)


@script()
async def schedule_streamed(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish(LARGE, due_in_s=SOON_S)


@script()
async def schedule_to_what_another_made(on: Stage) -> None:
    """The other died before it flushed it."""
    await on.begin()
    (on.root / "queues" / ORDERS).mkdir(mode=0o700)
    await on.clients.publish(300, due_in_s=SOON_S)


@script()
async def redeliver_scheduled(on: Stage) -> None:
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300, due_in_s=SOON_S)
    on.disk.pass_time(LATER_S)
    await on.move_due()
    on.moved(message_id, State.READY)
    await on.clients.delete(await on.fetched())


@script()
async def postpone(on: Stage) -> None:
    await on.begin(ORDERS)
    for size in (300, 16):
        message_id = await on.clients.publish(size)
        await on.clients.reschedule(message_id, SOON_S)
    await on.clients.reschedule(message_id, 0)
    await on.clients.delete(await on.fetched())


@script()
async def extend(on: Stage) -> None:
    """What was fetched, and what was scheduled: later, and sooner."""
    await on.begin(ORDERS)
    await on.clients.publish(300)
    message_id = await on.fetched()
    for due_in_s in (2 * SOON_S, SOON_S):
        await on.clients.reschedule(message_id, due_in_s)
    message_id = await on.clients.publish(16, due_in_s=SOON_S)
    await on.clients.reschedule(message_id, 2 * SOON_S)
    await on.clients.delete(message_id)


@script()
async def extend_claimed(on: Stage) -> None:
    """By an mq that died before it flushed its claim."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    os.rename(on.ready(message_id), on.delayed(message_id))
    await on.clients.reschedule(message_id, SOON_S)


@script()
async def extend_scheduled(on: Stage) -> None:
    """By an mq that died before it flushed where it lies."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    later_ns = round((time.time() + SOON_S) * 1000) * 10**6
    os.rename(on.ready(message_id), on.delayed(message_id))
    os.utime(on.delayed(message_id), ns=(later_ns, later_ns))
    await on.clients.reschedule(message_id, 2 * SOON_S)


@script()
async def release_by_request(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish(300)
    scheduled = await on.clients.publish(16, due_in_s=SOON_S)
    for message_id in (await on.fetched(), scheduled):
        await on.clients.reschedule(message_id, 0)
    for _ in range(2):
        await on.clients.delete(await on.fetched())


@script()
async def release_redelivered(on: Stage) -> None:
    """By a mover that died before it flushed that."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    await on.fetched()
    on.disk.pass_time(LATER_S)
    os.rename(on.delayed(message_id), on.ready(message_id))
    await on.clients.reschedule(message_id, 0)


@script(FLAT, BUCKETS)
async def reschedule_removed(on: Stage) -> None:
    """By another process, which died before it flushed that: a not-found is for good."""
    await on.begin(ORDERS)
    ready, reaped = [await on.clients.publish(size) for size in (300, 16)]
    for message_id in (ready, reaped):
        on.disk.mark("delete_asked", queue=ORDERS, id=message_id)
        os.rename(on.ready(message_id), on.removed(message_id))
    os.unlink(on.removed(reaped))
    for message_id in (ready, reaped):
        await on.clients.reschedule(message_id, SOON_S)


@script(FLAT, BUCKETS)
async def publish_lines(on: Stage) -> None:
    await on.begin(ORDERS)
    for sizes in ((16, 5000, 300), (16,), (300, 300)):
        await on.clients.publish_lines(sizes)


@script()
async def publish_rows(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish_lines((16, 5000, 300), as_rows=True)
    await on.clients.publish_lines((300, 16), due_in_s=SOON_S, as_rows=True)


@script()
async def publish_lines_to_what_another_made(on: Stage) -> None:
    """The other died before it flushed it."""
    await on.begin()
    (on.root / "queues" / ORDERS).mkdir(mode=0o700)
    await on.clients.publish_lines((300, 16))


@script()
async def schedule_lines(on: Stage) -> None:
    """The other died before it flushed what it made."""
    await on.begin()
    (on.root / "queues" / ORDERS).mkdir(mode=0o700)
    await on.clients.publish_lines((300, 16), due_in_s=SOON_S)


@script()
async def publish_lines_of_which_one_fails(on: Stage) -> None:
    files = FaultyFiles()
    await on.start(files)
    await on.clients.make(ORDERS)
    files.fail("sync", errno.EIO, "/new/", times=1, after=1)
    assert len(await on.clients.publish_lines((16, 300, 5000))) == 2


@script(FLAT, BUCKETS)
async def fetch_and_acknowledge(on: Stage) -> None:
    await on.begin(ORDERS)
    ids = await on.clients.publish_lines((300, 16, 16))
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch_many(2) == ids[:2]
    await on.clients.acknowledge(ids)


@script()
async def forget(on: Stage) -> None:
    """What an mq left in new/ that died in the middle of a publish."""
    await on.begin(ORDERS)
    message_id = new_id().text
    name = f"{ORDERS}:{message_id}"
    descriptor = os.open(on.root / "new" / name, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, make_body(77, 300)[:200])
    os.close(descriptor)
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    await on.clients.publish(300)


@script()
async def drop(on: Stage) -> None:
    await on.begin(ORDERS)
    for size in (300, 16, 5000):
        await on.clients.publish(size)
    await on.fetched()
    await on.clients.drop(ORDERS)
    await on.stop()


async def _dropped_by_another(on: Stage) -> list[str]:
    """The queue, by an mq that died before it took away what is in delay/; the ids of that."""
    await on.begin(ORDERS)
    for size in (300, 16, 16):
        await on.clients.publish(size)
    delayed = [await on.fetched() for _ in range(2)]
    on.disk.mark("drop_asked", queue=ORDERS)
    uuid = new_id().uuid
    await on.other(
        lambda root, flusher: run_alone(delete_queue(root, QueueName(ORDERS), uuid), flusher)
    )
    on.disk.mark("dropped", queue=ORDERS)
    return delayed


@script()
async def make_anew(on: Stage) -> None:
    await _dropped_by_another(on)
    await on.clients.make(ORDERS)
    await on.clients.publish(300)


@script(FLAT, BUCKETS)
async def retire_due(on: Stage) -> None:
    """What a deleted queue has in delay/ is due, and a mover comes before a sweeper."""
    for message_id in await _dropped_by_another(on):
        on.disk.mark("later", id=message_id)
    on.disk.pass_time(LATER_S)
    await on.move_due()


@script(FLAT, BUCKETS)
async def sweep(on: Stage) -> None:
    await _dropped_by_another(on)
    await on.sweep()
    assert not any(path.is_file() for path in (on.root / "delay").rglob("*"))
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    assert not (on.root / "deleted" / ORDERS).exists()


@script()
async def reap(on: Stage) -> None:
    await drop(on)
    await on.start()
    await on.clients.make(ORDERS)
    await on.clients.delete(await on.clients.publish(300))
    on.disk.pass_time(10)
    await on.reap()
    assert not any((on.root / "remove").iterdir())


@script(FLAT, BUCKETS)
async def together(on: Stage) -> None:
    """Groups of every operation at once."""
    await on.begin(ORDERS)
    await on.clients.make("others")
    queues = [ORDERS, "others"] * 3
    ids = await asyncio.gather(*(on.clients.publish(300, queue) for queue in queues))
    fetched = await asyncio.gather(
        *(on.clients.fetch(queue) for queue in queues[:4]),
        *(on.clients.publish(16, queue) for queue in queues[:3]),
        on.clients.delete(ids[5], "others"),
    )
    await asyncio.gather(
        *(
            on.clients.delete(str(each), queue)
            for each, queue in zip(fetched[:3], queues[:3], strict=True)
        ),
        *(on.clients.publish(300, queue) for queue in queues[:2]),
        on.clients.hang_up(),
        on.clients.fetch("others"),
    )
