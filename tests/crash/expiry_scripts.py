"""Expiry of messages and of queues, and making room, each in a script like those of `scripts.py`.

Where a message must live in the end, only the mover that expires it is told that it has lived long
enough: the settings on the disk do not say so, and what comes after the cut delivers it.
"""

import dataclasses
from collections.abc import Callable, Sequence

from crash.key_scripts import KEY
from crash.registry import BUCKETS, FLAT, script
from crash.stage import LATER_S, ORDERS, Stage

from mq.model.clock import rfc3339
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import REMOVE, SIDELINE, Overflow, QueueSettings
from mq.store.core.facts import Facts
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.operations.expire import (
    Expiry,
    delete_expired_queue,
    expire,
    expire_bucket,
    expired_ready,
)
from mq.store.operations.overflow import make_room, oldest_ready
from mq.store.operations.queues import retire_delayed
from mq.store.operations.redeliver import Redelivery, Timer, redeliver
from mq.store.settings.configure import change_settings

TTL_S = 300.0
QUEUE = QueueName.parse(ORDERS)
ASIDE = QUEUE.sideline().text

Work = Callable[[Root, FsyncFlusher], object]


class _Aged(Facts):
    """Those of a root in which nothing lives longer than a moment."""

    expired_to: str = REMOVE

    def settings(self, queue: QueueName) -> QueueSettings:
        known = super().settings(queue)
        return dataclasses.replace(known, message_ttl_s=0.001, expired_to=self.expired_to)


async def _aged(on: Stage, expired_to: str, work: Work) -> None:
    """What a mover does, to whom all has expired."""

    def aged(root: Root, flusher: FsyncFlusher) -> None:
        facts = _Aged(root.layout, root.files, root.clock)
        facts.expired_to = expired_to
        work(dataclasses.replace(root, facts=facts), flusher)

    await on.other(aged)


def _expire_ready(ends: Expiry, count: int) -> Work:
    def work(root: Root, flusher: FsyncFlusher) -> None:
        found = expired_ready(root, QUEUE, 100)
        assert len(found) == count
        for bucket, message_id in found:
            assert run_alone(expire(root, QUEUE, message_id, bucket), flusher) is ends

    return work


def _redeliver(message_id: str, result: Redelivery) -> Work:
    def work(root: Root, flusher: FsyncFlusher) -> None:
        parsed = MessageId.parse(message_id)
        for bucket in root.places.spots(State.DELAYED, QUEUE, parsed):
            path = root.layout.path(State.DELAYED, QUEUE, parsed, bucket)
            if root.files.status(path) is not None:
                again = redeliver(root, QUEUE, parsed, Timer(), bucket)
                assert run_alone(again, flusher)[0] is result
                return
        raise AssertionError("it is not in delay/")

    return work


def _may_go(on: Stage, ids: Sequence[str]) -> None:
    """They were given up: what becomes of them is nobody's loss, but each is in one place."""
    for message_id in ids:
        on.disk.mark("delete_asked", queue=ORDERS, id=message_id)


@script(FLAT, BUCKETS)
async def expire_to_remove(on: Stage) -> None:
    """Of the queue and of delay/; nothing is flushed, and what comes back has expired again."""
    await on.begin(ORDERS)
    ids = [await on.clients.publish(size) for size in (16, 300, 300)]
    assert await on.fetched() == ids[0]
    _may_go(on, ids)
    on.disk.pass_time(LATER_S)
    await _aged(on, REMOVE, _expire_ready(Expiry.REMOVED, 2))
    await _aged(on, REMOVE, _redeliver(ids[0], Redelivery.EXPIRED))
    await on.clients.publish(300)


@script()
async def expire_keyed(on: Stage) -> None:
    """The next message of its key makes the removal durable before it takes the key."""
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, KEY)
    _may_go(on, [first])
    on.disk.pass_time(LATER_S)
    await _aged(on, REMOVE, _expire_ready(Expiry.REMOVED, 1))
    assert await on.clients.publish_keyed(300, KEY) != first


@script()
async def expire_fetched_keyed(on: Stage) -> None:
    await on.begin(ORDERS)
    first = await on.clients.publish_keyed(300, KEY)
    assert await on.fetched() == first
    _may_go(on, [first])
    on.disk.pass_time(LATER_S)
    await _aged(on, REMOVE, _redeliver(first, Redelivery.EXPIRED))
    assert await on.clients.publish_keyed(300, KEY) != first


