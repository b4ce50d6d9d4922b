"""Sidelining, and giving much back at once, each in a script like those of `scripts.py`."""

import os
from pathlib import Path

from crash.key_scripts import KEY
from crash.registry import BUCKETS, FLAT, script
from crash.stage import LATER_S, ORDERS, Stage

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.settings import write_fields
from mq.store.operations.fetch import fetch
from mq.store.operations.purge import purge as mark
from mq.store.operations.reap import reap
from mq.store.operations.release import release_many

SIDELINE = f"{ORDERS}_SIDELINE"


def _by_another(on: Stage, path: Path, message_id: str) -> None:
    """Which died before it flushed that."""
    on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
    os.rename(path, on.root / "queues" / SIDELINE / message_id)


@script(FLAT, BUCKETS)
async def sideline(on: Stage) -> None:
    """The first one makes the sideline."""
    await on.begin(ORDERS)
    ready, fetched = [await on.clients.publish(size) for size in (16, 300)]
    assert await on.fetched() == ready
    ready, fetched = fetched, ready
    for message_id in (fetched, ready):
        await on.clients.sideline(message_id)
    await on.clients.delete(await on.fetched(SIDELINE), SIDELINE)


@script(FLAT)
async def fail(on: Stage) -> None:
    """Each time with what its consumer says, in a folder of failures that the first one makes."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    for said in ("first", "second"):
        assert await on.fetched() == message_id
        await on.clients.reschedule(message_id, 0, said=said)
    assert await on.fetched() == message_id
    await on.clients.sideline(message_id, said="last")
    await on.clients.delete(message_id, SIDELINE)


@script(FLAT)
async def fail_in_a_folder_that_another_made(on: Stage) -> None:
    """Which died before it flushed that."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(16)
    assert await on.fetched() == message_id
    uuid = MessageId.parse(message_id).uuid
    (on.root / "failures" / uuid[-2:]).mkdir(mode=0o700, parents=True)
    await on.clients.reschedule(message_id, 0, said="first")


@script(FLAT)
async def reap_what_failed(on: Stage) -> None:
    await on.begin(ORDERS)
    message_id = await on.clients.publish(16)
    assert await on.fetched() == message_id
    await on.clients.reschedule(message_id, 0, said="first")
    await on.clients.delete(message_id)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        reap(root.files, root.layout.remove, root.now_ms() + 1000, 0, root=root)

    await on.other(work)


@script()
async def sideline_in_what_another_made(on: Stage) -> None:
    """Which died before it flushed that."""
    await on.begin(ORDERS)
    message_id = await on.clients.publish(300)
    on.disk.mark("make_asked", queue=SIDELINE)
    (on.root / "queues" / SIDELINE).mkdir(mode=0o700)
    await on.clients.sideline(message_id)


@script(FLAT, BUCKETS)
async def sideline_what_another_has(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    fetched, ready = [await on.clients.publish(size) for size in (16, 300)]
    assert await on.fetched() == fetched
    for message_id, path in ((fetched, on.delayed(fetched)), (ready, on.ready(ready))):
        _by_another(on, path, message_id)
        await on.clients.sideline(message_id, is_timeless=True)


@script(FLAT, BUCKETS)
async def delete_what_another_sidelined(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    fetched, ready = [await on.clients.publish(size) for size in (16, 300)]
    assert await on.fetched() == fetched
    for message_id, path in ((fetched, on.delayed(fetched)), (ready, on.ready(ready))):
        _by_another(on, path, message_id)
        await on.clients.delete(message_id, SIDELINE)


@script()
async def fetch_what_another_sidelined(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    message_id = await on.clients.publish(16)
    _by_another(on, on.ready(message_id), message_id)
    assert await on.fetched(SIDELINE) == message_id
    await on.clients.delete(message_id, SIDELINE)


@script(FLAT, BUCKETS)
async def sideline_keyed(on: Stage) -> None:
    """Its key is the next one's."""
    await on.begin(ORDERS, SIDELINE)
    for _ in range(2):
        await on.clients.sideline(await on.clients.publish_keyed(300, KEY))
    await on.clients.publish_keyed(300, KEY)


@script()
async def key_of_one_that_another_sidelined(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    first = await on.clients.publish_keyed(300, KEY)
    assert await on.fetched() == first
    _by_another(on, on.delayed(first), first)
    assert await on.clients.publish_keyed(300, KEY) != first


@script()
async def sideline_after_a_purge(on: Stage) -> None:
    """Whose mark another took away, and died before it flushed that."""
    await on.begin(ORDERS, SIDELINE)
    message_id = await on.clients.publish(300)

    def purged(root: Root, flusher: FsyncFlusher) -> None:
        run_alone(mark(root, QueueName(SIDELINE), root.now_ms()), flusher)

    await on.other(purged)
    os.unlink(on.root / "purged" / SIDELINE)
    await on.clients.sideline(message_id)


@script(FLAT, BUCKETS)
async def release_much(on: Stage) -> None:
    """What mq had claimed for one who went."""
    await on.begin(ORDERS, SIDELINE)
    ids = [await on.clients.publish(size) for size in (16, 300, 300)]
    on.disk.mark("fetch_asked", queue=ORDERS)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        queue = QueueName(ORDERS)
        parsed = [MessageId.parse(each) for each in ids]
        found = [run_alone(fetch(root, queue, each, 600), flusher) for each in parsed]
        deliveries = [each for each in found if each is not None]
        assert run_alone(release_many(root, queue, deliveries), flusher) == parsed

    await on.other(work)
    for message_id in ids:
        on.disk.mark("moved", queue=ORDERS, id=message_id, to=State.READY.value, is_timeless=True)
    await on.clients.delete(await on.fetched())


async def _limited(on: Stage, *, with_sideline: bool = True) -> list[str]:
    """Two messages that were delivered as often as their queue allows; they are due."""
    await on.begin(ORDERS, *([SIDELINE] if with_sideline else []))

    def limit(root: Root, flusher: FsyncFlusher) -> None:
        fields: dict[str, object] = {"max_receives": 1}
        run_alone(write_fields(root.layout, root.files, QueueName(ORDERS), fields), flusher)

    await on.other(limit)
    ids = [await on.clients.publish(size) for size in (16, 300)]
    for message_id in ids:
        assert await on.fetched() == message_id
        on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
    on.disk.pass_time(LATER_S)
    return ids


async def _moves(on: Stage, ids: list[str]) -> None:
    await on.move_due()
    for message_id in ids:
        on.disk.mark("sidelined", queue=ORDERS, id=message_id)


@script(FLAT, BUCKETS)
async def sideline_at_the_limit(on: Stage) -> None:
    """By redelivery, which makes the sideline."""
    ids = await _limited(on, with_sideline=False)
    on.disk.mark("make_asked", queue=SIDELINE)
    await _moves(on, ids)
    await on.clients.delete(await on.fetched(SIDELINE), SIDELINE)


@script(FLAT, BUCKETS)
async def sideline_at_the_limit_in_what_another_made(on: Stage) -> None:
    """Which died before it flushed that."""
    ids = await _limited(on, with_sideline=False)
    on.disk.mark("make_asked", queue=SIDELINE)
    (on.root / "queues" / SIDELINE).mkdir(mode=0o700)
    await _moves(on, ids)
