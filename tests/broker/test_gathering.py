"""Deletes that come in one turn of the loop are one operation, and each has its own end."""

import asyncio
import errno
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.messages import new_id

from mq.broker.broker import Broker
from mq.model.errors import DeliveredAgain, MessageNotFound, QueueNotFound, StorageFailed
from mq.model.message import Envelope
from mq.model.names import MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.commit import Committer
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root

QUEUE = QueueName.parse("q")


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


async def opened(root: Path, files: FaultyFiles, *, count: int) -> tuple[Broker, list[MessageId]]:
    """With this many messages."""
    made = open_root(str(root), files, FakeClock())
    broker = Broker(made, Committer(FsyncFlusher(files, 1)), QueueSettings())
    await broker.create_queue(QUEUE)
    return broker, [await broker.publish(QUEUE, b"x", Envelope()) for _ in range(count)]


async def ends_of(broker: Broker, *ids: MessageId) -> list[bool | BaseException]:
    """All in one turn."""
    futures = [broker.remove(QUEUE, each) for each in ids]
    return await asyncio.gather(*futures, return_exceptions=True)


async def test_those_of_one_turn_share_their_flushes(root: Path, files: FaultyFiles) -> None:
    broker, ids = await opened(root, files, count=20)
    before = len(files.calls)
    assert await ends_of(broker, *ids) == [True] * 20
    folders = [path for call, path in files.calls[before:] if call == "sync_folder"]
    assert folders.count(f"{root}/remove") == 1
    assert len(message_files(root)["remove"]) == 20
    assert broker.used("q").totals.deleted == 20  # type: ignore[union-attr]
    await broker.drain()


async def test_each_has_its_own_end(root: Path, files: FaultyFiles) -> None:
    broker, (ready, removed, poison, held) = await opened(root, files, count=4)
    assert await ends_of(broker, removed) == [True]
    files.fail("rename", errno.EIO, poison.text)
    others = [broker.remove(QUEUE, held, lambda receives: False)]
    ends = await ends_of(broker, ready, removed, poison, new_id(), new_id(), ready)
    ends += await asyncio.gather(*others, return_exceptions=True)
    assert ends[:2] == [True, False]
    assert [type(each) for each in ends[2:5]] == [StorageFailed, MessageNotFound, MessageNotFound]
    # Asked for twice in one turn: it is removed once.
    assert ends[5] is False
    assert isinstance(ends[6], DeliveredAgain)
    assert len(message_files(root)["queues"]) == 2
    await broker.drain()


async def test_one_that_is_cancelled_is_removed_and_concerns_no_other(
    root: Path, files: FaultyFiles
) -> None:
    broker, ids = await opened(root, files, count=3)
    futures = [broker.remove(QUEUE, each) for each in ids]
    futures[1].cancel()
    ends = await asyncio.gather(*futures, return_exceptions=True)
    assert (ends[0], type(ends[1]), ends[2]) == (True, asyncio.CancelledError, True)
    assert len(message_files(root)["remove"]) == 3
    assert broker.used("q").totals.deleted == 3  # type: ignore[union-attr]
    await broker.drain()


async def test_a_flush_that_fails_is_an_error_of_each(root: Path, files: FaultyFiles) -> None:
    broker, ids = await opened(root, files, count=3)
    files.fail("sync_folder", errno.EIO, "/remove", times=1)
    ends = await ends_of(broker, *ids)
    assert [type(each) for each in ends] == [StorageFailed] * 3
    # They were renamed all the same: a repetition makes that durable.
    assert await ends_of(broker, *ids) == [False] * 3
    await broker.drain()


async def test_of_a_queue_that_goes_what_is_there_is_removed(
    root: Path, files: FaultyFiles
) -> None:
    broker, (ready, fetched) = await opened(root, files, count=2)
    (root / "queues/q" / fetched.text).rename(root / "delay" / f"q:{fetched.text}")
    (root / "queues" / "q").rename(root / "away")
    before = len(files.calls)
    ends = await ends_of(broker, ready, fetched)
    assert isinstance(ends[0], QueueNotFound)
    assert ends[1] is True
    # Both are durable.
    folders = {path for call, path in files.calls[before:] if call == "sync_folder"}
    assert {f"{root}/remove", f"{root}/queues"} <= folders
    await broker.drain()