@script(FLAT, BUCKETS)
async def expire_to_the_sideline(on: Stage) -> None:
    await on.begin(ORDERS, ASIDE)
    ids = [await on.clients.publish(size) for size in (16, 300, 300)]
    assert await on.fetched() == ids[0]
    on.disk.pass_time(LATER_S)
    for message_id in ids:
        on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
    await _aged(on, SIDELINE, _expire_ready(Expiry.SIDELINED, 2))
    await _aged(on, SIDELINE, _redeliver(ids[0], Redelivery.EXPIRED_ASIDE))
    for message_id in ids:
        on.disk.mark("sidelined", queue=ORDERS, id=message_id, is_timeless=True)


@script()
async def expire_keyed_to_the_sideline(on: Stage) -> None:
    await on.begin(ORDERS, ASIDE)
    first = await on.clients.publish_keyed(300, KEY)
    on.disk.pass_time(LATER_S)
    on.disk.mark("sideline_asked", queue=ORDERS, id=first)
    await _aged(on, SIDELINE, _expire_ready(Expiry.SIDELINED, 1))
    on.disk.mark("sidelined", queue=ORDERS, id=first, is_timeless=True)
    assert await on.clients.publish_keyed(300, KEY) != first


@script(FLAT, BUCKETS)
async def expire_a_bucket(on: Stage) -> None:
    """By one rename, and what is flat by itself. A key of one of them is the next one's."""
    await on.begin(ORDERS)
    ids = [await on.clients.publish(300)]
    ids += [await on.clients.publish_keyed(300, KEY), await on.clients.publish(300)]
    _may_go(on, ids)
    on.disk.pass_time(LATER_S)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        def configure(ttl_s: float | None) -> None:
            fields: dict[str, object] = {"message_ttl_s": ttl_s}
            run_alone(change_settings(root, QUEUE, fields, QueueSettings()), flusher)

        configure(TTL_S)
        while expire_bucket(root, QUEUE):
            pass
        for bucket, message_id in expired_ready(root, QUEUE, 100):
            run_alone(expire(root, QUEUE, message_id, bucket), flusher)
        assert not expired_ready(root, QUEUE, 1)
        configure(None)  # What is published next must be delivered hours later.

    await on.other(work)
    assert await on.clients.publish_keyed(300, KEY) not in ids


@script(FLAT, BUCKETS)
async def delete_an_expired_queue(on: Stage) -> None:
    await on.begin(ORDERS)
    await on.clients.publish(300)
    await on.clients.publish_keyed(300, KEY)
    await on.fetched()
    on.disk.mark("drop_asked", queue=ORDERS)

    def work(root: Root, flusher: FsyncFlusher) -> None:
        fields: dict[str, object] = {"expires_at": rfc3339(root.now_ms()), "expiry_grace_s": 0}
        run_alone(change_settings(root, QUEUE, fields, QueueSettings()), flusher)
        uuid = UuidSource(root.clock).next()
        assert run_alone(delete_expired_queue(root, QUEUE, uuid), flusher)

    await on.other(work)
    on.disk.mark("dropped", queue=ORDERS)
    await on.other(lambda root, flusher: retire_delayed(root, QUEUE))
    await on.clients.make(ORDERS)
    await on.clients.publish_keyed(300, KEY)


def _make_room(overflow: Overflow, count: int) -> Work:
    """The oldest ready messages go but the newest."""

    def work(root: Root, flusher: FsyncFlusher) -> None:
        found = oldest_ready(root, QUEUE, with_bytes=True)
        assert len(found) == count
        settings = QueueSettings(messages_max=1, overflow=overflow)
        for old in found:
            assert run_alone(make_room(root, old.place, settings), flusher)

    return work


@script(FLAT, BUCKETS)
async def drop_oldest(on: Stage) -> None:
    """The newest, and what a consumer has, stay."""
    await on.begin(ORDERS)
    ids = [await on.clients.publish(size) for size in (16, 300, 300, 16)]
    assert await on.fetched() == ids[0]
    _may_go(on, ids[1:3])
    await on.other(_make_room("drop-oldest", 2))
    await on.clients.publish(300)


@script(FLAT, BUCKETS)
async def sideline_oldest(on: Stage) -> None:
    await on.begin(ORDERS, ASIDE)
    ids = [await on.clients.publish(size) for size in (16, 300, 300, 16)]
    assert await on.fetched() == ids[0]
    for message_id in ids[1:3]:
        on.disk.mark("sideline_asked", queue=ORDERS, id=message_id)
    await on.other(_make_room("sideline-oldest", 2))
    for message_id in ids[1:3]:
        on.disk.mark("sidelined", queue=ORDERS, id=message_id, is_timeless=True)
    await on.clients.publish(300)
