"""Operations whose messages lie in buckets, each in a script like those of `scripts.py`.

The daemons' folders hold one file: the first message of a folder lies flat, the next in its bucket,
those after it below that.
"""

import os

from crash.registry import BUCKETS, script
from crash.scripts import fetch_redelivered
from crash.stage import HOURS_S, LATER_S, ORDERS, SOON_S, Stage

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.disk.group import run_alone
from mq.store.operations.fetch import fetch as claim


async def _publish(on: Stage, count: int) -> list[str]:
    await on.start()
    await on.clients.make(ORDERS)
    return [await on.clients.publish(300) for _ in range(count)]


@script(BUCKETS)
async def in_every_place(on: Stage) -> None:
    """Published, fetched, put back and removed: flat, in a bucket, and below it."""
    ids = await _publish(on, 3)
    for place, message_id in enumerate(ids):
        assert len(on.ready(message_id).relative_to(on.root / "queues" / ORDERS).parts) == 1 + place
    for _ in ids:
        await on.fetched()
    on.disk.pass_time(LATER_S)
    await on.move_due()
    for message_id in ids:
        on.moved(message_id, State.READY)
    for message_id in ids:
        await on.clients.delete(message_id)


@script(BUCKETS)
async def publish_to_a_bucket_that_another_made(on: Stage) -> None:
    """The other died before it flushed it."""
    [first] = await on.published(1)
    bucket = on.root / "queues" / ORDERS / on.bucket(first)
    bucket.mkdir(mode=0o700)
    await on.clients.publish(300)
    (bucket / first.replace("-", "")[8:10]).mkdir(mode=0o700, exist_ok=True)
    await on.clients.publish(16)


@script(BUCKETS)
async def publish_lines_to_a_bucket_that_another_made(on: Stage) -> None:
    """The other died before it flushed it."""
    [first] = await on.published(1)
    bucket = on.root / "queues" / ORDERS / on.bucket(first)
    bucket.mkdir(mode=0o700)
    await on.clients.publish_lines((300, 16))
    (bucket / first.replace("-", "")[8:10]).mkdir(mode=0o700, exist_ok=True)
    await on.clients.publish_lines((16, 16))


@script(BUCKETS)
async def delete_claimed_in_a_bucket(on: Stage) -> None:
    """By an mq that died before it flushed its claims, each from another place."""
    for message_id in await on.published(3):
        os.rename(on.ready(message_id), on.root / "delay" / f"{ORDERS}:{message_id}")
        await on.clients.delete(message_id)


@script(BUCKETS)
async def delete_redelivered_from_a_bucket(on: Stage) -> None:
    """By a mover that died before it flushed that."""
    ids = await on.published(3)
    for _ in ids:
        await on.fetched()
    on.disk.pass_time(LATER_S)
    for message_id in ids:
        os.rename(on.delayed(message_id), on.root / "queues" / ORDERS / message_id)
        await on.clients.delete(message_id)


@script(BUCKETS)
async def release_redelivered_from_a_bucket(on: Stage) -> None:
    """By a mover that died before it flushed that."""
    ids = await on.published(3)
    for _ in ids:
        await on.fetched()
    on.disk.pass_time(LATER_S)
    for message_id in ids:
        os.rename(on.delayed(message_id), on.root / "queues" / ORDERS / message_id)
        await on.clients.reschedule(message_id, 0)


@script(BUCKETS)
async def fetch_redelivered_to_a_bucket(on: Stage) -> None:
    """The bucket is made, and flushed with delay/, while what the mover moved out of there is in
    the queue and not flushed.
    """
    await fetch_redelivered(on)


@script(BUCKETS)
async def empty_buckets(on: Stage) -> None:
    """What lay in them was claimed by an mq that died before it flushed that; then they go."""
    ids = await on.published(3)
    for message_id in ids:
        on.disk.mark("later", id=message_id)
        os.rename(on.ready(message_id), on.root / "delay" / f"{ORDERS}:{message_id}")
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    await on.sweep()
    await on.clients.publish(300)


