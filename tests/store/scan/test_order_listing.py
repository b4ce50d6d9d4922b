"""Looking into folders: order, bounds, and what an unchanged folder says."""

import os
from pathlib import Path

import pytest
from harness.clock import FakeClock

from mq.model.errors import QueueNotFound
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.store.scan.census import Census, count
from mq.store.scan.order import FolderMark, list_ready

QUEUE = QueueName.parse("orders")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opened(tmp_path: Path, clock: FakeClock) -> Root:
    root = open_root(str(tmp_path), Files(), clock)
    (tmp_path / "queues" / "orders").mkdir()
    return root


def put(folder: Path, *names: str, prefix: str = "", stamp: Stamp | None = None) -> None:
    for name in names:
        path = folder / f"{prefix}{name}"
        path.write_bytes(b"x")
        if stamp is not None:
            os.utime(path, ns=(stamp.mtime_ns(), stamp.mtime_ns()))


def name(count: int, more: str = "") -> str:
    return f"0192f3a2-7c4e-7{count:03x}-9b1e-0123456789ab{more}"


def test_ready_messages_by_priority_then_publish_time(opened: Root, tmp_path: Path) -> None:
    put(tmp_path / "queues" / "orders", name(3), name(1, ".json"), name(9, ",p=4"), name(2))
    listing = list_ready(opened, QUEUE, limit=10)
    assert listing is not None
    assert [found.text for found in listing.ids] == [
        name(9, ",p=4"), name(1, ".json"), name(2), name(3),
    ]  # fmt: skip
    assert listing.complete


def test_no_more_than_the_limit_and_then_it_is_not_all(opened: Root, tmp_path: Path) -> None:
    put(tmp_path / "queues" / "orders", *(name(count) for count in range(20)))
    listing = list_ready(opened, QUEUE, limit=5)
    assert listing is not None
    assert [found.text for found in listing.ids] == [name(count) for count in range(5)]
    assert not listing.complete


def test_what_is_no_message_is_left_out(opened: Root, tmp_path: Path) -> None:
    folder = tmp_path / "queues" / "orders"
    put(folder, "README", ".hidden", name(1) + "~")
    (folder / name(2)).mkdir()
    (folder / name(3)).symlink_to("/etc/hostname")
    os.mkfifo(folder / name(4))
    listing = list_ready(opened, QUEUE, limit=10)
    assert listing is not None
    assert listing.ids == []
    assert count(Census(opened), QUEUE).foreign == 6


def test_a_missing_queue(opened: Root) -> None:
    with pytest.raises(QueueNotFound):
        list_ready(opened, QueueName.parse("other"), limit=1)
    with pytest.raises(QueueNotFound):
        count(Census(opened), QueueName.parse("other"))


def test_a_folder_s_mtime_is_trusted_only_when_it_is_old(
    opened: Root, tmp_path: Path, clock: FakeClock
) -> None:
    listing = list_ready(opened, QUEUE, limit=1)
    assert listing is not None
    assert not listing.mark.trusted
    assert list_ready(opened, QUEUE, limit=1, known=listing.mark) is not None
    clock.advance(5)
    listing = list_ready(opened, QUEUE, limit=1)
    assert listing is not None
    assert listing.mark.trusted
    assert list_ready(opened, QUEUE, limit=1, known=listing.mark) is None
    put(tmp_path / "queues" / "orders", name(1))
    assert list_ready(opened, QUEUE, limit=1, known=listing.mark) is not None
    assert (
        list_ready(
            opened,
            QUEUE,
            limit=1,
            known=FolderMark(((str(tmp_path / "queues" / "orders"), 0),), True),
        )
        is not None
    )


def test_counts_by_state(opened: Root, tmp_path: Path, clock: FakeClock) -> None:
    put(tmp_path / "queues" / "orders", name(1), name(2))
    put(tmp_path / "delay", name(3), prefix="orders:", stamp=Stamp(clock.now_ms(), receives=2))
    put(tmp_path / "delay", name(4), prefix="orders:", stamp=Stamp(clock.now_ms()))
    put(tmp_path / "delay", name(5), prefix="orders2:")
    long_due = Stamp(clock.now_ms() - 60_000, receives=1)
    put(tmp_path / "delay", name(10), prefix="orders:", stamp=long_due)
    put(tmp_path / "remove", name(6), name(7), name(8), prefix="orders:")
    (tmp_path / "queues" / "orders_SIDELINE").mkdir()
    put(tmp_path / "queues" / "orders_SIDELINE", name(9))
    counts = count(Census(opened), QUEUE)
    assert (counts.ready, counts.in_flight, counts.delayed, counts.overdue) == (2, 2, 1, 1)
    assert (counts.removed, counts.sidelined, counts.foreign) == (3, 1, 0)
    assert counts.oldest_ready_ms == MessageId.parse(name(1)).published_ms
