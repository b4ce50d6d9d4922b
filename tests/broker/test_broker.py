"""Concurrency shards: a peer begins at its own, and none waits for ever. Uploads whose publisher
goes just as they begin.
"""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files
from harness.messages import new_id, put_file
from harness.waiting import comes_true

from mq.broker.broker import Broker
from mq.broker.scanning import LOOKS_PER_SHARD
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.settings import QueueSettings
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import shard_of
from mq.store.opening import open_root
from mq.store.operations.queues import WantedShape, create_queue, delete_queue

QUEUE = QueueName.parse("q")
SHARDS = 4


def put(root: Root, shard: int) -> str:
    """A ready message of the shard, as another process publishes one."""
    message_id = new_id()
    while shard_of(message_id.text, SHARDS) != shard:
        message_id = new_id()
    put_file(Path(root.layout.queue(QUEUE), message_id.text), b"x", root.now_ms())
    return message_id.text


async def fetched(tmp_path: Path, own: int, count: int) -> list[MessageId]:
    """What one peer fetches, a look each, while more comes to its own shard than it takes; one
    message of each other shard was there before.
    """
    clock = FakeClock()
    root = open_root(str(tmp_path), Files(), clock)
    broker = Broker(
        root, Committer(NoFlusher()), QueueSettings(), 1, random.Random(1), peer_index=own
    )
    await broker.create_queue(QUEUE, WantedShape(shards=SHARDS))
    for shard in range(SHARDS):
        put(root, shard)
    found = []
    for _ in range(count):
        for _ in range(3):
            put(root, own)
        clock.advance(5)
        delivery = await broker.consuming.fetch(QUEUE)
        assert delivery is not None
        found.append(delivery.id)
    await broker.drain()
    return found


async def test_a_peer_begins_at_its_own_shard(tmp_path: Path) -> None:
    for own in range(SHARDS):
        found = await fetched(tmp_path / str(own), own, 2 * LOOKS_PER_SHARD)
        shards = [shard_of(each.text, SHARDS) for each in found]
        assert shards.count(own) >= len(shards) - 2


async def test_no_shard_waits_for_ever_behind_one_that_never_empties(tmp_path: Path) -> None:
    found = await fetched(tmp_path, 0, 2 * SHARDS * LOOKS_PER_SHARD)
    assert {shard_of(each.text, SHARDS) for each in found} == set(range(SHARDS))


@pytest.mark.parametrize("turns", range(4))
async def test_nothing_stays_open_of_an_upload_that_just_began(tmp_path: Path, turns: int) -> None:
    """`turns`: of the loop, between the file's opening and the end of whoever asked for it."""
    files = FaultyFiles()
    broker = Broker(
        open_root(str(tmp_path), files, FakeClock()), Committer(NoFlusher()), QueueSettings()
    )
    await broker.create_queue(QUEUE)
    gate = files.hold("create", "/new/")
    asking = asyncio.create_task(broker.upload(QUEUE))
    await comes_true(gate.reached.is_set)
    others = asyncio.all_tasks() - {asking, asyncio.current_task()}
    [staging] = [each for each in others if "call" in repr(each.get_coro())]
    gate.open()
    await asyncio.wait([staging])
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    try:
        upload = await asking
    except asyncio.CancelledError:
        pass
    else:
        await upload.abort()
    await broker.drain()
    assert not files.open_paths("/new/")
    assert message_files(tmp_path)["new"] == []


class Deleting(Files):
    """Lets the queue be deleted before the second look at its folder."""

    def __init__(self, delete: Callable[[], None]) -> None:
        super().__init__()
        self._delete = delete
        self._looks = 0

    def status(self, path: str) -> os.stat_result | None:
        if path.endswith(f"/queues/{QUEUE}"):
            self._looks += 1
            if self._looks == 2:
                self._delete()
        return super().status(path)


@pytest.mark.certificate
async def test_a_queue_is_made_that_is_deleted_while_it_is_made(tmp_path: Path) -> None:
    other = open_root(str(tmp_path), Files(), FakeClock())
    shaped, uuid = WantedShape(7), UuidSource(FakeClock()).next()
    run_alone(create_queue(other, QUEUE, shaped), NoFlusher())

    def delete() -> None:
        run_alone(delete_queue(other, QUEUE, uuid), NoFlusher())

    root = open_root(str(tmp_path), Deleting(delete), FakeClock())
    broker = Broker(root, Committer(NoFlusher()), QueueSettings())
    assert await broker.create_queue(QUEUE, shaped)
    assert root.facts.shape_now(QUEUE) == shaped.shape()
    await broker.drain()
