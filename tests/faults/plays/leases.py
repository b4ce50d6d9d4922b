"""What a consumer of many does with a lease, and mq-mover with one that lapsed."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from faults.playing import At, plays
from faults.plays.keys import K, place_of
from harness.leases import LEASE_S, QUEUE, LeasingRoot

from mq.model.errors import KeyTaken, MessageNotFound
from mq.model.names import MessageId
from mq.store.format.pipeline import LeaseName, owner_lock
from mq.store.leases.lapses import adopt
from mq.store.leases.lease import Lease, acknowledge, finish_claim, forget_consumer
from mq.store.leases.releasing import release
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import delete_queue, sweep_tombstones
from mq.store.operations.remove import remove


def begun(at: At, in_buckets: bool = False) -> LeasingRoot:
    """In buckets every message lies in one."""
    place = place_of(at, 1 if in_buckets else 10_000)
    if in_buckets:
        at.crowd("queues/q")
    return place


def leased(at: At, count: int, in_buckets: bool = False) -> tuple[LeasingRoot, Lease]:
    place = begun(at, in_buckets)
    place.publish(count)
    return place, place.claimed()


@plays("lease: two messages", count=2)
@plays("lease: two messages in buckets", count=2, in_buckets=True)
async def claimed(at: At, count: int, in_buckets: bool = False) -> None:
    place = begun(at, in_buckets)
    place.publish(count)
    at.watch()
    place.claimed()


@plays("lease: one message")
async def claimed_from_another_s(at: At) -> None:
    place = begun(at)
    place.publish(1)
    place.flusher = at.flusher()
    at.watch()
    place.claimed()


@plays("lease: finish a claim of which nothing is known", change=lambda text: "")
@plays("lease: finish a claim", change=lambda text: text.replace("claimed", "claiming"))
async def finished(at: At, change: Callable[[str], str]) -> None:
    place, lease = leased(at, 1)
    manifest = at.top / "leases/c.1.json"
    manifest.write_text(change(manifest.read_text()))
    at.watch()
    place.run(finish_claim(place.root, lease.name))


@plays("acknowledge a lease: once", times=1)
@plays("acknowledge a lease: again", times=2)
async def acknowledged(at: At, times: int) -> None:
    place, lease = leased(at, 2)
    for _ in range(times):
        at.watch()
        place.run(acknowledge(place.root, lease.name))


@plays("give a lease back: of a message")
@plays("give a lease back: of a message in a bucket", in_buckets=True)
@plays("give a lease back: to a bucket that it makes", in_buckets=True, are_gone=True)
async def given_back(at: At, in_buckets: bool = False, are_gone: bool = False) -> None:
    place, lease = leased(at, 1, in_buckets)
    if are_gone:
        for folder in sorted((at.top / "queues/q").glob("*/**/"), reverse=True):
            folder.rmdir()
        place.flusher = at.flusher()
    place.pass_s(LEASE_S + 1)
    at.watch()
    place.run(release(place.root, lease.name))


@plays("give a lease back: to a bucket of long ago")
async def given_back_late(at: At) -> None:
    """Others may have made it anew since: it is flushed at each use."""
    place = begun(at, in_buckets=True)
    place.publish(1)
    place.pass_s(24 * 3600)
    lease = place.claimed()
    at.watch()
    place.run(release(place.root, lease.name))


@plays("give a lease back: whose message was purged")
async def given_back_purged(at: At) -> None:
    place, lease = leased(at, 1)
    place.run(purge(place.root, QUEUE, place.uuids.end_moment()))
    at.watch()
    place.run(release(place.root, lease.name))


@plays("give a lease back: make a manifest where there is none")
async def adopted(at: At) -> None:
    place = begun(at)
    (at.top / "leases/x.3").mkdir()
    at.watch()
    place.run(adopt(place.root, LeaseName.parse("x.3"), 1_000))


@plays("acknowledge a lease: one more")
async def acknowledged_after_another(at: At) -> None:
    place, first = leased(at, 1)
    place.run(acknowledge(place.root, first.name))
    place.publish(1)
    second = place.claimed()
    at.watch()
    place.run(acknowledge(place.root, second.name))


@plays("acknowledge a lease: forget its consumer")
async def forgotten(at: At) -> None:
    place, lease = leased(at, 1)
    place.run(acknowledge(place.root, lease.name))
    Path(owner_lock(place.root.layout, lease.name.consumer)).touch()
    at.watch()
    place.run(forget_consumer(place.root, lease.name.consumer))


@plays("delete a message: that is leased")
@plays("delete a message: that was leased, and deleted", times=2)
@plays("delete a message: that is leased from a bucket", in_buckets=True)
async def deleted(at: At, times: int = 1, in_buckets: bool = False) -> None:
    place = begun(at, in_buckets)
    [message_id] = place.publish(1)
    place.claimed()
    for _ in range(times):
        at.watch()
        place.run(remove(place.root, QUEUE, message_id))


@plays("delete a message: that is not found, beside a lease")
@plays("delete a message: that is not found, beside a lease, in buckets", in_buckets=True)
async def not_deleted(at: At, in_buckets: bool = False) -> None:
    """What a lease gives back comes to its queue first."""
    place, _ = leased(at, 1, in_buckets)
    unknown = MessageId(place.uuids.next())
    at.watch()
    with pytest.raises(MessageNotFound):
        place.run(remove(place.root, QUEUE, unknown))


@plays("delete a queue: sweep what it has in a lease")
async def swept(at: At) -> None:
    place, _ = leased(at, 1)
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    at.watch()
    place.run(sweep_tombstones(place.root))


@plays("publish with a key: a lookup key whose message is leased", lease_ends=False)
@plays("publish with a key: a lookup key whose message's lease was acknowledged", lease_ends=True)
async def published(at: At, lease_ends: bool) -> None:
    place = begun(at)
    first, second = (MessageId(place.uuids.next(), key=K) for _ in range(2))
    place.run(publish(place.root, Draft(QUEUE, first, first.published_ms), b"x"))
    lease = place.claimed()
    if lease_ends:
        place.run(acknowledge(place.root, lease.name))
    at.watch()
    with nullcontext() if lease_ends else pytest.raises(KeyTaken):
        place.run(publish(place.root, Draft(QUEUE, second, second.published_ms), b"x"))
