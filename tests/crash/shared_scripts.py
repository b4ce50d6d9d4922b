"""A sideline that queues share, each in a script like those of `scripts.py`."""

import os
from pathlib import Path

from crash.registry import BUCKETS, FLAT, script
from crash.shovel_scripts import shovelled
from crash.stage import ORDERS, Stage

from mq.model.history import Event
from mq.model.names import MessageId, QueueName
from mq.model.shovel import ALL
from mq.store.core.failures import keep_failure
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.crossings import Joint
from mq.store.format.settings import write_fields
from mq.store.operations.sideline import opened
from mq.store.shovel.shovel import Aim, Pass, Shovelled, shovel_many

OTHER = "other"
SHARED = "failed_SIDELINE"
JOINT = Joint(QueueName(ORDERS), QueueName(SHARED))


async def _begun(on: Stage, is_open: bool = True) -> None:
    """With two queues, one of which shares the other, by settings that are there for good;
    `is_open`: and with what joins them.
    """
    await on.start()
    await on.clients.make(ORDERS)
    await on.clients.make(SHARED)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        fields: dict[str, object] = {"sideline_to": SHARED}
        run_alone(write_fields(root.layout, root.files, JOINT.queue, fields), flusher)
        if is_open:
            root.facts.look_again(JOINT.queue)
            assert run_alone(opened(root, JOINT.queue), flusher) == JOINT.sideline

    await on.other(work)
    on.known()
    on.settle()


async def _sidelined(on: Stage, message_id: str, is_timeless: bool = False) -> None:
    await on.clients.sideline(message_id, is_timeless=is_timeless, into=SHARED)


async def _by_another(on: Stage, path: Path, message_id: str) -> None:
    """Which died before it flushed that, having said where the message came from."""

    def work(root: Root, flusher: FsyncFlusher) -> None:
        event = (Event.SIDELINED, 0)
        said = keep_failure(root, JOINT.queue, MessageId.parse(message_id), event, None)
        run_alone(said, flusher)

    await on.other(work)
    on.disk.mark("sideline_asked", queue=ORDERS, id=message_id, into=SHARED)
    os.rename(path, on.root / "queues" / SHARED / message_id)


@script(FLAT, BUCKETS)
async def share(on: Stage) -> None:
    """The first one joins the queue to its sideline."""
    await _begun(on, is_open=False)
    ready, fetched = [await on.clients.publish(size) for size in (16, 300)]
    assert await on.fetched() == ready
    for message_id in (ready, fetched):
        await _sidelined(on, message_id)
    await on.clients.delete(await on.fetched(SHARED), SHARED)


@script(FLAT)
async def share_by_what_another_made(on: Stage) -> None:
    """Which died before it flushed what joins them."""
    await _begun(on, is_open=False)
    message_id = await on.clients.publish(300)
    (on.root / "crossings").mkdir(mode=0o700)
    (on.root / "crossings" / JOINT.text).touch(mode=0o600)
    await _sidelined(on, message_id)
    await on.clients.delete(message_id, SHARED)


@script(FLAT, BUCKETS)
async def share_what_another_has_moved(on: Stage) -> None:
    await _begun(on)
    fetched, ready = [await on.clients.publish(size) for size in (16, 300)]
    assert await on.fetched() == fetched
    for message_id, path in ((fetched, on.delayed(fetched)), (ready, on.ready(ready))):
        await _by_another(on, path, message_id)
        await _sidelined(on, message_id, is_timeless=True)


@script(FLAT, BUCKETS)
async def fetch_and_delete_what_another_shared(on: Stage) -> None:
    await _begun(on)
    first, second = [await on.clients.publish(size) for size in (16, 300)]
    for message_id in (first, second):
        await _by_another(on, on.ready(message_id), message_id)
    assert await on.fetched(SHARED) == first
    for message_id in (first, second):
        await on.clients.delete(message_id, SHARED)


@script()
async def shovel_what_was_shared(on: Stage) -> None:
    await _begun(on)
    message_id = await on.clients.publish(300)
    await _sidelined(on, message_id)
    await shovelled(on, [message_id])
    assert await on.fetched() == message_id
    await on.clients.delete(message_id)


@script()
async def share_again_what_another_shovelled(on: Stage) -> None:
    await _begun(on)
    message_id = await on.clients.publish(300)
    await _sidelined(on, message_id)
    on.disk.mark("shovel_asked", queue=ORDERS, id=message_id)
    os.rename(on.ready(message_id, SHARED), on.root / "queues" / ORDERS / message_id)
    await _sidelined(on, message_id, is_timeless=True)


@script()
async def share_with_entries(on: Stage) -> None:
    await _begun(on)
    message_id = await on.clients.publish_keyed(300, more="tag=a")
    await _sidelined(on, message_id)
    await on.clients.delete(message_id, SHARED)


async def _crossed(on: Stage, message_id: str) -> None:
    """By a whole pass, as a request has it, to a queue that does not share the sideline."""
    on.disk.mark("shovel_asked", queue=OTHER, id=message_id)
    became = Shovelled()

    def work(root: Root, flusher: FsyncFlusher) -> None:
        nonlocal became
        into, source = QueueName(OTHER), JOINT.sideline
        aim = Aim(into, ALL, root.now_ms(), source, takes_all=True, renews=True)
        batch = Pass(root, aim).batch(100)
        assert batch is not None
        became = shovel_many(root, flusher, batch.aim, batch.candidates)

    await on.other(work)
    assert (became.error, [each.text for each in became.moved]) == (None, [message_id])
    on.disk.mark("shovelled", queue=OTHER, id=message_id)


@script()
async def cross_what_was_shared(on: Stage) -> None:
    await _begun(on)
    await on.clients.make(OTHER)
    message_id = await on.clients.publish(300)
    assert await on.fetched() == message_id
    await _sidelined(on, message_id)
    await _crossed(on, message_id)
    assert await on.fetched(OTHER) == message_id
    await on.clients.delete(message_id, OTHER)


@script()
async def cross_what_another_shared(on: Stage) -> None:
    """The queue that it came from is joined to the one that it goes to, too."""
    await _begun(on)
    await on.clients.make(OTHER)
    message_id = await on.clients.publish(300)
    await _by_another(on, on.ready(message_id), message_id)
    await _crossed(on, message_id)
    await on.clients.delete(message_id, OTHER)
