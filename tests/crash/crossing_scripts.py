"""Taking chosen messages from one queue to another, each in a script like those of `scripts.py`."""

import asyncio
import os
from collections.abc import Sequence

from crash.key_scripts import KEY, link_of
from crash.lease_scripts import CONSUMER, LEASE_S
from crash.registry import BUCKETS, FLAT, script
from crash.stage import ORDERS, Stage

from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, ReplayId
from mq.model.shovel import ALL, Why
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.crossings import Crossing
from mq.store.leases.lease import acknowledge, claim
from mq.store.operations.remove import remove
from mq.store.shovel.crossing_files import (
    Chosen,
    candidate_of,
    chosen_of,
    finish,
    held,
    record_chosen,
    renew,
)
from mq.store.shovel.shovel import Aim, Shovelled, shovel_many

OTHER = "other"
CROSSING = Crossing(ReplayId("run"), QueueName(ORDERS), QueueName(OTHER))


async def _published(on: Stage, *sizes: int) -> list[str]:
    return [await on.clients.publish(size) for size in sizes]


def _choose(root: Root, ids: Sequence[str], flusher: FsyncFlusher | NoFlusher) -> None:
    chosen = []
    for each in map(MessageId.parse, ids):
        found = candidate_of(root, CROSSING, each)
        assert found is not None
        path = root.layout.path(State.READY, CROSSING.source, each, found.bucket or "")
        chosen.append(Chosen(each, Stamp.from_mtime_ns(os.stat(path).st_mtime_ns)))
    run_alone(record_chosen(root, CROSSING, {}, chosen), flusher)


def _move(root: Root, flusher: FsyncFlusher) -> Shovelled:
    """All that was chosen and is there."""
    chosen = list(chosen_of(root, CROSSING))
    found = [candidate_of(root, CROSSING, each.id) for each in chosen]
    stamps = {each.id.text: each.stamp for each in chosen}
    aim = Aim(CROSSING.target, ALL, root.now_ms(), CROSSING.source, stamps)
    return shovel_many(root, flusher, aim, [each for each in found if each is not None])


def _run(root: Root, flusher: FsyncFlusher, ids: Sequence[str] = ()) -> Shovelled:
    """A whole run; without ids it goes on with what another has chosen."""
    with held(root, CROSSING.id):
        if ids:
            _choose(root, ids, flusher)
        else:
            renew(root, CROSSING)
        became = _move(root, flusher)
        run_alone(finish(root, CROSSING, {"moved": len(became.moved)}), flusher)
    return became


def _asked(on: Stage, what: str, ids: Sequence[str]) -> None:
    for message_id in ids:
        on.disk.mark(what, queue=OTHER, id=message_id)


async def _crossed(
    on: Stage, asked: Sequence[str], *stay: Why, ids: Sequence[str] | None = None
) -> None:
    """`asked` are moved, of `ids`, or of what another has chosen; the others stay, as said."""
    _asked(on, "shovel_asked", asked)
    became = Shovelled()

    def work(root: Root, flusher: FsyncFlusher) -> None:
        nonlocal became
        became = _run(root, flusher, asked if ids is None else ids)

    await on.other(work)
    assert became.error is None
    assert sorted(each.text for each in became.moved) == sorted(asked)
    assert list(became.stayed) == list(stay)
    _asked(on, "shovelled", asked)


async def _chosen_by_another(on: Stage, ids: Sequence[str], *, is_flushed: bool = True) -> None:
    """Which died before it moved any."""

    def work(root: Root, flusher: FsyncFlusher) -> None:
        with held(root, CROSSING.id):
            _choose(root, ids, flusher if is_flushed else NoFlusher())

    await on.other(work)


async def _moved_by_another(on: Stage, ids: Sequence[str]) -> None:
    """Which died before it flushed that."""
    await _chosen_by_another(on, ids)
    on.settle()
    _asked(on, "shovel_asked", ids)
    for message_id in ids:
        os.rename(on.ready(message_id), on.root / "queues" / OTHER / message_id)


@script(FLAT, BUCKETS)
async def cross(on: Stage) -> None:
    """Two, together, of three."""
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 16, 300, 300)
    await _crossed(on, ids[:2])
    assert await on.fetched(OTHER) in ids
    for message_id in ids[:2]:
        await on.clients.delete(message_id, OTHER)


@script()
async def cross_keyed(on: Stage) -> None:
    """It takes its key along: there it has it, and here another gets it."""
    await on.begin(ORDERS, OTHER)
    first = await on.clients.publish_keyed(300, KEY)
    await _crossed(on, [first])
    second = await on.clients.publish_keyed(300, KEY)
    assert second != first
    await _crossed(on, [], Why.KEY_TAKEN, ids=[second])
    await on.clients.delete(first, OTHER)


