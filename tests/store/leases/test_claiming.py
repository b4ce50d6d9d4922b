"""The lock on a message's inode: what it keeps out, how long, and when it is not believed."""

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.messages import new_id, put_entry, put_file
from harness.processes import PATIENCE_S

from mq.model.clock import SystemClock
from mq.model.errors import Busy
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import claimed_path
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher, NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.fetch import fetch
from mq.store.operations.queues import create_queue
from mq.store.operations.redeliver import Redelivery, Timer, redeliver

ORDERS = QueueName.parse("orders")


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def opened(root: Path, files: FaultyFiles) -> Root:
    made = open_root(str(root), files, SystemClock())
    (root / "queues" / "orders").mkdir()
    return made


@pytest.fixture
def ready(root: Path, opened: Root) -> MessageId:
    """A message in the queue."""
    message_id = new_id()
    put_file(root / "queues" / "orders" / message_id.text, b"body", due_ms=1_000)
    return message_id


@pytest.fixture
def flusher(files: FaultyFiles) -> Iterator[FsyncFlusher]:
    made = FsyncFlusher(files, 1)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("call", "where"), [("stamp", "queues/orders"), ("sync", ""), ("sync_folder", "/delay")]
)
def test_a_claim_is_kept_until_it_is_stamped_and_flushed(
    root: Path,
    opened: Root,
    files: FaultyFiles,
    ready: MessageId,
    flusher: FsyncFlusher,
    call: str,
    where: str,
) -> None:
    """Or a mover would take a claim that is not stamped yet for an old one, and give it away."""
    gate = files.hold(call, where)
    other = open_root(str(root.parent / "root"), Files(), SystemClock())
    with ThreadPoolExecutor(1) as thread:
        claiming = thread.submit(run_alone, fetch(opened, ORDERS, ready, 60), flusher)
        assert gate.reached.wait(PATIENCE_S)
        moved = run_alone(
            redeliver(other, ORDERS, ready, Timer(lain_s=0)), FsyncFlusher(Files(), 1)
        )
        gate.open()
        delivery = claiming.result(PATIENCE_S)
    assert moved == (Redelivery.LOST, 0)
    assert delivery is not None
    assert delivery.stamp.receives == 1


def test_a_deleted_queue_is_not_made_again_over_a_message_that_is_hidden(root: Path) -> None:
    """As by a network mount's cache: it is listed, and no look by its name finds it."""

    class HidingFiles(Files):
        hides = True

        def open_claimed(self, path: str) -> int:
            if self.hides and "/delay/" in path:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return super().open_claimed(path)

        def status(self, path: str) -> os.stat_result | None:
            return None if self.hides and "/delay/" in path else super().status(path)

    files = HidingFiles()
    opened = open_root(str(root), files, SystemClock())
    put_file(root / "deleted" / "orders")
    hidden = put_entry(root / "delay", "orders", due_ms=1_000)
    with pytest.raises(Busy):
        run_alone(create_queue(opened, ORDERS), NoFlusher())
    files.hides = False
    assert run_alone(create_queue(opened, ORDERS), NoFlusher())
    assert not hidden.exists()


def test_a_lock_on_a_file_that_lost_its_name_is_no_claim(root: Path) -> None:
    class RenamingFiles(Files):
        """Another file has the name before the lock is taken."""

        def lock(self, descriptor: int) -> bool:
            os.rename(root / "other", path)
            return super().lock(descriptor)

    opened = open_root(str(root), RenamingFiles(), SystemClock())
    (root / "queues" / "orders").mkdir()
    path = put_file(root / "queues" / "orders" / new_id().text, b"first")
    put_file(root / "other", b"second")
    with claimed_path(opened, str(path)) as claim:
        assert claim is None
    assert path.read_bytes() == b"second"
