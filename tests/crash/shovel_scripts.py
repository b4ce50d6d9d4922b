"""Taking back what was sidelined, each in a script like those of `scripts.py`."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from crash.key_scripts import KEY, link_of
from crash.registry import BUCKETS, FLAT, script
from crash.sideline_scripts import SIDELINE
from crash.stage import ORDERS, Stage

from mq.model.names import MessageId, QueueName
from mq.model.shovel import ALL, Why
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.operations.purge import purge as mark
from mq.store.operations.remove import remove
from mq.store.shovel.shovel import Aim, Pass, Shovelled, shovel_many


async def _sidelined(on: Stage, *sizes: int, fetched: int = 0) -> list[str]:
    """The first ones were fetched before."""
    ids = [await on.clients.publish(size) for size in sizes]
    for message_id in ids[:fetched]:
        assert await on.fetched() == message_id
    for message_id in ids:
        await on.clients.sideline(message_id)
    return ids


async def _sidelined_keyed(on: Stage) -> str:
    message_id = await on.clients.publish_keyed(300, KEY)
    await on.clients.sideline(message_id)
    return message_id


async def shovelled(on: Stage, asked: Sequence[str], *stay: Why) -> None:
    """All that there is; `asked` are moved, and others stay, as said."""
    became = Shovelled()
    for message_id in asked:
        on.disk.mark("shovel_asked", queue=ORDERS, id=message_id)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        nonlocal became
        batch = Pass(root, Aim(QueueName(ORDERS), ALL, root.now_ms())).batch(100)
        if batch is not None:
            became = shovel_many(root, flusher, batch.aim, batch.candidates)

    await on.other(work)
    assert became.error is None
    assert [each.text for each in became.moved] == list(asked)
    assert list(became.stayed) == list(stay)
    for message_id in asked:
        on.disk.mark("shovelled", queue=ORDERS, id=message_id)


def _by_another(on: Stage, message_id: str) -> None:
    """Which died before it flushed that."""
    on.disk.mark("shovel_asked", queue=ORDERS, id=message_id)
    path = on.ready(message_id, SIDELINE)
    os.rename(path, on.root / "queues" / ORDERS / message_id)


@script(FLAT, BUCKETS)
async def shovel(on: Stage) -> None:
    """One that was fetched, and one that was not; together."""
    await on.begin(ORDERS, SIDELINE)
    ids = await _sidelined(on, 16, 300, fetched=1)
    await shovelled(on, ids)
    assert await on.fetched() in ids
    for message_id in ids:
        await on.clients.delete(message_id)


@script()
async def shovel_and_sideline_again(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    ids = await _sidelined(on, 300)
    await shovelled(on, ids)
    await on.clients.sideline(ids[0])
    await shovelled(on, ids)
    await on.clients.sideline(await on.fetched())


@script()
async def delete_what_was_shovelled_beside_one_that_did_not_know(on: Stage) -> None:
    """It looked at the queue before that had a sideline."""
    await on.begin(ORDERS)
    bystander = await on.bystander(ORDERS)
    await on.clients.make(SIDELINE)
    ids = await _sidelined(on, 300)
    on.settle()  # As a run waits before its first rename.
    _by_another(on, ids[0])
    on.disk.mark("delete_asked", queue=ORDERS, id=ids[0])

    def work() -> None:
        operation = remove(bystander.root, QueueName(ORDERS), MessageId.parse(ids[0]))
        assert run_alone(operation, bystander.flusher)

    await asyncio.to_thread(work)
    on.disk.mark("deleted", queue=ORDERS, id=ids[0])


# A start flushes delay/, which another's rename has left.
@script(FLAT, BUCKETS)
async def shovel_what_another_sidelined(on: Stage) -> None:
    """Which died before it flushed that."""
    await on.begin(ORDERS, SIDELINE)
    ids = [await on.clients.publish(size) for size in (16, 300)]
    assert await on.fetched() == ids[0]
    for message_id, path in ((ids[0], on.delayed(ids[0])), (ids[1], on.ready(ids[1]))):
        on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
        os.rename(path, on.root / "queues" / SIDELINE / message_id)
    await shovelled(on, ids)


@script()
async def shovel_to_what_another_made(on: Stage) -> None:
    """Which died before it flushed that."""
    await on.begin(SIDELINE)
    message_id = await on.clients.publish(300, SIDELINE)
    on.disk.mark("make_asked", queue=ORDERS)
    (on.root / "queues" / ORDERS).mkdir(mode=0o700)
    await shovelled(on, [message_id])


@script()
async def shovel_after_a_purge(on: Stage) -> None:
    """Whose mark another took away, and died before it flushed that."""
    await on.begin(ORDERS, SIDELINE)
    ids = await _sidelined(on, 300)

    def purged(root: Root, flusher: FsyncFlusher) -> None:
        run_alone(mark(root, QueueName(ORDERS), root.now_ms()), flusher)

    await on.other(purged)
    os.unlink(on.root / "purged" / ORDERS)
    await shovelled(on, ids)


@script()
async def fetch_what_another_shovelled(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    (message_id,) = await _sidelined(on, 300)
    _by_another(on, message_id)
    assert await on.fetched() == message_id
    await on.clients.delete(message_id)


@script()
async def delete_what_another_shovelled(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    (message_id,) = await _sidelined(on, 300)
    _by_another(on, message_id)
    await on.clients.delete(message_id)


@script()
async def sideline_what_another_shovelled(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    (message_id,) = await _sidelined(on, 300)
    _by_another(on, message_id)
    await on.clients.sideline(message_id, is_timeless=True)
    await on.clients.delete(message_id, SIDELINE)


@script()
async def drop_with_what_another_shovelled(on: Stage) -> None:
    """Its sideline stays, and the message is not there again."""
    await on.begin(ORDERS, SIDELINE)
    (message_id,) = await _sidelined(on, 300)
    _by_another(on, message_id)
    on.disk.mark("delete_asked", queue=ORDERS, id=message_id)
    await on.clients.drop(ORDERS)
    on.disk.mark("deleted", queue=ORDERS, id=message_id)
    await on.stop()


@script()
async def shovel_keyed(on: Stage) -> None:
    """It has its key again; where another has it, it stays."""
    await on.begin(ORDERS, SIDELINE)
    first = await _sidelined_keyed(on)
    await shovelled(on, [first])
    assert await on.clients.publish_keyed(300, KEY) == first
    await on.clients.sideline(first)
    second = await on.clients.publish_keyed(300, KEY)
    assert second != first
    await shovelled(on, [], Why.KEY_TAKEN)
    await on.clients.delete(second)
    await shovelled(on, [first])


@script(FLAT, BUCKETS)
async def shovel_two_of_one_key(on: Stage) -> None:
    """Together: the first one gets it."""
    await on.begin(ORDERS, SIDELINE)
    first, _ = [await _sidelined_keyed(on) for _ in range(2)]
    await shovelled(on, [first], Why.KEY_TAKEN)
    assert await on.clients.publish_keyed(300, KEY) == first


@script()
async def shovel_keyed_that_another_sidelined(on: Stage) -> None:
    """Which died before it flushed that; its key is its own still."""
    await on.begin(ORDERS, SIDELINE)
    message_id = await on.clients.publish_keyed(300, KEY)
    on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
    os.rename(on.ready(message_id), on.root / "queues" / SIDELINE / message_id)
    await shovelled(on, [message_id])


@script()
async def shovel_keyed_after_a_delete(on: Stage) -> None:
    """Of another of the key, by one who died before he flushed that."""
    await on.begin(ORDERS, SIDELINE)
    first = await _sidelined_keyed(on)
    second = await on.clients.publish_keyed(300, KEY)
    on.disk.mark("delete_asked", queue=ORDERS, id=second)
    os.rename(on.ready(second), on.removed(second))
    await shovelled(on, [first])


@script()
async def key_of_one_that_another_began_to_shovel(on: Stage) -> None:
    """Which died before it moved the message, and before it flushed its link."""
    await on.begin(ORDERS, SIDELINE)
    first = await _sidelined_keyed(on)
    _link(on).symlink_to(first)
    assert await on.clients.publish_keyed(300, KEY) != first


@script()
async def key_of_one_that_another_shovelled(on: Stage) -> None:
    """Which flushed the link, and died before it flushed what it moved."""
    await on.begin(ORDERS, SIDELINE)
    first = await _sidelined_keyed(on)
    link = _link(on)
    link.symlink_to(first)
    Files().sync_folder(str(link.parent))
    _by_another(on, first)
    assert await on.clients.publish_keyed(300, KEY) == first


def _link(on: Stage) -> Path:
    """Where its folder is there: of a key that was used before."""
    return link_of(on, "keys", KEY)
