"""Operations on keys, each in a script like those of `scripts.py`."""

import asyncio
import hashlib
import os
from pathlib import Path

from crash.load import LARGE
from crash.registry import script
from crash.stage import HOURS_S, LATER_S, ORDERS, Stage
from harness.clock import FakeClock
from harness.messages import make_body, new_id
from harness.old_format import make_old

from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, OrderedFolders
from mq.store.format.layout import Layout
from mq.store.opening import root_of
from mq.store.upgrade import upgrade

KEY, ONCE = "night", "once"


async def _published(on: Stage, idempotency: str = "") -> str:
    """The first publish of `publish_keyed` or `publish_keyed_once`, which are cut there too."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish_keyed(300, KEY, idempotency)
    on.known()
    return message_id


def link_of(on: Stage, kind: str, key: str) -> Path:
    """Where a key's link is, as FORMAT.md says."""
    return (
        on.root
        / "queues"
        / ORDERS
        / f".{kind}"
        / hashlib.sha256(key.encode()).hexdigest()[:2]
        / key
    )


def _left_in_new(on: Stage, key: str = "", idempotency: str = "") -> str:
    """A publish by another, which died once it had made its links, and flushed none of them."""
    message_id = new_id().text + (f",k={key}" if key else "")
    new = on.root / "new"
    descriptor = os.open(new / f"{ORDERS}:{message_id}", os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, make_body(77, 300))
    os.utime(descriptor, ns=(10**18, 10**18))
    os.fsync(descriptor)
    os.close(descriptor)
    Files().sync_folder(str(new))
    for kind, name in (("idempotency", idempotency), ("keys", key)):
        if name:
            link = link_of(on, kind, name)
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.parent.parent.chmod(0o700)
            link.symlink_to(message_id)
    return message_id


def _flush_link(on: Stage, kind: str, key: str) -> None:
    folder = link_of(on, kind, key).parent
    for each in (folder.parent, folder):
        Files().sync_folder(str(each))


@script()
async def publish_keyed(on: Stage) -> None:
    await on.begin(ORDERS)
    for key in (KEY, "other", "a third"):
        await on.clients.publish_keyed(300, key)


@script()
async def publish_once(on: Stage) -> None:
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, idempotency=ONCE)
    assert await on.clients.publish_keyed(300, idempotency=ONCE) == first
    await on.clients.delete(first)
    assert await on.clients.publish_keyed(300, idempotency=ONCE) == first


@script()
async def publish_keyed_once(on: Stage) -> None:
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, KEY, ONCE)
    assert await on.clients.publish_keyed(300, KEY, ONCE) == first
    assert await on.clients.publish_keyed(300, KEY, "again") == first


@script()
async def publish_streamed_keyed_once(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish_keyed(LARGE, KEY, ONCE)


@script()
async def publish_scheduled_keyed(on: Stage) -> None:
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, KEY, ONCE, "delay=60")
    assert await on.clients.publish_keyed(300, KEY) == first


@script()
async def key_taken(on: Stage) -> None:
    first = await _published(on)
    assert await on.clients.publish_keyed(16, KEY) == first
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch() == first
    assert await on.clients.publish_keyed(16, KEY) == first


@script()
async def key_again(on: Stage) -> None:
    """After a delete by the id, by the key, and by one that died before it flushed it."""
    first = await _published(on)
    await on.clients.delete(first)
    second = await on.clients.publish_keyed(300, KEY)
    await on.clients.delete_by_key(KEY, second)
    third = await on.clients.publish_keyed(16, KEY)
    on.disk.mark("delete_asked", queue=ORDERS, id=third)
    os.rename(on.ready(third), on.removed(third))
    assert await on.clients.publish_keyed(300, KEY) not in (first, second, third)


@script()
async def key_again_that_was_fetched(on: Stage) -> None:
    """And deleted by one that died before it flushed it."""
    first = await _published(on)
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch() == first
    on.disk.mark("delete_asked", queue=ORDERS, id=first)
    os.rename(on.delayed(first), on.removed(first))
    assert await on.clients.publish_keyed(300, KEY) != first


@script()
async def key_again_that_was_reaped(on: Stage) -> None:
    """After a delete by one that died before it flushed it."""
    first = await _published(on)
    on.disk.mark("delete_asked", queue=ORDERS, id=first)
    os.rename(on.ready(first), on.removed(first))
    on.disk.pass_time(10)
    await on.reap()
    assert not on.removed(first).exists()
    assert not os.path.lexists(link_of(on, "keys", KEY))
    await on.clients.publish_keyed(300, KEY)


@script()
async def key_again_that_was_swept(on: Stage) -> None:
    """After a delete by one that died before it flushed it."""
    first = await _published(on)
    on.disk.mark("delete_asked", queue=ORDERS, id=first)
    os.rename(on.ready(first), on.removed(first))
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    assert not os.path.lexists(link_of(on, "keys", KEY))
    await on.clients.publish_keyed(300, KEY)