@script(BUCKETS)
async def put_off_in_every_place(on: Stage) -> None:
    """Flat, in a bucket, and below it: scheduled, postponed, extended and released."""
    await on.published(1)
    for _ in range(3):
        await on.clients.publish(300, due_in_s=SOON_S)
    ids = [await on.clients.publish(16) for _ in range(3)]
    for message_id in ids:
        await on.clients.reschedule(message_id, SOON_S)
        await on.clients.reschedule(message_id, 2 * SOON_S)
    for message_id in ids:
        await on.clients.reschedule(message_id, 0)


@script(BUCKETS)
async def extend_claimed_in_a_bucket(on: Stage) -> None:
    """By an mq that died before it flushed its claims, each from another place, to a bucket that it
    had made and flushed.
    """
    ids = await on.published(3)
    bucket = on.root / "delay" / on.bucket(ids[0])
    bucket.mkdir(mode=0o700)
    Files().sync_folder(str(bucket.parent))
    for message_id in ids:
        os.rename(on.ready(message_id), bucket / f"{ORDERS}:{message_id}")
        await on.clients.reschedule(message_id, SOON_S)


@script(BUCKETS)
async def put_back_where_a_bucket_went(on: Stage) -> None:
    """And made anew by another, which died before it flushed it."""
    ids = await on.published(3)
    for _ in ids:
        await on.fetched()
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    on.disk.pass_time(120)
    await on.sweep()
    bucket = on.root / "queues" / ORDERS / on.bucket(ids[0])
    assert not bucket.exists()
    bucket.mkdir(mode=0o700)
    await on.move_due()
    for message_id in ids:
        on.moved(message_id, State.READY)
    await on.clients.delete(await on.fetched())


@script(BUCKETS)
async def make_shaped(on: Stage) -> None:
    await on.begin()
    await on.clients.make(ORDERS, "?bucket=7&shards=3")
    for _ in range(4):
        await on.clients.publish(300)
    await on.fetched()


@script(BUCKETS)
async def make_anew_of_another_shape(on: Stage) -> None:
    await make_shaped(on)
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS)
    for _ in range(3):
        await on.clients.publish(16)
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS, "?shards=2")
    await on.clients.publish(16)


@script(BUCKETS)
async def make_where_settings_were_left(on: Stage) -> None:
    """By another, which died before it made the queue."""
    await on.begin()
    written = on.root / "settings" / ".written"
    with written.open("wb") as file:
        file.write(b'{"bucket": 9, "shards": 4}\n')
        file.flush()
        os.fsync(file)
    written.rename(written.with_name(f"{ORDERS}.json"))
    await on.clients.make(ORDERS)
    for _ in range(3):
        await on.clients.publish(300)


@script(BUCKETS)
async def claim_into_a_bucket_that_another_made(on: Stage) -> None:
    """The other died before it flushed it."""
    ids = await on.published(2)
    await on.other(
        lambda root, flusher: run_alone(
            claim(root, QueueName(ORDERS), MessageId.parse(ids[0]), 600.0), flusher
        )
    )
    (on.root / "delay" / on.bucket(ids[1])).mkdir(mode=0o700)
    await on.clients.delete(await on.fetched())


@script(BUCKETS)
async def delete_in_a_queue_that_another_made_anew(on: Stage) -> None:
    """In another shape, by an mq that knew the queue as it was; the message was claimed by one that
    died before it flushed that.
    """
    await on.published(3)
    [old] = on.ports
    await on.start()
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS, "?bucket=7")
    ids = [await on.clients.publish(300) for _ in range(2)]
    on.ports[:] = [old]
    for message_id in ids:
        os.rename(on.ready(message_id), on.root / "delay" / f"{ORDERS}:{message_id}")
        await on.clients.delete(message_id)


@script(BUCKETS)
async def empty_buckets_of_what_went_to_others(on: Stage) -> None:
    """What lay in them was claimed into a bucket by an mq that died before it flushed that."""
    ids = await on.published(3)
    bucket = on.root / "delay" / on.bucket(ids[0])
    bucket.mkdir(mode=0o700)
    Files().sync_folder(str(bucket.parent))
    for message_id in ids:
        on.disk.mark("later", id=message_id)
        os.rename(on.ready(message_id), bucket / f"{ORDERS}:{message_id}")
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    await on.sweep()
    await on.clients.publish(300)
