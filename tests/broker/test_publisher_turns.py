"""Publishes that come in one turn of the loop are one operation, and each has its own end."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files

from mq.broker.broker import Broker
from mq.model.errors import KeyTaken, QueueNotFound, StorageFailed
from mq.model.message import Envelope
from mq.model.names import Key, MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.commit import Committer
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root

QUEUE = QueueName.parse("q")
PLAIN = Envelope()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


async def opened(root: Path, files: FaultyFiles) -> Broker:
    made = open_root(str(root), files, FakeClock())
    broker = Broker(made, Committer(FsyncFlusher(files, 1)), QueueSettings())
    await broker.create_queue(QUEUE)
    return broker


async def begun(
    broker: Broker, bodies: Sequence[bytes], envelopes: Sequence[Envelope] = ()
) -> "list[asyncio.Future[MessageId]]":
    """All in one turn."""
    queue = await broker.queue(QUEUE)
    each = envelopes or [PLAIN] * len(bodies)
    return [
        broker.publisher.begin(queue, body, envelope, None)
        for body, envelope in zip(bodies, each, strict=True)
    ]


async def test_those_of_one_turn_share_their_flushes(root: Path, files: FaultyFiles) -> None:
    broker = await opened(root, files)
    before = len(files.calls)
    ids = await asyncio.gather(*await begun(broker, [b"%d" % number for number in range(20)]))
    folders = [path for call, path in files.calls[before:] if call == "sync_folder"]
    assert folders.count(f"{root}/queues/q") == 1
    found = [(root / "queues" / "q" / each.text).read_bytes() for each in ids]
    assert found == [b"%d" % number for number in range(20)]
    assert [each.text for each in ids] == sorted(each.text for each in ids)
    await broker.drain()


async def test_one_that_fails_or_is_cancelled_concerns_no_other(
    root: Path, files: FaultyFiles
) -> None:
    broker = await opened(root, files)
    files.fail("sync", errno.EIO, "poison")
    futures = await begun(broker, [b"a", b"poison", b"b", b"c"])
    futures[2].cancel()
    ends = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(ends[0], MessageId)
    assert isinstance(ends[1], StorageFailed)
    assert isinstance(ends[2], asyncio.CancelledError)
    assert isinstance(ends[3], MessageId)
    bodies = sorted(path.read_bytes() for path in (root / "queues" / "q").iterdir())
    # What was cancelled had begun.
    assert bodies == [b"a", b"b", b"c"]
    assert message_files(root)["new"] == []
    await broker.drain()


async def test_keys_and_delays_are_as_for_one_alone(root: Path, files: FaultyFiles) -> None:
    broker = await opened(root, files)
    keyed = Envelope(key=Key("k"))
    later = Envelope(due_ms=broker.root.now_ms() + 60_000)
    futures = await begun(broker, [b"a", b"k", b"k again", b"later"], [PLAIN, keyed, keyed, later])
    ends = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(each) for each in ends] == [MessageId, MessageId, KeyTaken, MessageId]
    assert len(message_files(root)["delay"]) == 1
    await broker.drain()


async def test_a_queue_that_is_gone_is_an_error_of_each(root: Path, files: FaultyFiles) -> None:
    broker = await opened(root, files)
    queue = await broker.queue(QUEUE)
    (root / "queues" / "q").rename(root / "away")
    futures = [broker.publisher.begin(queue, b"x", PLAIN, None) for _ in range(3)]
    ends = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(each) for each in ends] == [QueueNotFound] * 3
    assert message_files(root)["new"] == []
    await broker.drain()