@script()
async def key_of_one_left_in_new(on: Stage) -> None:
    await on.begin(ORDERS)
    left = _left_in_new(on, KEY)
    assert await on.clients.publish_keyed(300, KEY) != left


@script()
async def once_of_one_left_in_new(on: Stage) -> None:
    await on.begin(ORDERS)
    left = _left_in_new(on, idempotency=ONCE)
    assert await on.clients.publish_keyed(300, idempotency=ONCE) != left


@script()
async def once_of_one_left_between_its_links(on: Stage) -> None:
    await on.begin(ORDERS)
    left = _left_in_new(on, KEY, ONCE)
    link_of(on, "keys", KEY).unlink()
    assert await on.clients.publish_keyed(300, KEY, ONCE) != left


# A publish flushes new/, which another's rename has left.
@script()
async def once_of_one_that_another_delivered(on: Stage) -> None:
    """Which died before it flushed that."""
    await on.begin(ORDERS)
    left = _left_in_new(on, KEY, ONCE)
    for kind, key in (("idempotency", ONCE), ("keys", KEY)):
        _flush_link(on, kind, key)
    os.rename(on.root / "new" / f"{ORDERS}:{left}", on.root / "queues" / ORDERS / left)
    on.clients.say(ONCE, 77)
    assert await on.clients.publish_keyed(300, KEY, ONCE) == left
    assert await on.clients.publish_keyed(300, KEY) == left


@script()
async def once_of_one_whose_key_was_taken(on: Stage) -> None:
    """It was left in new/ between its two links, and cannot be delivered any more."""
    await on.begin(ORDERS)
    _left_in_new(on, KEY, ONCE)
    link_of(on, "keys", KEY).unlink()
    await on.clients.publish_keyed(300, KEY)
    once = await on.clients.publish_keyed(16, idempotency=ONCE)
    assert await on.clients.publish_keyed(16, idempotency=ONCE) == once


@script()
async def key_of_one_that_another_claimed(on: Stage) -> None:
    """Which died before it flushed that."""
    first = await _published(on)
    on.disk.mark("fetch_asked", queue=ORDERS)
    os.rename(on.ready(first), on.root / "delay" / f"{ORDERS}:{first}")
    assert await on.clients.publish_keyed(300, KEY) == first


@script()
async def key_of_one_that_another_redelivered(on: Stage) -> None:
    """Which died before it flushed that."""
    first = await _published(on, ONCE)
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch() == first
    on.disk.pass_time(LATER_S)
    os.rename(on.delayed(first), on.ready(first))
    assert await on.clients.publish_keyed(300, KEY) == first
    assert await on.clients.publish_keyed(300, KEY, ONCE) == first


@script()
async def key_in_a_queue_that_another_made(on: Stage) -> None:
    """And flushed the message in it, but not the queue, before it died."""
    await on.begin()
    queue = on.root / "queues" / ORDERS
    on.disk.mark("make_asked", queue=ORDERS)
    queue.mkdir(mode=0o700)
    left = _left_in_new(on, KEY)
    _flush_link(on, "keys", KEY)
    os.rename(on.root / "new" / f"{ORDERS}:{left}", queue / left)
    for folder in (queue, on.root / "new"):
        Files().sync_folder(str(folder))
    assert await on.clients.publish_keyed(300, KEY) == left


@script()
async def key_in_folders_that_another_made(on: Stage) -> None:
    """Which died before it flushed them."""
    await on.begin(ORDERS)
    for kind, key in (("keys", KEY), ("idempotency", ONCE)):
        folder = link_of(on, kind, key).parent
        folder.parent.mkdir(mode=0o700)
        folder.mkdir(mode=0o700)
    first = await on.clients.publish_keyed(300, KEY, ONCE)
    assert await on.clients.publish_keyed(300, KEY) == first


@script()
async def forget_once(on: Stage) -> None:
    """What is left in new/ goes, and its idempotency key before it."""
    await on.begin(ORDERS)
    left = _left_in_new(on, idempotency=ONCE)
    on.disk.mark("publish_asked", queue=ORDERS, key="", idempotency=ONCE)
    on.disk.pass_time(HOURS_S)
    await on.sweep()
    assert on.removed(left).exists()
    assert not os.path.lexists(link_of(on, "idempotency", ONCE))


@script()
async def drop_keyed(on: Stage) -> None:
    first = await _published(on, ONCE)
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS)
    assert await on.clients.publish_keyed(300, KEY, ONCE) != first


@script()
async def convert_a_root_of_mq_1(on: Stage) -> None:
    """Without daemons; with a message that has both keys, and what is left of a queue."""
    await on.begin(ORDERS)
    await on.clients.publish_keyed(300, KEY, ONCE)
    await on.stop()
    files = Files()
    make_old(on.root, files.sync_folder)
    on.known()

    def convert() -> None:
        flusher = FsyncFlusher(files, 1, OrderedFolders(files, lambda: None, str(on.root)))
        upgrade(root_of(Layout.of(on.root), files, FakeClock()), flusher)
        flusher.close()

    await asyncio.to_thread(convert)
    await on.start()
    await on.clients.publish_keyed(300, "another")
