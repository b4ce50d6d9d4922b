"""An archive of what was removed: each in a script like those of `scripts.py`."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from crash.registry import BUCKETS, FLAT, script
from crash.stage import ORDERS, Stage
from harness.messages import new_id

from mq.model.names import ConsumerName, QueueName
from mq.store.archive import archiving
from mq.store.archive.archiving import begin_batch, disable, enable, stored, unfinished_batch
from mq.store.archive.ledger import ArchiveBatch
from mq.store.core.root import Root
from mq.store.disk.flush import Failures, Flusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Flush
from mq.store.leases.lease import claim

CONSUMER = ConsumerName.parse("etl")
TO = "/srv/archive"


async def _enabled(on: Stage) -> None:
    await on.other(lambda root, flusher: enable(root, flusher, TO, root.now_ms()))
    on.disk.mark("archive_enabled")


def _ids(root: Root, batch: ArchiveBatch) -> list[str]:
    return [name.rpartition("/")[2].rpartition(":")[2] for name in batch.names(root.files)]


async def _stored(on: Stage, limit: int = 100) -> None:
    """One batch, as a job does that keeps it elsewhere."""

    def store(root: Root, flusher: Flusher) -> None:
        batch = begin_batch(root, flusher, limit)
        assert batch is not None
        on.disk.mark("archived", seq=batch.seq, ids=_ids(root, batch))
        stored(root, flusher, batch)

    await on.other(store)


async def _reaped(on: Stage) -> None:
    on.disk.pass_time(10)
    await on.reap()


async def _deleted(on: Stage, ids: list[str]) -> None:
    for message_id in ids:
        await on.clients.delete(message_id)


def _removed_unflushed(on: Stage, message_id: str) -> None:
    """By a daemon that died before its own flush."""
    on.disk.mark("delete_asked", queue=ORDERS, id=message_id)
    on.ready(message_id).rename(on.root / "remove" / f"{ORDERS}:{message_id}")


class _Cut(BaseException):
    """In the place of a process's death."""


class _CutShort(NoFlusher):
    """Flushes by another flusher so many times. The process dies before the flush after those."""

    def __init__(self, flusher: Flusher, flushes: int) -> None:
        self._session = flusher.session()
        self._left = flushes

    def flush(self, asked: Mapping[int, Flush]) -> Failures:
        if not self._left:
            raise _Cut
        self._left -= 1
        return self._session.flush(asked)


def _archive(on: Stage) -> Path:
    return on.root / "archive"


@script(FLAT, BUCKETS)
async def archive_what_was_deleted(on: Stage) -> None:
    """The first ledger goes once there is another."""
    ids = await on.published(3)
    await _deleted(on, ids[:1])
    await _enabled(on)
    await _deleted(on, ids[1:2])
    await _stored(on)
    await _reaped(on)
    await _deleted(on, ids[2:])
    await _stored(on)
    await _reaped(on)
    await on.clients.publish(16)


@script(FLAT, BUCKETS)
async def archive_what_another_removed(on: Stage) -> None:
    """Who died before it flushed that: after the batch it was removed for good."""
    ids = await on.published(2)
    await _enabled(on)
    for message_id in ids:
        _removed_unflushed(on, message_id)
    await _stored(on)
    await _reaped(on)


@script()
async def archive_what_another_acknowledged(on: Stage) -> None:
    ids = await on.published(2)
    await _enabled(on)
    on.disk.mark("lease_asked", queue=ORDERS, ids=ids)
    await on.other(
        lambda root, flusher: run_alone(
            claim(root, CONSUMER, [QueueName(ORDERS)], 2, 60.0), flusher
        )
    )
    on.disk.mark("end_asked", queue=ORDERS, ids=ids)
    lease = on.root / "leases" / f"{CONSUMER.text}.1"
    lease.rename(on.root / "remove" / f"{CONSUMER.text}.1:{new_id().text}.l")
    await _stored(on)
    await _reaped(on)


@script()
async def archive_a_deleted_queue(on: Stage) -> None:
    await on.published(2)
    await _enabled(on)
    await on.clients.drop(ORDERS)
    await _stored(on, 1)
    await _reaped(on)
    await _stored(on)
    await _reaped(on)


@script()
async def enable_what_another_enabled(on: Stage) -> None:
    """Who died before it flushed that."""
    ids = await on.published(1)

    def enable_and_die(root: Root, flusher: Flusher) -> None:
        with pytest.raises(_Cut):
            enable(root, _CutShort(flusher, 1), TO, root.now_ms())

    await on.other(enable_and_die)
    await _enabled(on)
    await _deleted(on, ids)
    await _reaped(on)


@script()
async def go_on_with_what_another_began(on: Stage) -> None:
    """Who died before it flushed that; the archive has it by the time of the cut."""
    ids = await on.published(2)
    await _enabled(on)
    await _deleted(on, ids[:1])

    def begin(root: Root, flusher: Flusher) -> None:
        with pytest.raises(_Cut):
            begin_batch(root, _CutShort(flusher, 1), 100)

    def go_on(root: Root, flusher: Flusher) -> None:
        batch = unfinished_batch(root)
        assert batch is not None
        on.disk.mark("archived", seq=batch.seq, ids=_ids(root, batch))

    await on.other(begin)
    await on.other(go_on)
    await _deleted(on, ids[1:])


@script()
async def reap_what_another_stored(on: Stage) -> None:
    """Who died before it flushed that."""
    ids = await on.published(2)
    await _enabled(on)
    await _deleted(on, ids)

    def store(root: Root, flusher: Flusher) -> None:
        batch = begin_batch(root, flusher)
        assert batch is not None
        on.disk.mark("archived", seq=batch.seq, ids=_ids(root, batch))

    await on.other(store)
    (_archive(on) / "1.names").rename(_archive(on) / "1.stored")
    await _reaped(on)


@script()
async def disable_and_enable_again(on: Stage) -> None:
    """Numbers go on: the archive knows its batches by them."""
    ids = await on.published(2)
    await _enabled(on)
    await _deleted(on, ids[:1])
    await _stored(on)
    await _reaped(on)
    on.disk.mark("archive_end_asked")
    await on.other(disable)
    await _enabled(on)
    await _deleted(on, ids[1:])
    await _stored(on)


@script()
async def make_one_ledger_of_many(on: Stage) -> None:
    ids = await on.published(3)
    await _enabled(on)
    most, archiving.ARCHIVE_LEDGERS_MAX = archiving.ARCHIVE_LEDGERS_MAX, 2  # type: ignore[misc]
    try:
        for message_id in ids:
            await _deleted(on, [message_id])
            await _stored(on)
    finally:
        archiving.ARCHIVE_LEDGERS_MAX = most  # type: ignore[misc]
    await _reaped(on)
