"""Sweeping what is overdue, each in a script like those of `scripts.py`."""

from pathlib import Path

from crash.key_scripts import KEY
from crash.registry import BUCKETS, FLAT, script
from crash.sideline_scripts import SIDELINE
from crash.stage import ORDERS, Stage

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import Place
from mq.store.operations.redeliver import Swept, sweep_overdue


async def _sweep(on: Stage, message_id: str, queue: str, expected: Swept) -> None:
    """By an mq-mover whose redelivery has tried for long."""
    bucket = _bucket(on.delayed(message_id, queue))

    def work(root: Root, flusher: FsyncFlusher) -> None:
        place = Place(State.DELAYED, QueueName(queue), MessageId.parse(message_id), bucket)
        swept = sweep_overdue(root, place, lambda status: True)
        assert run_alone(swept, flusher) is expected

    await on.other(work)


def _bucket(path: Path) -> str:
    below = path.parts[path.parts.index("delay") + 1 : -1]
    return "".join(f"{part}/" for part in below)


@script(FLAT, BUCKETS)
async def sweep_what_is_overdue(on: Stage) -> None:
    """What was fetched goes to the sideline, and from there on."""
    await on.begin(ORDERS, SIDELINE)
    for size in (16, 300):
        await on.clients.publish(size)
    for _ in range(2):
        message_id = await on.fetched(ORDERS)
        on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
        await _sweep(on, message_id, ORDERS, Swept.SIDELINED)
        on.disk.mark("sidelined", queue=ORDERS, id=message_id)
    await on.clients.delete(await on.fetched(SIDELINE), SIDELINE)


@script()
async def sweep_keyed(on: Stage) -> None:
    """Its key is the next one's."""
    await on.begin(ORDERS, SIDELINE)
    message_id = await on.clients.publish_keyed(300, KEY)
    assert await on.fetched(ORDERS) == message_id
    on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
    await _sweep(on, message_id, ORDERS, Swept.SIDELINED)
    on.disk.mark("sidelined", queue=ORDERS, id=message_id)
    await on.clients.publish_keyed(300, KEY)


@script(FLAT, BUCKETS)
async def sweep_back_to_the_sideline(on: Stage) -> None:
    await on.begin(ORDERS, SIDELINE)
    for size in (16, 300):
        await on.clients.sideline(await on.clients.publish(size))
    for _ in range(2):
        message_id = await on.fetched(SIDELINE)
        on.disk.mark("reschedule_asked", queue=SIDELINE, id=message_id, due_ms=0)
        await _sweep(on, message_id, SIDELINE, Swept.RETURNED)
        ready = State.READY.value
        on.disk.mark("moved", queue=SIDELINE, id=message_id, to=ready, is_timeless=True)
    await on.clients.delete(await on.fetched(SIDELINE), SIDELINE)
