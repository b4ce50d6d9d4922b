"""Sweeping one message that is overdue: what moves, what stays."""

import errno
import fcntl
from pathlib import Path

import pytest
from harness.faults import FlushedInCalls
from harness.leases import QUEUE, LeasingRoot
from harness.messages import new_id, put_file

from mq.model.errors import Busy, SidelineMissing
from mq.model.lifecycle import State
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.store.disk.flush import FsyncFlusher
from mq.store.format.layout import Place
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue
from mq.store.operations.redeliver import Redelivery, Swept, Timer, redeliver, sweep_overdue

SIDELINE = QUEUE.sideline()


@pytest.fixture
def files() -> FlushedInCalls:
    return FlushedInCalls()


@pytest.fixture
def place(root: Path, files: FlushedInCalls) -> LeasingRoot:
    place = LeasingRoot(root, files=files, flusher=FsyncFlusher(files, 1))
    place.run(create_queue(place.root, SIDELINE))
    return place


def delayed(place: LeasingRoot, queue: QueueName) -> MessageId:
    message_id = new_id()
    name = f"{queue.text}:{message_id.text}"
    put_file(place.top / "delay" / name, b"body", place.clock.now_ms() - 10**6, receives=5)
    return message_id


def swept(
    place: LeasingRoot, queue: QueueName, message_id: MessageId, *, is_overdue: bool = True
) -> Swept:
    result: Swept = place.run(
        sweep_overdue(
            place.root, Place(State.DELAYED, queue, message_id), lambda status: is_overdue
        )
    )
    return result


def lies(place: LeasingRoot, message_id: MessageId) -> list[str]:
    found = place.top.rglob(f"*{message_id.text}")
    return [str(path.relative_to(place.top)).replace(message_id.text, "") for path in found]


@pytest.mark.parametrize(
    ("queue", "expected"), [(QUEUE, Swept.SIDELINED), (SIDELINE, Swept.RETURNED)], ids=str
)
def test_it_is_ready_in_the_sideline_now(
    place: LeasingRoot, queue: QueueName, expected: Swept
) -> None:
    message_id = delayed(place, queue)
    assert swept(place, queue, message_id) is expected
    there = Path(place.root.layout.path(State.READY, SIDELINE, message_id))
    stamp = Stamp.from_mtime_ns(there.stat().st_mtime_ns)
    assert stamp == Stamp(place.clock.now_ms(), 5, Reason.SWEPT)
    assert lies(place, message_id) == [f"queues/{SIDELINE.text}/"]


@pytest.mark.parametrize("queue", [QUEUE, SIDELINE], ids=str)
def test_what_is_not_overdue_any_more_stays(place: LeasingRoot, queue: QueueName) -> None:
    message_id = delayed(place, queue)
    assert swept(place, queue, message_id, is_overdue=False) is Swept.STAYS
    assert lies(place, message_id) == [f"delay/{queue.text}:"]


def test_one_whose_queue_is_not_there_stays(place: LeasingRoot) -> None:
    nowhere = QueueName("nowhere")
    message_id = delayed(place, nowhere)
    assert swept(place, nowhere, message_id) is Swept.STAYS
    assert lies(place, message_id) == ["delay/nowhere:"]


@pytest.mark.parametrize("queue", [QUEUE, SIDELINE], ids=str)
def test_what_is_purged_stays_for_the_purge(place: LeasingRoot, queue: QueueName) -> None:
    message_id = delayed(place, queue)
    place.run(purge(place.root, queue, place.clock.now_ms() + 10_000))
    assert swept(place, queue, message_id) is Swept.STAYS
    assert lies(place, message_id) == [f"delay/{queue.text}:"]


@pytest.mark.parametrize("queue", [QUEUE, SIDELINE], ids=str)
def test_one_that_another_is_at_stays(place: LeasingRoot, queue: QueueName) -> None:
    message_id = delayed(place, queue)
    path = place.top / "delay" / f"{queue.text}:{message_id.text}"
    with path.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert swept(place, queue, message_id) is Swept.STAYS
    path.unlink()
    assert swept(place, queue, message_id) is Swept.STAYS


def test_a_missing_sideline_is_made(place: LeasingRoot) -> None:
    (place.top / "queues" / SIDELINE.text).rmdir()
    message_id = delayed(place, QUEUE)
    assert swept(place, QUEUE, message_id) is Swept.SIDELINED
    assert lies(place, message_id) == [f"queues/{SIDELINE.text}/"]


def test_one_whose_sideline_cannot_be_made_stays(place: LeasingRoot) -> None:
    folder = place.top / "queues" / SIDELINE.text
    folder.rmdir()
    folder.write_bytes(b"a file of that name")
    message_id = delayed(place, QUEUE)
    with pytest.raises(SidelineMissing):
        swept(place, QUEUE, message_id)
    assert lies(place, message_id) == [f"delay/{QUEUE.text}:"]


@pytest.mark.parametrize("queue", [QUEUE, SIDELINE], ids=str)
def test_a_reply_that_a_mount_loses_is_busy_and_the_next_finds_it_done(
    place: LeasingRoot, files: FlushedInCalls, queue: QueueName
) -> None:
    message_id = delayed(place, queue)
    real = files.rename

    def rename(source: str, target: str) -> None:
        real(source, target)
        raise OSError(errno.ENOENT, "the reply is lost", source)

    files.rename = rename  # type: ignore[method-assign]
    with pytest.raises(Busy):
        swept(place, queue, message_id)
    files.rename = real  # type: ignore[method-assign]
    assert lies(place, message_id) == [f"queues/{SIDELINE.text}/"]
    assert swept(place, queue, message_id) is Swept.STAYS


def test_what_is_gone_by_its_rename_is_another_s(place: LeasingRoot, files: FlushedInCalls) -> None:
    """Or a mount has renamed it, and lost the answer."""
    message_id = delayed(place, QUEUE)
    files.fail("rename", errno.ENOENT, message_id.text, times=1, performed=True)
    moved = place.run(redeliver(place.root, QUEUE, message_id, Timer()))
    assert moved == (Redelivery.LOST, 0)