@script()
async def go_on_with_what_another_chose(on: Stage) -> None:
    """Which died before it flushed that it had."""
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 300, 16)
    await _chosen_by_another(on, ids, is_flushed=False)
    await _crossed(on, ids, ids=())


@script()
async def go_on_with_a_crossing_that_another_began(on: Stage) -> None:
    """Which died before it flushed what it had moved: that is known as durable at the end."""
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 300, 16)
    await _chosen_by_another(on, ids)
    on.settle()
    _asked(on, "shovel_asked", ids)
    os.rename(on.ready(ids[0]), on.root / "queues" / OTHER / ids[0])
    await _crossed(on, ids[1:], ids=())
    _asked(on, "shovelled", ids[:1])
    await on.clients.delete(ids[0], OTHER)


@script()
async def fetch_what_another_crossed(on: Stage) -> None:
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 300)
    await _moved_by_another(on, ids)
    assert await on.fetched(OTHER) == ids[0]
    await on.clients.delete(ids[0], OTHER)


@script()
async def delete_what_another_crossed(on: Stage) -> None:
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 300)
    await _moved_by_another(on, ids)
    await on.clients.delete(ids[0], OTHER)


@script()
async def delete_what_crossed_beside_one_that_did_not_know(on: Stage) -> None:
    """It looked at the queue before the run wrote down what it had chosen."""
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 300)
    bystander = await on.bystander(OTHER)
    await _moved_by_another(on, ids)
    on.disk.mark("delete_asked", queue=OTHER, id=ids[0])

    def work() -> None:
        operation = remove(bystander.root, CROSSING.target, MessageId.parse(ids[0]))
        assert run_alone(operation, bystander.flusher)

    await asyncio.to_thread(work)
    on.disk.mark("deleted", queue=OTHER, id=ids[0])


@script()
async def lease_what_another_crossed(on: Stage) -> None:
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 300)
    await _moved_by_another(on, ids)
    on.disk.mark("delete_asked", queue=OTHER, id=ids[0])

    def work(root: Root, flusher: FsyncFlusher) -> None:
        lease = run_alone(claim(root, CONSUMER, [CROSSING.target], 10, LEASE_S), flusher)
        assert lease is not None
        run_alone(acknowledge(root, lease.name), flusher)

    await on.other(work)
    on.disk.mark("deleted", queue=OTHER, id=ids[0])


@script()
async def sideline_what_another_crossed(on: Stage) -> None:
    """From there on it lies where no run takes messages."""
    await on.begin(ORDERS, OTHER, f"{OTHER}_SIDELINE")
    ids = await _published(on, 300)
    await _moved_by_another(on, ids)
    on.disk.mark("sideline_asked", queue=OTHER, id=ids[0], is_timeless=True)
    os.rename(
        on.ready(ids[0], OTHER), on.root / "queues" / f"{OTHER}_SIDELINE" / ids[0]
    )  # By one who died as well.
    await on.clients.delete(ids[0], f"{OTHER}_SIDELINE")


@script()
async def drop_with_what_another_crossed(on: Stage) -> None:
    """The queue that it came from stays, and the message is not there again."""
    await on.begin(ORDERS, OTHER)
    ids = await _published(on, 300)
    await _moved_by_another(on, ids)
    on.disk.mark("delete_asked", queue=OTHER, id=ids[0])
    await on.clients.drop(OTHER)
    on.disk.mark("deleted", queue=OTHER, id=ids[0])
    await on.stop()


@script()
async def key_of_one_that_another_crossed(on: Stage) -> None:
    """Who has its key next, in the queue that it left, has it alone."""
    await on.begin(ORDERS, OTHER)
    first = await on.clients.publish_keyed(300, KEY)
    link = link_of(on, "keys", KEY)
    there = on.root / "queues" / OTHER / ".keys" / link.parent.name
    there.mkdir(parents=True, mode=0o700)
    (there / link.name).symlink_to(first)
    for folder in (there, there.parent, there.parent.parent):
        Files().sync_folder(str(folder))
    await _moved_by_another(on, [first])
    assert await on.clients.publish_keyed(300, KEY) != first


@script()
async def cross_to_what_another_made(on: Stage) -> None:
    """Which died before it flushed that."""
    await on.begin(ORDERS)
    ids = await _published(on, 300)
    on.disk.mark("make_asked", queue=OTHER)
    (on.root / "queues" / OTHER).mkdir(mode=0o700)
    await _crossed(on, ids)
