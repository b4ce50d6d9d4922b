"""All that somebody had who is gone goes back at once."""

from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import message_files

from mq.broker.broker import Broker
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.message import Delivery
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.commit import Committer
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root

QUEUES = [QueueName.parse(name) for name in ("a", "b", "gone")]


class Flushed(FaultyFiles):
    """Flushes nothing, and says what it would have."""

    def sync(self, descriptor: int) -> None:
        self._pass("sync", self._path(descriptor))

    def sync_folder(self, path: str) -> None:
        self._pass("sync_folder", path)


async def a_broker(top: Path, files: FaultyFiles) -> Broker:
    root = open_root(str(top), files, FakeClock())
    broker = Broker(root, Committer(FsyncFlusher(files, 1)), QueueSettings())
    for queue in QUEUES:
        await broker.create_queue(queue)
    return broker


async def fetched(broker: Broker, queue: QueueName, count: int, size: int = 1) -> list[Delivery]:
    deliveries = []
    for _ in range(count):
        await broker.publish(queue, b"x" * size)
        delivery = await broker.consuming.fetch(queue)
        assert delivery is not None
        deliveries.append(delivery)
    return deliveries


@pytest.mark.certificate
async def test_a_thousand_of_two_queues_take_few_flushes(tmp_path: Path) -> None:
    files = Flushed()
    broker = await a_broker(tmp_path, files)
    of = {queue: await fetched(broker, queue, 500) for queue in QUEUES[:2]}
    before, files_before = files.count("sync_folder"), files.count("sync")
    await broker.begin_release([*of[QUEUES[0]], *of[QUEUES[1]]])
    assert files.count("sync_folder") - before <= 16
    assert files.count("sync") == files_before, "in a queue a due time means nothing"
    for queue, deliveries in of.items():
        known = broker.used(queue.text)
        assert known is not None
        assert known.totals.released == 500
        # Each comes again, in its order, and no look is needed for it.
        again = [await broker.consuming.fetch(queue) for _ in range(3)]
        assert [each and (each.id, each.stamp.receives) for each in again] == [
            (each.id, 2) for each in deliveries[:3]
        ]
    await broker.drain()


async def test_nothing_stays_open_and_one_queue_s_end_is_its_own(tmp_path: Path) -> None:
    files = Flushed()
    broker = await a_broker(tmp_path, files)
    large = await fetched(broker, QUEUES[0], 2, BODY_HELD_BYTES_MAX + 1)
    lost = await fetched(broker, QUEUES[2], 2)
    await broker.delete_queue(QUEUES[2])
    # To the end, though nothing waits for it.
    broker.begin_release([*lost, *large])
    await broker.drain()
    assert message_files(tmp_path)["queues"] == sorted(f"a:{each.id.text}" for each in large)
    assert not files.open_paths(":")


async def test_what_fails_comes_back_by_itself(tmp_path: Path) -> None:
    files = Flushed()
    broker = await a_broker(tmp_path, files)
    deliveries = await fetched(broker, QUEUES[0], 3)
    files.fail("rename", 5, "/delay/")
    await broker.begin_release(deliveries)
    assert len(message_files(tmp_path)["delay"]) == 3
    await broker.drain()
