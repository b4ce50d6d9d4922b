"""Leases: claims and their ends, each in a script like those of `scripts.py`."""

import os
from collections.abc import Callable
from pathlib import Path

from crash.registry import BUCKETS, FLAT, script
from crash.stage import LATER_S, ORDERS, Stage
from harness.messages import new_id

from mq.model.names import ConsumerName, QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps
from mq.store.leases.lease import Lease, LeaseState, acknowledge, claim, finish_claim, leases_of
from mq.store.leases.releasing import release
from mq_mover.lapses import LeaseMover

CONSUMER = ConsumerName.parse("etl")
LEASE_S = 60.0
KEY = "night"

_Work = Callable[[Root, FsyncFlusher], object]


def _claim(root: Root, flusher: FsyncFlusher, limit: int) -> Lease:
    lease = run_alone(claim(root, CONSUMER, [QueueName(ORDERS)], limit, LEASE_S), flusher)
    assert lease is not None
    return lease


def _last(root: Root) -> Lease:
    return leases_of(root, CONSUMER)[-1]


async def _leased(on: Stage, ids: list[str]) -> None:
    """By a consumer that has been told so, as in `lease_some`."""
    await _lease(on, ids)
    on.known()


async def _lease(on: Stage, ids: list[str]) -> None:
    on.disk.mark("lease_asked", queue=ORDERS, ids=ids)
    await on.other(lambda root, flusher: _claim(root, flusher, len(ids)))
    on.disk.mark("leased", queue=ORDERS, ids=ids)


async def _acknowledged(on: Stage, ids: list[str]) -> None:
    on.disk.mark("end_asked", queue=ORDERS, ids=ids)
    await on.other(lambda root, flusher: run_alone(acknowledge(root, _last(root).name), flusher))
    on.disk.mark("ended", queue=ORDERS, ids=ids)


async def _returned(on: Stage, ids: list[str], work: _Work) -> None:
    on.disk.mark("return_asked", queue=ORDERS, ids=ids)
    await on.other(work)
    on.disk.mark("returned", queue=ORDERS, ids=ids)


def _released(root: Root, flusher: FsyncFlusher) -> None:
    run_alone(release(root, _last(root).name), flusher)


def _moved(root: Root, flusher: FsyncFlusher) -> None:
    assert LeaseMover(root, flusher).run_once()


def _folder(on: Stage) -> Path:
    return on.root / "leases" / f"{CONSUMER.text}.1"


@script(FLAT, BUCKETS)
async def lease_some(on: Stage) -> None:
    ids = await on.published(3)
    await _lease(on, ids[:2])
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch() == ids[2]


@script()
async def finish_a_claim(on: Stage) -> None:
    """Of one that died before it had flushed it."""
    ids = await on.published(2)
    on.disk.mark("lease_asked", queue=ORDERS, ids=ids)

    def begin(root: Root, flusher: FsyncFlusher) -> None:
        def part() -> Steps[None]:
            operation = claim(root, CONSUMER, [QueueName(ORDERS)], 2, LEASE_S)
            yield next(operation)
            next(operation)
            operation.close()

        run_alone(part(), flusher)

    def finish(root: Root, flusher: FsyncFlusher) -> None:
        assert _last(root).state is LeaseState.CLAIMING
        assert run_alone(finish_claim(root, _last(root).name), flusher).messages == 2

    await on.other(begin)
    await on.other(finish)
    on.disk.mark("leased", queue=ORDERS, ids=ids)


@script()
async def acknowledge_a_lease(on: Stage) -> None:
    ids = await on.published(2)
    await _leased(on, ids)
    await _acknowledged(on, ids)
    on.disk.pass_time(10)
    await on.reap()
    await on.clients.publish(16)


@script()
async def acknowledge_what_another_has(on: Stage) -> None:
    """Which died before it flushed that."""
    ids = await on.published(2)
    await _leased(on, ids)
    on.disk.mark("end_asked", queue=ORDERS, ids=ids)
    _folder(on).rename(on.root / "remove" / f"{CONSUMER.text}.1:{new_id().text}.l")
    await _acknowledged(on, ids)


@script(FLAT, BUCKETS)
async def release_a_lease(on: Stage) -> None:
    ids = await on.published(2)
    await _leased(on, ids)
    await _returned(on, ids, _released)
    on.disk.mark("fetch_asked", queue=ORDERS)
    assert await on.clients.fetch() == ids[0]


@script()
async def give_back_what_lapsed(on: Stage) -> None:
    ids = await on.published(2)
    await _leased(on, ids)
    on.disk.pass_time(LATER_S)
    await _returned(on, ids, _moved)
    await on.sweep()


@script()
async def give_back_what_another_began_to(on: Stage) -> None:
    """Which died when it had moved one, and flushed nothing."""
    ids = await on.published(2)
    await _leased(on, ids)
    on.disk.mark("return_asked", queue=ORDERS, ids=ids)
    back = _folder(on).rename(_folder(on).with_name(f"{CONSUMER.text}.1.back"))
    os.rename(back / f"{ORDERS}:{ids[0]}", on.root / "queues" / ORDERS / ids[0])
    await _returned(on, ids, _moved)


@script()
async def give_back_what_has_no_manifest(on: Stage) -> None:
    ids = await on.published(1)
    await _leased(on, ids)
    (on.root / "leases" / f"{CONSUMER.text}.1.json").unlink()
    on.disk.pass_time(LATER_S)
    await _returned(on, ids, _moved)


@script()
async def delete_what_is_leased(on: Stage) -> None:
    ids = await on.published(2)
    await _leased(on, ids)
    await on.clients.delete(ids[0])
    await _acknowledged(on, ids[1:])


@script()
async def delete_what_another_deleted(on: Stage) -> None:
    """From a lease, and died before it flushed that."""
    ids = await on.published(2)
    await _leased(on, ids)
    on.disk.mark("delete_asked", queue=ORDERS, id=ids[0])
    os.rename(_folder(on) / f"{ORDERS}:{ids[0]}", on.removed(ids[0]))
    await on.clients.delete(ids[0])


@script()
async def key_again_that_was_acknowledged(on: Stage) -> None:
    """By one that died before it flushed that."""
    await on.start()
    await on.clients.make(ORDERS)
    first = await on.clients.publish_keyed(300, KEY)
    await _leased(on, [first])
    assert await on.clients.publish_keyed(16, KEY) == first
    on.disk.mark("end_asked", queue=ORDERS, ids=[first])
    _folder(on).rename(on.root / "remove" / f"{CONSUMER.text}.1:{new_id().text}.l")
    assert await on.clients.publish_keyed(300, KEY) != first


@script()
async def key_again_that_was_reaped_with_its_lease(on: Stage) -> None:
    """Which one acknowledged that died before it flushed that."""
    await on.start()
    await on.clients.make(ORDERS)
    first = await on.clients.publish_keyed(300, KEY)
    await _leased(on, [first])
    on.disk.mark("end_asked", queue=ORDERS, ids=[first])
    _folder(on).rename(on.root / "remove" / f"{CONSUMER.text}.1:{new_id().text}.l")
    on.disk.pass_time(10)
    await on.reap()
    await on.clients.publish_keyed(300, KEY)


@script()
async def make_anew_while_leased(on: Stage) -> None:
    ids = await on.published(2)
    await _leased(on, ids)
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS)
    await on.clients.publish(300)
    await on.stop()
